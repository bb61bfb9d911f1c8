/* Simulations and runs of servers side by side, from the folders that they left. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COMPARE_COMPARE_H
#define FEDGE_AGGREGATOR_SIMULATE_COMPARE_COMPARE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "edge/core/status.h"

typedef struct fedge_compare_request {
    const char *const *dirs;
    uint32_t num_dirs;
    bool each;            /* runs that differ in their seeds only are not put together */
    bool json;            /* summaries, a line for each folder with "dir" added, in place of rows */
    const char *svg_path; /* ends in .svg; NULL: no picture */
} fedge_compare_request;

/* Prints a row for each of the folders, a simulation's or a server's STATE/runs/RUN_ID, or of those
 * that differ in their seeds only (the same job.json and simulation.json but for seed and
 * partition_seed) one with mean and sample standard deviation of those that did not fail; and
 * leaves their accuracy and loss in one picture, and the table as csv beside it. What a sweep
 * leaves beside its runs is passed over. Before anything is printed FEDGE_NOT_FOUND names the
 * folder, and FEDGE_OUT_OF_RANGE says that there are more curves than a picture has;
 * FEDGE_NOT_FOUND and FEDGE_CORRUPT the rounds that cannot be drawn; FEDGE_IO and FEDGE_NO_SPACE
 * when it cannot be written. */
FEDGE_MUST_USE fedge_status fedge_compare(const fedge_compare_request *what, FILE *out,
                                          fedge_error *err);

#endif

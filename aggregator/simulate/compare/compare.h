/* Compares simulations and runs of servers by their folders. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COMPARE_COMPARE_H
#define FEDGE_AGGREGATOR_SIMULATE_COMPARE_COMPARE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "edge/core/status.h"

typedef struct fedge_compare_request {
    const char *const *dirs;
    uint32_t num_dirs;
    bool each;            /* do not group runs that differ only in their seeds */
    bool json;            /* print summaries with "dir" added, a line for each folder, not rows */
    const char *csv_path; /* file for the table; NULL: only print it */
} fedge_compare_request;

/* Prints a row for each folder, a simulation's or a server's STATE/runs/RUN_ID. Runs that differ
 * only in their seeds (the same job.json and simulation.json but for seed and partition_seed) share
 * a row, with mean and sample standard deviation of those that did not fail. Writes the table to
 * csv_path. Skips a sweep's files beside its runs. Before anything is printed
 * FEDGE_NOT_FOUND names a folder without a run; FEDGE_IO and FEDGE_NO_SPACE: the table cannot be
 * written. */
FEDGE_MUST_USE fedge_status fedge_compare(const fedge_compare_request *what, FILE *out,
                                          fedge_error *err);

#endif

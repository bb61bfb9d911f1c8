/* Simulations side by side, from the folders that they left. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COMPARE_H
#define FEDGE_AGGREGATOR_SIMULATE_COMPARE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "edge/core/status.h"

/* For compare --help: fits a screen. */
const char *fedge_compare_help(void);

/* Prints a line for each of the [num_dirs] folders, or with [json] their summaries, a line each
 * with "dir" added. [svg_path]: their accuracy and loss in one picture; NULL: none. Before anything
 * is printed FEDGE_NOT_FOUND names the folder, and FEDGE_OUT_OF_RANGE says that there are more runs
 * than a picture has; FEDGE_NOT_FOUND and FEDGE_CORRUPT the rounds that cannot be drawn; FEDGE_IO
 * and FEDGE_NO_SPACE when it cannot be written. */
FEDGE_MUST_USE fedge_status fedge_compare(const char *const *dirs, uint32_t num_dirs, bool json,
                                          const char *svg_path, FILE *out, fedge_error *err);

#endif

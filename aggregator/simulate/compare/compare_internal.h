/* Internals of compare. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COMPARE_COMPARE_INTERNAL_H
#define FEDGE_AGGREGATOR_SIMULATE_COMPARE_COMPARE_INTERNAL_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "edge/core/status.h"

#define FEDGE_COMPARE_MAX_NAME 512u /* bytes of a group's name */

/* A folder. */
typedef struct compared_run {
    char *dir; /* the argument, without slashes at its end */
    cJSON *summary;
    char *settings;     /* job and settings without seeds; NULL: equal to no other's */
    bool counts;        /* it counts in its group's means: it has not failed, or all have */
    bool has_duplicate; /* compare_groups.c: a similar run has the same seeds */
    int closeness;      /* compare_groups.c: how similar others of its group must be */
    uint32_t group;
} compared_run;

/* Runs that differ in their seeds only: a row of the table. */
typedef struct compared_group {
    char name[FEDGE_COMPARE_MAX_NAME];
    uint32_t first;             /* its first run */
    uint32_t num_runs, counted; /* counted ≥ 1 */
} compared_group;

typedef struct comparison {
    compared_run *runs; /* (num_runs) */
    uint32_t num_runs;
    compared_group *groups; /* (num_groups), sorted by their first runs */
    uint32_t num_groups;
} comparison;

/* compare_groups.c: groups runs that differ only in their seeds, unless [each], and names the
 * groups. Where seeds repeat, groups are within a folder, and where they repeat there too each run
 * is alone: a repeated run is no further sample. of->groups is malloc'ed. */
FEDGE_MUST_USE fedge_status fedge_compare_group(comparison *of, bool each, fedge_error *err);

/* compare_groups.c: the settings that the runs of a group share; malloc'ed. */
FEDGE_MUST_USE fedge_status fedge_compare_settings(const char *dir, char **settings,
                                                   fedge_error *err);

/* compare_groups.c: reads dir/name; *json is NULL on failure. Errors as fedge_json_file_read. */
FEDGE_MUST_USE fedge_status fedge_compare_read(const char *dir, const char *name, size_t max_size,
                                               cJSON **json, fedge_error *err);

#endif

/* What the files of compare share; nobody else includes it. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COMPARE_COMPARE_INTERNAL_H
#define FEDGE_AGGREGATOR_SIMULATE_COMPARE_COMPARE_INTERNAL_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "edge/core/status.h"

#define FEDGE_COMPARE_MAX_NAME 512u /* bytes of a group's name, of several runs' */

/* A folder. */
typedef struct compared_run {
    char *dir; /* as it was given, without slashes behind it */
    cJSON *summary;
    char *settings; /* job and settings without their seeds; NULL: it is like no other */
    bool counts;    /* in its group's means: it has not failed, or all have */
    bool has_twin;  /* compare_groups.c: another that is alike has its seeds, too */
    int closeness;  /* likewise: how alike others of its group must be */
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
    compared_group *groups; /* (num_groups), in the order of their first runs */
    uint32_t num_groups;
} comparison;

/* compare_groups.c: puts runs together that differ in their seeds only, unless [each]; names the
 * groups. Where one seed stands twice, those of one folder are together, and where it does there
 * too, none: a run that was repeated is no further sample. of->groups is malloc'ed. */
FEDGE_MUST_USE fedge_status fedge_compare_group(comparison *of, bool each, fedge_error *err);

/* compare_groups.c: what runs of one group have in common; malloc'ed. */
FEDGE_MUST_USE fedge_status fedge_compare_settings(const char *dir, char **settings,
                                                   fedge_error *err);

#endif

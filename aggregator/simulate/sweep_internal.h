/* What the files of a sweep share; nobody else includes it. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_SWEEP_INTERNAL_H
#define FEDGE_AGGREGATOR_SIMULATE_SWEEP_INTERNAL_H

#include "aggregator/simulate/sweep.h"
#include "aggregator/simulate/totals.h"

#define FEDGE_SWEEP_MAX_VALUES 64u /* of one axis */
#define FEDGE_SWEEP_MAX_TEXT 1024u /* of one axis */
#define FEDGE_SWEEP_MAX_NAME 256u  /* of a combination: its folder, as long as names may be */

typedef struct sweep_axis {
    char text[FEDGE_SWEEP_MAX_TEXT]; /* KEY=VALUE,… cut up: key and values point into it */
    const char *key;
    const char *values[FEDGE_SWEEP_MAX_VALUES];
    uint32_t num_values;
} sweep_axis;

/* What came of a run. */
typedef struct sweep_outcome {
    bool done, failed;
    bool begun; /* it got as far as its rounds */
    char why[FEDGE_ERROR_MESSAGE_SIZE];
    fedge_totals totals;
} sweep_outcome;

struct fedge_sweep {
    const fedge_simulate_options *options;
    const char *job_text;
    size_t job_size;
    sweep_axis axes[FEDGE_SIMULATE_MAX_AXES]; /* without seeds */
    uint32_t num_axes;
    uint32_t num_seeds;        /* 0 until they are known */
    uint32_t num_combinations; /* without seeds */
    sweep_outcome *outcomes;   /* num_combinations · num_seeds, seeds innermost */
};

/* sweep.c: the value of an axis in a combination; the last axis changes fastest. */
const char *fedge_sweep_value_of(const fedge_sweep *sweep, uint32_t combination, uint32_t at);

/* sweep.c: "lr=0.1,partition=iid"; returns its bytes, of which FEDGE_SWEEP_MAX_NAME − 1 are
 * written. */
size_t fedge_sweep_name_of(const fedge_sweep *sweep, uint32_t combination,
                           char name[FEDGE_SWEEP_MAX_NAME]);

/* sweep.c: the same as the name of a folder, another for each combination. */
size_t fedge_sweep_folder_of(const fedge_sweep *sweep, uint32_t combination,
                             char folder[FEDGE_SWEEP_MAX_NAME]);

/* sweep.c: the options and the job's text of a combination; *text is malloc'ed. */
FEDGE_MUST_USE fedge_status fedge_sweep_make(const fedge_sweep *sweep, uint32_t combination,
                                             fedge_simulate_options *options, char **text,
                                             fedge_error *err);

/* sweep_run.c: FEDGE_EXISTS when a run's folder is there, unless options->resume; what writing
 * there gives. Makes options->out. */
FEDGE_MUST_USE fedge_status fedge_sweep_check_folders(const fedge_sweep *sweep, fedge_error *err);

#endif

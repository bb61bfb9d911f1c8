/* Internals of a sweep. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_SWEEP_SWEEP_INTERNAL_H
#define FEDGE_AGGREGATOR_SIMULATE_SWEEP_SWEEP_INTERNAL_H

#include "aggregator/simulate/output/run_summary.h"
#include "aggregator/simulate/sweep/sweep.h"
#include "edge/plan/plan.h"

#define FEDGE_SWEEP_MAX_VALUES 64u /* values per axis */
#define FEDGE_SWEEP_MAX_TEXT 1024u /* bytes per axis, with NUL */
#define FEDGE_SWEEP_MAX_NAME 256u  /* bytes of a combination's folder, as long as names may be */

#define FEDGE_SWEEP_MAX_BATCHED 16u /* runs that GPUs train together */

#define FEDGE_SWEEP_MAX_FOLDER (FEDGE_SWEEP_MAX_NAME + 32u) /* bytes of a run's folder */

#define FEDGE_SWEEP_COLUMN "run" /* the first of the table as csv */

/* Advice for a table that has only times. */
#define FEDGE_SWEEP_MEASURE                                                                        \
    "give the job a \"test-set\" or fraction-evaluate, or use --validation-split"

typedef struct sweep_axis {
    char text[FEDGE_SWEEP_MAX_TEXT]; /* KEY=VALUE,… cut up: key and values point into it */
    const char *key;
    const char *values[FEDGE_SWEEP_MAX_VALUES];
    uint32_t num_values;
} sweep_axis;

/* The result of a run. */
typedef struct sweep_outcome {
    bool done, failed;
    bool begun; /* its rounds began */
    char why[FEDGE_ERROR_MESSAGE_SIZE];
    fedge_run_summary run_summary;
} sweep_outcome;

/* One of the runs. */
typedef struct sweep_run {
    uint32_t number; /* 1-based, in the order of running */
    uint32_t combination, seed;
    uint32_t num_threads;               /* ≥ 1 */
    bool alone;                         /* no other run is under way, so it may draw its bar */
    fedge_sim_shared *shared;           /* what concurrent runs share; NULL: none */
    const fedge_collective *collective; /* the ranks that share the run; NULL: alone */
    const char *backend;                /* NULL: the sweep's */
} sweep_run;

/* The callbacks of a run. */
typedef struct sweep_callbacks {
    fedge_cancel_fn cancel;
    void (*begun)(void *user, uint64_t promised); /* called once the run is set up, with the bytes
                                                     that it may still take; may be NULL */
    void *user;                                   /* argument of both callbacks */
} sweep_callbacks;

/* The number of clients of a partition. */
typedef struct sweep_counted {
    const char *partition; /* the options' pointer; NULL: the client file's */
    char data[FEDGE_MAX_DATA_NAME];
    uint32_t clients; /* 0: unknown */
} sweep_counted;

struct fedge_sweep {
    const fedge_simulate_options *options;
    const fedge_collective *collective; /* the ranks that deal the runs; NULL: alone */
    const char *job_text;
    size_t job_size;
    sweep_axis axes[FEDGE_SIMULATE_MAX_AXES]; /* the axes other than seeds */
    uint32_t num_axes;
    uint32_t num_seeds;        /* 0 until they are known */
    uint32_t num_combinations; /* product of the axes' numbers of values */
    sweep_outcome *outcomes;   /* num_combinations · num_seeds, seeds innermost */
    uint32_t *cohorts;         /* (num_combinations): clients that train in a round; 0: unknown */
    bool *shareable;           /* (num_combinations): ranks can share its runs */
    sweep_counted counted[FEDGE_SWEEP_MAX_VALUES];
    uint32_t num_counted;
    uint32_t profiles[FEDGE_SWEEP_MAX_VALUES]; /* numbers of clients whose profiles are valid */
    uint32_t num_profiles;
    const char *backend; /* the runs' backend; "auto": each chooses one, and they take turns */
    char no_gpus[FEDGE_ERROR_MESSAGE_SIZE]; /* why "auto" is the last backend of the table */
    bool has_test_set;                      /* its files exist */
    bool uses_plugin;                       /* a run uses all of options->plugin */
    bool is_measured;                       /* a run may have something to evaluate on */
};

/* sweep_axes.c: reads sweep->options->axes. FEDGE_INVALID_ARGUMENT names what is wrong. */
FEDGE_MUST_USE fedge_status fedge_sweep_parse_axes(fedge_sweep *sweep, fedge_error *err);

/* sweep_axes.c: the value of an axis in a combination; the last axis changes fastest. */
const char *fedge_sweep_value_of(const fedge_sweep *sweep, uint32_t combination, uint32_t at);

/* sweep_axes.c: writes "lr=0.1,partition=iid", cut at FEDGE_SWEEP_MAX_NAME − 1 bytes; returns its
 * full length. */
size_t fedge_sweep_name_of(const fedge_sweep *sweep, uint32_t combination,
                           char name[FEDGE_SWEEP_MAX_NAME]);

/* sweep_axes.c: the same as the name of a folder, unique to the combination. */
size_t fedge_sweep_folder_of(const fedge_sweep *sweep, uint32_t combination,
                             char folder[FEDGE_SWEEP_MAX_NAME]);

/* sweep_axes.c: the folder of a run within options->out, "lr=0.1,partition=iid,seed=2". Returns
 * [name].
 */
char *fedge_sweep_folder_name(const fedge_sweep *sweep, uint32_t combination, uint32_t seed,
                              char name[FEDGE_SWEEP_MAX_FOLDER]);

/* sweep_axes.c: the folders of a combination's seeds, "lr=0.1,partition=iid,seed=*". Returns
 * [name]. */
char *fedge_sweep_group_name(const fedge_sweep *sweep, uint32_t combination,
                             char name[FEDGE_SWEEP_MAX_FOLDER]);

/* sweep_axes.c: the options and the job's text of a combination; *text is malloc'ed. */
FEDGE_MUST_USE fedge_status fedge_sweep_make(const fedge_sweep *sweep, uint32_t combination,
                                             fedge_simulate_options *options, char **text,
                                             fedge_error *err);

/* sweep_run.c: does a run. The caller sets to->done and failed (fedge_sweep_end_run). */
FEDGE_MUST_USE fedge_status fedge_sweep_run_one(const fedge_sweep *sweep, const sweep_run *run,
                                                const sweep_callbacks *callbacks, sweep_outcome *to,
                                                fedge_error *err);

/* sweep_run.c: is it a failure of the machine, which would affect other runs too? */
bool fedge_sweep_is_machine_failure(fedge_status status);

/* sweep_run.c: notes the result of a run that has ended, and prints its line unless options->quiet
 * or json. */
void fedge_sweep_end_run(const fedge_sweep *sweep, const sweep_run *run, sweep_outcome *of,
                         fedge_status ended, const fedge_error *why);

/* sweep_pool.c: the threads of one run, where runs go side by side until their cohorts keep
 * [num_threads] busy, at most [max_runs] of them. */
uint32_t fedge_sweep_threads(uint32_t num_threads, uint32_t cohort, uint32_t max_runs);

/* sweep_pool.c: is there memory for another run beside [running]? The first goes alone until [need]
 * is known. usable 0: unknown. */
bool fedge_sweep_has_memory(uint32_t running, uint64_t at_start, uint64_t need, uint64_t usable);

/* sweep_pool.c: how many of the last runs are each done by a group of ranks: those that would leave
 * half of the ranks or more idle. */
uint32_t fedge_sweep_num_shared(uint32_t num_runs, uint32_t num_ranks);

/* sweep_check.c: checks a combination as far as possible without data, and notes its cohort. */
FEDGE_MUST_USE fedge_status fedge_sweep_check(fedge_sweep *sweep, uint32_t combination,
                                              fedge_error *err);

#endif

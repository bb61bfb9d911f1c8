/* One simulation, from its files to its results, as the command line asks for it. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_EXPERIMENT_EXPERIMENT_H
#define FEDGE_AGGREGATOR_SIMULATE_EXPERIMENT_EXPERIMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "aggregator/rounds/progress.h"
#include "aggregator/simulate/cohort/client_data.h"
#include "aggregator/simulate/cohort/trainer_process.h"
#include "aggregator/simulate/experiment/options.h"
#include "aggregator/simulate/output/results.h"
#include "aggregator/simulate/run/simulation.h"
#include "edge/core/status.h"
#include "edge/site/site.h"

typedef struct fedge_experiment_config {
    const fedge_simulate_options *options; /* outlives the experiment */
    const char *job_text;                  /* the job's bytes; options->job names them */
    size_t job_size;
    const fedge_collective *collective; /* the ranks that share it; NULL: alone */
    const char *out; /* the folder, set on rank 0 only; NULL: nothing is written */
    bool summary;    /* the last model is evaluated in detail, for a summary */
    FILE *progress;  /* a line per phase, and a bar on a terminal; NULL: silence */
    const char *run; /* "run 2 of 6" of a sweep: shows only the bar, with this; NULL: alone */
    fedge_sim_shared *shared; /* what the runs of a sweep share; NULL: none */
    const fedge_log *log;     /* receives choices and their reasons; may be NULL */
    bool resume;              /* continues the simulation in [out], if there is one */
    fedge_cancel_fn cancel;   /* asked between steps of training; may be NULL */
    void *cancel_user;
} fedge_experiment_config;

/* Its parts, in the order in which they are made. */
typedef struct fedge_experiment {
    fedge_experiment_config config;
    fedge_job *job;
    bool uses_plugin; /* the job uses all of options->plugin, or there is none */
    fedge_site *site;
    fedge_site_data data; /* the job's, with the command line's partition */
    fedge_simulation_settings settings;
    fedge_dataset *test_set;   /* NULL: the job has none, or not on this rank */
    fedge_placement placement; /* the ranks that have the data */
    fedge_client_data *client_data;
    fedge_client_profiles *profiles; /* NULL: time is not virtual */
    fedge_replay replay;             /* the contents of options->replay; all 0: none */
    fedge_trainers trainers;         /* the user's own; all 0: none */
    fedge_simulation *simulation;
    fedge_results results;
    fedge_final_evaluation final_evaluation; /* set after a complete run with config.summary */
    fedge_progress progress;                 /* out is NULL: not wanted */
    const char *ending; /* how the run ended: "complete", "target", "interrupted", "failed" */
    char resume_note[FEDGE_RESULTS_MAX_NOTE]; /* fedge_results_describe's text after a failed run */
    uint64_t started_ms, drawn_ms;
    uint32_t resumed_at;       /* rounds that were done before */
    uint64_t clients_at_start; /* clients that were trained before */
} fedge_experiment;

/* Loads options->strategy_plugin, if there is one, and sets options->plugin. *plugin must outlive
 * all experiments with these options; the caller frees it with fedge_plugin_free. Errors as
 * fedge_plugin_load. */
FEDGE_MUST_USE fedge_status fedge_experiment_load_plugin(fedge_simulate_options *options,
                                                         struct fedge_plugin **plugin,
                                                         fedge_error *err);

/* Checks what needs no data: the job parses and goes with the options (a target needs a loss that
 * has an accuracy), and the client file names its data, their division and the number of clients.
 * Sets experiment->job and data only, so it cannot run. */
FEDGE_MUST_USE fedge_status fedge_experiment_check(fedge_experiment *experiment,
                                                   const fedge_experiment_config *config,
                                                   fedge_error *err);

/* Loads job and data, divides them, takes all memory, opens the folder. The experiment must not be
 * moved afterwards. All ranks call it, and it fails on all when it fails on one. FEDGE_MISMATCH:
 * ranks have different programs, jobs, data or accumulators. */
FEDGE_MUST_USE fedge_status fedge_experiment_init(fedge_experiment *experiment,
                                                  const fedge_experiment_config *config,
                                                  fedge_error *err);
/* Call it also after a check or a failed init. */
void fedge_experiment_fini(fedge_experiment *experiment);

/* On rank 0: runs it, with options->stop_at_target until all targets are reached, and writes the
 * results. FEDGE_CANCELLED: it was interrupted, perhaps in the last evaluation; the results are
 * those until then, and --resume continues. After any other failure the folder has the rounds
 * before, with curves and summary, and a checkpoint of the last of them where possible
 * (fedge_results_fail); experiment->resume_note describes them.
 *
 * On the other ranks: works until rank 0 calls fedge_experiment_fini. After a failure rank 0 would
 * wait for this rank: call fedge_collective_abort. */
FEDGE_MUST_USE fedge_status fedge_experiment_run(fedge_experiment *experiment, fedge_error *err);

#endif

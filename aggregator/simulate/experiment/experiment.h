/* One simulation, from its files to its results: what the command line asks for, once. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_EXPERIMENT_EXPERIMENT_H
#define FEDGE_AGGREGATOR_SIMULATE_EXPERIMENT_EXPERIMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "aggregator/rounds/progress.h"
#include "aggregator/simulate/cohort/client_data.h"
#include "aggregator/simulate/experiment/options.h"
#include "aggregator/simulate/output/results.h"
#include "aggregator/simulate/run/simulation.h"
#include "edge/core/status.h"
#include "edge/site/site.h"

typedef struct fedge_experiment_config {
    const fedge_simulate_options *options; /* outlives the experiment */
    const char *job_text;                  /* the job's bytes; options->job names them */
    size_t job_size;
    const fedge_collective *collective; /* of the ranks that share it; NULL: alone */
    const char *out;                    /* the folder; NULL: nothing is written; of rank 0 only */
    bool summary;                       /* the last model is looked at closely, for a summary */
    FILE *progress;           /* a line per phase, and a bar if it is a terminal; NULL: silence */
    const char *run;          /* "run 2 of 6", of a sweep: the bar alone, with this; NULL: alone */
    fedge_sim_shared *shared; /* of a sweep's runs; NULL: none */
    const fedge_log *log;     /* of what is chosen, and why; may be NULL */
    bool resume;              /* goes on with what is in [out], if there is a simulation */
    fedge_cancel_fn cancel;   /* asked between steps of training; may be NULL */
    void *cancel_user;
} fedge_experiment_config;

/* All that it is made of, in the order in which it is made. */
typedef struct fedge_experiment {
    fedge_experiment_config config;
    fedge_job *job;
    bool uses_plugin; /* all that options->plugin offers, or there is none */
    fedge_site *site;
    fedge_site_data data; /* the job's, with the command line's partition */
    fedge_simulation_settings settings;
    fedge_dataset *test_set;   /* NULL: the job has none, or not on this rank */
    fedge_placement placement; /* of the data on the ranks */
    fedge_client_data *client_data;
    fedge_client_profiles *profiles; /* NULL: time is not virtual */
    fedge_replay replay;             /* of options->replay; all 0: none */
    fedge_simulation *simulation;
    fedge_results results;
    fedge_final_evaluation
        final_evaluation;    /* of the last model, when it was wanted and the run is complete */
    fedge_progress progress; /* out is NULL: not wanted */
    const char *ending;      /* of a run: "complete", "target", "interrupted", "failed" */
    char kept[FEDGE_RESULTS_KEPT]; /* after a run that failed: what its folder has, for people */
    uint64_t started_ms, drawn_ms;
    uint32_t resumed_at;       /* rounds that were done before */
    uint64_t clients_at_start; /* likewise */
} fedge_experiment;

/* Loads options->strategy_plugin, if there is one, and sets options->plugin. *plugin outlives all
 * experiments with these options. Errors as fedge_plugin_load. */
FEDGE_MUST_USE fedge_status fedge_experiment_load_plugin(fedge_simulate_options *options,
                                                         struct fedge_plugin **plugin,
                                                         fedge_error *err);
void fedge_experiment_free_plugin(struct fedge_plugin *plugin); /* NULL is fine */

/* What can be said without the data: the job parses and goes with the options (a target wants a
 * loss that has an accuracy), the client's file names its data and how they are divided,
 * and among how many. experiment->job and data are there then, and nothing else: it cannot run. */
FEDGE_MUST_USE fedge_status fedge_experiment_check(fedge_experiment *experiment,
                                                   const fedge_experiment_config *config,
                                                   fedge_error *err);

/* Loads job and data, divides them, takes all memory, opens the folder. Not to be moved after. On
 * several ranks all call it, and it fails on all alike when it fails on one, or when they have
 * different programs, jobs, data or accumulators: FEDGE_MISMATCH. */
FEDGE_MUST_USE fedge_status fedge_experiment_init(fedge_experiment *experiment,
                                                  const fedge_experiment_config *config,
                                                  fedge_error *err);
void fedge_experiment_fini(fedge_experiment *experiment); /* also after a check or a failed init */

/* On any rank but 0: does its share until rank 0 calls fedge_experiment_fini, which ends it there.
 * A failure is one that rank 0 would wait for: fedge_collective_abort.
 *
 * Runs it, with options->stop_at_target until all targets are reached, and writes the results.
 * FEDGE_CANCELLED when it was interrupted, in the last evaluation too: the results are those until
 * then, and --resume does the rest. After any other failure the folder has the rounds before, with
 * curves and summary, and a checkpoint of the last of them where that can be had
 * (fedge_results_fail): experiment->kept says what. */
FEDGE_MUST_USE fedge_status fedge_experiment_run(fedge_experiment *experiment, fedge_error *err);

#endif

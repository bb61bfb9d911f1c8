/* A simulation in numbers: sums over its rounds, and what papers report of a curve. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_OUTPUT_RUN_SUMMARY_H
#define FEDGE_AGGREGATOR_SIMULATE_OUTPUT_RUN_SUMMARY_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/round_summary.h"
#include "aggregator/rounds/selection.h"
#include "aggregator/simulate/run/final_evaluation.h"
#include "aggregator/simulate/time/client_profiles.h"
#include "edge/core/status.h"
#include "edge/data/partitions/partition.h"
#include "edge/plan/plan.h"

#define FEDGE_RUN_SUMMARY_MAX_TARGETS 16
#define FEDGE_RUN_SUMMARY_LAST 10 /* accuracies in the mean of the last ones */

/* What distinguishes one simulation of a job from another. Plain data. */
typedef struct fedge_simulation_settings {
    uint64_t seed;
    uint32_t num_clients;
    char partition[FEDGE_PARTITION_MAX_TEXT]; /* "dirichlet:0.5" */
    uint64_t partition_seed;
    double validation_fraction; /* fraction that each client holds out */
    double validation_split;    /* fraction of all examples, set apart before they are divided */
    uint32_t num_validation;    /* examples set apart, by the split or a partition file */
    uint32_t num_rounds;
    uint32_t evaluate_every; /* rounds from one evaluation to the next */
    bool draws_ties;         /* the order of results at the same time matters, and is random */
    /* fedge_dataset_crc32 of the data of a run that writes into a folder. */
    bool has_data_sum, has_test_sum;
    uint32_t data_sum, test_sum;
    const char *attack;  /* text of --attack; NULL: none */
    const char *backend; /* NULL: the CPU */
    fedge_client_profiles_settings profiles;
} fedge_simulation_settings;

/* The evaluations of the global model on one set. */
typedef struct fedge_run_summary_curve {
    double loss, accuracy;               /* the last; NaN: none yet, or a loss without accuracy */
    double best;                         /* the highest accuracy; NaN: none yet */
    uint32_t best_round;                 /* the first that reached it */
    double last[FEDGE_RUN_SUMMARY_LAST]; /* the last accuracies, a ring */
    uint32_t num_accuracies;
} fedge_run_summary_curve;

/* Begins with fedge_run_summary_init. */
typedef struct fedge_run_summary {
    uint32_t rounds;            /* closed */
    uint64_t clients, examples; /* trained, over all rounds */
    uint64_t bytes_up, bytes_down;
    uint64_t clamped;                    /* values of updates that were clamped to their bounds */
    double seconds;                      /* sum over all phases */
    double client_loss, client_accuracy; /* last evaluation on clients; NaN: none yet */
    fedge_run_summary_curve test, validation;
    double test_at_best; /* test accuracy in the round that validation would choose; NaN: none */
    uint32_t num_targets;
    double targets[FEDGE_RUN_SUMMARY_MAX_TARGETS]; /* accuracies to reach, in (0, 1] */
    /* The round in which the highest accuracy so far reaches the target, on a curve that is linear
     * between evaluations, as in McMahan et al. 2017; NaN: not reached. On the test set, or without
     * one on the examples for validation. */
    double reached[FEDGE_RUN_SUMMARY_MAX_TARGETS];
    uint32_t evaluated; /* round of the last evaluation */
    bool has_virtual_time;
    double virtual_time; /* seconds at the end of the last phase */
    bool trained_last;   /* the last phase was a training */
    /* Training tasks by the clients' speed of computing, the slowest quarter first. */
    uint64_t asked_by_speed[FEDGE_SPEED_QUANTILES], reported_by_speed[FEDGE_SPEED_QUANTILES];
    char model[FEDGE_HASH_TEXT];
    fedge_selection selection; /* the best round, and whether to stop */
    bool is_best;              /* the model of the last phase's round is the best so far */
} fedge_run_summary;

void fedge_run_summary_init(fedge_run_summary *run_summary, const double *targets,
                            uint32_t num_targets);

/* Adds a phase that has ended. */
void fedge_run_summary_add(fedge_run_summary *run_summary, const fedge_round_summary *summary);
/* Adds the lines of a rounds.jsonl. Errors as fedge_round_lines_read. */
FEDGE_MUST_USE fedge_status fedge_run_summary_read(fedge_run_summary *run_summary, const char *path,
                                                   fedge_error *err);

/* Has every target been reached? True without any. */
bool fedge_run_summary_all_reached(const fedge_run_summary *run_summary);

/* The mean of the last FEDGE_RUN_SUMMARY_LAST accuracies, or of all when there are fewer; NaN
 * without any. */
double fedge_run_summary_last_mean(const fedge_run_summary_curve *curve);

/* Writes settings and numbers as one object of JSON on one line; unknown ones are null. *text is
 * malloc'ed. [ending]: "complete", "early-stopping", "target", "interrupted" or
 * "failed". FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_run_summary_json(const fedge_run_summary *run_summary,
                                                   const fedge_final_evaluation *final_evaluation,
                                                   const fedge_job *job,
                                                   const fedge_simulation_settings *settings,
                                                   const char *ending, char **text,
                                                   fedge_error *err);

/* Adds a seed with all its digits; cJSON would write 15. False: no memory. */
bool fedge_run_summary_add_seed(cJSON *json, const char *key, uint64_t seed);

/* simulation.json: the settings that distinguish one simulation of a job from another. */

/* Writes them as one object of JSON on one line, with path and CRC-32 of the files of client
 * profiles. *text is malloc'ed. FEDGE_NO_MEMORY; errors of reading these files. */
FEDGE_MUST_USE fedge_status fedge_settings_text(const fedge_simulation_settings *settings,
                                                char **text, fedge_error *err);

/* Checks that the run whose settings are [stored], the contents of [path], may continue with
 * [wanted]. FEDGE_MISMATCH says what differs. Files are compared by contents, not by path: those of
 * client profiles by CRC-32; the caller compares a division (fedge_results_partition). */
FEDGE_MUST_USE fedge_status fedge_settings_check(const char *path, const char *stored,
                                                 const char *present, fedge_error *err);

#endif

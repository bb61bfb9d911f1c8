/* A simulation in numbers: sums over its rounds, and what the papers report of a curve. */
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
    double validation_fraction; /* that each client holds out */
    double validation_split;    /* of all examples, set apart before they are divided */
    uint32_t num_validation;    /* examples set apart, by the split or a division from a file */
    uint32_t num_rounds;
    uint32_t evaluate_every; /* rounds from one evaluation to the next */
    bool draws_ties;         /* who is first of several matters, and is drawn */
    /* Of what a run that writes into a folder read: fedge_dataset_crc32. */
    bool has_data_sum, has_test_sum;
    uint32_t data_sum, test_sum;
    const char *attack;  /* as --attack has it; NULL: none */
    const char *backend; /* what trains, unless it is the CPU; NULL: that */
    fedge_client_profiles_settings profiles;
} fedge_simulation_settings;

/* The evaluations of the global model on one set. */
typedef struct fedge_run_summary_curve {
    double loss, accuracy; /* the last; NaN before, an accuracy also where a loss of real
                            * numbers has none */
    double best;           /* the highest accuracy; NaN before */
    uint32_t best_round;   /* the first that reached it */
    double last[FEDGE_RUN_SUMMARY_LAST]; /* the last accuracies, a ring */
    uint32_t num_accuracies;
} fedge_run_summary_curve;

/* Starts with zeros, but for targets and what is NaN: fedge_run_summary_init. */
typedef struct fedge_run_summary {
    uint32_t rounds;            /* closed */
    uint64_t clients, examples; /* that trained, over all rounds */
    uint64_t bytes_up, bytes_down;
    uint64_t clamped;                    /* values of updates that were cut to their bound */
    double seconds;                      /* of all phases */
    double client_loss, client_accuracy; /* last evaluation on the clients; NaN before */
    fedge_run_summary_curve test, validation;
    double test_at_best; /* test accuracy in the round that validation would choose; NaN: none */
    uint32_t num_targets;
    double targets[FEDGE_RUN_SUMMARY_MAX_TARGETS]; /* accuracies to reach, in (0, 1] */
    /* The first round whose accuracy, or an earlier one's, is the target: McMahan et al. 2017 read
     * their tables off such a monotone curve. Between two evaluations it is linear, so there is a
     * fraction. NaN: not reached. Accuracies are those on the test set, or without one on the
     * examples for validation. */
    double reached[FEDGE_RUN_SUMMARY_MAX_TARGETS];
    uint32_t evaluated; /* round of the last evaluation */
    bool has_virtual_time;
    double virtual_time; /* at the end of the last phase */
    bool trained_last;   /* the last phase was no evaluation */
    /* Of all training, clients by how fast they compute, the slowest quarter first. */
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

/* One object of JSON on one line: settings, then numbers. What is not known is null. *text is
 * malloc'ed. [ending]: "complete", "early-stopping", "target", "interrupted" or
 * "failed". FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_run_summary_json(const fedge_run_summary *run_summary,
                                                   const fedge_final_evaluation *final_evaluation,
                                                   const fedge_job *job,
                                                   const fedge_simulation_settings *settings,
                                                   const char *ending, char **text,
                                                   fedge_error *err);

/* Adds a seed with all of its digits, of which cJSON writes 15. False without memory. */
bool fedge_run_summary_add_seed(cJSON *json, const char *key, uint64_t seed);

/* simulation.json: the settings that distinguish one simulation of a job from another. */

/* One object of JSON on one line; *text is malloc'ed. Of the files of client profiles there are
 * path and CRC-32. FEDGE_NO_MEMORY, and what reading these files gives. */
FEDGE_MUST_USE fedge_status fedge_settings_text(const fedge_simulation_settings *settings,
                                                char **text, fedge_error *err);

/* May what [found] describes, the contents of [path], go on as [wanted]? FEDGE_MISMATCH says what
 * differs. Files are the same by their contents, wherever they are: those of client profiles by
 * their CRC-32, and that of a division by what it divides, which the caller compares
 * (fedge_results_partition). */
FEDGE_MUST_USE fedge_status fedge_settings_check(const char *path, const char *found,
                                                 const char *wanted, fedge_error *err);

#endif

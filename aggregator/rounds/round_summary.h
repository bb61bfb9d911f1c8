/* A phase that has ended, in numbers. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ROUND_SUMMARY_H
#define FEDGE_AGGREGATOR_ROUNDS_ROUND_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/rounds/accuracy_quantiles.h"
#include "aggregator/rounds/metrics.h"
#include "edge/core/bytes.h"
#include "edge/core/status.h"
#include "edge/wire/protocol.h"

#define FEDGE_SPEED_QUANTILES 4u
#define FEDGE_ROUND_SUMMARY_MAX_TOLD 2048u /* updates that a line names */

/* An update of a round with a buffer. */
typedef struct fedge_told_update {
    uint32_t client, staleness;
} fedge_told_update;

/* A phase of a simulation with virtual time (aggregator/simulate/time/client_profiles.h). */
typedef struct fedge_virtual_phase {
    bool present;   /* false: time is not virtual */
    double seconds; /* of the phase */
    double time;    /* at its end, since the start of the run */
    /* Clients by how fast they compute, the slowest quarter first. */
    uint32_t asked[FEDGE_SPEED_QUANTILES], reported[FEDGE_SPEED_QUANTILES];
} fedge_virtual_phase;

/* The global model on examples of the training data that nobody trained with. */
typedef struct fedge_validation {
    bool present;          /* false: the run has no such examples */
    double loss, accuracy; /* NaN: not evaluated in this round */
} fedge_validation;

/* A phase that has ended, as rounds.jsonl, /metrics and the progress line tell it. Plain data; what
 * is not known is NaN. */
typedef struct fedge_round_summary {
    uint32_t round, attempt;
    fedge_task_kind kind;
    uint32_t asked, reported;           /* clients */
    uint64_t examples;                  /* of the clients that reported */
    double loss, accuracy;              /* TRAIN: on the test set; EVALUATE: on the clients */
    fedge_accuracy_quantiles quantiles; /* EVALUATE: of the clients' accuracies */
    double train_loss, train_accuracy;  /* TRAIN: means over examples, while training */
    uint64_t bytes_up, bytes_down;      /* of all websocket messages during the phase */
    uint64_t clamped;                   /* values cut to the bound by clients */
    double seconds;                     /* of the phase, from its opening */
    double seconds_train, seconds_encode, seconds_upload;  /* means over clients */
    double seconds_validate, seconds_journal, seconds_sum; /* of all workers together */
    double seconds_step, seconds_evaluate;
    char model[FEDGE_HASH_TEXT]; /* TRAIN: the new model's */
    fedge_virtual_phase virtual_phase;
    fedge_validation validation; /* TRAIN, of a simulation */
    fedge_metric_values metrics; /* TRAIN: a plugin's, on the test set */
    fedge_told_update *told;     /* (num_told), with a buffer: what is in it, in the order in which
                                    it is summed; only while the line is written */
    uint32_t num_told;
    const fedge_gpu_stats *gpus; /* (num_gpus), what each GPU has done in this phase; only while the
                                    line is written */
    uint32_t num_gpus;
} fedge_round_summary;

/* Appends it as rounds.jsonl has it, the inside of a JSON object behind "round" and "phase": what
 * is not known is null. */
FEDGE_MUST_USE fedge_status fedge_round_summary_write(const fedge_round_summary *summary,
                                                      fedge_buffer *line, fedge_error *err);

#endif

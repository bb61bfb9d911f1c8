/* The local part of a federated round: epochs of training over a device's examples.
 *
 * The order of examples is a function of (seed, round, client index, epoch) alone, so a round that
 * is trained again (after a crash, or in the simulator) gives the same bits on the same kernels.
 */
#ifndef FEDGE_EDGE_TRAIN_TRAINER_H
#define FEDGE_EDGE_TRAIN_TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/train/model.h"

#define FEDGE_MAX_EPOCHS 65536 /* of a round: the name of an epoch's random stream has 16 bits */

/* Where examples come from. [read] copies the examples named by indices: (n), each < num_examples,
 * into x: (n, input…) and labels: (n). Behind these indices are [soon] more, of those that come
 * next, in their order: they may be fetched meanwhile. [finite]: it never makes a NaN or an
 * infinity, so that nobody looks for them. */
typedef struct fedge_examples {
    void *user;
    uint32_t num_examples;
    fedge_status (*read)(void *user, const uint32_t *indices, uint32_t n, uint32_t soon, float *x,
                         int32_t *labels, fedge_error *err);
    bool finite;
} fedge_examples;

typedef struct fedge_trainer_config {
    uint64_t seed;         /* of the job */
    uint32_t round;        /* from 1 */
    uint32_t client_index; /* the registry's index of this device */
    uint32_t local_epochs; /* used when local_steps is 0 */
    uint32_t local_steps;  /* > 0: exactly this many steps, wrapping over epochs */
    uint32_t batch_size;   /* the last batch of an epoch may be short */
    fedge_optimizer optimizer;
    /* What follows every step of the optimizer, as to hold values where they are; or NULL. */
    void (*after_step)(void *user, fedge_model *model);
    void *after_step_user;
} fedge_trainer_config;

/* What a round of training did. Sums, so that results of clients add up. */
typedef struct fedge_trainer_result {
    uint64_t num_examples; /* distinct examples of the device: the FedAvg weight */
    uint64_t num_steps;
    uint64_t num_seen; /* examples seen, repeats counted */
    double loss_sum;   /* over the examples seen, each before its step */
    uint64_t correct;  /* likewise */
} fedge_trainer_result;

/* Called between steps; true stops training with FEDGE_CANCELLED. NULL never stops it. */
typedef bool (*fedge_cancel_fn)(void *user);

/* Working memory and interruption of a pass over the examples. */
typedef struct fedge_trainer_workspace {
    void *scratch;          /* 64-byte aligned */
    size_t scratch_size;    /* at least fedge_trainer_scratch_size */
    fedge_cancel_fn cancel; /* or NULL */
    void *cancel_user;      /* passed to cancel */
} fedge_trainer_workspace;

/* Bytes of scratch that fedge_trainer_run and fedge_trainer_evaluate need for [num_examples]
 * examples in batches of [batch_size]: an index per example and one batch of inputs and labels. */
size_t fedge_trainer_scratch_size(const fedge_model_spec *spec, uint32_t num_examples,
                                  uint32_t batch_size);

/* The steps that [config] asks for on so many examples, at least 1. FEDGE_INVALID_ARGUMENT when
 * there are none; FEDGE_OUT_OF_RANGE for more than FEDGE_MAX_EPOCHS. */
FEDGE_MUST_USE fedge_status fedge_trainer_count_steps(const fedge_trainer_config *config,
                                                      uint32_t num_examples, uint64_t *steps,
                                                      fedge_error *err);

/* Can [model] be trained on [num_examples] examples as [config] says? FEDGE_INVALID_ARGUMENT
 * without examples or steps, with a batch_size that the model was not made for, or when a layer
 * cannot work on the last batch of an epoch, which may be short; FEDGE_OUT_OF_RANGE for more than
 * FEDGE_MAX_EPOCHS. fedge_trainer_run checks this before its first step. */
FEDGE_MUST_USE fedge_status fedge_trainer_check(const fedge_model *model, uint32_t num_examples,
                                                const fedge_trainer_config *config,
                                                fedge_error *err);

/* Trains [model] from its present values. FEDGE_INVALID_ARGUMENT without examples; FEDGE_NOT_FINITE
 * when the loss is not finite (training diverged; the message has round and step), or a parameter
 * or statistic at the end (fedge_model_check: the message has round, layer and tensor); what
 * [examples] returns. */
FEDGE_MUST_USE fedge_status fedge_trainer_run(fedge_model *model, const fedge_examples *examples,
                                              const fedge_trainer_config *config,
                                              const fedge_trainer_workspace *workspace,
                                              fedge_trainer_result *result, fedge_error *err);

/* Loss and accuracy over all examples, in order. num_steps stays 0. */
FEDGE_MUST_USE fedge_status fedge_trainer_evaluate(fedge_model *model,
                                                   const fedge_examples *examples,
                                                   uint32_t batch_size,
                                                   const fedge_trainer_workspace *workspace,
                                                   fedge_trainer_result *result, fedge_error *err);

#endif

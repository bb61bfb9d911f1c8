/* The local part of a federated round: epochs of training over a device's examples.
 *
 * The order of examples depends on (seed, round, client index, epoch) alone, so a repeated round
 * (after a crash, or in the simulator) gives the same bits on the same kernels.
 */
#ifndef FEDGE_EDGE_TRAIN_TRAINER_H
#define FEDGE_EDGE_TRAIN_TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/train/errors.h"
#include "edge/train/model.h"

#define FEDGE_MAX_EPOCHS                                                                           \
    65536 /* epochs of a round; random streams are named by 16 bits of the epoch */

/* Numbers that a model learns in place of labels, as many as it has outputs; all 0: there are none.
 */
typedef struct fedge_targets {
    uint32_t count; /* targets of one example */
    /* Copies the normalised targets of the examples of indices (n), which fedge_examples.read has
     * just read, to targets (n, count); NULL: the inputs are the targets. */
    void (*read)(const void *user, const uint32_t *indices, uint32_t n, float *targets);
    const void *user;
    fedge_target_units units;
} fedge_targets;

/* A source of examples. */
typedef struct fedge_examples {
    void *user;
    uint32_t num_examples;
    /* Copies the examples of indices (n), each < num_examples, to x (n, input…) and labels (n). The
     * [num_next] indices after these will be read next and may be prefetched. */
    fedge_status (*read)(void *user, const uint32_t *indices, uint32_t n, uint32_t num_next,
                         float *x, int32_t *labels, fedge_error *err);
    bool finite; /* values are never NaN or infinite, and need no check */
    fedge_targets targets;
} fedge_examples;

typedef struct fedge_trainer_config {
    uint64_t seed;         /* seed of the job */
    uint32_t round;        /* round number, from 1 */
    uint32_t client_index; /* this device's index in the registry */
    uint32_t local_epochs; /* used if local_steps is 0 */
    uint32_t local_steps;  /* > 0: exactly this many steps, over as many epochs as needed */
    uint32_t batch_size;   /* the last batch of an epoch may be short */
    fedge_optimizer optimizer;
    /* Called after every step of the optimizer, for instance to reset frozen values; or NULL. */
    void (*after_step)(void *user, fedge_model *model);
    void *after_step_user;
} fedge_trainer_config;

/* The result of a round of training. All members are sums, so clients' results add up. */
typedef struct fedge_trainer_result {
    uint64_t num_examples; /* distinct examples of the device: the FedAvg weight */
    uint64_t num_steps;
    uint64_t num_seen;   /* examples seen, including repeats */
    double loss_sum;     /* over the examples seen, each before its step */
    uint64_t correct;    /* examples classified correctly, each before its step */
    fedge_errors errors; /* evaluation of examples with targets */
} fedge_trainer_result;

/* Called between steps; true stops training with FEDGE_CANCELLED. NULL never stops it. */
typedef bool (*fedge_cancel_fn)(void *user);

/* Working memory and interruption of a pass over the examples. */
typedef struct fedge_trainer_workspace {
    void *scratch;          /* 64-byte aligned */
    size_t scratch_size;    /* bytes, at least fedge_trainer_scratch_size */
    fedge_cancel_fn cancel; /* may be NULL */
    void *cancel_user;      /* passed to cancel */
} fedge_trainer_workspace;

/* Bytes of scratch for [num_examples] examples in batches of [batch_size]: an index per example and
 * one batch of inputs and labels. Examples with targets also need fedge_trainer_targets_size. */
size_t fedge_trainer_scratch_size(const fedge_model_spec *spec, uint32_t num_examples,
                                  uint32_t batch_size);

/* Bytes of one batch of [count] targets an example. */
size_t fedge_trainer_targets_size(uint32_t count, uint32_t batch_size);

/* The number of steps for [num_examples] examples, at least 1. FEDGE_INVALID_ARGUMENT without
 * examples or steps; FEDGE_OUT_OF_RANGE for more than FEDGE_MAX_EPOCHS. */
FEDGE_MUST_USE fedge_status fedge_trainer_count_steps(const fedge_trainer_config *config,
                                                      uint32_t num_examples, uint64_t *steps,
                                                      fedge_error *err);

/* Checks that [model] can be trained on [num_examples] examples with [config].
 * FEDGE_INVALID_ARGUMENT without examples or steps, with a batch_size that the model was not made
 * for, or if a layer does not accept the last batch of an epoch, which may be short;
 * FEDGE_OUT_OF_RANGE for more than FEDGE_MAX_EPOCHS. fedge_trainer_run checks this first. */
FEDGE_MUST_USE fedge_status fedge_trainer_check(const fedge_model *model, uint32_t num_examples,
                                                const fedge_trainer_config *config,
                                                fedge_error *err);

/* Trains [model] from its present values. FEDGE_NOT_FINITE if training diverges: the loss (the
 * message has round and step), or at the end a parameter or statistic (fedge_model_check) is not
 * finite. Also fails as fedge_trainer_check and examples->read. */
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

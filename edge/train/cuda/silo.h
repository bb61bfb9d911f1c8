/* A silo: one client's model, trained by several GPUs of its machine together.
 *
 * A batch is divided into parts, whose size depends on the job and not on the number of GPUs. Each
 * GPU trains some of the parts, as many side by side as its memory holds, and sums their gradients
 * as integers (accumulate.cu in kernels.h). NCCL's reduce-scatter adds the sums of all GPUs, each
 * GPU steps its range of the parameters and holds the optimizer's states of that range only, and an
 * all-gather distributes the new values. Sums of integers do not depend on their order, so 1, 2 and
 * 8 GPUs give the same bits. One GPU does not need NCCL.
 *
 * For a model that is too large, parts are trained one after another in the memory of one, and the
 * optimizer's states are in the host's memory, where the step reads and writes them. Outputs of
 * layers with "recompute" are not stored for the backward pass but computed anew. States in bf16
 * take half of the bytes: a step computes in fp32 and rounds stochastically. The random numbers are
 * Philox's, selected by seed, round, client, step and value, so they are the same on any number of
 * GPUs and when a task is repeated.
 *
 * Batches, augmentation, optimizers and results are those of fedge_trainer_run, except for the
 * order of sums. Gradients are rounded to multiples of 2^-(46 - log2(batch)) / batch.
 *
 * Threads: a silo is used by one thread at a time.
 */
#ifndef FEDGE_EDGE_TRAIN_CUDA_SILO_H
#define FEDGE_EDGE_TRAIN_CUDA_SILO_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/train/cuda/cohort.h"
#include "edge/train/cuda/gpu.h"
#include "edge/train/trainer.h"

#define FEDGE_SILO_PARTS 8 /* parts of a batch by default */

#ifndef FEDGE_SILO_TIMEOUT_MS
#define FEDGE_SILO_TIMEOUT_MS 600000 /* a step that takes longer counts as hanging */
#endif

typedef struct fedge_silo_config {
    fedge_cohort_config cohort; /* most_slots, num_chunks, gpu and split are not read */
    uint32_t part;              /* examples of a part; 0: an eighth of the batch */
    bool states_bf16;           /* optimizer states are bf16, otherwise fp32 */
    uint32_t num_gpus;          /* 0: all GPUs of the machine */
    uint32_t gpus[FEDGE_COHORT_MAX_GPUS];
    fedge_gpu_stuck_fn stuck; /* NULL: NCCL's calls have no time limit */
} fedge_silo_config;

/* The configuration of a silo that was made. */
typedef struct fedge_silo_facts {
    uint32_t num_gpus; /* GPUs, at most num_parts */
    uint32_t part, num_parts;
    uint32_t at_once;           /* parts that a GPU trains side by side */
    bool states_on_host;        /* optimizer states are in the host's memory */
    bool states_bf16;           /* optimizer states are bf16 */
    fedge_cohort_memory memory; /* memory of each GPU, with a slot for each of at_once parts */
} fedge_silo_facts;

typedef struct fedge_silo fedge_silo;

/* Checks, before there are examples, that the GPUs that would get a part can train it: they exist
 * and are open to this process, this build has code for them, they support the precision and have
 * memory for a part with the optimizer's states on the host, and NCCL is there if they are several.
 * Fails as fedge_silo_new. Allocates nothing but each GPU's context. */
FEDGE_MUST_USE fedge_status fedge_silo_check_gpus(const fedge_silo_config *config,
                                                  fedge_error *err);

/* Bytes of each of [num_gpus] GPUs, without examples. *all: when it trains all its parts at once.
 * *least: when it trains them one after another with the optimizer's states on the host. Needs no
 * GPU. */
FEDGE_MUST_USE fedge_status fedge_silo_bytes(const fedge_silo_config *config, uint32_t num_gpus,
                                             uint64_t *all, uint64_t *least, fedge_error *err);

/* All that [config] points to except the examples must outlive the silo. FEDGE_UNSUPPORTED as
 * fedge_cohort_check; FEDGE_NOT_FOUND: no such GPU, or several GPUs without NCCL; FEDGE_NO_MEMORY
 * with the numbers; FEDGE_GPU_LOST. */
FEDGE_MUST_USE fedge_status fedge_silo_new(const fedge_silo_config *config, fedge_silo **silo,
                                           fedge_error *err);
void fedge_silo_free(fedge_silo *silo); /* NULL is fine */

fedge_silo_facts fedge_silo_facts_of(const fedge_silo *silo);

/* Trains [values], (num_values), in place. Reads set, examples, num_examples, client_index and
 * correction of [task]. FEDGE_NOT_FINITE with round and step; FEDGE_CANCELLED; FEDGE_GPU_LOST, also
 * when a GPU's memory is exhausted in training: the silo can only be freed, and the process should
 * start anew. */
FEDGE_MUST_USE fedge_status fedge_silo_train(fedge_silo *silo, const fedge_cohort_task *task,
                                             const fedge_trainer_config *training, float *values,
                                             fedge_cancel_fn cancel, void *cancel_user,
                                             fedge_trainer_result *result, fedge_error *err);

/* Loss and accuracy of [values] over the task's examples, on the first GPU. FEDGE_NO_MEMORY: its
 * memory is exhausted; the silo can still be used. */
FEDGE_MUST_USE fedge_status fedge_silo_evaluate(fedge_silo *silo, const fedge_cohort_task *task,
                                                const float *values, fedge_cancel_fn cancel,
                                                void *cancel_user, fedge_trainer_result *result,
                                                fedge_error *err);

#endif

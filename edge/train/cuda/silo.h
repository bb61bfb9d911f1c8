/* A silo: one client's model, trained by several GPUs of its machine together.
 *
 * A batch has parts of a fixed size, which the job decides and the number of GPUs does not. Each
 * GPU trains some of the parts, as many side by side as its memory holds, and adds their gradients
 * up as integers (kernels.h, accumulate.cu); NCCL's reduce-scatter joins the sums of all GPUs, each
 * GPU steps its share of the parameters and keeps the optimizer's state of that share alone, and an
 * all-gather hands the new values round. Integers add up the same in any order, so 1, 2 and 8 GPUs
 * give the same bits. With one GPU NCCL is not needed.
 *
 * Where a model is too large, parts come one after another in the memory of one, and the
 * optimizer's state lies in the host's memory, where the step reads and writes it. Outputs of
 * layers with "recompute" are not kept for the backward pass but made again. States in bf16 take
 * half of the bytes: a step computes with what it has in fp32, and rounds what it keeps up or down
 * by chance. The chance is Philox's, named by seed, round, client, step and value, so it is the
 * same on any number of GPUs, and for a task that is begun again.
 *
 * Batches, augmentation, optimizers and results are those of fedge_trainer_run; sums have another
 * order. Gradients are rounded to multiples of 2^-(46 - log2 of the batch) over the batch.
 *
 * Threads: one at a time.
 */
#ifndef FEDGE_EDGE_TRAIN_CUDA_SILO_H
#define FEDGE_EDGE_TRAIN_CUDA_SILO_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/train/cuda/cohort.h"
#include "edge/train/cuda/gpu.h"
#include "edge/train/trainer.h"

#define FEDGE_SILO_PARTS 8 /* of a batch, where nobody asks for others */

#ifndef FEDGE_SILO_TIMEOUT_MS
#define FEDGE_SILO_TIMEOUT_MS 600000 /* a step that takes longer is taken for one that hangs */
#endif

typedef struct fedge_silo_config {
    fedge_cohort_config cohort; /* most_slots, num_chunks, gpu and share are not read */
    uint32_t part;              /* examples; 0: an eighth of the batch */
    bool states_bf16;           /* the optimizer's; else fp32 */
    uint32_t num_gpus;          /* 0: all there are */
    uint32_t gpus[FEDGE_COHORT_MAX_GPUS];
    fedge_gpu_stuck_fn stuck; /* NULL: NCCL's calls are waited for */
} fedge_silo_config;

/* What was made of it. */
typedef struct fedge_silo_facts {
    uint32_t num_gpus; /* no more than there are parts */
    uint32_t part, num_parts;
    uint32_t at_once;           /* parts that a GPU trains side by side */
    bool states_on_host;        /* the optimizer's */
    bool states_bf16;           /* likewise */
    fedge_cohort_memory memory; /* of each GPU: slot for each part at once */
} fedge_silo_facts;

typedef struct fedge_silo fedge_silo;

/* Can the GPUs that would get a part train it: are they there and open to this process, have they
 * code, the precision, room for a part with the optimizer's state on the host, and is NCCL there
 * where they are several? As fedge_silo_new says it, before there are examples; takes no memory
 * but each GPU's context. */
FEDGE_MUST_USE fedge_status fedge_silo_check_gpus(const fedge_silo_config *config,
                                                  fedge_error *err);

/* Bytes of one of [num_gpus] GPUs, without examples: that trains all its parts at once, and that
 * trains them one after another with the optimizer's state on the host. Looks for no GPU. */
FEDGE_MUST_USE fedge_status fedge_silo_bytes(const fedge_silo_config *config, uint32_t num_gpus,
                                             uint64_t *all, uint64_t *least, fedge_error *err);

/* What [config] points to must outlive it, but for the examples. FEDGE_UNSUPPORTED as
 * fedge_cohort_check; FEDGE_NOT_FOUND: no such GPU, or several and no NCCL; FEDGE_NO_MEMORY with
 * the numbers; FEDGE_GPU_LOST. */
FEDGE_MUST_USE fedge_status fedge_silo_new(const fedge_silo_config *config, fedge_silo **silo,
                                           fedge_error *err);
void fedge_silo_free(fedge_silo *silo); /* NULL is fine */

fedge_silo_facts fedge_silo_facts_of(const fedge_silo *silo);

/* Trains [values], (num_values), in place. task: set, examples, num_examples, client_index and
 * correction count. FEDGE_NOT_FINITE with round and step, FEDGE_CANCELLED; after FEDGE_GPU_LOST,
 * which is also a GPU whose memory ends in training, the silo can only be freed, and the process
 * should begin anew. */
FEDGE_MUST_USE fedge_status fedge_silo_train(fedge_silo *silo, const fedge_cohort_task *task,
                                             const fedge_trainer_config *training, float *values,
                                             fedge_cancel_fn cancel, void *cancel_user,
                                             fedge_trainer_result *result, fedge_error *err);

/* Loss and accuracy of [values] over the task's examples, on the first GPU. FEDGE_NO_MEMORY: that
 * one's has ended; the silo can go on. */
FEDGE_MUST_USE fedge_status fedge_silo_evaluate(fedge_silo *silo, const fedge_cohort_task *task,
                                                const float *values, fedge_cancel_fn cancel,
                                                void *cancel_user, fedge_trainer_result *result,
                                                fedge_error *err);

#endif

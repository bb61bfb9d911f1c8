/* A cohort of virtual clients whose models are trained side by side on one GPU.
 *
 * A client in training occupies a slot until its last step; then the next client gets the slot. A
 * step of all slots is one launch for each layer. Examples are on the GPU as they are stored. The
 * CPU's streams of random numbers (edge/train/trainer.h) select a step's examples and their order,
 * so GPU and CPU train on the same batches. The order of a sum depends on the model alone: a
 * client's result has the same bits whatever its slot, the number of slots and GPUs, and the other
 * clients. It differs from the CPU's by rounding: sums have other orders and fused products, and
 * expf may differ in its last bits.
 *
 * The table of edge/train/cuda/layer.h has the layers that a model may have. Storage is fp32, and
 * precision fp32, tf32 or bf16.
 *
 * Threads: a cohort is used by one thread at a time. Cohorts of several GPUs have a thread each.
 */
#ifndef FEDGE_EDGE_TRAIN_CUDA_COHORT_H
#define FEDGE_EDGE_TRAIN_CUDA_COHORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/core/tensor.h"
#include "edge/train/augment.h"
#include "edge/train/cuda/kernels/shared.h"
#include "edge/train/model.h"
#include "edge/train/trainer.h"

#define FEDGE_COHORT_SETS 2      /* sets of examples */
#define FEDGE_COHORT_MAX_GPUS 64 /* GPUs of a machine */
#define FEDGE_COHORT_MAX_MEMBERS 64

/* Examples as they are stored. The model's input is (v / divide_by − mean[channel]) /
 * std[channel]. Both sets of a cohort have the same type and normalisation. */
typedef struct fedge_cohort_examples {
    const void *values;    /* (count, the model's input) */
    const int32_t *labels; /* (count) */
    uint32_t count;        /* 0: there is no such set */
} fedge_cohort_examples;

/* How several GPUs train one model together (edge/train/cuda/silo.h). A cohort's slots then have
 * the same weights and a part of the batch each, and their gradients are summed. */
typedef struct fedge_cohort_split {
    uint32_t num_gpus;   /* each steps an equal range of the values */
    uint32_t part;       /* maximum of examples in a part */
    uint32_t num_parts;  /* maximum of a batch's parts on this GPU; 0: the model is not split */
    bool states_on_host; /* optimizer states are in pinned memory of the host */
    bool states_bf16;    /* optimizer states are bf16, otherwise fp32 */
} fedge_cohort_split;

typedef struct fedge_cohort_config {
    const fedge_model_spec *model;
    const fedge_model_options *options; /* those of a client's model */
    fedge_cohort_examples sets[FEDGE_COHORT_SETS];
    fedge_dtype dtype;     /* FEDGE_U8 or FEDGE_F32 */
    uint32_t num_channels; /* length of mean and std: 0, 1 or the input's channels */
    float divide_by;
    const float *mean, *std;
    const fedge_augmentation
        *augmentation;    /* augmentation of training examples; pixels from outside the image are
                             stored zeros, normalised; NULL: none */
    uint32_t most_slots;  /* maximum of slots, ≥ 1 */
    uint32_t num_chunks;  /* maximum of a work's num_chunks */
    uint32_t num_members; /* maximum of a work's num_members; 0 means 1 */
    int gpu;              /* the driver's number of the GPU */
    fedge_cohort_split split;
} fedge_cohort_config;

typedef struct fedge_cohort fedge_cohort;

/* The training or evaluation of one client, and its results. */
typedef struct fedge_cohort_task {
    uint32_t set;             /* index of the set of its examples */
    const uint32_t *examples; /* (num_examples): indices into the set */
    uint32_t num_examples;
    uint32_t member;         /* index of the member whose model it trains */
    uint32_t client_index;   /* selects its streams of random numbers */
    const float *correction; /* (num_values): SCAFFOLD's c − c_i, valid until the next call of
                                [next]; NULL: none */
    int32_t *predicted;      /* (num_examples), evaluation: index of the largest output of each
                                example; NULL: not wanted */
    uint32_t weight;  /* > 0: weight · the model's change is added to the member's chunks, and the
                         values do not leave the GPU */
    uint64_t clamped; /* weighted: values clamped to their bound */
    uint32_t bad_value; /* weighted: index of the first value that is not finite, in which case
                           nothing is added; UINT32_MAX: all are finite */
    fedge_status status;
    fedge_trainer_result result;
    fedge_error error; /* set after a failure: FEDGE_NOT_FINITE with round and step, or an error of
                          fedge_trainer_check */
} fedge_cohort_task;

/* A global model and its training. Members of a work, such as the variants of a sweep, are trained
 * side by side. They may have different seeds and learning rates; all else of their optimizers is
 * the same. */
typedef struct fedge_cohort_member {
    const float *start; /* (num_values): the model that its tasks start from */
    /* For all its tasks; client_index is the task's. NULL for all members: evaluate [start]. */
    const fedge_trainer_config *training;
    const fedge_cohort_chunk *chunks; /* (num_chunks), for tasks with a weight; the run has
                                         exclusive use of their sums */
} fedge_cohort_member;

typedef struct fedge_cohort_work {
    const fedge_cohort_member *members; /* (num_members) */
    uint32_t num_members, num_chunks;
    fedge_cohort_task *(*next)(void *user); /* returns NULL when there are no more tasks */
    /* Reports a task. values: (num_values), which the callee may change until it returns; NULL when
     * the task failed, has a weight, or is an evaluation. The order of tasks depends on the work
     * and the number of slots only. */
    void (*done)(void *user, fedge_cohort_task *task, float *values);
    fedge_cancel_fn cancel; /* called between runs of steps; once it returns true, remaining tasks
                               are FEDGE_CANCELLED; NULL: never cancelled */
    void *user;             /* argument of all three */
} fedge_cohort_work;

/* Bytes that a cohort needs. */
typedef struct fedge_cohort_memory {
    size_t slot;   /* GPU bytes for one slot */
    size_t slots;  /* GPU bytes for most_slots */
    size_t shared; /* GPU bytes for examples and the members' models */
    size_t host;   /* bytes of pinned memory */
} fedge_cohort_memory;

/* Counts this machine's GPUs. FEDGE_NOT_FOUND: there is none, or no driver. */
FEDGE_MUST_USE fedge_status fedge_cohort_count_gpus(uint32_t *count, fedge_error *err);

/* Checks that GPUs can train the model. FEDGE_UNSUPPORTED names the layer or option that only the
 * CPU supports. The model must have passed fedge_model_schema. Needs no GPU. */
FEDGE_MUST_USE fedge_status fedge_cohort_check(const fedge_cohort_config *config, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_cohort_bytes(const fedge_cohort_config *config,
                                               fedge_cohort_memory *memory, fedge_error *err);

/* Checks that the GPU supports the model's precision and that nine tenths of its free memory hold
 * the examples and one slot. Fails as fedge_cohort_new. Allocates nothing. */
FEDGE_MUST_USE fedge_status fedge_cohort_check_gpu(const fedge_cohort_config *config,
                                                   fedge_error *err);

/* Allocates as many slots as nine tenths of the GPU's free memory hold, at most most_slots, and
 * copies the examples to the GPU. FEDGE_NO_MEMORY, with the numbers: not even one slot fits.
 * FEDGE_UNSUPPORTED: the GPU lacks the precision. FEDGE_NOT_FOUND: there is no such GPU.
 * FEDGE_GPU_LOST. */
FEDGE_MUST_USE fedge_status fedge_cohort_new(const fedge_cohort_config *config,
                                             fedge_cohort **cohort, fedge_error *err);
void fedge_cohort_free(fedge_cohort *cohort); /* NULL is fine */

uint32_t fedge_cohort_slots(const fedge_cohort *cohort);

/* Runs all tasks. FEDGE_GPU_LOST: the cohort can only be freed, and every further call fails
 * likewise. FEDGE_NO_MEMORY: memory of the GPU or the host is exhausted. After a failure the cohort
 * holds no tasks, finished or not. */
FEDGE_MUST_USE fedge_status fedge_cohort_run(fedge_cohort *cohort, const fedge_cohort_work *work,
                                             fedge_error *err);

#endif

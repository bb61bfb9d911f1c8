/* A cohort of virtual clients whose models are trained side by side on one GPU.
 *
 * Each client that is in training has a slot; when it has taken its last step,
 * the next client gets the slot. A step of all slots is one launch for each
 * layer. Examples lie on the GPU as they are stored; which ones a step takes,
 * and in which order, is told by the CPU's streams of random numbers
 * (edge/train/trainer.h), so both train on the same batches. Sums have an order
 * that depends on the model alone: a client's result is the same bits whatever
 * its slot, the number of slots and GPUs, and who else is trained. It differs
 * from the CPU's by rounding: sums have other orders and fused products, and
 * expf may differ in its last bits.
 *
 * What a model may have is in the table of edge/train/cuda/layer.h. Storage is
 * fp32, and precision fp32, tf32 or bf16.
 *
 * Threads: one at a time; several cohorts (of several GPUs) have a thread each.
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

#define FEDGE_COHORT_SETS 2      /* of examples */
#define FEDGE_COHORT_MAX_GPUS 64 /* of a machine */
#define FEDGE_COHORT_MAX_MEMBERS 64

/* Examples as they are stored; not copied until they lie on the GPU. The model
 * sees (v / divide_by − mean[channel]) / std[channel]. Both sets of a cohort
 * have the same type and normalisation. */
typedef struct fedge_cohort_examples {
    const void *values;    /* (count, the model's input) */
    const int32_t *labels; /* (count) */
    uint32_t count;        /* 0: there is no such set */
} fedge_cohort_examples;

/* Of one model that several GPUs train together (edge/train/cuda/silo.h): a cohort's slots have the
 * same weights and a part of the batch each, and their gradients are summed. */
typedef struct fedge_cohort_split {
    uint32_t num_gpus;   /* each of which steps as many of the values */
    uint32_t part;       /* examples of a slot, at most */
    uint32_t num_parts;  /* of a batch, on this GPU; 0: each slot has a model of its own */
    bool states_on_host; /* the optimizer's, in pinned memory */
    bool states_bf16;    /* likewise, in half of the bytes; else fp32 */
} fedge_cohort_split;

typedef struct fedge_cohort_config {
    const fedge_model_spec *model;
    const fedge_model_options *options; /* as a client makes its model */
    fedge_cohort_examples sets[FEDGE_COHORT_SETS];
    fedge_dtype dtype;     /* FEDGE_U8 or FEDGE_F32 */
    uint32_t num_channels; /* of mean and std: 0, 1 or the input's */
    float divide_by;
    const float *mean, *std;
    const fedge_augmentation
        *augmentation;    /* in training: fills are normalised zeros; NULL: none */
    uint32_t most_slots;  /* ≥ 1: more are not used */
    uint32_t num_chunks;  /* of a fedge_cohort_work, at most */
    uint32_t num_members; /* likewise; 0: one */
    int gpu;              /* the driver's number */
    fedge_cohort_split split;
} fedge_cohort_config;

typedef struct fedge_cohort fedge_cohort;

/* A client's work, and what came of it. */
typedef struct fedge_cohort_task {
    uint32_t set;             /* where its examples are */
    const uint32_t *examples; /* (num_examples): their places in the set */
    uint32_t num_examples;
    uint32_t member;         /* of the work: whose model it trains */
    uint32_t client_index;   /* names its streams of random numbers */
    const float *correction; /* SCAFFOLD's c − c_i, (num_values), until [next] is
                                called again; NULL: none */
    int32_t *predicted;      /* evaluation: (num_examples), the largest output of each;
                                NULL */
    uint32_t weight;    /* > 0: what the model has changed by is added to the work's pieces so many
                           times, and its values do not leave the GPU */
    uint64_t clamped;   /* then: values that were cut to their bound */
    uint32_t bad_value; /* then: the first value that is not finite, and nothing is added;
                           UINT32_MAX: all are */
    fedge_status status;
    fedge_trainer_result result;
    fedge_error error; /* when it failed: FEDGE_NOT_FINITE with round and step, or
                          what fedge_trainer_check would say */
} fedge_cohort_task;

/* A global model and how it is trained. Members of a work are trained side by side: those of a
 * sweep have seeds and learning rates of their own. What their optimizers have besides is the same.
 */
typedef struct fedge_cohort_member {
    const float *start; /* (num_values): the model that its tasks begin with */
    /* Of its tasks, but for the client index; NULL, for all members: [start] is evaluated on their
     * examples. */
    const fedge_trainer_config *training;
    const fedge_cohort_chunk *chunks; /* (num_chunks), for tasks with a weight; sums that nobody
                                         else touches meanwhile */
} fedge_cohort_member;

typedef struct fedge_cohort_work {
    const fedge_cohort_member *members; /* (num_members) */
    uint32_t num_members, num_chunks;
    fedge_cohort_task *(*next)(void *user); /* NULL: there are no more */
    /* values: (num_values), as trained, to be changed at will until it returns;
     * NULL when the task has failed, has a weight, or is evaluation. Tasks come in an order
     * that depends on nothing but the work and the number of slots. */
    void (*done)(void *user, fedge_cohort_task *task, float *values);
    fedge_cancel_fn cancel; /* asked now and then; NULL: never. What is left is
                               FEDGE_CANCELLED */
    void *user;             /* of all three */
} fedge_cohort_work;

/* What a cohort takes, found before it takes it. */
typedef struct fedge_cohort_memory {
    size_t slot;   /* of the GPU, for each slot */
    size_t slots;  /* of the GPU, for the most slots that are used */
    size_t shared; /* of the GPU, besides: examples and the model that all begin
                      with */
    size_t host;   /* of this machine, pinned */
} fedge_cohort_memory;

/* GPUs of this machine. FEDGE_NOT_FOUND: none, or no driver. */
FEDGE_MUST_USE fedge_status fedge_cohort_count_gpus(uint32_t *count, fedge_error *err);

/* Can the GPU train it? FEDGE_UNSUPPORTED with the layer, or with what else it
 * is that only the CPU can do. The model must have passed fedge_model_schema.
 * Looks for no GPU. */
FEDGE_MUST_USE fedge_status fedge_cohort_check(const fedge_cohort_config *config, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_cohort_bytes(const fedge_cohort_config *config,
                                               fedge_cohort_memory *memory, fedge_error *err);

/* Has the GPU the model's precision, and do nine tenths of its free memory hold the examples and
 * one slot? FEDGE_UNSUPPORTED, FEDGE_NO_MEMORY with the numbers; FEDGE_NOT_FOUND and FEDGE_GPU_LOST
 * as fedge_cohort_new. Takes nothing. */
FEDGE_MUST_USE fedge_status fedge_cohort_check_gpu(const fedge_cohort_config *config,
                                                   fedge_error *err);

/* Takes as many slots as nine tenths of the GPU's free memory hold, but no more
 * than are wanted, and brings the examples there. FEDGE_NO_MEMORY: not even one
 * fits; FEDGE_UNSUPPORTED: a precision that the GPU lacks;
 * FEDGE_NOT_FOUND: no such GPU; FEDGE_GPU_LOST. */
FEDGE_MUST_USE fedge_status fedge_cohort_new(const fedge_cohort_config *config,
                                             fedge_cohort **cohort, fedge_error *err);
void fedge_cohort_free(fedge_cohort *cohort); /* NULL is fine */

uint32_t fedge_cohort_slots(const fedge_cohort *cohort);

/* Does all tasks. FEDGE_GPU_LOST: what was not done will never be; the cohort
 * can only be freed, and says the same again if it is asked. FEDGE_NO_MEMORY: the GPU's, or the
 * host's, has ended meanwhile. Behind a failure it has no task any more, whether it was done or
 * not. */
FEDGE_MUST_USE fedge_status fedge_cohort_run(fedge_cohort *cohort, const fedge_cohort_work *work,
                                             fedge_error *err);

#endif

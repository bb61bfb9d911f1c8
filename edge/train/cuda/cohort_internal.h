/* Internals of cohorts and silos. Private to edge/train/cuda. */
#ifndef FEDGE_EDGE_TRAIN_CUDA_COHORT_INTERNAL_H
#define FEDGE_EDGE_TRAIN_CUDA_COHORT_INTERNAL_H

#include "edge/core/rng.h"
#include "edge/train/cuda/cohort_plan.h"
#include "edge/train/cuda/nccl_api.h"
#include "edge/train/cuda/silo.h"
#include "edge/train/optimizers/optimizers.h"

/* Pinned buffers for the upload of a run of steps. There are two: one is filled while the other is
 * copied. */
typedef struct fedge_cohort_upload {
    fedge_cohort_slot_step *slot_steps; /* (run, slots) */
    uint32_t *indices;                  /* (run, slots, batch) */
    fedge_cohort_move *moves;           /* (run, slots, batch); NULL without augmentation */
    cudaEvent_t done;                   /* the buffers may be refilled after it */
} fedge_cohort_upload;

/* A task whose last step is queued, with buffers for its results. */
typedef struct fedge_cohort_ending {
    fedge_cohort_task *task; /* NULL: free */
    float *values;           /* pinned, (num_values) */
    fedge_cohort_tally *tally;
    cudaEvent_t done;
} fedge_cohort_ending;

/* The task of a slot. */
typedef struct fedge_cohort_slot {
    fedge_cohort_task *task; /* NULL: free */
    uint32_t *order;         /* (capacity): order of its examples in this epoch */
    uint32_t capacity, next, epoch;
    uint64_t steps, done; /* number of its steps, and of those that are queued */
    uint64_t seen;        /* examples in the queued steps */
    fedge_rng moves;      /* random numbers of this epoch's augmentation */
} fedge_cohort_slot;

/* A recorded step of a certain number of slots. */
typedef struct fedge_cohort_graph {
    cudaGraphExec_t exec; /* NULL: not recorded yet */
    bool seen;            /* the step was queued before */
} fedge_cohort_graph;

#define FEDGE_COHORT_MAX_GRAPHS 16 /* slots are rounded up to a power of two, or to all slots */

struct fedge_cohort {
    fedge_cohort_config config;
    fedge_cohort_plan plan;
    fedge_cohort_arrays arrays;
    char *slot_block, *shared_block;
    uint32_t num_slots, run; /* run: maximum of steps per upload */
    cudaStream_t stream;
    fedge_cohort_upload upload[2];
    uint32_t next_upload; /* counts uploads */
    fedge_cohort_ending endings[FEDGE_COHORT_RING];
    uint32_t first_ending, num_endings;
    void *host_states[2]; /* pinned, with split.states_on_host; otherwise NULL */
    float *staging[2];    /* (num_state), pinned: models and corrections to be copied */
    cudaEvent_t staged[2];
    uint32_t next_staging;
    int32_t *predicted;         /* (run, slots, batch), pinned */
    fedge_cohort_chunk *chunks; /* (members, config.num_chunks), pinned; NULL: there are none */
    fedge_cohort_slot *slots;
    fedge_cohort_set shared_sets[FEDGE_COHORT_SETS];
    fedge_cohort_graph graphs[FEDGE_COHORT_MAX_GRAPHS];
    fedge_cohort_step recorded; /* the optimizer's arguments in the recorded graphs */
    bool no_graphs;             /* the driver refused graphs */
    fedge_error lost;           /* error after which the cohort can only be freed; FEDGE_OK: none */
};

/* FEDGE_OK for cudaSuccess; otherwise FEDGE_NO_MEMORY or FEDGE_GPU_LOST. The message says what was
 * being done and why it failed. */
fedge_status fedge_cohort_cuda(const fedge_cohort *cohort, cudaError_t error, const char *doing,
                               fedge_error *err);

/* Allocates [size] bytes of the GPU, or pinned bytes of the host, and stores their address in the
 * pointer that [pointer] points to. The message of FEDGE_NO_MEMORY gives advice. */
fedge_status fedge_cohort_allocate(const fedge_cohort *cohort, void *pointer, size_t size,
                                   bool pinned, fedge_error *err);

/* ---- a step's examples and the optimizer's arguments (cohort_step.c) ---- */

/* Ensures a capacity of [count] examples. */
fedge_status fedge_cohort_fit_order(fedge_cohort_slot *slot, uint32_t count, fedge_error *err);

/* The slot's next step. Writes its examples to indices and their augmentation to moves, both
 * (batch). [training] NULL: evaluation. moves NULL: no augmentation. */
fedge_cohort_slot_step fedge_cohort_next_step(const fedge_cohort *cohort,
                                              const fedge_trainer_config *training,
                                              fedge_cohort_slot *slot, uint32_t *indices,
                                              fedge_cohort_move *moves);

/* The optimizer's arguments. [training] NULL: evaluation, for which only the start is set. */
fedge_cohort_step fedge_cohort_step_of(const fedge_cohort *cohort,
                                       const fedge_trainer_config *training);

/* ---- recorded steps (cohort_step.c) ---- */

/* Queues work on the cohort's stream and does nothing else. Every call queues the same work. */
typedef cudaError_t (*fedge_cohort_queue_fn)(const void *user);

/* Queues the work of [queue]: the first call for [which], which is below FEDGE_COHORT_MAX_GRAPHS,
 * calls it, the second records a graph, and later ones launch that. Where the driver refuses
 * graphs, every call calls [queue]. */
cudaError_t fedge_cohort_repeat(fedge_cohort *cohort, uint32_t which, fedge_cohort_queue_fn queue,
                                const void *user);
void fedge_cohort_forget_graphs(fedge_cohort *cohort);

/* ---- the passes (cohort_step.c); the cohort's GPU must be the current one ---- */

/* The examples of a pass, and its results. */
typedef struct fedge_cohort_batch {
    const uint32_t *indices;        /* (slots, batch) */
    const fedge_cohort_move *moves; /* (slots, batch); NULL: no augmentation */
    int32_t *predicted;             /* (slots, batch) */
    fedge_cohort_tally *tallies;    /* (slots) */
} fedge_cohort_batch;

cudaError_t fedge_cohort_forward(const fedge_cohort *cohort, const fedge_cohort_pass *pass,
                                 const fedge_cohort_batch *batch);
cudaError_t fedge_cohort_backward(const fedge_cohort *cohort, fedge_cohort_pass pass);
/* Steps each range of trained values; of a split model, the part in the GPU's range, which begins
 * at value [from]. */
cudaError_t fedge_cohort_take_step(const fedge_cohort *cohort, const fedge_cohort_step *wanted,
                                   size_t from, const fedge_cohort_shape *shape);

/* ---- a silo (silo.c, silo_train.c) ---- */

typedef struct fedge_silo_gpu {
    fedge_cohort *cohort; /* each slot trains a part of the batch */
    uint32_t first_part, num_parts;
    fedge_cohort_tally *tallies; /* (num_parts), pinned */
} fedge_silo_gpu;

struct fedge_silo {
    fedge_silo_config config;
    fedge_cohort_split split;
    uint32_t num_parts; /* parts of a batch */
    fedge_silo_gpu gpus[FEDGE_COHORT_MAX_GPUS];
    fedge_nccl nccl; /* loaded with more than one GPU */
    fedge_gpu_watch watch;
    char names[32];                          /* GPUs in the watch's messages: "one of 2 GPUs" */
    ncclComm_t comms[FEDGE_COHORT_MAX_GPUS]; /* NULL where a start failed half-way */
    uint32_t num_comms;
    bool lost;
    fedge_cohort_slot order;  /* order of the task's examples */
    uint32_t *indices;        /* (batch) */
    fedge_cohort_move *moves; /* (batch) */
};

/* FEDGE_OK for success; otherwise FEDGE_GPU_LOST with what was being done and NCCL's message. */
fedge_status fedge_silo_nccl(const fedge_silo *silo, fedge_nccl_result result, const char *doing,
                             fedge_error *err);

#endif

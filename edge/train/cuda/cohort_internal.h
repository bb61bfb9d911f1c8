/* Internals of cohorts and silos; private to edge/train/cuda. */
#ifndef FEDGE_EDGE_TRAIN_CUDA_COHORT_INTERNAL_H
#define FEDGE_EDGE_TRAIN_CUDA_COHORT_INTERNAL_H

#include "edge/core/rng.h"
#include "edge/train/cuda/cohort_plan.h"
#include "edge/train/cuda/nccl_api.h"
#include "edge/train/cuda/silo.h"
#include "edge/train/optimizers/optimizers.h"

/* What the GPU is told of a run of steps, in pinned memory: filled while the
 * other one travels. */
typedef struct fedge_cohort_upload {
    fedge_cohort_slot_step *slot_steps; /* (run, slots) */
    uint32_t *indices;                  /* (run, slots, batch) */
    fedge_cohort_move *moves;           /* likewise; NULL without augmentation */
    cudaEvent_t done;                   /* both may be filled again */
} fedge_cohort_upload;

/* A task whose last step is queued, and its model on the way back. */
typedef struct fedge_cohort_ending {
    fedge_cohort_task *task; /* NULL: free */
    float *values;           /* pinned, (num_values) */
    fedge_cohort_tally *tally;
    cudaEvent_t done;
} fedge_cohort_ending;

/* The task of a slot. */
typedef struct fedge_cohort_slot {
    fedge_cohort_task *task; /* NULL: free */
    uint32_t *order;         /* (room): its examples in this epoch's order */
    uint32_t capacity, next, epoch;
    uint64_t steps, done; /* how many it has, and how many are queued */
    uint64_t seen;        /* examples in these */
    fedge_rng moves;      /* of this epoch's augmentation */
} fedge_cohort_slot;

/* A step of so many slots, recorded. */
typedef struct fedge_cohort_graph {
    cudaGraphExec_t exec; /* NULL: not yet */
    bool seen;            /* it was queued before */
} fedge_cohort_graph;

#define FEDGE_COHORT_MAX_GRAPHS 16 /* slots are rounded up to powers of two, or all of them */

struct fedge_cohort {
    fedge_cohort_config config;
    fedge_cohort_plan plan;
    fedge_cohort_arrays arrays;
    char *slot_block, *shared_block;
    uint32_t num_slots, run; /* run: steps that are told at a time, at most */
    cudaStream_t stream;
    fedge_cohort_upload upload[2];
    uint32_t next_upload; /* which of these is next */
    fedge_cohort_ending endings[FEDGE_COHORT_RING];
    uint32_t first_ending, num_endings;
    void *host_states[2]; /* pinned, of a share that keeps them so; else NULL */
    float *staging[2];    /* pinned, (num_values): corrections and the start, on
                             their way */
    cudaEvent_t staged[2];
    uint32_t next_staging;
    int32_t *predicted;         /* pinned, (run, slots, batch) */
    fedge_cohort_chunk *chunks; /* pinned, (members, config.num_chunks); NULL: there are none */
    fedge_cohort_slot *slots;
    fedge_cohort_set shared_sets[FEDGE_COHORT_SETS];
    fedge_cohort_graph graphs[FEDGE_COHORT_MAX_GRAPHS];
    fedge_cohort_step recorded; /* the optimizer's arguments that are in these */
    bool no_graphs;             /* they were refused */
    fedge_error lost;           /* why it can only be freed; FEDGE_OK: it is not lost */
};

/* FEDGE_GPU_LOST: what was being done, and why it failed; FEDGE_NO_MEMORY where that is the reason;
 * FEDGE_OK for cudaSuccess. */
fedge_status fedge_cohort_cuda(const fedge_cohort *cohort, cudaError_t error, const char *doing,
                               fedge_error *err);

/* [size] bytes of the GPU, or of the host, pinned; their place goes to the pointer that [pointer]
 * points to. FEDGE_NO_MEMORY says what to do. */
fedge_status fedge_cohort_allocate(const fedge_cohort *cohort, void *pointer, size_t size,
                                   bool pinned, fedge_error *err);

/* ---- a step (cohort_step.c): its examples, and what the optimizer needs ---- */

/* Room for the order of so many examples. */
fedge_status fedge_cohort_fit_order(fedge_cohort_slot *slot, uint32_t count, fedge_error *err);

/* The slot's next step: its examples, and what the optimizer has to know of it. [training] NULL:
 * evaluation. indices, moves: of a batch; moves NULL: examples are not moved. */
fedge_cohort_slot_step fedge_cohort_next_step(const fedge_cohort *cohort,
                                              const fedge_trainer_config *training,
                                              fedge_cohort_slot *slot, uint32_t *indices,
                                              fedge_cohort_move *moves);

/* The optimizer's arguments; [training] NULL: none. */
fedge_cohort_step fedge_cohort_step_of(const fedge_cohort *cohort,
                                       const fedge_trainer_config *training);

/* ---- recorded steps (cohort_step.c) ---- */

/* Queues work on the cohort's stream, nothing else, and the same whenever it is asked. */
typedef cudaError_t (*fedge_cohort_queue_fn)(const void *user);

/* Has [queue] queue its work, or launches what it queued for the same [which] before, below
 * FEDGE_COHORT_MAX_GRAPHS. Where graphs are refused it does without. */
cudaError_t fedge_cohort_repeat(fedge_cohort *cohort, uint32_t which, fedge_cohort_queue_fn queue,
                                const void *user);
void fedge_cohort_forget_graphs(fedge_cohort *cohort);

/* ---- the passes (cohort_step.c), on the cohort's GPU, which is the current one ---- */

/* Where a pass finds its examples, and what it says of them. */
typedef struct fedge_cohort_batch {
    const uint32_t *indices;        /* (slots, batch) */
    const fedge_cohort_move *moves; /* likewise; NULL: they are not moved */
    int32_t *predicted;             /* likewise */
    fedge_cohort_tally *tallies;    /* (slots) */
} fedge_cohort_batch;

cudaError_t fedge_cohort_forward(const fedge_cohort *cohort, const fedge_cohort_pass *pass,
                                 const fedge_cohort_batch *batch);
cudaError_t fedge_cohort_backward(const fedge_cohort *cohort, fedge_cohort_pass pass);
/* Each range of values that are trained; of a share, what lies among those that are stepped from
 * [from] on. */
cudaError_t fedge_cohort_take_step(const fedge_cohort *cohort, const fedge_cohort_step *wanted,
                                   size_t from, const fedge_cohort_shape *shape);

/* ---- a silo (silo.c, silo_train.c) ---- */

typedef struct fedge_silo_gpu {
    fedge_cohort *cohort; /* its slots are parts of a batch */
    uint32_t first_part, num_parts;
    fedge_cohort_tally *tallies; /* pinned, (num_parts) */
} fedge_silo_gpu;

struct fedge_silo {
    fedge_silo_config config;
    fedge_cohort_split split;
    uint32_t num_parts; /* of a batch */
    fedge_silo_gpu gpus[FEDGE_COHORT_MAX_GPUS];
    fedge_nccl nccl; /* with more than one */
    fedge_gpu_watch watch;
    char names[32];                          /* for it: "one of 2 GPUs" */
    ncclComm_t comms[FEDGE_COHORT_MAX_GPUS]; /* NULL: not made, when a start failed half-way */
    uint32_t num_comms;
    bool lost;
    fedge_cohort_slot order;  /* of the task's examples */
    uint32_t *indices;        /* (batch) */
    fedge_cohort_move *moves; /* (batch) */
};

/* FEDGE_GPU_LOST: what was being done, and what NCCL says. */
fedge_status fedge_silo_nccl(const fedge_silo *silo, fedge_nccl_result result, const char *doing,
                             fedge_error *err);

#endif

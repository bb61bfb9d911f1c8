/* The GPUs of an accumulator, and their NCCL communicators with each other or with other ranks'
 * GPUs.
 *
 * Every wait for a GPU is watched. An error that NCCL reports, or a lack of progress, ends the
 * operation with FEDGE_GPU_LOST. Closing such a GPU would wait for its work, so [stuck] of the
 * accumulator's config is called first, which ends the process. Calls on the host cannot be ended;
 * edge/train/cuda/gpu.h watches them.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_TEAM_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_TEAM_H

#include "aggregator/reduce/cuda/gpu.h"
#include "edge/train/cuda/gpu.h"
#include "edge/train/cuda/nccl_api.h"

typedef struct fedge_cuda_comms {
    const fedge_nccl *nccl; /* loaded while there are communicators */
    fedge_gpu_watch *watch;
    char names[64 + FEDGE_ACCUMULATOR_MAX_GPUS * 4]; /* text such as "one of GPUs 3,0" */
    ncclComm_t of[FEDGE_ACCUMULATOR_MAX_GPUS];       /* NULL: a failed start did not make it */
    uint32_t num;                                    /* number of communicators; 0: none */
} fedge_cuda_comms;

/* Turns an error of NCCL into FEDGE_GPU_LOST, which says what failed and NCCL's text. */
FEDGE_MUST_USE fedge_status fedge_cuda_comms_check(const fedge_cuda_comms *comms,
                                                   fedge_nccl_result result, const char *doing,
                                                   fedge_error *err);

/* Describes a call, or a group of calls, to the watch. */
fedge_gpu_call fedge_cuda_comms_call(const fedge_cuda_comms *comms, const char *doing);

/* Aborts pending operations, so that no stream waits forever, and the communicators. Waits for no
 * other process. */
void fedge_cuda_comms_abort(fedge_cuda_comms *comms);
/* Ends the communicators when no operation is pending. It waits for all ends, so do not call it for
 * communicators with other processes. */
void fedge_cuda_comms_close(fedge_cuda_comms *comms);

/* Describes a wait for messages, and its limit. */
typedef struct fedge_cuda_wait {
    const char *who, *doing; /* texts such as "GPU 3" and "taking the step" */
    uint32_t limit_ms;
} fedge_cuda_wait;

/* Waits for the end of a timed operation unless the GPU is lost, and adds its time. */
FEDGE_MUST_USE fedge_status fedge_cuda_comms_watch(const fedge_cuda_comms *comms,
                                                   fedge_cuda_gpu *gpu, fedge_cuda_timing *timing,
                                                   const fedge_cuda_wait *wait, fedge_error *err);

/* The step on several GPUs together.
 *
 * By coordinates each GPU steps the values of its blocks. By clients each GPU has sums of all
 * coordinates: NCCL's reduce-scatter gives each GPU the total of its part of a chunk, which it
 * steps while the next chunk is reduced. The first chunk is queued after the last update's sums: a
 * round does not know its last batch beforehand, and adding a batch takes a few milliseconds at
 * most. Each GPU caches the values that it steps, and copies them from the host only when it has
 * none or they have changed there. Stepped values go back over each GPU's link. No other GPU needs
 * them, so there is no all-gather.
 */

#ifndef FEDGE_CUDA_TIMEOUT_MS
#define FEDGE_CUDA_TIMEOUT_MS 30000
#endif

typedef struct fedge_cuda_team {
    fedge_cuda_gpu gpus[FEDGE_ACCUMULATOR_MAX_GPUS];
    uint32_t num_gpus;
    bool joins; /* several GPUs divide the work by clients */
    fedge_nccl nccl;
    fedge_gpu_watch watch;  /* watches calls of CUDA and NCCL */
    fedge_cuda_comms comms; /* communicators of the GPUs; none unless it joins */
    bool *cached; /* (num_tensors), malloc'ed: GPUs have the values of the tensor's last step */
} fedge_cuda_team;

/* Makes communicators for the open GPUs. team->nccl is loaded. */
FEDGE_MUST_USE fedge_status fedge_cuda_team_join(fedge_cuda_team *team, fedge_error *err);

/* Waits until all updates are added and the work buffers are free. */
FEDGE_MUST_USE fedge_status fedge_cuda_team_wait(fedge_cuda_team *team, fedge_error *err);

/* As fedge_accumulator_step, for the sums of all GPUs. */
FEDGE_MUST_USE fedge_status fedge_cuda_team_step(fedge_cuda_team *team,
                                                 const fedge_step_part *parts, uint32_t num_parts,
                                                 uint64_t total_weight, fedge_error *err);

void fedge_cuda_team_close(fedge_cuda_team *team); /* closes GPUs and NCCL; all zero is fine */

/* ---- opening a team: its GPUs, how they divide the work, and their memory -------------------- */

#define FEDGE_CUDA_MAX_SLOTS 33 /* two batches and a reserved slot */
#define FEDGE_CUDA_MIN_SLOTS 2  /* one update and a reserved slot */

typedef struct fedge_cuda_choice {
    fedge_shard shard;  /* clients or coordinates; always clients for one GPU */
    uint32_t num_slots; /* slots of each GPU, including the reserved one */
} fedge_cuda_choice;

/* The memory use of one GPU. */
typedef struct fedge_cuda_gpu_plan {
    int ordinal;
    bool by_clients;
    uint32_t num_slots;
    fedge_cuda_bytes bytes;
} fedge_cuda_gpu_plan;

/* The total of its bytes. */
size_t fedge_cuda_gpu_plan_bytes(const fedge_cuda_gpu_plan *plan);

/* Writes a line for people, without a line end; returns its length. size ≥ 1. */
size_t fedge_cuda_gpu_plan_describe(const fedge_cuda_gpu_plan *plan, char *text, size_t size);

/* Describes, in a line for each GPU, the memory that fedge_cuda_open_team would use, or fails as it
 * would. Allocates nothing. */
FEDGE_MUST_USE fedge_status fedge_cuda_forecast_team(const fedge_cuda_geometry *geometry,
                                                     const fedge_accumulator_config *config,
                                                     char *text, size_t size, fedge_error *err);

/* Opens the GPUs that [config] names, or all, and NCCL when they divide the work by clients.
 * FEDGE_SHARD_AUTO divides by clients when the sums of all coordinates and two updates fit on each
 * GPU and NCCL starts, else by coordinates. FEDGE_NOT_FOUND: there is no driver, no GPU, not this
 * GPU, or no NCCL. FEDGE_UNSUPPORTED: NCCL is too old. FEDGE_NO_MEMORY: it does not fit. The
 * messages say what to do. Close [team] also on failure. */
FEDGE_MUST_USE fedge_status fedge_cuda_open_team(fedge_cuda_team *team,
                                                 const fedge_cuda_geometry *geometry,
                                                 const fedge_accumulator_config *config,
                                                 fedge_cuda_choice *choice, fedge_error *err);

#endif

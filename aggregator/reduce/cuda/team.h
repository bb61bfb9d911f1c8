/* Communicators of NCCL for the GPUs of a team: among themselves, or with those of other ranks.
 *
 * Nothing waits for a GPU without watching it. An error that NCCL reports ends what is under way
 * with FEDGE_GPU_LOST. So does a lack of progress. Closing such a GPU would wait for its work, so
 * [stuck] of the accumulator's config is called first, which ends the process. Calls on the host
 * cannot be ended; edge/train/cuda/gpu.h watches them.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_TEAM_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_TEAM_H

#include "aggregator/reduce/cuda/gpu.h"
#include "edge/train/cuda/gpu.h"
#include "edge/train/cuda/nccl_api.h"

typedef struct fedge_cuda_comms {
    const fedge_nccl *nccl; /* loaded, while there are any */
    fedge_gpu_watch *watch;
    char names[64 + FEDGE_ACCUMULATOR_MAX_GPUS * 4]; /* "one of GPUs 3,0": for messages */
    ncclComm_t of[FEDGE_ACCUMULATOR_MAX_GPUS]; /* NULL: not made, when a start failed half-way */
    uint32_t num;                              /* 0: none */
} fedge_cuda_comms;

/* FEDGE_GPU_LOST: what was being done, and NCCL's words. */
FEDGE_MUST_USE fedge_status fedge_cuda_comms_check(const fedge_cuda_comms *comms,
                                                   fedge_nccl_result result, const char *doing,
                                                   fedge_error *err);

/* A call, or a group of them, for the watch. */
fedge_gpu_call fedge_cuda_comms_call(const fedge_cuda_comms *comms, const char *doing);

/* Ends all that is under way, so that no stream waits for ever, and the communicators; waits for
 * no other process. */
void fedge_cuda_comms_abort(fedge_cuda_comms *comms);
/* Ends them when nothing is under way. Not for those with other processes, whose ends it waits for.
 */
void fedge_cuda_comms_close(fedge_cuda_comms *comms);

/* What is waited for, how long, and whose it is. */
typedef struct fedge_cuda_wait {
    const char *who, *doing; /* "GPU 3", "taking the step" */
    uint32_t limit_ms;
} fedge_cuda_wait;

/* Waits for a span's end, but not for a GPU that is gone; and measures it. */
FEDGE_MUST_USE fedge_status fedge_cuda_comms_watch(const fedge_cuda_comms *comms,
                                                   fedge_cuda_gpu *gpu, fedge_cuda_timing *timing,
                                                   const fedge_cuda_wait *wait, fedge_error *err);

/* The step on several GPUs together.
 *
 * By coordinates each GPU steps the values of its own blocks. By clients each GPU has sums of all
 * coordinates: chunk by chunk NCCL's reduce-scatter gives each GPU the joined sums of its share,
 * which it steps while the next chunk is under way. The first chunk is queued behind the last
 * update's sums and not among them: adding a batch reads each GPU's sums once, which takes a few
 * milliseconds at most, and a round that would join while it adds had to know its last batch
 * beforehand. Each GPU keeps the values that it steps, and
 * takes them from the host only where it has none or they have changed there. What it has stepped
 * goes back over its own link. No other GPU needs it, so there is no all-gather.
 */

#ifndef FEDGE_CUDA_TIMEOUT_MS
#define FEDGE_CUDA_TIMEOUT_MS 30000
#endif

typedef struct fedge_cuda_team {
    fedge_cuda_gpu gpus[FEDGE_ACCUMULATOR_MAX_GPUS];
    uint32_t num_gpus;
    bool joins; /* by clients, and more than one */
    fedge_nccl nccl;
    fedge_gpu_watch watch;  /* of calls of CUDA and NCCL */
    fedge_cuda_comms comms; /* among themselves; none unless it joins */
    bool *holds; /* (tensors), malloc'ed: the GPUs have the values of the tensor's last step */
} fedge_cuda_team;

/* Communicators for the GPUs, which are open. [nccl] is loaded and the team's from now on. */
FEDGE_MUST_USE fedge_status fedge_cuda_team_join(fedge_cuda_team *team, fedge_error *err);

/* What was added before has come: the work buffers are free. */
FEDGE_MUST_USE fedge_status fedge_cuda_team_wait(fedge_cuda_team *team, fedge_error *err);

/* As fedge_accumulator_step, for the sums of all GPUs. */
FEDGE_MUST_USE fedge_status fedge_cuda_team_step(fedge_cuda_team *team,
                                                 const fedge_step_part *parts, uint32_t num_parts,
                                                 uint64_t total_weight, fedge_error *err);

void fedge_cuda_team_close(fedge_cuda_team *team); /* its GPUs and NCCL too; all zero is fine */

/* Which GPUs an accumulator takes, how they share the work, and what will lie on each.
 */

#define FEDGE_CUDA_MAX_SLOTS 33 /* two batches, and a spare slot */
#define FEDGE_CUDA_MIN_SLOTS 2  /* one, and a spare slot */

typedef struct fedge_cuda_choice {
    fedge_shard shard;  /* clients or coordinates; clients for one GPU */
    uint32_t num_slots; /* of each GPU, with the spare one */
} fedge_cuda_choice;

/* What lies on one GPU. */
typedef struct fedge_cuda_place {
    int ordinal;
    bool by_clients;
    uint32_t num_slots;
    fedge_cuda_bytes bytes;
} fedge_cuda_place;

/* All of it. */
size_t fedge_cuda_place_bytes(const fedge_cuda_place *place);

/* A line without an end, for people; gives its length. size ≥ 1. */
size_t fedge_cuda_describe_place(const fedge_cuda_place *place, char *text, size_t size);

/* Chooses as fedge_cuda_open_team does, and fails as it does, but takes nothing: a line for each
 * GPU says what would lie there. */
FEDGE_MUST_USE fedge_status fedge_cuda_forecast_team(const fedge_cuda_geometry *geometry,
                                                     const fedge_accumulator_config *config,
                                                     char *text, size_t size, fedge_error *err);

/* Opens the GPUs that [config] names, or all, and NCCL where they join their sums. With
 * FEDGE_SHARD_AUTO by clients where the sums of all coordinates and two updates fit on each GPU and
 * NCCL can be had and starts, else by coordinates. FEDGE_NOT_FOUND: no driver, no GPU, not this
 * GPU, no NCCL (FEDGE_UNSUPPORTED: too old a one); FEDGE_NO_MEMORY: it does not fit. The messages
 * say what to do. [team] is to be closed also on failure. */
FEDGE_MUST_USE fedge_status fedge_cuda_open_team(fedge_cuda_team *team,
                                                 const fedge_cuda_geometry *geometry,
                                                 const fedge_accumulator_config *config,
                                                 fedge_cuda_choice *choice, fedge_error *err);

#endif

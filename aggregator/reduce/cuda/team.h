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
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_TEAM_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_TEAM_H

#include "aggregator/reduce/cuda/comms.h"

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

#endif

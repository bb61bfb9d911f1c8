/* Communicators of NCCL for the GPUs of a team: among themselves, or with those of other ranks.
 *
 * Nothing waits for a GPU without watching it. An error that NCCL reports ends what is under way
 * with FEDGE_GPU_LOST. So does no progress in time; whoever closed the GPU would wait for what it
 * does, so [stuck] of the accumulator's config is told first, which ends the process. Calls on the
 * host, which nobody can end: edge/train/cuda/gpu_watch.h.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_COMMS_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_COMMS_H

#include "aggregator/reduce/cuda/gpu.h"
#include "edge/train/cuda/gpu_watch.h"
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
                                                   fedge_cuda_gpu *gpu, fedge_cuda_span *span,
                                                   const fedge_cuda_wait *wait, fedge_error *err);

#endif

#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include "aggregator/reduce/cuda/comms.h"

#include <stdatomic.h>
#include <time.h>

#include "edge/core/os.h"

#define POLL_NS 20000

fedge_status fedge_cuda_comms_check(const fedge_cuda_comms *comms, fedge_nccl_result result,
                                    const char *doing, fedge_error *err)
{
    if (result == FEDGE_NCCL_SUCCESS)
        return FEDGE_OK;
    return fedge_fail(err, FEDGE_GPU_LOST, "%s is lost while %s: NCCL: %s", comms->names, doing,
                      comms->nccl->get_error_string(result));
}

fedge_gpu_call fedge_cuda_comms_call(const fedge_cuda_comms *comms, const char *doing)
{
    return (fedge_gpu_call){FEDGE_GPU_NCCL, comms->names, doing, 0, NULL, 0};
}

static void end(fedge_cuda_comms *comms, const char *doing,
                fedge_nccl_result (*end_one)(ncclComm_t comm))
{
    fedge_gpu_call call = fedge_cuda_comms_call(comms, doing);
    fedge_gpu_watch_begin(comms->watch, &call);
    for (uint32_t i = 0; i < comms->num; i++) {
        if (comms->of[i])
            (void)end_one(comms->of[i]);
        comms->of[i] = NULL;
    }
    fedge_gpu_watch_end(comms->watch, &call);
    comms->num = 0;
}

void fedge_cuda_comms_abort(fedge_cuda_comms *comms)
{
    if (comms->num > 0)
        end(comms, "ending what is under way", comms->nccl->comm_abort);
}

void fedge_cuda_comms_close(fedge_cuda_comms *comms)
{
    if (comms->num > 0)
        end(comms, "closing NCCL", comms->nccl->comm_destroy);
}

static fedge_status look(const fedge_cuda_comms *comms, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < comms->num && status == FEDGE_OK; i++) {
        fedge_nccl_result found = FEDGE_NCCL_SUCCESS;
        const fedge_nccl_result result = comms->nccl->comm_get_async_error(comms->of[i], &found);
        /* A communicator that is at work is none that has failed. */
        found = found == FEDGE_NCCL_IN_PROGRESS ? FEDGE_NCCL_SUCCESS : found;
        status = fedge_cuda_comms_check(comms, result != FEDGE_NCCL_SUCCESS ? result : found,
                                        "joining sums", err);
    }
    return status;
}

/* Whoever closed this GPU would wait for what it does, for ever. */
static fedge_status give_up(const fedge_cuda_comms *comms, const fedge_cuda_gpu *gpu,
                            const fedge_cuda_wait *wait, fedge_error *err)
{
    fedge_error why;
    /* Of a collective nobody knows whose fault it is. */
    if (comms->num == 0 && comms->watch->lost)
        (void)atomic_fetch_or(comms->watch->lost, 1ULL << gpu->ordinal);
    (void)fedge_fail(&why, FEDGE_GPU_LOST, "%s is lost while %s: no progress in %g s", wait->who,
                     wait->doing, wait->limit_ms / 1000.0);
    /* It ends the process, if it is there. */
    if (comms->watch->stuck)
        comms->watch->stuck(&why);
    return fedge_fail(err, why.status, "%s", why.message);
}

fedge_status fedge_cuda_comms_watch(const fedge_cuda_comms *comms, fedge_cuda_gpu *gpu,
                                    fedge_cuda_span *span, const fedge_cuda_wait *wait,
                                    fedge_error *err)
{
    const uint64_t start = fedge_os_monotonic_ms();
    for (;;) {
        /* Asked, not waited for: when a peer is lost NCCL's kernels never end, and only NCCL itself
         * tells. */
        cudaError_t error = cudaEventQuery(span->done);
        if (error == cudaSuccess)
            error = fedge_cuda_span_count(span, &gpu->times);
        if (error != cudaErrorNotReady)
            return fedge_cuda_check(gpu, error, wait->doing, err);
        FEDGE_TRY(look(comms, err));
        if (fedge_os_monotonic_ms() - start > wait->limit_ms)
            return give_up(comms, gpu, wait, err);
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

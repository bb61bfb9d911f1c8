#include "aggregator/reduce/cuda/span.h"

#include <stdatomic.h>

cudaError_t fedge_cuda_span_init(fedge_cuda_span *span)
{
    cudaEvent_t *const events[] = {&span->begun, &span->turned, &span->done};
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < 3 && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(events[i], cudaEventBlockingSync);
    return error;
}

void fedge_cuda_span_fini(fedge_cuda_span *span)
{
    const cudaEvent_t events[] = {span->begun, span->turned, span->done};
    for (int i = 0; i < 3; i++) {
        if (events[i])
            (void)cudaEventDestroy(events[i]);
    }
    *span = (fedge_cuda_span){0};
}

cudaError_t fedge_cuda_span_begin(fedge_cuda_span *span, fedge_cuda_work first, cudaStream_t stream)
{
    span->first = first;
    span->turns = false;
    span->counts = false;
    return cudaEventRecord(span->begun, stream);
}

cudaError_t fedge_cuda_span_turn(fedge_cuda_span *span, fedge_cuda_work second, cudaStream_t stream)
{
    span->second = second;
    span->turns = true;
    return cudaEventRecord(span->turned, stream);
}

cudaError_t fedge_cuda_span_end(fedge_cuda_span *span, cudaStream_t stream)
{
    const cudaError_t error = cudaEventRecord(span->done, stream);
    span->counts = error == cudaSuccess;
    return error;
}

static cudaError_t add(fedge_cuda_times *times, fedge_cuda_work work, cudaEvent_t from,
                       cudaEvent_t to)
{
    float ms = 0.0f;
    const cudaError_t error = cudaEventElapsedTime(&ms, from, to);
    if (error == cudaSuccess && ms > 0.0f)
        atomic_fetch_add(&times->ns[work], (uint64_t)((double)ms * 1e6 + 0.5));
    return error;
}

cudaError_t fedge_cuda_span_count(fedge_cuda_span *span, fedge_cuda_times *times)
{
    if (!span->counts)
        return cudaSuccess;
    const cudaError_t come = cudaEventQuery(span->done);
    if (come != cudaSuccess)
        return come == cudaErrorNotReady ? cudaSuccess : come;
    span->counts = false;
    if (!span->turns)
        return add(times, span->first, span->begun, span->done);
    const cudaError_t error = add(times, span->first, span->begun, span->turned);
    return error == cudaSuccess ? add(times, span->second, span->turned, span->done) : error;
}

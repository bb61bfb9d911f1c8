/* Errors and memory of a GPU. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/reduce/cuda/gpu.h"

/* Another process or the driver has the memory: the GPU is sound. A restart checks what is free
 * then. */
static fedge_status fail_memory(const fedge_cuda_gpu *gpu, const char *doing, fedge_error *err)
{
    size_t left = 0, total = 0;
    fedge_gpu_call call = fedge_cuda_call(gpu, "asking what it has");
    fedge_gpu_watch_begin(gpu->watch, &call);
    (void)cudaMemGetInfo(&left, &total);
    fedge_gpu_watch_end(gpu->watch, &call);
    return fedge_fail(
        err, FEDGE_NO_MEMORY,
        "GPU %d has no memory left while %s: %zu of its %zu MiB are free; start again "
        "to hold fewer updates at once, end what else uses it, take more GPUs with "
        "--shard coordinates, or sum on the CPU (--accumulator cpu)",
        gpu->ordinal, doing, left >> 20, total >> 20);
}

fedge_status fedge_cuda_check(const fedge_cuda_gpu *gpu, cudaError_t error, const char *doing,
                              fedge_error *err)
{
    if (error == cudaSuccess)
        return FEDGE_OK;
    /* CUDA recovers only from this error; after any other one nothing on this GPU is reliable. */
    if (error == cudaErrorMemoryAllocation)
        return fail_memory(gpu, doing, err);
    if (gpu->watch && gpu->watch->lost)
        (void)atomic_fetch_or(gpu->watch->lost, 1ULL << gpu->ordinal);
    return fedge_fail(err, FEDGE_GPU_LOST, "GPU %d is lost while %s: %s", gpu->ordinal, doing,
                      cudaGetErrorString(error));
}

fedge_gpu_call fedge_cuda_call(const fedge_cuda_gpu *gpu, const char *doing)
{
    return (fedge_gpu_call){FEDGE_GPU_CUDA, gpu->name, doing, 0, NULL, 1ULL << gpu->ordinal};
}

cudaError_t fedge_cuda_wait_event(const fedge_cuda_gpu *gpu, cudaEvent_t event)
{
    fedge_gpu_call call = fedge_cuda_call(gpu, "waiting for its work");
    fedge_gpu_watch_begin(gpu->watch, &call);
    const cudaError_t error = cudaEventSynchronize(event);
    fedge_gpu_watch_end(gpu->watch, &call);
    return error;
}

cudaError_t fedge_cuda_wait_stream(const fedge_cuda_gpu *gpu, cudaStream_t stream)
{
    fedge_gpu_call call = fedge_cuda_call(gpu, "waiting for its work");
    fedge_gpu_watch_begin(gpu->watch, &call);
    const cudaError_t error = cudaStreamSynchronize(stream);
    fedge_gpu_watch_end(gpu->watch, &call);
    return error;
}

cudaError_t fedge_cuda_copy(const fedge_cuda_gpu *gpu, void *to, const void *from, size_t size,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    fedge_gpu_call call = fedge_cuda_call(gpu, "copying");
    fedge_gpu_watch_begin(gpu->watch, &call);
    const cudaError_t error = cudaMemcpyAsync(to, from, size, kind, stream);
    fedge_gpu_watch_end(gpu->watch, &call);
    return error;
}

fedge_status fedge_cuda_gpu_use(const fedge_cuda_gpu *gpu, fedge_error *err)
{
    return fedge_cuda_check(gpu, cudaSetDevice(gpu->ordinal), "choosing it", err);
}

fedge_status fedge_cuda_gpu_take(const fedge_cuda_gpu *gpu, void *pointer, size_t size, bool pinned,
                                 fedge_error *err)
{
    void *memory = NULL;
    fedge_gpu_call call = fedge_cuda_call(gpu, "taking memory");
    call.library = FEDGE_GPU_CUDA_OPEN;
    fedge_gpu_watch_begin(gpu->watch, &call);
    const cudaError_t error =
        /* Portable: the buffer is pinned for every GPU and thread. */
        pinned ? cudaHostAlloc(&memory, size, cudaHostAllocPortable) : cudaMalloc(&memory, size);
    fedge_gpu_watch_end(gpu->watch, &call);
    if (pinned && error == cudaErrorMemoryAllocation) {
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "GPU %d: the host cannot pin %zu bytes for it; end what else uses the "
                          "host's memory, or sum on the CPU (--accumulator cpu)",
                          gpu->ordinal, size);
    }
    char doing[48];
    (void)snprintf(doing, sizeof(doing), "taking %zu bytes", size);
    /* [pointer] leads to a pointer of any type. */
    memcpy(pointer, &memory, sizeof(memory));
    return fedge_cuda_check(gpu, error, doing, err);
}

fedge_status fedge_cuda_gpu_copy(fedge_cuda_gpu *gpu, void *to, const void *from, size_t size,
                                 fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    uint32_t next_buffer = 0;
    for (size_t done = 0; done < size && status == FEDGE_OK; next_buffer++) {
        fedge_cuda_buffer *buffer = &gpu->work[next_buffer % 2];
        const size_t part =
            size - done < FEDGE_CUDA_CHUNK_BYTES ? size - done : FEDGE_CUDA_CHUNK_BYTES;
        cudaError_t error = fedge_cuda_wait_event(gpu, buffer->timing.done);
        /* The operation is counted before its end is recorded again, here. */
        if (error == cudaSuccess)
            error = fedge_cuda_timing_count(&buffer->timing, &gpu->times);
        if (error == cudaSuccess) {
            memcpy(buffer->pinned, (const char *)from + done, part);
            error = fedge_cuda_copy(gpu, (char *)to + done, buffer->pinned, part,
                                    cudaMemcpyHostToDevice, gpu->stream);
        }
        if (error == cudaSuccess)
            error = cudaEventRecord(buffer->timing.done, gpu->stream);
        status = fedge_cuda_check(gpu, error, "copying to it", err);
        done += part;
    }
    return status == FEDGE_OK ? fedge_cuda_check(gpu, fedge_cuda_wait_stream(gpu, gpu->stream),
                                                 "copying to it", err)
                              : status;
}

fedge_status fedge_cuda_gpu_take_moments(fedge_cuda_gpu *gpu, unsigned num_moments, bool *fits,
                                         fedge_error *err)
{
    fedge_status status = fedge_cuda_gpu_use(gpu, err);
    for (unsigned k = 0; k < num_moments && status == FEDGE_OK; k++) {
        if (gpu->moments[k])
            continue;
        status = fedge_cuda_gpu_take(gpu, &gpu->moments[k], gpu->values_bytes, false, err);
        if (status == FEDGE_OK)
            (void)atomic_fetch_add(&gpu->moment_bytes, gpu->values_bytes);
    }
    *fits = status == FEDGE_OK;
    return status == FEDGE_NO_MEMORY ? FEDGE_OK : status;
}

cudaError_t fedge_cuda_timing_init(fedge_cuda_timing *timing)
{
    cudaEvent_t *const events[] = {&timing->begun, &timing->split, &timing->done};
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < 3 && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(events[i], cudaEventBlockingSync);
    return error;
}

void fedge_cuda_timing_fini(fedge_cuda_timing *timing)
{
    const cudaEvent_t events[] = {timing->begun, timing->split, timing->done};
    for (int i = 0; i < 3; i++) {
        if (events[i])
            (void)cudaEventDestroy(events[i]);
    }
    *timing = (fedge_cuda_timing){0};
}

cudaError_t fedge_cuda_timing_begin(fedge_cuda_timing *timing, fedge_cuda_work first,
                                    cudaStream_t stream)
{
    timing->first = first;
    timing->has_second = false;
    timing->counts = false;
    return cudaEventRecord(timing->begun, stream);
}

cudaError_t fedge_cuda_timing_split(fedge_cuda_timing *timing, fedge_cuda_work second,
                                    cudaStream_t stream)
{
    timing->second = second;
    timing->has_second = true;
    return cudaEventRecord(timing->split, stream);
}

cudaError_t fedge_cuda_timing_end(fedge_cuda_timing *timing, cudaStream_t stream)
{
    const cudaError_t error = cudaEventRecord(timing->done, stream);
    timing->counts = error == cudaSuccess;
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

cudaError_t fedge_cuda_timing_count(fedge_cuda_timing *timing, fedge_cuda_times *times)
{
    if (!timing->counts)
        return cudaSuccess;
    const cudaError_t come = cudaEventQuery(timing->done);
    if (come != cudaSuccess)
        return come == cudaErrorNotReady ? cudaSuccess : come;
    timing->counts = false;
    if (!timing->has_second)
        return add(times, timing->first, timing->begun, timing->done);
    const cudaError_t error = add(times, timing->first, timing->begun, timing->split);
    return error == cudaSuccess ? add(times, timing->second, timing->split, timing->done) : error;
}

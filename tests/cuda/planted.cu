#include <cuda_runtime.h>

#include "tests/cuda/planted.h"

static cudaLaunchConfig_t shape(unsigned blocks, unsigned threads, cudaStream_t s)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = s;
    return config;
}

static __global__ void reverse(const int *in, int *out, int n, int without_barrier)
{
    __shared__ int tile[256];
    const int i = (int)threadIdx.x;
    tile[i] = in[i];
    if (!without_barrier)
        __syncthreads();
    out[i] = tile[n - 1 - i];
}

extern "C" cudaError_t planted_reverse(const int *in, int *out, int n, int without_barrier,
                                       cudaStream_t s)
{
    const cudaLaunchConfig_t config = shape(1, (unsigned)n, s);
    return cudaLaunchKernelEx(&config, reverse, in, out, n, without_barrier);
}

static __global__ void count(int *sum, int without_atomic)
{
    if (without_atomic)
        *sum = *sum + 1;
    else
        atomicAdd(sum, 1);
}

extern "C" cudaError_t planted_count(int *sum, int n, int without_atomic, cudaStream_t s)
{
    const cudaLaunchConfig_t config = shape((unsigned)n / 64, 64, s);
    return cudaLaunchKernelEx(&config, count, sum, without_atomic);
}

static __global__ void sum(const int *in, int *out)
{
    FEDGE_DYNAMIC_SHARED(int, warps);
    int value = in[blockIdx.x * 128 + threadIdx.x];
    for (int by = 16; by > 0; by /= 2)
        value += __shfl_down_sync(~0u, value, by);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x] = warps[0] + warps[1] + warps[2] + warps[3];
    if (__syncthreads_count(threadIdx.x < 5) != 5 || !__all_sync(~0u, value == value))
        out[blockIdx.x] = -1;
}

extern "C" cudaError_t planted_sum(const int *in, int *out, int blocks, cudaStream_t s)
{
    cudaLaunchConfig_t config = shape((unsigned)blocks, 128, s);
    config.dynamicSmemBytes = 4 * sizeof(int);
    return cudaLaunchKernelEx(&config, sum, in, out);
}

static __global__ void divergent_barrier(int *out)
{
    if (threadIdx.x < 7)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

extern "C" cudaError_t planted_divergent_barrier(int *out, cudaStream_t s)
{
    const cudaLaunchConfig_t config = shape(1, 64, s);
    return cudaLaunchKernelEx(&config, divergent_barrier, out);
}

static __global__ void early_exit(int *out)
{
    if (threadIdx.x == 40)
        return;
    __syncthreads();
    out[threadIdx.x] = 1;
}

extern "C" cudaError_t planted_early_exit(int *out, cudaStream_t s)
{
    const cudaLaunchConfig_t config = shape(1, 64, s);
    return cudaLaunchKernelEx(&config, early_exit, out);
}

static __global__ void wrong_mask(int *out)
{
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_sync(~0u, (int)threadIdx.x, 3);
}

extern "C" cudaError_t planted_wrong_mask(int *out, cudaStream_t s)
{
    const cudaLaunchConfig_t config = shape(1, 32, s);
    return cudaLaunchKernelEx(&config, wrong_mask, out);
}

static __global__ void warp(int *out, int without_sync)
{
    __shared__ int seen;
    if (threadIdx.x == 0)
        seen = 5;
    if (!without_sync)
        __syncwarp();
    if (threadIdx.x == 1)
        *out = seen;
}

extern "C" cudaError_t planted_warp(int *out, int without_sync, cudaStream_t s)
{
    const cudaLaunchConfig_t config = shape(1, 32, s);
    return cudaLaunchKernelEx(&config, warp, out, without_sync);
}

static __global__ void misaligned(const char *in, int *out)
{
    const int4 four = *(const int4 *)(in + 2 * threadIdx.x);
    out[threadIdx.x] = four.x + four.w;
}

extern "C" cudaError_t planted_misaligned(const char *in, int *out, cudaStream_t s)
{
    const cudaLaunchConfig_t config = shape(1, 2, s);
    return cudaLaunchKernelEx(&config, misaligned, in, out);
}

static __global__ void set(int *out, int n, int value)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        out[i] = value;
}

extern "C" cudaError_t planted_set(int *out, int n, int value, cudaStream_t s)
{
    const cudaLaunchConfig_t config = shape((unsigned)(n + 63) / 64, 64, s);
    return cudaLaunchKernelEx(&config, set, out, n, value);
}

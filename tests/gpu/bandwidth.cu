#include "tests/gpu/bandwidth.h"

#include <cuda_runtime.h>

#define THREADS 256
#define IN_FLIGHT 8 /* loads that a thread starts before it uses one */

static cudaLaunchConfig_t shape(uint32_t blocks, cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    return config;
}

/* The finaliser of MurmurHash3: neighbours share no bits. */
static __device__ uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85ebca6b;
    x = (x ^ x >> 13) * 0xc2b2ae35;
    return x ^ x >> 16;
}

static __global__ void __launch_bounds__(THREADS)
    fill(uint32_t *words, size_t count, uint32_t mask, uint32_t set, uint32_t seed)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        words[i] = (mix((uint32_t)i ^ mix(seed + (uint32_t)(i >> 32))) & mask) | set;
}

static __global__ void __launch_bounds__(THREADS)
    read_all(const uint4 *quads, size_t count, uint32_t *sink)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t all = 0;
    for (; i + (IN_FLIGHT - 1) * stride < count; i += IN_FLIGHT * stride) {
        uint4 quad[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            quad[k] = quads[i + k * stride];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            all ^= quad[k].x ^ quad[k].y ^ quad[k].z ^ quad[k].w;
    }
    for (; i < count; i += stride)
        all ^= quads[i].x ^ quads[i].y ^ quads[i].z ^ quads[i].w;
    if (all == 0x13579bdf) { /* hardly ever, but the compiler cannot know */
        *sink = all;
    }
}

cudaError_t bandwidth_fill(uint32_t *words, size_t count, uint32_t mask, uint32_t set,
                           uint32_t seed, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = shape(1024, stream);
    return cudaLaunchKernelEx(&config, fill, words, count, mask, set, seed);
}

cudaError_t bandwidth_read(const uint32_t *words, size_t count, uint32_t *sink, uint32_t num_blocks,
                           cudaStream_t stream)
{
    const cudaLaunchConfig_t config = shape(num_blocks, stream);
    return cudaLaunchKernelEx(&config, read_all, (const uint4 *)words, count / 4, sink);
}

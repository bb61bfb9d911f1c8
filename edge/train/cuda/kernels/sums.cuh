/* Sums over a block's or a warp's threads. Each is a tree, whose order depends on nothing but the
 * number of threads. */
#ifndef FEDGE_EDGE_TRAIN_CUDA_KERNELS_SUMS_CUH
#define FEDGE_EDGE_TRAIN_CUDA_KERNELS_SUMS_CUH

#include <cuda_runtime.h>

#include "edge/train/cuda/kernels/kernels.h"

enum { SUM_THREADS = 128 }; /* of a block that calls sum_of_block */

/* The sum over a warp's lanes; all 32 call it, and each gets it. */
static __device__ __forceinline__ float sum_of_warp(float sum)
{
    for (int half = 16; half > 0; half /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, half);
    return sum;
}

/* The sum over the block's threads, of two numbers at a time; all call it, and each gets both. */
static __device__ __forceinline__ void sum_of_block(double *a, double *b)
{
    __shared__ double sums[2][SUM_THREADS];
    __syncthreads();
    sums[0][threadIdx.x] = *a;
    sums[1][threadIdx.x] = *b;
    for (uint32_t half = SUM_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[0][threadIdx.x] += sums[0][threadIdx.x + half];
            sums[1][threadIdx.x] += sums[1][threadIdx.x + half];
        }
    }
    __syncthreads();
    *a = sums[0][0];
    *b = sums[1][0];
}

/* So many blocks for each slot. */
static inline cudaLaunchConfig_t sum_grid(const fedge_cohort_shape *shape, uint32_t blocks)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks, 1, shape->slots);
    config.blockDim = dim3(SUM_THREADS);
    config.stream = shape->stream;
    return config;
}

#endif

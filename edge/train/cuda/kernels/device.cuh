/* Sums over the threads of a block or warp, and the random numbers of dropout. A sum is a tree
 * whose order depends on the number of threads only. */
#ifndef FEDGE_EDGE_TRAIN_CUDA_KERNELS_DEVICE_CUH
#define FEDGE_EDGE_TRAIN_CUDA_KERNELS_DEVICE_CUH

#include <cuda_runtime.h>

#include "edge/train/cuda/kernels/kernels.h"

enum { SUM_THREADS = 128 }; /* threads of a block that calls sum_of_block */

/* The sum over a warp. All 32 lanes must call it; each gets the sum. */
static __device__ __forceinline__ float sum_of_warp(float sum)
{
    for (int half = 16; half > 0; half /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, half);
    return sum;
}

/* Two sums over a block. All threads must call it; each gets both sums. */
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

/* [blocks] for each slot. */
static inline cudaLaunchConfig_t sum_grid(const fedge_cohort_shape *shape, uint32_t blocks)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks, 1, shape->slots);
    config.blockDim = dim3(SUM_THREADS);
    config.stream = shape->stream;
    return config;
}

/* ---- dropout: the words of the CPU's streams, computed from their positions ---- */

/* Word [word] of the step's stream, as fedge_philox4x32 draws it. */
static __device__ __forceinline__ uint32_t drawn_word(const fedge_cohort_slot_step &slot_step,
                                                      uint64_t word)
{
    uint32_t x0 = (uint32_t)(word / 4), x1 = slot_step.stream[0], x2 = slot_step.stream[1],
             x3 = slot_step.stream[2], k0 = slot_step.key[0], k1 = slot_step.key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * x0, p1 = (uint64_t)0xCD9E8D57u * x2;
        x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)p1;
        x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return word % 4 < 2 ? (word % 2 ? x1 : x0) : (word % 2 ? x3 : x2);
}

/* The first word of the slot's example [b]. */
static __device__ __forceinline__ uint64_t first_word(const fedge_cohort_drop &d,
                                                      const fedge_cohort_slot_step &slot_step,
                                                      uint32_t b)
{
    uint32_t e = slot_step.first + b, before = 0, drawn = slot_step.whole;
    if (slot_step.part > 0) {
        before = e / slot_step.part * slot_step.part;
        drawn = drawn - before < slot_step.part ? drawn - before : slot_step.part;
        e -= before;
    }
    uint32_t first = 0, size = drawn; /* the chunk that holds e */
    while (d.chunk > 0) {
        const uint32_t left = drawn - first, chunks = (left + d.chunk - 1) / d.chunk;
        size = (left + chunks - 1) / chunks;
        if (e < first + size)
            break;
        first += size;
    }
    return before * d.all + drawn * d.before + first * d.layer + size * d.earlier +
           (e - first) * d.words;
}

static __device__ __forceinline__ bool
is_kept(const fedge_cohort_drop &d, const fedge_cohort_slot_step &slot_step, uint64_t word)
{
    return (float)(drawn_word(slot_step, word) >> 8) * 0x1p-24f >= d.p;
}

static __device__ __forceinline__ float drop_factor(const fedge_cohort_drop &d)
{
    return d.p < 1.0f ? 1.0f / (1.0f - d.p) : 0.0f;
}

#endif

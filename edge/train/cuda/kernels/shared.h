/* Types that hosts and kernels share: chunks of sums on the GPU, and division by constants. */
#ifndef FEDGE_EDGE_TRAIN_CUDA_KERNELS_SHARED_H
#define FEDGE_EDGE_TRAIN_CUDA_KERNELS_SHARED_H

#include <stdint.h>

#define FEDGE_COHORT_CHUNK 256 /* maximum of values in a chunk: a codec's block */

/* Codecs of changes (edge/core/codec/codec.h) that GPUs implement. */
enum { FEDGE_COHORT_CODEC_NONE, FEDGE_COHORT_CODEC_INT8 };

/* Up to 256 values of one tensor. The first one's index in the tensor is a multiple of 256. */
typedef struct fedge_cohort_chunk {
    int64_t *sums;  /* (count), on the cohort's GPU */
    uint32_t first; /* index of the first value in the model */
    uint16_t count;
    int8_t bound_log2; /* b: changes are clamped to ±2^b, in units of 2^(b − 30) */
    uint8_t codec;
} fedge_cohort_chunk;

/* Division by a number that is known before a launch, as a product and a shift: GPUs have no
 * instruction that divides integers. Exact for every dividend (Granlund and Montgomery, Division by
 * invariant integers using multiplication, 1994, theorem 4.2). */

#ifdef __CUDACC__
#define FEDGE_DIVISOR_FUNCTION static __host__ __device__ __forceinline__
#else
#define FEDGE_DIVISOR_FUNCTION static inline
#endif

typedef struct fedge_divisor {
    uint32_t by, factor, shift; /* 2^32 + factor is 2^(32 + shift) / by, rounded up */
} fedge_divisor;

typedef struct fedge_divided {
    uint32_t quotient, remainder;
} fedge_divided;

/* [by] is not 0. */
FEDGE_DIVISOR_FUNCTION fedge_divisor fedge_divisor_of(uint32_t by)
{
    fedge_divisor made = {by, 0, 0};
    while ((uint64_t)1 << made.shift < by)
        made.shift++;
    const uint64_t beyond = ((uint64_t)1 << made.shift) - by; /* below by, so factor has 32 bits */
    made.factor = (uint32_t)((beyond << 32) / by + 1);
    return made;
}

FEDGE_DIVISOR_FUNCTION fedge_divided fedge_divide(uint32_t n, fedge_divisor by)
{
    const uint64_t product = ((uint64_t)n * by.factor >> 32) + n;
    fedge_divided parts;
    parts.quotient = (uint32_t)(product >> by.shift);
    parts.remainder = n - parts.quotient * by.by;
    return parts;
}

#endif

/* Where a model's change is added to sums that lie on the GPU: plain data for hosts and kernels. */
#ifndef FEDGE_EDGE_TRAIN_CUDA_KERNELS_SHARED_H
#define FEDGE_EDGE_TRAIN_CUDA_KERNELS_SHARED_H

#include <stdint.h>

#define FEDGE_COHORT_CHUNK 256 /* values of a piece, at most: a codec's block */

/* Codecs of changes (edge/core/codec/codec.h) that GPUs know. */
enum { FEDGE_COHORT_CODEC_NONE, FEDGE_COHORT_CODEC_INT8 };

/* Up to 256 values of one tensor, from a multiple of 256 on. */
typedef struct fedge_cohort_chunk {
    int64_t *sums;  /* on the cohort's GPU: of its first value, the others behind it */
    uint32_t first; /* of the model's values */
    uint16_t count;
    int8_t bound_log2; /* b: changes are cut to ±2^b, and in units of 2^(b − 30) */
    uint8_t codec;
} fedge_cohort_chunk;

/* Division by a number that is known before a launch: a product and a shift, where a GPU has no
 * instruction that divides. Exact for every dividend (Granlund and Montgomery, Division by
 * invariant integers using multiplication, 1994, theorem 4.2). For hosts and kernels. */

#ifdef __CUDACC__
#define FEDGE_DIVISOR_FUNCTION static __host__ __device__ __forceinline__
#else
#define FEDGE_DIVISOR_FUNCTION static inline
#endif

typedef struct fedge_divisor {
    uint32_t by, factor, shift; /* 2^32 + factor is 2^(32 + shift) / by, rounded up */
} fedge_divisor;

typedef struct fedge_divided {
    uint32_t quotient, rest;
} fedge_divided;

/* Of a number that is not 0. */
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
    parts.rest = n - parts.quotient * by.by;
    return parts;
}

#endif

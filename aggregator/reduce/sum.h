/* Sums several encoded updates at a time and decodes them in registers.
 *
 *     sum[i] += Σ_u weight_u · v_u[i]
 *
 * The updates are validated: no value exceeds its bound, none is NaN or −128. All kernels give the
 * same integers; the scalar ones are the reference.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_SUM_H
#define FEDGE_AGGREGATOR_REDUCE_SUM_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/codec/codec.h"

#define FEDGE_SUM_MAX_UPDATES 16

/* The bytes of one update's values, and its weight ≥ 1. */
typedef struct fedge_summand {
    const uint8_t *bytes;
    uint32_t weight;
} fedge_summand;

/* Adds n values of each of 1 ≤ count ≤ FEDGE_SUM_MAX_UPDATES updates; [bytes] begin with a block.
 * sum: (n). */
typedef void (*fedge_sum_fn)(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n,
                             int bound_log2);

/* The function that sums this codec without decoding first; NULL: decoding and adding is fastest.
 * sum.c has the list, by the codecs' names. */
fedge_sum_fn fedge_sum_of(const fedge_codec *codec);

/* Codec none: little-endian floats, |x| ≤ 2^bound_log2. */
void fedge_sum_floats(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n,
                      int bound_log2);
/* Codec int8. */
void fedge_sum_int8(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n,
                    int bound_log2);

/* The references. */
void fedge_sum_floats_scalar(int64_t *sum, const fedge_summand *updates, uint32_t count,
                             size_t first, size_t n, int bound_log2);
void fedge_sum_int8_scalar(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n);

/* One block of int8: value i of update u adds q[u][i] · factors[u] · 2^7. */
typedef struct fedge_sum_block {
    const int8_t *q[FEDGE_SUM_MAX_UPDATES];
    uint64_t factors[FEDGE_SUM_MAX_UPDATES]; /* weight · scale < 2^48 */
    uint64_t bits;                           /* the bitwise or of all factors */
    uint32_t count; /* a multiple of 4: the last update is repeated with a factor of 0 */
} fedge_sum_block;

/* The kernels of one instruction set. Each adds the first values of all updates and returns their
 * number; the caller adds the others. */
typedef struct fedge_sum_kernels {
    const char *name;
    unsigned needs; /* FEDGE_CPU_ bits (edge/core/os.h) */
    /* weights ≤ INT32_MAX */
    size_t (*floats)(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n,
                     int bound_log2);
    size_t (*block)(int64_t *sum, const fedge_sum_block *block, size_t n);
} fedge_sum_kernels;

/* The kernels of this build, the fastest first; NULL after the last. */
const fedge_sum_kernels *fedge_sum_kernels_at(size_t index);
/* The first of them that a CPU with [features] can run; NULL: only the references. */
const fedge_sum_kernels *fedge_sum_kernels_choose(unsigned features);

extern const fedge_sum_kernels fedge_sum_avx512vnni, fedge_sum_avx512, fedge_sum_avx2,
    fedge_sum_neon;

/* The factors split into limbs of 15 bits, for kernels that multiply 16-bit numbers. */
#define FEDGE_SUM_SCALE_SHIFT 7 /* shift of a block's scale, as in the codec */
#define FEDGE_SUM_LIMB_BITS 15
#define FEDGE_SUM_MAX_LIMBS 4 /* enough for a weight of 32 bits times a scale of 16 */
typedef struct fedge_sum_limbs {
    uint32_t num_limbs;                                        /* 2 or 4; some may be all 0 */
    int16_t limbs[FEDGE_SUM_MAX_LIMBS][FEDGE_SUM_MAX_UPDATES]; /* lowest limb first */
} fedge_sum_limbs;
void fedge_sum_split(const fedge_sum_block *block, fedge_sum_limbs *limbs);

#endif

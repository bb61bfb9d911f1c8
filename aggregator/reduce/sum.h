/* Sums of encoded updates: several at a time, decoded in registers.
 *
 *     sum[i] += Σ_u weight_u · v_u[i]
 *
 * The updates have passed fedge_codec_decode or validation: no value is over its bound, none is NaN
 * or −128. Whatever the kernel, the sums are the same integers; the scalar ones are the reference.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_SUM_H
#define FEDGE_AGGREGATOR_REDUCE_SUM_H

#include <stddef.h>
#include <stdint.h>

#define FEDGE_SUM_MAX_UPDATES 16

/* The bytes of one update's values, and its weight ≥ 1. */
typedef struct fedge_summand {
    const uint8_t *bytes;
    uint32_t weight;
} fedge_summand;

/* Codec none: n little-endian floats each, |x| ≤ 2^bound_log2. sum: (n).
 * count ≤ FEDGE_SUM_MAX_UPDATES. */
void fedge_sum_floats(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n,
                      int bound_log2);
/* Codec int8: n values each, in blocks that begin with [bytes]. */
void fedge_sum_int8(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n);

/* The references, and what each set of instructions does of the front of a run: how many values of
 * all updates have been added; the caller does the rest. */
void fedge_sum_floats_scalar(int64_t *sum, const fedge_summand *updates, uint32_t count,
                             size_t first, size_t n, int bound_log2);
void fedge_sum_int8_scalar(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n);
size_t fedge_sum_floats_avx2(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n,
                             int bound_log2);
size_t fedge_sum_floats_avx512(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n,
                               int bound_log2);

/* One block of int8: q of each update and weight · scale · 2^7 split into limbs of 15 bits. */
#define FEDGE_SUM_LIMB_BITS 15
#define FEDGE_SUM_MAX_LIMBS 4 /* a weight of 32 bits times a scale of 16 */
typedef struct fedge_sum_block {
    const int8_t *q[FEDGE_SUM_MAX_UPDATES];
    /* limbs[l][p]: those of updates 2p (low half) and 2p + 1 (high half) */
    uint32_t limbs[FEDGE_SUM_MAX_LIMBS][FEDGE_SUM_MAX_UPDATES / 2];
    uint32_t num_pairs; /* an odd update is paired with itself and limbs of 0 */
    uint32_t num_limbs; /* 1 to FEDGE_SUM_MAX_LIMBS, of the largest product */
} fedge_sum_block;
size_t fedge_sum_block_avx2(int64_t *sum, const fedge_sum_block *block, size_t n);
size_t fedge_sum_block_avx512(int64_t *sum, const fedge_sum_block *block, size_t n);

#endif

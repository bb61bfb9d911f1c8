/* Arrays of 16-bit numbers, and matrix products of bf16 numbers; private to edge/train. */
#ifndef FEDGE_EDGE_TRAIN_KERNELS_HALF_H
#define FEDGE_EDGE_TRAIN_KERNELS_HALF_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/half.h"
#include "edge/train/kernels/kernels.h"
#include "edge/train/model.h"

/* [n] numbers to and from 16 bits, converted as in edge/core/half.h, except that
 * fedge_half_from_floats clamps finite numbers to ±65504 in fp16. [storage]: BF16 or FP16. */
void fedge_half_from_floats(fedge_storage storage, const float *from, size_t n, uint16_t *to);
void fedge_half_to_floats(fedge_storage storage, const uint16_t *from, size_t n, float *to);

/* x rounded to bf16, as a float. Numbers below 2^-126 become 0, as in vdpbf16ps. */
static inline float fedge_bf16_operand(float x)
{
    const uint32_t bits = fedge_float_bits(x);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t quiet_or_rounded =
        magnitude > 0x7f800000u ? (bits | 0x400000u) & 0xffff0000u : rounded;
    return fedge_float_of_bits(magnitude < 0x800000u ? bits & 0x80000000u : quiet_or_rounded);
}

/* ---- matrix products of bf16 numbers with fp32 sums ----
 *
 * Every operand is rounded to bf16, to nearest even, and products are added in fp32 in this order,
 * the same on every CPU:
 *
 *     in each block of FEDGE_BF16_DEPTH of k, from acc = 0, for k = 0, 2, 4, …:
 *         acc += a[k + 1] · b[k + 1]
 *         acc += a[k] · b[k]
 *     c = acc of the first block (with accumulate: c + acc)
 *     c = c + acc of each other block
 *
 * as vdpbf16ps computes them. A product of two bf16 numbers has 16 bits and is exact in fp32,
 * so rounding happens in the operands (2^-8 of each at most) and in the sums alone: of n products
 * they differ from exact arithmetic on the given numbers by less than
 *     (2^-7 + 2^-16 + (n + 2) · 2^-24 · (1 + 2^-6)) · Σ|a · b|.
 * Numbers below 2^-126 count as 0 as operands; vdpbf16ps also flushes such sums, the portable
 * version keeps them, so the two give equal bits unless a product or a sum other than 0 is below
 * 2^-126, and then they differ by less than n · 2^-126.
 */

#define FEDGE_BF16_DEPTH ((size_t)256)  /* values of k in a block */
#define FEDGE_BF16_COLUMNS ((size_t)32) /* columns of b in a panel */

/* [table] with its matrix products, including those of linear_forward, in bf16: by vdpbf16ps if the
 * CPU's [features] include it, else portably with the same results. */
fedge_kernels fedge_kernels_in_bf16(const fedge_kernels *table, unsigned features);

void fedge_bf16_gemm_portable(const fedge_gemm *args, float *pack);
#define FEDGE_BF16_PORTABLE_PACK (FEDGE_BF16_DEPTH * FEDGE_BF16_COLUMNS) /* floats */

#if defined(FEDGE_HAVE_AVX512BF16) /* the compiler knows vdpbf16ps */
void fedge_bf16_gemm_avx512(const fedge_gemm *args, float *pack);
#define FEDGE_BF16_PACKED_A                                                                        \
    ((size_t)32768) /* least capacity, in values of a, of a block of rows                          \
                     */
#define FEDGE_BF16_AVX512_PACK                                                                     \
    ((FEDGE_BF16_PACKED_A + FEDGE_BF16_DEPTH * FEDGE_BF16_COLUMNS) / 2) /* floats */
#endif

#endif

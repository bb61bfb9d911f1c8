/* What int8.c and int4.c do with a block's values and its scale; internal to edge/core
 * and its tests.
 *
 * v: (count) fixed-point integers, |v| ≤ 2^30; q: (count); 1 ≤ count ≤ FEDGE_CODEC_BLOCK. */
#ifndef FEDGE_EDGE_CORE_CODEC_BLOCK_SCALE_H
#define FEDGE_EDGE_CORE_CODEC_BLOCK_SCALE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#define FEDGE_AVX2 __attribute__((target("avx2")))
/* Where the processor has this feature, FEDGE_BLOCK_FAST(f) does what f does. Neither is defined
 * for machines without such functions. */
#define FEDGE_BLOCK_FEATURE FEDGE_CPU_AVX2
#define FEDGE_BLOCK_FAST(f) f##_avx2
#elif defined(__aarch64__)
#include <arm_neon.h>
#define FEDGE_BLOCK_FEATURE FEDGE_CPU_NEON
#define FEDGE_BLOCK_FAST(f) f##_neon
#endif

/* Returns the smallest m with most · m · 2^shift ≥ max |v|, at most 65535 (0 for a block of zeros);
 * writes q = round-to-nearest-even(v / (m · 2^shift)) cut to ±most, and q · m · 2^shift, which is
 * what it will be decoded to, in the place of v. most · 65535 · 2^shift < 2^30. The fastest kernel
 * is chosen at run time; _scalar is the reference, whose bits the others match. */
uint16_t fedge_block_encode(int32_t *v, size_t count, int shift, int8_t most, int8_t *q);
uint16_t fedge_block_encode_scalar(int32_t *v, size_t count, int shift, int8_t most, int8_t *q);

/* The int8 codec's blocks; internal to edge/core and its tests. codec.h has the format. The encoder
 * takes the smallest m with 127 · m · 2^7 ≥ max |v| of the block, at most 65535 (0 for a block of
 * zeros), and q = round-to-nearest-even(v / (m · 2^7)) cut to ±127. Limit: 127 · 65535 · 2^7 <
 * 2^30, so the largest int8 value is 0.99217 · B.
 *
 * v: (count) fixed-point integers, |v| ≤ 2^30; q: (count) int8; 1 ≤ count ≤ FEDGE_CODEC_BLOCK.
 * The functions choose the fastest kernel at run time; the _scalar ones are the references, whose
 * bits the others match.
 */

/* Writes q, and what it will be decoded to in the place of v; returns the scale m. Its reference is
 * fedge_block_encode_scalar (block_scale.h). */
uint16_t fedge_int8_encode(int32_t *v, size_t count, int8_t *q);

/* v = q · m · 2^7; false when a q is −128 (v is undefined then). */
FEDGE_MUST_USE bool fedge_int8_decode(const int8_t *q, size_t count, uint16_t scale, int32_t *v);
FEDGE_MUST_USE bool fedge_int8_decode_scalar(const int8_t *q, size_t count, uint16_t scale,
                                             int32_t *v);

#endif

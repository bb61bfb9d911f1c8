/* What the codecs that write values share: floats within a bound, 16-bit floats, and blocks of
 * small integers with a scale. Internal to edge/core and its tests. */
#ifndef FEDGE_EDGE_CORE_CODEC_VALUES_H
#define FEDGE_EDGE_CORE_CODEC_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/codec/codec.h"

/* ---- floats (floats.c) ----------------------------------------------------------------------- */

/* cut[i] = x[i] within ±2^bound_log2, 0 for NaN; both are counted. */
void fedge_codec_cut(int bound_log2, const float *x, size_t n, float *cut,
                     fedge_codec_stats *stats);

/* Names the first of x that is not |x| ≤ 2^bound_log2; there is one. x[0] is value [first] of the
 * tensor. FEDGE_OUT_OF_RANGE or, for infinity and NaN, FEDGE_NOT_FINITE. */
fedge_status fedge_codec_fail_value(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                    const float *x, fedge_error *err);

/* The kernels behind the codecs of 16 bits: many values at a time, where the CPU can.
 *
 * Each does whole vectors from the front and returns how many values that were; 0 where the CPU has
 * no such instructions. The caller does the rest by half.h, whose bits these have. Values of 16
 * bits lie as 2 bytes each, little-endian.
 */

/* As fedge_codec_cut. */
size_t fedge_cut_simd(float bound, const float *x, size_t n, float *to, fedge_codec_stats *stats);

/* [x] becomes what is read back of it; no value is NaN. out: (n); NULL: the bytes are not wanted.
 */
size_t fedge_f16_narrow_simd(float *x, size_t n, uint8_t *out);
size_t fedge_bf16_narrow_simd(float *x, size_t n, uint8_t *out);
/* No value of f16 is infinite or NaN. */
size_t fedge_f16_widen_simd(const uint8_t *in, size_t n, float *x);
size_t fedge_bf16_widen_simd(const uint8_t *in, size_t n, float *x);

/* Stops before the first vector with a value whose bits without its sign are over [most] < 2^15. */
size_t fedge_half_within_simd(const uint8_t *in, size_t n, uint16_t most);

/* ---- blocks with a scale (block_scale.c) ----------------------------------------------------- */

/* v: (count) fixed-point integers, |v| ≤ 2^30; q: (count); 1 ≤ count ≤ FEDGE_CODEC_BLOCK. */

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

/* The int8 codec's blocks. codec.h has the format. The encoder
 * takes the smallest m with 127 · m · 2^7 ≥ max |v| of the block, at most 65535 (0 for a block of
 * zeros), and q = round-to-nearest-even(v / (m · 2^7)) cut to ±127. Limit: 127 · 65535 · 2^7 <
 * 2^30, so the largest int8 value is 0.99217 · B.
 *
 * v: (count) fixed-point integers, |v| ≤ 2^30; q: (count) int8; 1 ≤ count ≤ FEDGE_CODEC_BLOCK.
 * The functions choose the fastest kernel at run time; the _scalar ones are the references, whose
 * bits the others match.
 */

/* Writes q, and what it will be decoded to in the place of v; returns the scale m. Its reference is
 * fedge_block_encode_scalar. */
uint16_t fedge_int8_encode(int32_t *v, size_t count, int8_t *q);

/* v = q · m · 2^7; false when a q is −128 (v is undefined then). */
FEDGE_MUST_USE bool fedge_int8_decode(const int8_t *q, size_t count, uint16_t scale, int32_t *v);
FEDGE_MUST_USE bool fedge_int8_decode_scalar(const int8_t *q, size_t count, uint16_t scale,
                                             int32_t *v);

#endif

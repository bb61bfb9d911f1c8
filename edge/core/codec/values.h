/* Helpers of codecs that write values: clipping, 16-bit floats, and blocks of small integers with a
 * scale. Internal to edge/core and its tests. */
#ifndef FEDGE_EDGE_CORE_CODEC_VALUES_H
#define FEDGE_EDGE_CORE_CODEC_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/codec/codec.h"

/* ---- floats (floats.c) ----------------------------------------------------------------------- */

/* cut[i] = x[i] clipped to ±2^bound_log2, 0 for NaN; counts both. */
void fedge_codec_cut(int bound_log2, const float *x, size_t n, float *cut,
                     fedge_codec_stats *stats);

/* Names the first of x with !(|x| ≤ 2^bound_log2), which must exist. x[0] is value [first] of the
 * tensor. FEDGE_OUT_OF_RANGE, or FEDGE_NOT_FINITE for infinity and NaN. */
fedge_status fedge_codec_fail_value(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                    const float *x, fedge_error *err);

/* SIMD kernels of the 16-bit codecs. Each processes whole vectors from the front and returns the
 * number of values done, 0 without CPU support. The caller finishes with half.h, which gives the
 * same bits. 16-bit values are stored as 2 bytes, little-endian. */

/* As fedge_codec_cut. */
size_t fedge_cut_simd(float bound, const float *x, size_t n, float *to, fedge_codec_stats *stats);

/* [x] becomes its decoded value; no value is NaN. out: (n); NULL: omit the bytes. */
size_t fedge_f16_narrow_simd(float *x, size_t n, uint8_t *out);
size_t fedge_bf16_narrow_simd(float *x, size_t n, uint8_t *out);
/* No value of f16 is infinite or NaN. */
size_t fedge_f16_widen_simd(const uint8_t *in, size_t n, float *x);
size_t fedge_bf16_widen_simd(const uint8_t *in, size_t n, float *x);

/* Stops before the first vector with a value whose bits, without the sign, exceed [most] < 2^15. */
size_t fedge_half_within_simd(const uint8_t *in, size_t n, uint16_t most);

/* ---- blocks with a scale (block_scale.c) ----------------------------------------------------- */

/* v: (count) fixed-point integers, |v| ≤ 2^30; q: (count); 1 ≤ count ≤ FEDGE_CODEC_BLOCK. */

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#define FEDGE_AVX2 __attribute__((target("avx2")))
/* On processors with this feature, FEDGE_BLOCK_FAST(f) is the fast form of f. Neither is defined on
 * other machines. */
#define FEDGE_BLOCK_FEATURE FEDGE_CPU_AVX2
#define FEDGE_BLOCK_FAST(f) f##_avx2
#elif defined(__aarch64__)
#include <arm_neon.h>
#define FEDGE_BLOCK_FEATURE FEDGE_CPU_NEON
#define FEDGE_BLOCK_FAST(f) f##_neon
#endif

/* Returns the smallest m with most · m · 2^shift ≥ max |v|, at most 65535 (0 for a block of zeros).
 * Writes q = round-to-nearest-even(v / (m · 2^shift)) clipped to ±most, and replaces v by its
 * decoded value q · m · 2^shift. most · 65535 · 2^shift < 2^30. Uses the fastest kernel; _scalar is
 * the reference with the same bits. */
uint16_t fedge_block_encode(int32_t *v, size_t count, int shift, int8_t most, int8_t *q);
uint16_t fedge_block_encode_scalar(int32_t *v, size_t count, int shift, int8_t most, int8_t *q);

/* Blocks of the int8 codec; codec.h has the format. The encoder takes the smallest m with 127 · m ·
 * 2^7 ≥ max |v| of the block, at most 65535 (0 for a block of zeros), and q =
 * round-to-nearest-even(v / (m · 2^7)) clipped to ±127. 127 · 65535 · 2^7 < 2^30, so the largest
 * int8 value is 0.99217 · B.
 *
 * v: (count) fixed-point integers, |v| ≤ 2^30; q: (count) int8; 1 ≤ count ≤ FEDGE_CODEC_BLOCK. The
 * functions use the fastest kernel; the _scalar ones are the references with the same bits.
 */

/* Writes q, replaces v by its decoded value and returns the scale m. Its reference is
 * fedge_block_encode_scalar. */
uint16_t fedge_int8_encode(int32_t *v, size_t count, int8_t *q);

/* v = q · m · 2^7; false if a q is −128 (v is undefined then). */
FEDGE_MUST_USE bool fedge_int8_decode(const int8_t *q, size_t count, uint16_t scale, int32_t *v);
FEDGE_MUST_USE bool fedge_int8_decode_scalar(const int8_t *q, size_t count, uint16_t scale,
                                             int32_t *v);

#endif

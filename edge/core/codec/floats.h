/* What the codecs of floating-point values share; internal to edge/core. */
#ifndef FEDGE_EDGE_CORE_CODEC_FLOATS_H
#define FEDGE_EDGE_CORE_CODEC_FLOATS_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/codec/codec.h"

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

#endif

/* Codecs: how the float values of a section become bytes and come back as fixed-point integers.
 *
 * The size of an encoded section depends only on the codec and the schema, so both sides know it
 * before a byte is read. Deflate is a separate stage (edge/io/deflate.h).
 *
 *   none   IEEE 754 binary32, little-endian, in schema order.            4 bytes per value
 *   int8   per tensor, blocks of 256 values: u16 scale m (little-endian) then the block's int8 q;
 *          v = q · m · 2^7 in units of 2^−F, |q| ≤ 127, so decoding rounds nothing.
 *          The last block of a tensor is short.                          1 + 2/256 bytes per value
 *          The encoder takes the smallest m with 127 · m · 2^7 ≥ max |v| of the block, at most
 * 65535 (0 for a block of zeros), and q = round-to-nearest-even(v / (m · 2^7)) cut to ±127. Limit:
 * 127 · 65535 · 2^7 < 2^30, so the largest int8 value is 0.99217 · B.
 */
#ifndef FEDGE_EDGE_CORE_CODEC_H
#define FEDGE_EDGE_CORE_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/fixed.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"

#define FEDGE_CODEC_BLOCK 256

typedef enum fedge_codec { FEDGE_CODEC_NONE, FEDGE_CODEC_INT8, FEDGE_CODEC_COUNT } fedge_codec;

/* "none", "int8"; NULL for an unknown one. */
const char *fedge_codec_name(unsigned codec);
FEDGE_MUST_USE fedge_status fedge_codec_from_name(const char *name, fedge_codec *codec,
                                                  fedge_error *err);

/* Exact bytes of a section of [schema] in [codec]. */
size_t fedge_codec_size(fedge_codec codec, const fedge_schema *schema);

/* What encoding did to the values. */
typedef struct fedge_codec_stats {
    uint64_t clamped;    /* values outside their tensor's bound (infinity too), cut to it */
    uint64_t not_finite; /* NaN, up to and including the block where encoding stopped */
} fedge_codec_stats;

/* Encodes [values] (schema->num_elements floats) into exactly fedge_codec_size bytes at [out].
 * [bounds_log2]: b of each tensor, schema->num_tensors of them. Values over the bound are clamped
 * and counted in [stats] (set, not added to; may be NULL). FEDGE_NOT_FINITE when a value is NaN
 * (the message names tensor and index); FEDGE_INVALID_ARGUMENT for a bound outside fixed.h's range
 * and when out_size is not the exact size. */
FEDGE_MUST_USE fedge_status fedge_codec_encode(fedge_codec codec, const fedge_schema *schema,
                                               const int8_t *bounds_log2, const float *values,
                                               uint8_t *out, size_t out_size,
                                               fedge_codec_stats *stats, fedge_error *err);

/* Decodes and validates. [v]: schema->num_elements fixed-point integers, |v| ≤ 2^30 on success.
 * FEDGE_TRUNCATED or FEDGE_TOO_BIG when in_size is not exact, FEDGE_NOT_FINITE, FEDGE_OUT_OF_RANGE
 * with the tensor's name and the index (FEDGE_NOT_FINITE for infinity too). q = −128 is refused as
 * FEDGE_CORRUPT. [v] is undefined on failure. */
FEDGE_MUST_USE fedge_status fedge_codec_decode(fedge_codec codec, const fedge_schema *schema,
                                               const int8_t *bounds_log2, const uint8_t *in,
                                               size_t in_size, int32_t *v, fedge_error *err);

/* Bytes of [count] values of one tensor that begin at a multiple of FEDGE_CODEC_BLOCK. */
size_t fedge_codec_run_size(fedge_codec codec, size_t count);

/* As fedge_codec_decode for the values [first, first + count) of one tensor; [first] is a multiple
 * of FEDGE_CODEC_BLOCK. in: their bytes, fedge_codec_run_size of them. v: (count). */
FEDGE_MUST_USE fedge_status fedge_codec_decode_run(fedge_codec codec, const fedge_tensor_spec *spec,
                                                   int bound_log2, size_t first, size_t count,
                                                   const uint8_t *in, int32_t *v, fedge_error *err);

#endif

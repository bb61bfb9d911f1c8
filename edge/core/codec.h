/* Codecs: how the float values of a section become bytes and come back as fixed-point integers.
 *
 * A codec of values is one table of operations in one file, codec_NAME.c: it writes blocks of 256
 * values, each tensor for itself. docs/codecs.md says how to add one; docs/protocol.md has every
 * format, byte by byte. Deflate is a separate stage (edge/io/deflate.h).
 *
 *   none   IEEE 754 binary32, little-endian, in schema order.            4 bytes per value
 *   int8   per tensor, blocks of 256 values: u16 scale m (little-endian) then the block's int8 q;
 *          v = q · m · 2^7 in units of 2^−F, |q| ≤ 127, so decoding rounds nothing.
 *                                                                        1 + 2/256 bytes per value
 *   f16    IEEE 754 binary16, of values that are scaled by their bound.  2 bytes per value
 *   bf16   the upper half of binary32.                                   2 bytes per value
 *   int4   as int8 with |q| ≤ 7, two in a byte: v = q · m · 2^11.        1/2 + 2/256 bytes per
 * value
 *
 * Whatever the codec, what is decoded is an integer v in units of 2^−F with |v| ≤ 2^30
 * (edge/core/fixed.h), and any bytes are a valid section or refused.
 */
#ifndef FEDGE_EDGE_CORE_CODEC_H
#define FEDGE_EDGE_CORE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/fixed.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"

#define FEDGE_CODEC_BLOCK 256
#define FEDGE_CODEC_PIECE (8 * FEDGE_CODEC_BLOCK) /* values that are encoded at a time */
#define FEDGE_CODEC_TEXT 64                       /* bytes of a codec as a job writes it, and NUL */

/* Every codec of this release. The order is kept: append. */
#define FEDGE_CODEC_MAP(X)                                                                         \
    X(none)                                                                                        \
    X(int8)                                                                                        \
    X(f16)                                                                                         \
    X(bf16)                                                                                        \
    X(int4)

/* What encoding did to the values. */
typedef struct fedge_codec_stats {
    uint64_t clamped;    /* values outside their tensor's bound (infinity too), cut to it */
    uint64_t not_finite; /* NaN, up to and including the piece where encoding stopped */
} fedge_codec_stats;

/* What a codec is. [first] is the place of a run's first value in its tensor, a multiple of
 * FEDGE_CODEC_BLOCK; only a tensor's last block is shorter. */
typedef struct fedge_codec_ops {
    const char *name;
    bool keeps_quantised; /* what is decoded is what fedge_fixed_quantise makes */

    /* The bytes of [count] values from [first] = 0 on. */
    size_t (*size)(size_t count);
    /* Writes a block, x (n), 1 ≤ n ≤ FEDGE_CODEC_BLOCK, to [out] unless that is NULL, and to v (n)
     * as it will be decoded. Adds to [stats] what was over the bound; a NaN is counted there, and
     * its v is 0. */
    void (*encode)(int bound_log2, const float *x, size_t n, int32_t *v, uint8_t *out,
                   fedge_codec_stats *stats);
    /* v (count): the values [first, first + count) of a tensor, whose bytes [in] are. Fails as
     * fedge_codec_decode does; v is undefined then. */
    fedge_status (*decode)(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                           size_t count, const uint8_t *in, int32_t *v, fedge_error *err);
    /* Fails exactly when decode does, and in the same way. */
    fedge_status (*validate)(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                             size_t count, const uint8_t *in, fedge_error *err);
} fedge_codec_ops;

#define FEDGE_CODEC_DECLARE(name) extern const fedge_codec_ops fedge_codec_##name;
FEDGE_CODEC_MAP(FEDGE_CODEC_DECLARE)
#undef FEDGE_CODEC_DECLARE

/* How a section is written. Plain data; all 0: no codec. */
typedef struct fedge_codec {
    const fedge_codec_ops *values;
} fedge_codec;

/* "none", "int8", …, one by one from index 0; NULL behind the last. */
const char *fedge_codec_name(unsigned index);
#define FEDGE_CODEC_ONE(name) +1
enum { FEDGE_CODEC_COUNT = 0 FEDGE_CODEC_MAP(FEDGE_CODEC_ONE) };
#undef FEDGE_CODEC_ONE

/* Reads a codec as a job writes it. FEDGE_UNSUPPORTED says what is wrong. */
FEDGE_MUST_USE fedge_status fedge_codec_parse(const char *text, fedge_codec *codec,
                                              fedge_error *err);
/* The other way round; returns [text]. */
const char *fedge_codec_text(const fedge_codec *codec, char text[FEDGE_CODEC_TEXT]);
bool fedge_codec_equal(const fedge_codec *a, const fedge_codec *b);
/* Has [codec] a stage of this name? */
bool fedge_codec_has(const fedge_codec *codec, const char *name);

/* What a job has that names none, and what keeps every bit of a float. */
fedge_codec fedge_codec_default(void);
fedge_codec fedge_codec_lossless(void);

/* Most bytes of a section of [schema]; when is_exact, a section has exactly so many. */
size_t fedge_codec_size(const fedge_codec *codec, const fedge_schema *schema);
bool fedge_codec_is_exact(const fedge_codec *codec);

/* ---- encoding -------------------------------------------------------------------------------- */

/* Where the values of a section come from and where they go, piece by piece: [n] ≤
 * FEDGE_CODEC_PIECE values of tensor [index] of the schema from its value [at] on, each once and in
 * order. */
typedef struct fedge_codec_ends {
    void *user;
    /* The values: in [room] (n), or where they lie. */
    const float *(*take)(void *user, uint32_t index, size_t at, size_t n, float *room);
    /* The same as fedge_fixed_quantise makes them of these, for which floats may not be needed.
     * NULL: by take. */
    void (*take_fixed)(void *user, uint32_t index, size_t at, size_t n, int bound_log2, int32_t *v,
                       fedge_codec_stats *stats);
    /* v (n): the values as they will be decoded. NULL: not wanted. A failure is passed on. */
    fedge_status (*give)(void *user, uint32_t index, size_t at, size_t n, const int32_t *v,
                         fedge_error *err);
} fedge_codec_ends;

/* Encodes a section to [out] (fedge_codec_size), *size bytes of it; out NULL: only the size is
 * wanted. [bounds_log2]: b of each tensor, schema->num_tensors of them. Values over the bound are
 * clamped and counted in [stats] (set, not added to). FEDGE_NOT_FINITE when a value is NaN (the
 * message names tensor and index); FEDGE_INVALID_ARGUMENT for a bound outside fixed.h's range. */
FEDGE_MUST_USE fedge_status fedge_codec_encode_pieces(const fedge_codec *codec,
                                                      const fedge_schema *schema,
                                                      const int8_t *bounds_log2,
                                                      const fedge_codec_ends *ends, uint8_t *out,
                                                      size_t *size, fedge_codec_stats *stats,
                                                      fedge_error *err);

/* The same of [values] (schema->num_elements), all that [out] has room for: FEDGE_INVALID_ARGUMENT
 * when out_size is less than fedge_codec_size. stats: may be NULL. */
FEDGE_MUST_USE fedge_status fedge_codec_encode(const fedge_codec *codec, const fedge_schema *schema,
                                               const int8_t *bounds_log2, const float *values,
                                               uint8_t *out, size_t out_size, size_t *size,
                                               fedge_codec_stats *stats, fedge_error *err);

/* ---- decoding -------------------------------------------------------------------------------- */

/* Decodes and validates. [v]: schema->num_elements fixed-point integers, |v| ≤ 2^30 on success.
 * FEDGE_TRUNCATED or FEDGE_TOO_BIG when in_size is not that of the section, FEDGE_NOT_FINITE,
 * FEDGE_OUT_OF_RANGE with the tensor's name and the index (FEDGE_NOT_FINITE for infinity too),
 * FEDGE_CORRUPT for what no encoder writes. [v] is undefined on failure. */
FEDGE_MUST_USE fedge_status fedge_codec_decode(const fedge_codec *codec, const fedge_schema *schema,
                                               const int8_t *bounds_log2, const uint8_t *in,
                                               size_t in_size, int32_t *v, fedge_error *err);

/* Bytes of [count] values of one tensor that begin at a multiple of FEDGE_CODEC_BLOCK. */
size_t fedge_codec_run_size(const fedge_codec *codec, size_t count);

/* As fedge_codec_decode for the values [first, first + count) of one tensor; [first] is a multiple
 * of FEDGE_CODEC_BLOCK. in: their bytes, fedge_codec_run_size of them. v: (count); NULL: they are
 * only validated. */
FEDGE_MUST_USE fedge_status fedge_codec_decode_run(const fedge_codec *codec,
                                                   const fedge_tensor_spec *spec, int bound_log2,
                                                   size_t first, size_t count, const uint8_t *in,
                                                   int32_t *v, fedge_error *err);

#endif

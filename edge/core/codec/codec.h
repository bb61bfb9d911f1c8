/* Codecs: how the float values of a section become bytes and come back as fixed-point integers.
 *
 * A codec is one table of operations in one file, codec_NAME.c. docs/codecs.md says how to add one;
 * docs/reference/protocol.md has every format, byte by byte. Deflate is a separate stage
 * (edge/wire/deflate.h).
 *
 * Some write values, in blocks of 256, each tensor for itself:
 *
 *   none   IEEE 754 binary32, little-endian, in schema order.            4 bytes per value
 *   int8   per tensor, blocks of 256 values: u16 scale m (little-endian) then the block's int8 q;
 *          v = q · m · 2^7 in units of 2^−F, |q| ≤ 127, so decoding rounds nothing.
 *                                                                        1 + 2/256 bytes per value
 *   f16    IEEE 754 binary16, of values that are scaled by their bound.  2 bytes per value
 *   bf16   the upper half of binary32.                                   2 bytes per value
 *   int4   as int8 with |q| ≤ 7, two in a byte: v = q · m · 2^11.        1/2 + 2/256 bytes each
 *
 * Others sparsify: they select a fraction of a tensor's values and have a codec above encode them:
 *
 *   topk      the largest
 *   randk     some that are drawn, for all clients of a round alike
 *   ternary   the largest, of which only the signs travel and one magnitude
 *
 * The client can keep the values that are not sent as a residual, which is added to its next
 * change. Tensors of less than two dimensions (biases, norms) travel whole whatever the choice. The
 * size of what is chosen may depend on the values.
 *
 * Whatever the codec, what is decoded is an integer v in units of 2^−F with |v| ≤ 2^30
 * (edge/core/fixed.h), and any bytes are a valid section or refused.
 */
#ifndef FEDGE_EDGE_CORE_CODEC_CODEC_H
#define FEDGE_EDGE_CORE_CODEC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/fixed.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"

#define FEDGE_CODEC_BLOCK 256
#define FEDGE_CODEC_CHUNK (8 * FEDGE_CODEC_BLOCK) /* values that are encoded or given at a time */
#define FEDGE_CODEC_TEXT 64                       /* bytes of a codec as a job writes it, and NUL */

/* Every codec of this release. The order is kept: append. */
#define FEDGE_CODEC_MAP(X)                                                                         \
    X(none)                                                                                        \
    X(int8)                                                                                        \
    X(f16)                                                                                         \
    X(bf16)                                                                                        \
    X(int4)                                                                                        \
    X(topk)                                                                                        \
    X(randk)                                                                                       \
    X(ternary)

/* Statistics of encoding. */
typedef struct fedge_codec_stats {
    uint64_t clamped;    /* values outside their tensor's bound (infinity too), cut to it */
    uint64_t not_finite; /* NaN, up to and including the chunk where encoding stopped */
} fedge_codec_stats;

typedef struct fedge_codec fedge_codec;

/* Takes values as they are decoded or will be: v (n), n ≤ FEDGE_CODEC_CHUNK, of one tensor.
 * [indices] (n), ascending, says which they are; NULL: those from [at] on. A failure is passed on.
 */
typedef fedge_status (*fedge_codec_give_fn)(void *user, size_t at, const uint32_t *indices,
                                            size_t n, const int32_t *v, fedge_error *err);

/* A tensor as those see it that choose among its values. */
typedef struct fedge_codec_tensor {
    const fedge_codec *codec;
    const fedge_tensor_spec *spec;
    int bound_log2;
    uint64_t key;             /* encoding: for what is drawn */
    size_t from, to;          /* decoding: the values that are wanted; to 0: all */
    fedge_codec_give_fn give; /* NULL: not wanted */
    void *user;
} fedge_codec_tensor;

/* What a codec is, as it is named and encodes. [first] is the place of a run's first value in its
 * tensor, a multiple of FEDGE_CODEC_BLOCK; only a tensor's last block is shorter. */
typedef struct fedge_codec_ops {
    const char *name;
    bool chooses; /* takes a share, as in topk:0.01; else it writes values */

    /* ---- of one that writes values ---- */
    bool keeps_quantised; /* what is decoded is what fedge_fixed_quantise makes */
    /* The bytes of [count] values from [first] = 0 on. */
    size_t (*size)(size_t count);
    /* Writes a block, x (n), 1 ≤ n ≤ FEDGE_CODEC_BLOCK, to [out] unless that is NULL, and to v (n)
     * as it will be decoded. Adds to [stats] what was over the bound; a NaN is counted there, and
     * its v is 0. */
    void (*encode)(int bound_log2, const float *x, size_t n, int32_t *v, uint8_t *out,
                   fedge_codec_stats *stats);

    /* ---- of one that chooses ---- */
    bool signs; /* of the chosen values it writes the signs alone, and one magnitude for all */
    /* Most bytes of a tensor of [count] values. */
    size_t (*largest)(const fedge_codec *codec, size_t count);
    /* Writes a tensor whose values x (spec->count) are within its bound to [out] unless that is
     * NULL, and gives what was chosen; x becomes what stays. *size: of its bytes. */
    fedge_status (*choose)(const fedge_codec_tensor *tensor, float *x, uint8_t *out, size_t *size,
                           fedge_error *err);
} fedge_codec_ops;

/* Decoding has its own table, so that clients, which only encode, do not link it. */
typedef struct fedge_codec_reader {
    /* ---- of a codec that writes values ---- */
    /* v (count): the values [first, first + count) of a tensor, whose bytes [in] are. Fails as
     * fedge_codec_decode does; v is undefined then. */
    fedge_status (*decode)(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                           size_t count, const uint8_t *in, int32_t *v, fedge_error *err);
    /* Fails exactly when decode does, and in the same way. */
    fedge_status (*validate)(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                             size_t count, const uint8_t *in, fedge_error *err);

    /* ---- of one that chooses ---- */
    /* Reads a tensor from in[0, size) and gives its values that are wanted, looking at little more
     * than these; *used: of its bytes, size or less. Fails as fedge_codec_decode does; some values
     * have been given then. */
    fedge_status (*read)(const fedge_codec_tensor *tensor, const uint8_t *in, size_t size,
                         size_t *used, fedge_error *err);
} fedge_codec_reader;

#define FEDGE_CODEC_DECLARE(name)                                                                  \
    extern const fedge_codec_ops fedge_codec_##name;                                               \
    extern const fedge_codec_reader fedge_codec_##name##_reader;
FEDGE_CODEC_MAP(FEDGE_CODEC_DECLARE)
#undef FEDGE_CODEC_DECLARE

#define FEDGE_CODEC_WHOLE 1000000u /* a fraction of 1, in millionths */

/* How a section is encoded. Plain data; all 0: no codec. A job or a message names one codec for all
 * tensors; a plan may override it for some of a section's tensors. */
struct fedge_codec {
    const fedge_codec_ops *values;
    const fedge_codec_ops *chooses;    /* NULL: all values travel */
    uint64_t fraction;                 /* of a tensor's values that travel, in millionths, ≥ 1 */
    const fedge_codec *const *tensors; /* (of the section's schema) each one's own, whose [tensors]
                                          is NULL; NULL: all are alike. Outlives this */
};

/* "none", "int8", …, one by one from index 0; NULL behind the last. */
const char *fedge_codec_name(unsigned index);
#define FEDGE_CODEC_ONE(name) +1
enum { FEDGE_CODEC_COUNT = 0 FEDGE_CODEC_MAP(FEDGE_CODEC_ONE) };
#undef FEDGE_CODEC_ONE

/* Reads a codec as a job writes it: "int8", "topk:0.01", "topk:0.01+int8". What chooses has none
 * behind it write the values. FEDGE_UNSUPPORTED says what is wrong. */
FEDGE_MUST_USE fedge_status fedge_codec_parse(const char *text, fedge_codec *codec,
                                              fedge_error *err);
/* The other way round; returns [text]. */
const char *fedge_codec_text(const fedge_codec *codec, char text[FEDGE_CODEC_TEXT]);
bool fedge_codec_equal(const fedge_codec *a, const fedge_codec *b); /* but for [tensors] */
/* Has [codec] a stage of this name? */
bool fedge_codec_has(const fedge_codec *codec, const char *name);

/* What a job has that names none, and what keeps every bit of a float. */
fedge_codec fedge_codec_default(void);
fedge_codec fedge_codec_lossless(void);

/* That of tensor [index] of a section. */
const fedge_codec *fedge_codec_of(const fedge_codec *codec, uint32_t index);
/* Is it no more than a codec that writes values, in which every tensor lies at a place that is
 * known? Else a section is read from its beginning, and may be shorter than fedge_codec_size. */
bool fedge_codec_is_plain(const fedge_codec *codec);
/* Does it, a tensor's own, choose among the values of this one? */
bool fedge_codec_chooses_of(const fedge_codec *codec, const fedge_tensor_spec *spec);
/* How many values of [count] it chooses: the share of them, rounded up. */
size_t fedge_codec_chosen(const fedge_codec *codec, size_t count);

/* The largest size of a section of [schema] in bytes; for a plain codec, the exact size. */
size_t fedge_codec_size(const fedge_codec *codec, const fedge_schema *schema);

/* ---- encoding -------------------------------------------------------------------------------- */

/* Where the values of a section come from and where they go, chunk by chunk: [n] ≤
 * FEDGE_CODEC_CHUNK values of tensor [index] of the schema from its value [at] on, each once and in
 * order. */
typedef struct fedge_codec_ends {
    void *user;
    /* Returns the values, in [buffer] (n) or elsewhere. */
    const float *(*take)(void *user, uint32_t index, size_t at, size_t n, float *buffer);
    /* The same as fedge_fixed_quantise makes them of these, for which floats may not be needed.
     * NULL: by take. */
    void (*take_fixed)(void *user, uint32_t index, size_t at, size_t n, int bound_log2, int32_t *v,
                       fedge_codec_stats *stats);
    /* What is taken, as it will be decoded; NULL: not wanted. */
    fedge_status (*give)(void *user, uint32_t index, size_t at, const uint32_t *indices, size_t n,
                         const int32_t *v, fedge_error *err);
    /* (schema->num_elements): what has not travelled before, which is added to what is taken; then
     * what has not travelled now. All finite. NULL: nothing stays, of a codec that does not
     * choose. */
    float *residual;
    uint64_t seed; /* of what is drawn: in this round, by all clients alike */
    uint32_t round;
} fedge_codec_ends;

/* Encodes a section to [out] (fedge_codec_size), *size bytes of it; out NULL: only the size is
 * wanted. [bounds_log2]: b of each tensor, schema->num_tensors of them. Values over the bound are
 * clamped and counted in [stats] (set, not added to). FEDGE_NOT_FINITE when a value is NaN (the
 * message names tensor and index); FEDGE_INVALID_ARGUMENT for a bound outside fixed.h's range. */
FEDGE_MUST_USE fedge_status fedge_codec_encode_chunks(const fedge_codec *codec,
                                                      const fedge_schema *schema,
                                                      const int8_t *bounds_log2,
                                                      const fedge_codec_ends *ends, uint8_t *out,
                                                      size_t *size, fedge_codec_stats *stats,
                                                      fedge_error *err);

/* ---- decoding (codec_read.c) ----------------------------------------------------------------- */

/* The reader of one of fedge_codec_ops. */
const fedge_codec_reader *fedge_codec_reader_of(const fedge_codec_ops *codec);

/* Are the bounds in fixed.h's range? FEDGE_INVALID_ARGUMENT with the tensor. */
FEDGE_MUST_USE fedge_status fedge_codec_check_bounds(const fedge_schema *schema,
                                                     const int8_t *bounds_log2, fedge_error *err);

/* Decodes and validates. [v]: schema->num_elements fixed-point integers, |v| ≤ 2^30 on success.
 * FEDGE_TRUNCATED or FEDGE_TOO_BIG when in_size is not that of the section, FEDGE_NOT_FINITE,
 * FEDGE_OUT_OF_RANGE with the tensor's name and the index (FEDGE_NOT_FINITE for infinity too),
 * FEDGE_CORRUPT for what no encoder writes. [v] is undefined on failure. */
FEDGE_MUST_USE fedge_status fedge_codec_decode(const fedge_codec *codec, const fedge_schema *schema,
                                               const int8_t *bounds_log2, const uint8_t *in,
                                               size_t in_size, int32_t *v, fedge_error *err);

/* Reads one tensor of a section that has [size] bytes left, validates it and gives its values, of a
 * whole tensor run by run. give NULL: they are only validated. *used: of the bytes. */
FEDGE_MUST_USE fedge_status fedge_codec_read_tensor(const fedge_codec_tensor *tensor,
                                                    const uint8_t *in, size_t size, size_t *used,
                                                    fedge_error *err);

/* All tensors have been read, and [left] bytes are there: FEDGE_TOO_BIG unless that is 0. */
FEDGE_MUST_USE fedge_status fedge_codec_check_end(size_t left, fedge_error *err);

/* ---- codecs that do not choose, in slices ---------------------------------------------------- */

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

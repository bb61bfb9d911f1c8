/* Codecs: encode the float values of a section as bytes and decode them as fixed-point integers.
 *
 * A codec is one table of operations in one file, NAME.c. docs/codecs.md says how to add one;
 * docs/reference/protocol.md has every format, byte by byte. Deflate is a separate stage
 * (edge/wire/deflate.h).
 *
 * Some write the values of each tensor in blocks of 256:
 *
 *   none   IEEE 754 binary32, little-endian, in schema order.            4 bytes per value
 *   int8   per tensor, blocks of 256 values: u16 scale m (little-endian) then the block's int8 q;
 *          v = q · m · 2^7 in units of 2^−F, |q| ≤ 127, so decoding rounds nothing.
 *                                                                        1 + 2/256 bytes per value
 *   f16    IEEE 754 binary16, of values that are scaled to their bound.  2 bytes per value
 *   bf16   the upper half of binary32.                                   2 bytes per value
 *   int4   as int8 with |q| ≤ 7, two in a byte: v = q · m · 2^11.        1/2 + 2/256 bytes each
 *
 * Others sparsify: they select a fraction of a tensor's values and have a codec above encode them:
 *
 *   topk      the largest
 *   randk     a random selection, the same for all clients of a round
 *   ternary   the largest, as signs and one magnitude
 *
 * The client can retain the values that are not sent as a residual, which is added to its next
 * update (error feedback). Tensors of fewer than two dimensions (biases, norms) are sent whole. The
 * encoded size may depend on the values.
 *
 * Every codec decodes to integers v in units of 2^−F with |v| ≤ 2^30 (edge/core/fixed.h), and
 * refuses bytes that are no valid section.
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
#define FEDGE_CODEC_CHUNK (8 * FEDGE_CODEC_BLOCK) /* most values per call of take or give */
#define FEDGE_CODEC_TEXT 64                       /* bytes of a codec's text, with NUL */

/* All codecs. Append only: the order is part of the format. */
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

/* Receives decoded values v (n) of one tensor, n ≤ FEDGE_CODEC_CHUNK. indices (n), ascending, are
 * their indices; NULL: they are the n values from [at] on. A failure is passed on. */
typedef fedge_status (*fedge_codec_give_fn)(void *user, size_t at, const uint32_t *indices,
                                            size_t n, const int32_t *v, fedge_error *err);

/* One tensor, as a sparsifying codec sees it. */
typedef struct fedge_codec_tensor {
    const fedge_codec *codec;
    const fedge_tensor_spec *spec;
    int bound_log2;
    uint64_t key;             /* encoding: key of the random numbers */
    size_t from, to;          /* decoding: the range of values to pass to give; to 0: all */
    fedge_codec_give_fn give; /* NULL: values are only validated */
    void *user;
} fedge_codec_tensor;

/* A codec: its name and how it encodes. It either sparsifies (picks the values to send) or writes
 * values. Blocks have FEDGE_CODEC_BLOCK values; only a tensor's last block is shorter. */
typedef struct fedge_codec_ops {
    const char *name;
    bool sparsifies; /* takes a fraction, as in topk:0.01 */

    /* ---- codecs that write values ---- */
    bool keeps_quantised; /* decoding returns exactly what fedge_fixed_quantise made */
    /* Encoded bytes of the first [count] values of a tensor. */
    size_t (*size)(size_t count);
    /* Encodes a block x (n), 1 ≤ n ≤ FEDGE_CODEC_BLOCK, to [out] unless that is NULL. v (n): the
     * values as a decoder will see them. Counts values over the bound and NaNs in [stats]; the v of
     * a NaN is 0. */
    void (*encode)(int bound_log2, const float *x, size_t n, int32_t *v, uint8_t *out,
                   fedge_codec_stats *stats);

    /* ---- codecs that sparsify ---- */
    bool signs; /* writes only signs of the selected values, and one magnitude for all */
    /* Largest encoded size in bytes of a tensor of [count] values. */
    size_t (*largest)(const fedge_codec *codec, size_t count);
    /* Encodes a tensor to [out] unless that is NULL, and passes the selected values to give.
     * x (spec->count), within the bound on entry, becomes the residual. *size: encoded bytes. */
    fedge_status (*sparsify)(const fedge_codec_tensor *tensor, float *x, uint8_t *out, size_t *size,
                             fedge_error *err);
} fedge_codec_ops;

/* Decoding has its own table, so that clients, which only encode, do not link it. */
typedef struct fedge_codec_reader {
    /* ---- codecs that write values ---- */
    /* Decodes values [first, first + count) of a tensor from [in] to v (count); [first] is a
     * multiple of FEDGE_CODEC_BLOCK. Fails as fedge_codec_decode does; v is undefined then. */
    fedge_status (*decode)(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                           size_t count, const uint8_t *in, int32_t *v, fedge_error *err);
    /* Fails exactly when decode does, and in the same way. */
    fedge_status (*validate)(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                             size_t count, const uint8_t *in, fedge_error *err);

    /* ---- codecs that sparsify ---- */
    /* Reads a tensor from in[0, size) and passes the wanted range of values to give, decoding
     * little else. *used: bytes read, at most size. Fails as fedge_codec_decode does, possibly
     * after giving some values. */
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
 * tensors; a plan may override it for single tensors. */
struct fedge_codec {
    const fedge_codec_ops *values;
    const fedge_codec_ops *sparsifier; /* NULL: all values are sent */
    uint64_t fraction; /* fraction of a tensor's values that are sent, in millionths, ≥ 1 */
    const fedge_codec *const *tensors; /* (schema->num_tensors) codec of each tensor, whose
                                          [tensors] is NULL; NULL: this one for all. Borrowed */
};

/* "none", "int8", …, from index 0; NULL after the last. */
const char *fedge_codec_name(unsigned index);
#define FEDGE_CODEC_ONE(name) +1
enum { FEDGE_CODEC_COUNT = 0 FEDGE_CODEC_MAP(FEDGE_CODEC_ONE) };
#undef FEDGE_CODEC_ONE

/* Reads a codec as a job writes it: "int8", "topk:0.01", "topk:0.01+int8". A sparsifying codec
 * alone has its values written by "none". FEDGE_UNSUPPORTED says what is wrong. */
FEDGE_MUST_USE fedge_status fedge_codec_parse(const char *text, fedge_codec *codec,
                                              fedge_error *err);
/* Formats a codec as a job writes it; returns [text]. */
const char *fedge_codec_text(const fedge_codec *codec, char text[FEDGE_CODEC_TEXT]);
bool fedge_codec_equal(const fedge_codec *a, const fedge_codec *b); /* ignores [tensors] */
/* Whether [codec] has a stage of this name. */
bool fedge_codec_has(const fedge_codec *codec, const char *name);

fedge_codec fedge_codec_default(void);  /* the codec of jobs that name none */
fedge_codec fedge_codec_lossless(void); /* preserves every bit of a float */

/* The codec of tensor [index] of a section. */
const fedge_codec *fedge_codec_of(const fedge_codec *codec, uint32_t index);
/* True when tensors lie at offsets known in advance: no sparsifier, the same codec for all. Any
 * other section is read from its beginning and may be shorter than fedge_codec_size. */
bool fedge_codec_is_plain(const fedge_codec *codec);
/* True when [codec] sends only some of this tensor's values; tensors of rank < 2 are sent whole. */
bool fedge_codec_sparsifies(const fedge_codec *codec, const fedge_tensor_spec *spec);
/* The number of values sent of [count]: the fraction of them, rounded up. */
size_t fedge_codec_chosen(const fedge_codec *codec, size_t count);

/* The largest size of a section of [schema] in bytes; for a plain codec, the exact size. */
size_t fedge_codec_size(const fedge_codec *codec, const fedge_schema *schema);

/* ---- encoding -------------------------------------------------------------------------------- */

/* Source and sink of a section's values. Each call is for [n] ≤ FEDGE_CODEC_CHUNK values of tensor
 * [index] from its value [at] on; every value comes once, in order. */
typedef struct fedge_codec_ends {
    void *user;
    /* Returns the values (n), written to [buffer] or where they lie already. */
    const float *(*take)(void *user, uint32_t index, size_t at, size_t n, float *buffer);
    /* The values as fedge_fixed_quantise makes them, for sources that have them without floats.
     * NULL: take is called and the result quantised. */
    void (*take_fixed)(void *user, uint32_t index, size_t at, size_t n, int bound_log2, int32_t *v,
                       fedge_codec_stats *stats);
    /* Receives the values as they will be decoded; NULL: not wanted. */
    fedge_status (*give)(void *user, uint32_t index, size_t at, const uint32_t *indices, size_t n,
                         const int32_t *v, fedge_error *err);
    /* (schema->num_elements), finite: error feedback. Added to the values that are taken; set to
     * what was not sent. NULL: no residual, for codecs that do not sparsify. */
    float *residual;
    uint64_t seed; /* seed of the random numbers; the same for all clients in a round */
    uint32_t round;
} fedge_codec_ends;

/* Encodes a section to [out] (fedge_codec_size bytes) and sets *size to the bytes used; out NULL:
 * only the size is wanted. bounds_log2 (schema->num_tensors): b of each tensor. Values over it are
 * clamped and counted in [stats] (set, not added to). FEDGE_NOT_FINITE when a value is NaN (the
 * message names tensor and index); FEDGE_INVALID_ARGUMENT for a bound outside fixed.h's range. */
FEDGE_MUST_USE fedge_status fedge_codec_encode_chunks(const fedge_codec *codec,
                                                      const fedge_schema *schema,
                                                      const int8_t *bounds_log2,
                                                      const fedge_codec_ends *ends, uint8_t *out,
                                                      size_t *size, fedge_codec_stats *stats,
                                                      fedge_error *err);

/* ---- decoding -------------------------------------------------------------------------------- */

/* The reader of one of fedge_codec_ops. */
const fedge_codec_reader *fedge_codec_reader_of(const fedge_codec_ops *codec);

/* FEDGE_INVALID_ARGUMENT, naming the tensor, when a bound is outside fixed.h's range. */
FEDGE_MUST_USE fedge_status fedge_codec_check_bounds(const fedge_schema *schema,
                                                     const int8_t *bounds_log2, fedge_error *err);

/* Decodes and validates. v (schema->num_elements): fixed-point integers, |v| ≤ 2^30. Fails with
 * FEDGE_TRUNCATED or FEDGE_TOO_BIG when in_size is not the section's; FEDGE_NOT_FINITE (NaN or
 * infinity) or FEDGE_OUT_OF_RANGE with the tensor's name and the index; FEDGE_CORRUPT for bytes
 * that no encoder writes. [v] is undefined on failure. */
FEDGE_MUST_USE fedge_status fedge_codec_decode(const fedge_codec *codec, const fedge_schema *schema,
                                               const int8_t *bounds_log2, const uint8_t *in,
                                               size_t in_size, int32_t *v, fedge_error *err);

/* Reads and validates one tensor of a section with [size] bytes left, and passes its values to give
 * in runs. *used: bytes read. */
FEDGE_MUST_USE fedge_status fedge_codec_read_tensor(const fedge_codec_tensor *tensor,
                                                    const uint8_t *in, size_t size, size_t *used,
                                                    fedge_error *err);

/* After the last tensor: FEDGE_TOO_BIG unless [left] is 0. */
FEDGE_MUST_USE fedge_status fedge_codec_check_end(size_t left, fedge_error *err);

/* ---- plain codecs, by ranges ----------------------------------------------------------------- */

/* Encoded bytes of [count] values of one tensor from a multiple of FEDGE_CODEC_BLOCK on. */
size_t fedge_codec_run_size(const fedge_codec *codec, size_t count);

/* As fedge_codec_decode for the values [first, first + count) of one tensor; [first] is a multiple
 * of FEDGE_CODEC_BLOCK. in: their bytes, fedge_codec_run_size of them. v: (count); NULL: they are
 * only validated. */
FEDGE_MUST_USE fedge_status fedge_codec_decode_run(const fedge_codec *codec,
                                                   const fedge_tensor_spec *spec, int bound_log2,
                                                   size_t first, size_t count, const uint8_t *in,
                                                   int32_t *v, fedge_error *err);

#endif

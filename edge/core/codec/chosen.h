/* The format of sparse tensors, shared by the codecs that sparsify: bits, gaps between indices, the
 * selection of the largest values. Internal to edge/core.
 *
 * Bits fill bytes from the lowest up; the unused bits of a last byte are 0. A tensor's values form
 * groups of 32768, which can be decoded separately and in parallel. The selected indices p_0 < p_1
 * < … of a group, counted from its first value, are stored as gaps g_i = p_i − p_(i−1) − 1 (p_(−1)
 * = −1) in a Rice code with r bits: g >> r ones, a zero, then the lower r bits of g. r is the
 * largest with 2^r ≤ ln 2 · n / k, at most 13, for k of the tensor's n values (Golomb's choice for
 * random indices).
 *
 *     index    for each group: u16 number of selected values, u16 bytes of its gaps
 *     values   the k selected values in the codec of values; or, if only signs are sent, u32 their
 *              magnitude v
 *     gaps     of each group, padded to whole bytes; when only signs are sent, each gap is followed
 *              by a bit, 1 for a negative value
 */
#ifndef FEDGE_EDGE_CORE_CODEC_CHOSEN_H
#define FEDGE_EDGE_CORE_CODEC_CHOSEN_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/codec/codec.h"

#define FEDGE_CODEC_GROUP 32768 /* values */

/* ---- bits ------------------------------------------------------------------------------------ */

typedef struct fedge_bits_out {
    uint8_t *out; /* NULL: only count bytes */
    size_t size;  /* complete bytes so far */
    uint64_t held;
    unsigned count; /* bits in [held], below 8 between calls */
} fedge_bits_out;

void fedge_bits_put(fedge_bits_out *bits, uint32_t value, unsigned count); /* count ≤ 32 */
void fedge_bits_put_gap(fedge_bits_out *bits, uint32_t gap, unsigned rice);
/* Pads the last byte with zeros. */
void fedge_bits_end(fedge_bits_out *bits);

typedef struct fedge_bits_in {
    const uint8_t *in;
    size_t size, at;
    uint64_t held;
    unsigned count;
} fedge_bits_in;

/* count ≤ 32. False if fewer bits are left. */
bool fedge_bits_get(fedge_bits_in *bits, unsigned count, uint32_t *value);
/* Reads a gap. False if it exceeds [most] or the bits end. */
bool fedge_bits_get_gap(fedge_bits_in *bits, unsigned rice, uint32_t most, uint32_t *gap);

/* The parameter r for k of n values, 1 ≤ k ≤ n. */
unsigned fedge_rice_bits(size_t n, size_t k);

/* ---- the largest ----------------------------------------------------------------------------- */

/* Iterates over the k values of x (n) with the largest magnitude, in ascending order of index. Ties
 * go to the lower index. x has no NaN. */
typedef struct fedge_largest {
    const float *x;
    size_t n, seen;
    uint32_t pending; /* bitmask of selected values among the last 32 seen, not yet returned */
    uint32_t least;   /* bits of the smallest selected magnitude */
    size_t equals;    /* values of magnitude [least] still to be selected */
} fedge_largest;

fedge_largest fedge_largest_of(const float *x, size_t n, size_t k); /* 1 ≤ k ≤ n */
uint32_t fedge_largest_next(fedge_largest *largest);

/* ---- chosen values, block by block ----------------------------------------------------------- */

/* Encodes selected values block by block. */
typedef struct fedge_chosen_out {
    const fedge_codec_tensor *tensor;
    float *x;
    uint8_t *out; /* next encoded value; NULL: only count bytes */
    bool signs;   /* only signs are sent, stored with the gaps; the values are ±[magnitude] */
    int32_t magnitude;
    size_t n; /* values in the block */
    uint32_t indices[FEDGE_CODEC_BLOCK];
    float block[FEDGE_CODEC_BLOCK];
} fedge_chosen_out;

/* Selects the value at [index]; x[index] becomes its residual. */
FEDGE_MUST_USE fedge_status fedge_chosen_put(fedge_chosen_out *chosen, uint32_t index,
                                             fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_chosen_end(fedge_chosen_out *chosen, fedge_error *err);

/* Decodes the selected values [first, first + n), all in one block of 256. */
typedef struct fedge_chosen_in {
    const fedge_codec_tensor *tensor;
    const uint8_t *values; /* NULL: signs of [magnitude] */
    int32_t magnitude;
    size_t k, first, n;
    uint32_t indices[FEDGE_CODEC_BLOCK];
    bool negative[FEDGE_CODEC_BLOCK];
} fedge_chosen_in;

/* Passes those in the wanted range to give and advances past the block. */
FEDGE_MUST_USE fedge_status fedge_chosen_give(fedge_chosen_in *chosen, fedge_error *err);

/* FEDGE_TRUNCATED: the section ends within this tensor. */
fedge_status fedge_chosen_fail_end(const fedge_tensor_spec *spec, fedge_error *err);

/* ---- tensors --------------------------------------------------------------------------------- */

/* The operations of codecs that choose the values of largest magnitude and send each value, or only
 * its sign (fedge_codec_ops.signs). */
size_t fedge_groups_largest(const fedge_codec *codec, size_t count);
FEDGE_MUST_USE fedge_status fedge_groups_sparsify(const fedge_codec_tensor *tensor, float *x,
                                                  uint8_t *out, size_t *size, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_groups_read(const fedge_codec_tensor *tensor, const uint8_t *in,
                                              size_t size, size_t *used, fedge_error *err);

#endif

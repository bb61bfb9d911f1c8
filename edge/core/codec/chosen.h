/* The common parts of sparse codecs: bits, gaps between indices, the largest values, and tensors of
 * which some values travel; internal to edge/core.
 *
 * Bits fill bytes from the lowest up; what is left of a last byte is 0. A tensor's values lie in
 * groups of 32768, so that groups can be read alone and side by side. The indices p_0 < p_1 < …
 * that are chosen of a group, counted from its first value, are gaps g_i = p_i − p_(i−1) − 1
 * (p_(−1) = −1) in Rice's code with r bits: g >> r ones, a zero, then the lower r bits of g. r is
 * the largest with 2^r ≤ ln 2 · n / k, at most 13, for k values of the tensor's n (Golomb's choice
 * for drawn indices).
 *
 *     index    for each group u16 how many are chosen, u16 bytes of its gaps
 *     values   the k chosen values as the codec behind writes k values; or, where only signs
 *              travel, u32 their magnitude v
 *     gaps     of each group, in whole bytes; a sign follows its gap as a bit, 1 when it is
 * negative
 */
#ifndef FEDGE_EDGE_CORE_CODEC_CHOSEN_H
#define FEDGE_EDGE_CORE_CODEC_CHOSEN_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/codec/codec.h"

#define FEDGE_CODEC_GROUP 32768 /* values */

/* ---- bits ------------------------------------------------------------------------------------ */

typedef struct fedge_bits_out {
    uint8_t *out; /* NULL: only the size is wanted */
    size_t size;  /* whole bytes so far */
    uint64_t held;
    unsigned count; /* of bits held, below 8 between calls */
} fedge_bits_out;

void fedge_bits_put(fedge_bits_out *bits, uint32_t value, unsigned count); /* count ≤ 32 */
void fedge_bits_put_gap(fedge_bits_out *bits, uint32_t gap, unsigned rice);
/* Ends the last byte. */
void fedge_bits_end(fedge_bits_out *bits);

typedef struct fedge_bits_in {
    const uint8_t *in;
    size_t size, at;
    uint64_t held;
    unsigned count;
} fedge_bits_in;

/* False: there are no more bits. count ≤ 32. */
bool fedge_bits_get(fedge_bits_in *bits, unsigned count, uint32_t *value);
/* A gap of at most [most]; false: the bits end before, or it is larger. */
bool fedge_bits_get_gap(fedge_bits_in *bits, unsigned rice, uint32_t most, uint32_t *gap);

/* r for k of n, 1 ≤ k ≤ n. */
unsigned fedge_rice_bits(size_t n, size_t k);

/* ---- the largest ----------------------------------------------------------------------------- */

/* Goes through the k values of x (n) whose magnitude is the largest, by ascending index. Of
 * equals, the first. x has no NaN. */
typedef struct fedge_largest {
    const float *x;
    size_t n, seen;
    uint32_t pending; /* a bit for each of the last values seen that is still to be returned */
    uint32_t least;   /* magnitude, as bits, of the smallest that is chosen */
    size_t equals;    /* that are still to be chosen of that magnitude */
} fedge_largest;

fedge_largest fedge_largest_of(const float *x, size_t n, size_t k); /* 1 ≤ k ≤ n */
uint32_t fedge_largest_next(fedge_largest *largest);

/* ---- chosen values, block by block ----------------------------------------------------------- */

/* On their way out. */
typedef struct fedge_chosen_out {
    const fedge_codec_tensor *tensor;
    float *x;
    uint8_t *out; /* of the values; NULL: only the size is wanted */
    bool signs;   /* alone, of [magnitude], which lie elsewhere */
    int32_t magnitude;
    size_t n; /* in the block */
    uint32_t indices[FEDGE_CODEC_BLOCK];
    float block[FEDGE_CODEC_BLOCK];
} fedge_chosen_out;

/* The value at [index] travels: x there becomes what does not. */
FEDGE_MUST_USE fedge_status fedge_chosen_put(fedge_chosen_out *chosen, uint32_t index,
                                             fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_chosen_end(fedge_chosen_out *chosen, fedge_error *err);

/* On their way in: [n] from chosen value [first] on, all of one block of 256. */
typedef struct fedge_chosen_in {
    const fedge_codec_tensor *tensor;
    const uint8_t *values; /* NULL: signs of [magnitude] */
    int32_t magnitude;
    size_t k, first, n;
    uint32_t indices[FEDGE_CODEC_BLOCK];
    bool negative[FEDGE_CODEC_BLOCK];
} fedge_chosen_in;

/* Gives those of them that are wanted, and goes on behind them. */
FEDGE_MUST_USE fedge_status fedge_chosen_give(fedge_chosen_in *chosen, fedge_error *err);

/* FEDGE_TRUNCATED: the section ends within this tensor. */
fedge_status fedge_chosen_fail_end(const fedge_tensor_spec *spec, fedge_error *err);

/* ---- tensors --------------------------------------------------------------------------------- */

/* largest, choose and read of the codecs that choose the values with the largest magnitude: all of
 * each value, or the signs alone (fedge_codec_ops' signs). */
size_t fedge_groups_largest(const fedge_codec *codec, size_t count);
FEDGE_MUST_USE fedge_status fedge_groups_choose(const fedge_codec_tensor *tensor, float *x,
                                                uint8_t *out, size_t *size, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_groups_read(const fedge_codec_tensor *tensor, const uint8_t *in,
                                              size_t size, size_t *used, fedge_error *err);

#endif

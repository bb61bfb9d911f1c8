/* Sparse ternary compression: of the k = ⌈share · n⌉ values of a tensor whose magnitude is the
 * largest, of equals the first, the signs, and for all of them one magnitude, their mean; and their
 * places as gaps (chosen.h). All other values are 0.
 *
 * Sattler, Wiedemann, Müller, Samek, "Robust and communication-efficient federated learning from
 * non-i.i.d. data", IEEE TNNLS 2020. */
#include "edge/core/codec/chosen.h"

static size_t ternary_largest(const fedge_codec *codec, size_t count)
{
    return fedge_groups_largest(codec, count, true);
}

static fedge_status ternary_choose(const fedge_codec_tensor *tensor, float *x, uint8_t *out,
                                   size_t *size, fedge_error *err)
{
    return fedge_groups_choose(tensor, true, x, out, size, err);
}

static fedge_status ternary_read(const fedge_codec_tensor *tensor, const uint8_t *in, size_t size,
                                 size_t *used, fedge_error *err)
{
    return fedge_groups_read(tensor, true, in, size, used, err);
}

const fedge_codec_ops fedge_codec_ternary = {
    .name = "ternary",
    .chooses = true,
    .largest = ternary_largest,
    .choose = ternary_choose,
};

const fedge_codec_reader fedge_codec_ternary_reader = {.read = ternary_read};

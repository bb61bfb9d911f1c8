/* The k = ⌈share · n⌉ values of a tensor whose magnitude is the largest, of equals the first, as
 * the codec behind it writes k values, and their places as gaps (chosen.h).
 *
 * Aji and Heafield, "Sparse communication for distributed gradient descent", EMNLP 2017; what stays
 * is not lost (Stich, Cordonnier, Jaggi, "Sparsified SGD with memory", NeurIPS 2018). */
#include "edge/core/codec/chosen.h"

static size_t topk_largest(const fedge_codec *codec, size_t count)
{
    return fedge_groups_largest(codec, count, false);
}

static fedge_status topk_choose(const fedge_codec_tensor *tensor, float *x, uint8_t *out,
                                size_t *size, fedge_error *err)
{
    return fedge_groups_choose(tensor, false, x, out, size, err);
}

static fedge_status topk_read(const fedge_codec_tensor *tensor, const uint8_t *in, size_t size,
                              size_t *used, fedge_error *err)
{
    return fedge_groups_read(tensor, false, in, size, used, err);
}

const fedge_codec_ops fedge_codec_topk = {
    .name = "topk",
    .chooses = true,
    .largest = topk_largest,
    .choose = topk_choose,
};

const fedge_codec_reader fedge_codec_topk_reader = {.read = topk_read};

/* The k = ⌈fraction · n⌉ values of a tensor with the largest magnitude (ties by index), in the
 * codec of values, and the gaps between their indices (chosen.h).
 *
 * Aji and Heafield, "Sparse communication for distributed gradient descent", EMNLP 2017; with a
 * residual: Stich, Cordonnier, Jaggi, "Sparsified SGD with memory", NeurIPS 2018.
 */
#include "edge/core/codec/chosen.h"

const fedge_codec_ops fedge_codec_topk = {
    .name = "topk",
    .sparsifies = true,
    .largest = fedge_groups_largest,
    .sparsify = fedge_groups_sparsify,
};

const fedge_codec_reader fedge_codec_topk_reader = {.read = fedge_groups_read};

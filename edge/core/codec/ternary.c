/* Sparse ternary compression: of the k = ⌈share · n⌉ values of a tensor whose magnitude is the
 * largest, of equals the first, the signs, and for all of them one magnitude, their mean; and the
 * gaps between their indices (chosen.h). All other values are 0.
 *
 * Sattler, Wiedemann, Müller, Samek, "Robust and communication-efficient federated learning from
 * non-i.i.d. data", IEEE TNNLS 2020.
 */
#include "edge/core/codec/chosen.h"

const fedge_codec_ops fedge_codec_ternary = {
    .name = "ternary",
    .sparsifies = true,
    .signs = true,
    .largest = fedge_groups_largest,
    .sparsify = fedge_groups_sparsify,
};

const fedge_codec_reader fedge_codec_ternary_reader = {.read = fedge_groups_read};

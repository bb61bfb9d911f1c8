/* A block of values through a codec and back, for who is both ends of it: the simulator. */
#ifndef FEDGE_EDGE_CORE_CODEC_BLOCK_H
#define FEDGE_EDGE_CORE_CODEC_BLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/codec.h"

/* What fedge_codec_encode makes of x (n) within a tensor of bound 2^[bound_log2], and
 * fedge_codec_decode of that, bit for bit: v (n), and in [out] the bytes, of which there are so
 * many as it returns; NULL: they are not wanted. 1 ≤ n ≤ FEDGE_CODEC_BLOCK, and only a tensor's
 * last block is shorter. Adds to [stats]; a NaN is counted there, and its v is 0. */
size_t fedge_codec_block(fedge_codec codec, int bound_log2, const float *x, size_t n, int32_t *v,
                         uint8_t *out, fedge_codec_stats *stats);

#endif

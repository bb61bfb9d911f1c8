/* The int8 codec's blocks; internal to edge/core and its tests. codec.h has the format. The encoder
 * takes the smallest m with 127 · m · 2^7 ≥ max |v| of the block, at most 65535 (0 for a block of
 * zeros), and q = round-to-nearest-even(v / (m · 2^7)) cut to ±127. Limit: 127 · 65535 · 2^7 <
 * 2^30, so the largest int8 value is 0.99217 · B.
 *
 * v: (count) fixed-point integers, |v| ≤ 2^30; q: (count) int8; 1 ≤ count ≤ FEDGE_CODEC_BLOCK.
 * The functions choose the fastest kernel at run time; the _scalar ones are the references, whose
 * bits the others match.
 */
#ifndef FEDGE_EDGE_CORE_CODEC_INT8_H
#define FEDGE_EDGE_CORE_CODEC_INT8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* Writes q, and what it will be decoded to in the place of v; returns the scale m. Its reference is
 * fedge_block_encode_scalar (block_scale.h). */
uint16_t fedge_int8_encode(int32_t *v, size_t count, int8_t *q);

/* v = q · m · 2^7; false when a q is −128 (v is undefined then). */
FEDGE_MUST_USE bool fedge_int8_decode(const int8_t *q, size_t count, uint16_t scale, int32_t *v);
FEDGE_MUST_USE bool fedge_int8_decode_scalar(const int8_t *q, size_t count, uint16_t scale,
                                             int32_t *v);

#endif

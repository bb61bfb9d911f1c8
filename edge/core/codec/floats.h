/* What the codecs of floating-point values share; internal to edge/core. */
#ifndef FEDGE_EDGE_CORE_CODEC_FLOATS_H
#define FEDGE_EDGE_CORE_CODEC_FLOATS_H

#include <stddef.h>

#include "edge/core/codec/codec.h"

/* cut[i] = x[i] within ±2^bound_log2, 0 for NaN; both are counted. */
void fedge_codec_cut(int bound_log2, const float *x, size_t n, float *cut,
                     fedge_codec_stats *stats);

/* Names the first of x that is not |x| ≤ 2^bound_log2; there is one. x[0] is value [first] of the
 * tensor. FEDGE_OUT_OF_RANGE or, for infinity and NaN, FEDGE_NOT_FINITE. */
fedge_status fedge_codec_fail_value(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                    const float *x, fedge_error *err);

#endif

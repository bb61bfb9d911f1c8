/* Dropping values at random: what Dropout and the attention layers share; private to
 * edge/train/layers. Each value is kept with probability 1 − p and scaled by 1 / (1 − p).
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_MASK_H
#define FEDGE_EDGE_TRAIN_LAYERS_MASK_H

#include "edge/core/rng.h"
#include "edge/train/layer.h"

/* Bytes for one bit of each of [n] values. */
#define FEDGE_MASK_BYTES(n) (((uint64_t)(n) + 7) / 8)

/* y = x, kept or dropped by one fedge_rng_float each, in order; y may be x. [kept]:
 * FEDGE_MASK_BYTES(n) bytes that say which, or NULL. */
void fedge_mask_draw(fedge_rng *rng, float p, size_t n, const float *x, float *y, uint8_t *kept);

/* dx = dy where the value was kept, scaled; else 0. dx may be dy. */
void fedge_mask_apply(float p, size_t n, const uint8_t *kept, const float *dy, float *dx);

#endif

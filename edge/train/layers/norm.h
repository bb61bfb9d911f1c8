/* Normalisation of groups of values by their own mean and variance: what GroupNorm and LayerNorm
 * share; private to edge/train/layers.
 *
 *   y = (x − mean) / sqrt(variance + eps) · weight + bias
 *
 * A row is [channels · spatial] values that lie together. Row r has weights from
 * (r mod groups) · channels on, one for each [spatial] values.
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_NORM_H
#define FEDGE_EDGE_TRAIN_LAYERS_NORM_H

#include "edge/train/layer.h"

typedef struct fedge_norm {
    size_t rows, groups, channels, spatial;
    float eps;
} fedge_norm;

/* saved: mean and 1 / sqrt(variance + eps) of each row, (rows, 2) floats. */
void fedge_norm_forward(const fedge_layer_run *run, const fedge_norm *norm);
void fedge_norm_backward(const fedge_layer_run *run, const fedge_norm *norm);

/* A weight of ones and a bias of zeros, each of this shape. */
void fedge_norm_tensors(uint32_t rank, const uint32_t *shape, fedge_layer_tensor list[2]);

#endif

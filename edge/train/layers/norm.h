/* Normalisation of groups of values by their own mean and variance: what GroupNorm, LayerNorm and
 * the transformer's layers share; private to edge/train/layers.
 *
 *   y = (x − mean) / sqrt(variance + eps) · weight + bias
 *
 * A row is [channels · spatial] values that lie together. Row r has weights from
 * (r mod groups) · channels on, one for each [spatial] values.
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_NORM_H
#define FEDGE_EDGE_TRAIN_LAYERS_NORM_H

#include "edge/train/layers/layer.h"

typedef struct fedge_norm {
    const fedge_kernels *kernels;
    size_t rows, groups, channels, spatial;
    float eps;
    const float *weight, *bias;             /* NULL: 1, 0 */
    float *weight_gradient, *bias_gradient; /* to be added to; NULL: not trained */
    float ceiling;  /* > 0: y = min(max(y, 0), ceiling), and dy is the gradient of that */
    float *moments; /* (rows, 2): mean and 1 / sqrt(variance + eps); forward NULL: not kept */
} fedge_norm;

/* Is a rectifier behind it done in the same pass over the values? Not by the kernels for rows whose
 * every value has a weight of its own: then the ceiling must be 0. */
bool fedge_norm_fuses_relu(const fedge_norm *self);

/* y may be x. */
void fedge_norm_forward(const fedge_norm *self, const float *x, float *y);

/* y again from the moments that forward kept. */
void fedge_norm_recompute(const fedge_norm *self, const float *x, float *y);

/* dx may be dy, or NULL: not wanted. */
void fedge_norm_backward(const fedge_norm *self, const float *x, const float *dy, float *dx);

/* A weight of ones and a bias of zeros, each of this shape. */
void fedge_norm_tensors(uint32_t rank, const uint32_t *shape, fedge_layer_tensor list[2]);

/* Adds the run's ceiling, kernels, parameters, their gradients and its saved memory to [norm]. */
void fedge_norm_set_run(const fedge_layer_run *run, fedge_norm *norm);

#endif

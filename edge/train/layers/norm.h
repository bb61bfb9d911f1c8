/* Normalisation of groups of values by their mean and variance, for GroupNorm, LayerNorm and the
 * transformer's layers; private to edge/train/layers.
 *
 *   y = (x − mean) / sqrt(variance + eps) · weight + bias
 *
 * A row is [channels · spatial] contiguous values. Row r has weights from (r mod groups) · channels
 * on, one for each [spatial] values.
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_NORM_H
#define FEDGE_EDGE_TRAIN_LAYERS_NORM_H

#include "edge/train/layers/layer.h"

typedef struct fedge_norm {
    const fedge_kernels *kernels;
    size_t rows, groups, channels, spatial;
    float eps;
    const float *weight, *bias;             /* NULL: 1, 0 */
    float *weight_gradient, *bias_gradient; /* accumulated; NULL: not trained */
    float ceiling;  /* > 0: y = min(max(y, 0), ceiling), and dy is the gradient of that */
    float *moments; /* (rows, 2): mean and 1 / sqrt(variance + eps); forward: or NULL */
} fedge_norm;

/* True if the norm can absorb a rectifier. The kernels for rows with a weight for each value
 * cannot: then the ceiling must be 0. */
bool fedge_norm_fuses_relu(const fedge_norm *self);

/* y may be x. */
void fedge_norm_forward(const fedge_norm *self, const float *x, float *y);

/* Recomputes y from the moments that forward saved. */
void fedge_norm_recompute(const fedge_norm *self, const float *x, float *y);

/* dx may be dy or NULL. */
void fedge_norm_backward(const fedge_norm *self, const float *x, const float *dy, float *dx);

/* For infer: checks that the last dimensions of the input are [shape] of [rank] dimensions. */
FEDGE_MUST_USE fedge_status fedge_norm_check_shape(uint32_t rank, const uint32_t *shape,
                                                   const fedge_shape *in, fedge_error *err);

/* A weight, initially 1, and a bias, initially 0, of this shape. */
void fedge_norm_tensors(uint32_t rank, const uint32_t *shape, fedge_layer_tensor list[2]);

/* Sets the members of [norm] that come from the run: kernels, ceiling, parameters, gradients, and
 * moments in its saved memory. */
void fedge_norm_set_run(const fedge_layer_run *run, fedge_norm *norm);

#endif

/* y = x Wᵀ + b over rows, and its gradients, for Linear and the attention layers; private to
 * edge/train/layers. x: (rows, in), W: (out, in), b: (out), y: (rows, out).
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_AFFINE_H
#define FEDGE_EDGE_TRAIN_LAYERS_AFFINE_H

#include "edge/train/layers/layer.h"

typedef struct fedge_affine {
    const fedge_kernels *kernels;
    float *gemm_pack;
    size_t rows, in, out;
    const float *weight, *bias;             /* bias NULL: none */
    float *weight_gradient, *bias_gradient; /* accumulated; NULL: not trained */
} fedge_affine;

void fedge_affine_forward(const fedge_affine *self, const float *x, float *y);

/* dW += dyᵀ x and db += Σ dy, if they are trained. */
void fedge_affine_gradients(const fedge_affine *self, const float *x, const float *dy);

/* dx = dy W. */
void fedge_affine_backward(const fedge_affine *self, const float *dy, float *dx);

#endif

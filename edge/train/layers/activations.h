/* GELU over an array, for layers that have one inside; private to edge/train/layers. */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_ACTIVATIONS_H
#define FEDGE_EDGE_TRAIN_LAYERS_ACTIVATIONS_H

#include <stdbool.h>
#include <stddef.h>

/* [approximate]: by tanh, else by the error function. y may be x, dx may be dy. */
void fedge_gelu_forward(size_t n, const float *x, bool approximate, float *y);
void fedge_gelu_backward(size_t n, const float *x, bool approximate, const float *dy, float *dx);

#endif

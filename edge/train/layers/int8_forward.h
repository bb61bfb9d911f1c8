/* Forward passes of Linear, Conv1d and Conv2d in int8; private to edge/train/layers.
 *
 * Every row of a Linear's input, and every image of a convolution's, has a range of its own
 * (edge/train/kernels/int8.h).
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_INT8_FORWARD_H
#define FEDGE_EDGE_TRAIN_LAYERS_INT8_FORWARD_H

#include "edge/train/layers/convolution.h"

/* Scratch of these, in bytes. */
uint64_t fedge_int8_linear_scratch(size_t in, size_t out);
uint64_t fedge_int8_convolution_scratch(const fedge_convolution *conv);

/* y = x Wᵀ + b by run->int8. x: run->x[0], (rows, in), y: (rows, out), bias: (out) or NULL. */
void fedge_int8_linear(const fedge_layer_run *run, size_t rows, const float *bias);

/* As fedge_convolution_forward. */
void fedge_int8_convolution(const fedge_layer_run *run, const fedge_convolution *conv,
                            const float *bias);

#endif

/* Functions for layers whose output has the shape of the input; private to edge/train/layers. */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_ELEMENTWISE_H
#define FEDGE_EDGE_TRAIN_LAYERS_ELEMENTWISE_H

#include "edge/train/layers/layer.h"

/* out = in[0]. */
FEDGE_MUST_USE fedge_status fedge_elementwise_infer(const fedge_layer_spec *layer,
                                                    const fedge_shape *in, uint32_t num_inputs,
                                                    fedge_shape *out, fedge_error *err);

/* For activations without other arguments. */
extern const fedge_argument fedge_inplace_argument[];

/* Number of values in the batch. */
size_t fedge_elementwise_count(const fedge_layer_run *run);

/* Sizes of a layer whose backward pass needs one bit per value. */
void fedge_elementwise_mask_sizes(const fedge_layer_run *run, fedge_layer_sizes *sizes);

/* Sets bit i if low < x[i] < high; INFINITY is no limit. bits: (n + 7) / 8 bytes. */
void fedge_mask_between(const float *x, size_t n, float low, float high, uint8_t *bits);

/* dx[i] = dy[i] · (bit i ? 1 : slope). dx may be dy. */
void fedge_mask_scale(const uint8_t *bits, size_t n, float slope, const float *dy, float *dx);

#endif

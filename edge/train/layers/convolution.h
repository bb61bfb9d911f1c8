/* Cross-correlation with stride, padding, dilation and groups: what Conv1d and Conv2d share;
 * private to edge/train/layers.
 *
 *   y[o][p] = bias[o] + Σ_{c, r, q} w[o][c][r][q] · x[g(o) · channels / groups + c][p · stride −
 *             padding + (r, q) · dilation],   zeros outside x
 *
 * Index 0 is height, 1 is width. x: (channels, in[0], in[1]), y: (out_channels, out[0], out[1]),
 * w: (out_channels, channels / groups, kernel[0], kernel[1]).
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_CONVOLUTION_H
#define FEDGE_EDGE_TRAIN_LAYERS_CONVOLUTION_H

#include "edge/train/layers/layer.h"

typedef struct fedge_convolution {
    uint32_t rank; /* of the shapes: 2 or 3 */
    uint32_t channels, out_channels, groups;
    uint32_t kernel[2], stride[2], padding[2], dilation[2];
    uint32_t in[2], out[2];
    bool bias;
} fedge_convolution;

/* All take the arguments, without in and out. Checks them against the shape that is convolved and
 * gives what comes of it. */
FEDGE_MUST_USE fedge_status fedge_convolution_infer(fedge_convolution conv, const fedge_shape *in,
                                                    fedge_shape *out, fedge_error *err);

/* padding (2 − first): as much of each side from [first] on as keeps its length.
 * FEDGE_INVALID_ARGUMENT for a stride, or where both ends would differ. */
FEDGE_MUST_USE fedge_status fedge_convolution_pad_same(fedge_convolution conv, uint32_t first,
                                                       uint32_t *padding, fedge_error *err);

/* Weight, of one dimension more than the shapes, and bias. */
uint32_t fedge_convolution_tensors(fedge_convolution conv, fedge_layer_tensor *list);

/* In int8 too, where the run is. */
void fedge_convolution_sizes(const fedge_layer_run *run, fedge_convolution arguments,
                             fedge_layer_sizes *sizes);
void fedge_convolution_forward(const fedge_layer_run *run, fedge_convolution arguments);
void fedge_convolution_backward(const fedge_layer_run *run, fedge_convolution arguments);

#endif

/* Pooling in one or two dimensions; private to edge/train/layers. Index 0 is height, 1 is width; in
 * one dimension the height is 1. */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_POOLING_H
#define FEDGE_EDGE_TRAIN_LAYERS_POOLING_H

#include "edge/train/layers/layer.h"

typedef struct fedge_pooling {
    uint32_t rank; /* rank of the shapes: 2 or 3 */
    uint32_t kernel[2], stride[2], padding[2], dilation[2];
    bool ceil_mode; /* the last window may extend beyond the padding, if it begins before that */
    uint32_t in[2], out[2];
} fedge_pooling;

/* Without in and out, and with dilation 1. A stride of 0 stands for the kernel's size. */
fedge_pooling fedge_pooling_2d(const uint32_t kernel[2], const uint32_t stride[2],
                               const uint32_t padding[2], bool ceil_mode);
fedge_pooling fedge_pooling_1d(uint32_t kernel, uint32_t stride, uint32_t padding, bool ceil_mode);

/* Added since the first release: ceil_mode, dilation, divisor_override, and maxima over more than
 * 256 elements. */
#define FEDGE_POOLING_FEATURE "pooling"

/* Infers the output shape, and checks the arguments against the input's. */
FEDGE_MUST_USE fedge_status fedge_pooling_infer(fedge_pooling pool, const fedge_shape *in,
                                                fedge_shape *out, fedge_error *err);

/* Max pooling saves the index of the first maximum in its window: one byte per output, two for
 * windows of over 256 elements. NaN counts as the maximum. FEDGE_TOO_BIG: a window of more than
 * FEDGE_MAX_POOL_WINDOW elements. */
FEDGE_MUST_USE fedge_status fedge_max_pooling_infer(fedge_pooling pool, const fedge_shape *in,
                                                    fedge_shape *out, fedge_error *err);
const char *fedge_max_pooling_feature(fedge_pooling pool); /* may return NULL */
void fedge_max_pooling_sizes(const fedge_layer_run *run, const fedge_pooling *pool,
                             fedge_layer_sizes *sizes);
void fedge_max_pooling_forward(const fedge_layer_run *run, fedge_pooling arguments);
void fedge_max_pooling_backward(const fedge_layer_run *run, fedge_pooling arguments);

/* Average pooling divides the sum over the window by [divisor] or, if that is 0, by the number of
 * its elements inside the image, or with [count_pad] inside image and padding. No dilation. */
typedef struct fedge_averaging {
    bool count_pad;
    uint32_t divisor;
} fedge_averaging;
void fedge_average_pooling_forward(const fedge_layer_run *run, fedge_pooling arguments,
                                   fedge_averaging by);
void fedge_average_pooling_backward(const fedge_layer_run *run, fedge_pooling arguments,
                                    fedge_averaging by);

#endif

/* Transposed convolution, for ConvTranspose1d and ConvTranspose2d; private to edge/train/layers.
 *
 * It is the gradient of a convolution by its input, from y of the transposed one to x, and has its
 * weights: (in_channels, out_channels / groups, kernel…). Each function takes that convolution:
 * channels are the transposed one's outputs, out_channels its inputs, and so are in and out.
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_TRANSPOSED_H
#define FEDGE_EDGE_TRAIN_LAYERS_TRANSPOSED_H

#include "edge/train/layers/convolution.h"

/* out = (in − 1) · stride − 2 · padding + dilation · (kernel − 1) + output_padding + 1 */
FEDGE_MUST_USE fedge_status fedge_transposed_infer(fedge_convolution conv,
                                                   const uint32_t output_padding[2],
                                                   const fedge_shape *in, fedge_shape *out,
                                                   fedge_error *err);

uint32_t fedge_transposed_tensors(fedge_convolution conv, fedge_layer_tensor *list);

void fedge_transposed_sizes(const fedge_layer_run *run, fedge_convolution conv,
                            fedge_layer_sizes *sizes);
void fedge_transposed_forward(const fedge_layer_run *run, fedge_convolution conv);
void fedge_transposed_backward(const fedge_layer_run *run, fedge_convolution conv);

#endif

/* Depthwise convolutions, where each channel is convolved alone (groups = channels), without
 * layouts of the whole batch: one padded channel of one example at a time, which stays in the
 * first-level cache, and of it only a band of rows where images are large; private to
 * edge/train/layers.
 *
 * Rows of pixels lie in the lanes of kernels->depthwise. With a stride of 2 the columns of the
 * input are taken apart into even and odd ones; the input's gradient is a convolution with stride 1
 * of the outputs' gradient, spread with zeros, and the kernel turned round. All is fp32, whatever
 * the model's precision: a tap costs as much to load as to multiply.
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_DEPTHWISE_H
#define FEDGE_EDGE_TRAIN_LAYERS_DEPTHWISE_H

#include "edge/train/layers/convolution.h"

/* Depthwise, of more than one channel and strides of 1 or 2: any kernel, padding, dilation and
 * number of outputs per channel. What follows is for these. */
bool fedge_depthwise_fits(const fedge_convolution *conv);

/* As fedge_convolution_sizes, _forward and _backward; the bias is values[1], and its gradient is
 * the caller's. */
void fedge_depthwise_sizes(const fedge_layer_run *run, const fedge_convolution *conv,
                           fedge_layer_sizes *sizes);
void fedge_depthwise_forward(const fedge_layer_run *run, const fedge_convolution *conv);
void fedge_depthwise_backward(const fedge_layer_run *run, const fedge_convolution *conv);

#endif

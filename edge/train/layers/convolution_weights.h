/* The gradient of a convolution's weights: private to edge/train/layers.
 *
 *     dw[o][c][r][q] = Σ over examples and outputs (i, j) of dy[o][i][j] · x[c][i · s + r][j · s +
 * q]
 *
 * (x padded; strides s, dilation 1 for brevity). Bands of x are turned to channels-last, (line,
 * column, channel), so that the taps of one row of the kernel in all channels are neighbours in
 * memory. With them in the lanes the sum over pixels is a product of dy, read where it is, and
 * vectors of x that move from pixel to pixel (fedge_gemm with starts): nothing is summed across
 * lanes. Worth its while where a row of taps fills half a vector; the other convolutions sum over
 * the layouts of patches.h.
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_CONVOLUTION_WEIGHTS_H
#define FEDGE_EDGE_TRAIN_LAYERS_CONVOLUTION_WEIGHTS_H

#include "edge/train/layers/convolution.h"

/* Is this the way for [conv], whose sizes are known, on [kernels]? */
bool fedge_convolution_weights_fit(const fedge_convolution *conv, const fedge_kernels *kernels);

/* Bytes of working memory for batches of [batch]. */
uint64_t fedge_convolution_weights_scratch(const fedge_convolution *conv, uint32_t batch,
                                           const fedge_kernels *kernels);

/* Adds to [gradient], (out_channels, channels / groups, kernel), what run->x[0] and run->dy give.
 * Works in run->scratch. */
void fedge_convolution_weights_add(const fedge_layer_run *run, const fedge_convolution *conv,
                                   float *gradient);

#endif

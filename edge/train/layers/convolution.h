/* Cross-correlation with stride, padding, dilation and groups, for Conv1d and Conv2d; private to
 * edge/train/layers.
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
    uint32_t rank; /* rank of the shapes: 2 or 3 */
    uint32_t channels, out_channels, groups;
    uint32_t kernel[2], stride[2], padding[2], dilation[2];
    uint32_t in[2], out[2];
    bool bias;
} fedge_convolution;

/* These functions take the arguments, without in and out. Infers the output shape, and checks the
 * arguments against the input's. */
FEDGE_MUST_USE fedge_status fedge_convolution_infer(fedge_convolution conv, const fedge_shape *in,
                                                    fedge_shape *out, fedge_error *err);

/* Sets padding, (2 − first), so that the axes from [first] on keep their length.
 * FEDGE_INVALID_ARGUMENT with a stride, or if the two ends would differ. */
FEDGE_MUST_USE fedge_status fedge_convolution_pad_same(fedge_convolution conv, uint32_t first,
                                                       uint32_t *padding, fedge_error *err);

/* The weight, which has one dimension more than the shapes, and the bias. */
uint32_t fedge_convolution_tensors(fedge_convolution conv, fedge_layer_tensor *list);

/* Forward and its sizes include runs in int8. */
void fedge_convolution_sizes(const fedge_layer_run *run, fedge_convolution arguments,
                             fedge_layer_sizes *sizes);
void fedge_convolution_forward(const fedge_layer_run *run, fedge_convolution arguments);
void fedge_convolution_backward(const fedge_layer_run *run, fedge_convolution arguments);

/* ---- the gradient of the weights (patches.c) ----
 *
 *     dw[o][c][r][q] = Σ over examples and outputs (i, j) of
 *                      dy[o][i][j] · x[c][i · s + r][j · s + q]
 *
 * (x padded; stride s, dilation 1). Bands of x are transposed to channels-last, (line, column,
 * channel), which makes the taps of one kernel row in all channels contiguous. With taps in the
 * lanes, the sum over pixels is a product of dy, read in place, and vectors of x at the pixels'
 * offsets (fedge_gemm with starts): no sums across lanes. This pays if a row of taps fills half a
 * vector; other convolutions sum over the layouts of patches below.
 */

/* True if [conv], with its sizes, uses this way on [kernels]. */
bool fedge_convolution_weights_fit(const fedge_convolution *conv, const fedge_kernels *kernels);

/* Bytes of working memory for batches of [batch]. */
uint64_t fedge_convolution_weights_scratch(const fedge_convolution *conv, uint32_t batch,
                                           const fedge_kernels *kernels);

/* Adds the gradient from run->x[0] and run->dy to [gradient], (out_channels, channels / groups,
 * kernel). Uses run->scratch. */
void fedge_convolution_weights_add(const fedge_layer_run *run, const fedge_convolution *conv,
                                   float *gradient);

/* ---- patches: a layout of images from which no patch is copied (patches.c) ----
 *
 * A padded image is copied once to rows of equal width, channel by channel. If outputs are counted
 * in rows of that width (flat position f; positions after a row's last output are unused), every
 * weight reads x at f plus a fixed offset. All three passes are then matrix products with tables of
 * offsets (fedge_gemm):
 *
 *     y[o][f] = Σ_k w[o][k] · X[at(k) + f],   k: channel, row and column of the kernel,
 *
 *     dw[o][k] = Σ_f DY[o][f] · X[at(k) + f],
 *
 *     dx[c][f] = Σ_{o, taps} w[o][c][tap] · DY[o][at'(tap) + f].
 *
 * With a stride s the image is split into s × s phases, images of every s-th row and column, and
 * the gradient dx is computed phase by phase: each tap of the kernel belongs to one phase.
 *
 * Zeros are shared: what a tap reads after the end of a row is the padding before the next row,
 * and likewise between images. Several examples are stored side by side within a channel, as many
 * as stay in the second-level cache; a larger image is processed in bands of rows.
 *
 * If rows are not whole vectors, and an image with the copies fits, the layout is folded: each
 * column of taps (for dx, each horizontal offset) has its own copy of the rows, shifted by it and
 * as wide as the outputs (the gradient), so that rows are contiguous, as in Cho and Brand, "MEC:
 * Memory-efficient Convolution for Deep Neural Network", 2017.
 */

/* One axis of a layout that is not folded. Input i is at index (i + pad) / stride of phase
 * (i + pad) mod stride; the gradient of output j is at index j + lead. */
typedef struct fedge_patch_axis {
    size_t in, out, taps, stride, pad, dilation;
    size_t max_tap_offset; /* largest offset of a tap from its output, in indices */
    size_t skip;           /* indices before the first with some of the input */
    size_t end;            /* index after the last with some of the input */
    size_t lead;           /* zeros before the outputs' gradients */
    size_t planes;         /* planes of the input: phases with taps, counted from 0; folded: taps */
    size_t shifts;         /* copies of the outputs' gradients: 1; folded: horizontal offsets */
    size_t size;           /* indices stored: the width of a row, or the rows of an image */
} fedge_patch_axis;

typedef struct fedge_patches {
    fedge_patch_axis h, w;      /* vertical and horizontal */
    size_t channels, outputs;   /* channels and outputs of a group of the convolution */
    size_t groups, taps, patch; /* patch: channels · taps */
    size_t examples;            /* most examples side by side; 1 with bands */
    size_t rows;  /* rows of outputs, and indices of the input's gradient, per block */
    size_t steps; /* the same, in all bands of an image */
    size_t lanes; /* lanes of the kernels */
    bool folded;
    size_t image; /* floats of one example in a channel */
    size_t pitch; /* floats of one plane of a channel, with all examples */
} fedge_patches;

/* The part of a batch that is processed at a time. */
typedef struct fedge_patch_block {
    size_t example, examples; /* first, number */
    size_t row;               /* first row of outputs */
    size_t rows;              /* rows of outputs; may be 0 in the last band */
    size_t gradient_rows;     /* rows of the input's gradient; may be 0 in the last band */
} fedge_patch_block;

/* The purpose of a layout. */
typedef enum fedge_patch_pass {
    FEDGE_PATCH_FORWARD,  /* the outputs */
    FEDGE_PATCH_GRADIENT, /* the input's gradient */
    FEDGE_PATCH_BOTH      /* the input's and the weights' gradient; never folded */
} fedge_patch_pass;

fedge_patches fedge_patches_make(const fedge_convolution *conv, uint32_t batch, uint32_t lanes,
                                 fedge_patch_pass pass);

/* Advances to the next block; false after the last. The first call takes a zeroed block. */
bool fedge_patches_next(const fedge_patches *self, size_t batch, fedge_patch_block *block);

/* Floats of the layout of the input, and of that of the outputs or their gradients. */
size_t fedge_patches_input_size(const fedge_patches *self);
size_t fedge_patches_output_size(const fedge_patches *self);

/* Flat positions from the first output of a block to its last. */
size_t fedge_patches_outputs(const fedge_patches *self, const fedge_patch_block *block);

/* Sets [starts] to the offsets of vectors that cover the outputs of a block, or its elements of one
 * phase of the input's gradient, each once (fedge_gemm's starts), and returns their number. Unless
 * NULL, [to] is set to their offsets in the batch's arrays (fedge_gemm's c_starts), relative to the
 * block's first element in the first channel; only if rows are whole vectors. */
size_t fedge_patches_output_starts(const fedge_patches *self, const fedge_patch_block *block,
                                   uint32_t *starts, uint32_t *to);
size_t fedge_patches_gradient_starts(const fedge_patches *self, const fedge_patch_block *block,
                                     size_t phase_h, uint32_t *starts, uint32_t *to);
size_t fedge_patches_max_starts(const fedge_patches *self);

/* True if rows of the outputs, or of the input's gradient, are whole vectors of one phase; folded,
 * if all rows of an image together are. */
bool fedge_patches_outputs_whole(const fedge_patches *self);
bool fedge_patches_gradients_whole(const fedge_patches *self);

/* Sets [offsets], (patch), to at(k). */
void fedge_patches_offsets(const fedge_patches *self, uint32_t *offsets);

/* For the gradient of one phase: the number of its (output, tap) pairs, outputs · taps over all
 * phases; their offsets in the layout of dy, and of their weights from w[0][channel][0]. */
size_t fedge_patches_gradient_taps(const fedge_patches *self, size_t phase_h, size_t phase_w);
void fedge_patches_gradient_offsets(const fedge_patches *self, size_t phase_h, size_t phase_w,
                                    uint32_t *offsets, uint32_t *weights);

/* Copies a block to the layout. x: the whole batch, (batch, channels, h, w), of all groups. Without
 * [clear], [to] contains the previous block, and so the zeros. */
void fedge_patches_copy_input(const fedge_patches *self, const fedge_kernels *kernels,
                              const fedge_patch_block *block, bool clear, const float *x,
                              float *to);
void fedge_patches_copy_gradient(const fedge_patches *self, const fedge_kernels *kernels,
                                 const fedge_patch_block *block, bool clear, const float *dy,
                                 float *to);

/* Copies the block's outputs to y. */
void fedge_patches_store_outputs(const fedge_patches *self, const fedge_kernels *kernels,
                                 const fedge_patch_block *block, const float *from, float *y);

/* Copies one phase of the block's part of dx, of all groups. */
void fedge_patches_store_gradient(const fedge_patches *self, const fedge_kernels *kernels,
                                  const fedge_patch_block *block, size_t phase_h, size_t phase_w,
                                  const float *from, float *dx);

/* True if the columns of dx alternate between two phases. Both are then computed first, at from[0]
 * and from[1], and stored together for one phase of the rows. */
bool fedge_patches_weaves(const fedge_patches *self);
void fedge_patches_store_woven(const fedge_patches *self, const fedge_kernels *kernels,
                               const fedge_patch_block *block, size_t phase_h,
                               const float *const from[2], float *dx);

/* ---- depthwise convolutions, groups = channels (depthwise.c) ----
 *
 * One padded channel of one example is processed at a time, in bands of rows if images are large,
 * so that it stays in the first-level cache.
 *
 * Rows of pixels are in the lanes of kernels->depthwise. With a stride of 2 the columns of the
 * input are split into even and odd ones. The input's gradient is a convolution with stride 1 of
 * the outputs' gradient, with zeros inserted, and the flipped kernel. All precisions compute in
 * fp32, because loading a tap costs as much as multiplying it.
 */

/* True for depthwise convolutions of more than one channel with strides of 1 or 2, and any kernel,
 * padding, dilation and number of outputs per channel. The functions below are for these. */
bool fedge_depthwise_fits(const fedge_convolution *conv);

/* As fedge_convolution_sizes, _forward and _backward, without the bias's gradient. */
void fedge_depthwise_sizes(const fedge_layer_run *run, const fedge_convolution *conv,
                           fedge_layer_sizes *sizes);
void fedge_depthwise_forward(const fedge_layer_run *run, const fedge_convolution *conv);
void fedge_depthwise_backward(const fedge_layer_run *run, const fedge_convolution *conv);

/* ---- forward passes of Linear, Conv1d and Conv2d in int8 (int8_forward.c) ----
 *
 * Every row of a Linear's input, and every image of a convolution's, has its own range
 * (edge/train/kernels/int8.h).
 */

/* Bytes of scratch. */
uint64_t fedge_int8_linear_scratch(size_t in, size_t out);
uint64_t fedge_int8_convolution_scratch(const fedge_convolution *conv);

/* y = x Wᵀ + b by run->int8. x: run->x[0], (rows, in), y: (rows, out), bias: (out) or NULL. */
void fedge_int8_linear(const fedge_layer_run *run, size_t rows, const float *bias);

/* As fedge_convolution_forward. */
void fedge_int8_convolution(const fedge_layer_run *run, const fedge_convolution *conv,
                            const float *bias);

#endif

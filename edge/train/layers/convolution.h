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

/* ---- the gradient of the weights (patches.c) ----
 *
 *     dw[o][c][r][q] = Σ over examples and outputs (i, j) of dy[o][i][j] · x[c][i · s + r][j · s +
 * q]
 *
 * (x padded; strides s, dilation 1 for brevity). Bands of x are turned to channels-last, (line,
 * column, channel), so that the taps of one row of the kernel in all channels are neighbours in
 * memory. With them in the lanes the sum over pixels is a product of dy, read where it is, and
 * vectors of x that move from pixel to pixel (fedge_gemm with starts): nothing is summed across
 * lanes. Worth its while where a row of taps fills half a vector; the other convolutions sum over
 * the layouts of patches below.
 */

/* Is this the way for [conv], whose sizes are known, on [kernels]? */
bool fedge_convolution_weights_fit(const fedge_convolution *conv, const fedge_kernels *kernels);

/* Bytes of working memory for batches of [batch]. */
uint64_t fedge_convolution_weights_scratch(const fedge_convolution *conv, uint32_t batch,
                                           const fedge_kernels *kernels);

/* Adds to [gradient], (out_channels, channels / groups, kernel), what run->x[0] and run->dy give.
 * Works in run->scratch. */
void fedge_convolution_weights_add(const fedge_layer_run *run, const fedge_convolution *conv,
                                   float *gradient);

/* ---- patches: images laid out so that no patch is copied (patches.c) ----
 *
 * A padded image is laid out once as rows of equal width, one channel after another. Where the
 * outputs are counted row by row of that width (the "flat" position f; those behind a row's last
 * output are not used), every weight reads x at f plus a distance of its own. So all three passes
 * are matrix products over tables of distances (fedge_gemm):
 *
 *     y[o][f] = Σ_k w[o][k] · X[at(k) + f], k: channel, row and column of the kernel,
 *
 *     dw[o][k] = Σ_f DY[o][f] · X[at(k) + f],
 *
 *     dx[c][f] = Σ_{o, taps} w[o][c][tap] · DY[o][at'(tap) + f].
 *
 * With a stride s the image is taken apart into s × s phases, images of every s-th row and column,
 * and the gradient dx is made phase by phase: each tap of the kernel meets one phase only.
 *
 * Zeros are shared: what a tap reads to the right of a row lies in the zeros to the left of the
 * next, and the same holds for rows of the next image. Several examples are laid out side by side
 * within a channel, as many as stay in the second-level cache; of an image too large for that, a
 * band of rows at a time.
 *
 * Where rows are no whole vectors, and an image with the copies fits, the layout is folded: each
 * tap across (for dx, each distance across) has a copy of the rows of its own, shifted by it and as
 * wide as the outputs (the gradient), so that rows follow one another without a gap, as in Cho and
 * Brand, "MEC: Memory-efficient Convolution for Deep Neural Network", 2017.
 */

/* One axis, as it is unless folded. Input place i lies at index (i + pad) / stride of phase
 * (i + pad) mod stride, output j at index j + lead of the gradient's image. */
typedef struct fedge_patch_axis {
    size_t in, out, taps, stride, pad, dilation;
    size_t max_tap_offset; /* most that a tap is away from its output, in indices */
    size_t skip;           /* indices before the first that holds some of the input */
    size_t end;            /* behind the last that does */
    size_t lead;           /* zeros before the outputs' gradients */
    size_t planes; /* of the input: phases that taps meet, counted from 0, or folded one a tap */
    size_t shifts; /* copies of the outputs' gradients: 1, or folded one for each distance */
    size_t size;   /* indices laid out: the width of a row, the rows of an image */
} fedge_patch_axis;

typedef struct fedge_patches {
    fedge_patch_axis vertical, horizontal;
    size_t channels, outputs; /* of a group of the convolution */
    size_t groups, taps, patch;
    size_t examples; /* laid out side by side, at most; 1 when bands are made */
    size_t rows;     /* of outputs, and of indices of the input's gradient, at a time */
    size_t steps;    /* that all bands have together */
    size_t lanes;    /* of the kernels */
    bool folded;     /* across */
    size_t image;    /* floats of one example's channel */
    size_t pitch;    /* floats of a channel (of one plane) with all examples */
} fedge_patches;

/* What is laid out at a time. */
typedef struct fedge_patch_block {
    size_t example, examples; /* first, how many */
    size_t row;               /* the first, of outputs */
    size_t rows;              /* of outputs that exist: may be 0 in the last band */
    size_t gradient_rows;     /* of the input's gradient, likewise */
} fedge_patch_block;

/* What a layout is for. */
typedef enum fedge_patch_pass {
    FEDGE_PATCH_FORWARD,  /* the outputs */
    FEDGE_PATCH_GRADIENT, /* the input's gradient */
    FEDGE_PATCH_BOTH      /* that and the weights' gradient, which is never folded */
} fedge_patch_pass;

fedge_patches fedge_patches_make(const fedge_convolution *conv, uint32_t batch, uint32_t lanes,
                                 fedge_patch_pass pass);

/* The blocks one after another: false behind the last. Begin with a block of zeros. */
bool fedge_patches_next(const fedge_patches *self, size_t batch, fedge_patch_block *block);

/* Floats that a layout of the input, and of the outputs or their gradients, takes. */
size_t fedge_patches_input_size(const fedge_patches *self);
size_t fedge_patches_output_size(const fedge_patches *self);

/* Flat positions from the first output of a block to its last. */
size_t fedge_patches_outputs(const fedge_patches *self, const fedge_patch_block *block);

/* Vectors that cover the outputs of a block, or its places of one phase of the input's gradient,
 * each once (fedge_gemm's starts); returns how many. [to], when not NULL: where they begin in the
 * batch's own arrays (fedge_gemm's c_starts), from the block's first place in the first channel;
 * only where they are whole. */
size_t fedge_patches_output_starts(const fedge_patches *self, const fedge_patch_block *block,
                                   uint32_t *starts, uint32_t *to);
size_t fedge_patches_gradient_starts(const fedge_patches *self, const fedge_patch_block *block,
                                     size_t phase_h, uint32_t *starts, uint32_t *to);
size_t fedge_patches_max_starts(const fedge_patches *self);

/* Are rows of the outputs, or of the input's gradient, whole vectors and all of one phase? Folded,
 * all rows of an image together. */
bool fedge_patches_outputs_whole(const fedge_patches *self);
bool fedge_patches_gradients_whole(const fedge_patches *self);

/* at(k), (patch). */
void fedge_patches_offsets(const fedge_patches *self, uint32_t *offsets);

/* For the gradient of one phase: how many (output, tap) pairs it meets, together outputs · taps
 * over all phases; where each reads the layout of dy, and where its weight lies from
 * w[0][channel][0]. */
size_t fedge_patches_gradient_taps(const fedge_patches *self, size_t phase_h, size_t phase_w);
void fedge_patches_gradient_offsets(const fedge_patches *self, size_t phase_h, size_t phase_w,
                                    uint32_t *offsets, uint32_t *weights);

/* x: the whole batch's, (batch, channels, h, w), all groups. [clear]: there is anything in [to];
 * false: it holds the block before this one, and has its zeros already. */
void fedge_patches_copy_input(const fedge_patches *self, const fedge_kernels *kernels,
                              const fedge_patch_block *block, bool clear, const float *x,
                              float *to);
void fedge_patches_copy_gradient(const fedge_patches *self, const fedge_kernels *kernels,
                                 const fedge_patch_block *block, bool clear, const float *dy,
                                 float *to);

/* y ← from: the block's outputs. */
void fedge_patches_store_outputs(const fedge_patches *self, const fedge_kernels *kernels,
                                 const fedge_patch_block *block, const float *from, float *y);

/* One phase of the block's part of dx, all groups. */
void fedge_patches_store_gradient(const fedge_patches *self, const fedge_kernels *kernels,
                                  const fedge_patch_block *block, size_t phase_h, size_t phase_w,
                                  const float *from, float *dx);

/* Does each row of dx hold two phases of columns by turns? Then both are made at [from], of column
 * phase 0 and 1, and taken together: one phase of the rows of the block's part of dx. */
bool fedge_patches_weaves(const fedge_patches *self);
void fedge_patches_store_woven(const fedge_patches *self, const fedge_kernels *kernels,
                               const fedge_patch_block *block, size_t phase_h,
                               const float *const from[2], float *dx);

/* ---- depthwise convolutions (depthwise.c) ----
 *
 * Depthwise convolutions, where each channel is convolved alone (groups = channels), without
 * layouts of the whole batch: one padded channel of one example at a time, which stays in the
 * first-level cache, and of it only a band of rows where images are large; private to
 * edge/train/layers.
 *
 * Rows of pixels lie in the lanes of kernels->depthwise. With a stride of 2 the columns of the
 * input are taken apart into even and odd ones; the input's gradient is a convolution with stride 1
 * of the outputs' gradient, spread with zeros, and the kernel turned round. All is fp32, whatever
 * the model's precision: a tap costs as much to load as to multiply.
 */

/* Depthwise, of more than one channel and strides of 1 or 2: any kernel, padding, dilation and
 * number of outputs per channel. What follows is for these. */
bool fedge_depthwise_fits(const fedge_convolution *conv);

/* As fedge_convolution_sizes, _forward and _backward; the bias is values[1], and its gradient is
 * the caller's. */
void fedge_depthwise_sizes(const fedge_layer_run *run, const fedge_convolution *conv,
                           fedge_layer_sizes *sizes);
void fedge_depthwise_forward(const fedge_layer_run *run, const fedge_convolution *conv);
void fedge_depthwise_backward(const fedge_layer_run *run, const fedge_convolution *conv);

/* ---- forward passes of Linear, Conv1d and Conv2d in int8 (int8_forward.c) ----
 *
 * Every row of a Linear's input, and every image of a convolution's, has a range of its own
 * (edge/train/kernels/int8.h).
 */

/* Scratch of these, in bytes. */
uint64_t fedge_int8_linear_scratch(size_t in, size_t out);
uint64_t fedge_int8_convolution_scratch(const fedge_convolution *conv);

/* y = x Wᵀ + b by run->int8. x: run->x[0], (rows, in), y: (rows, out), bias: (out) or NULL. */
void fedge_int8_linear(const fedge_layer_run *run, size_t rows, const float *bias);

/* As fedge_convolution_forward. */
void fedge_int8_convolution(const fedge_layer_run *run, const fedge_convolution *conv,
                            const float *bias);

#endif

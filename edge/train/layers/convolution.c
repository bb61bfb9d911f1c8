#include "edge/train/layers/convolution.h"

#include <string.h>

#define BAND_FLOATS 32768u /* of patches unrolled at a time: stays in the second-level cache */

enum { WEIGHT, BIAS };

fedge_status fedge_convolution_infer(fedge_convolution *conv, uint32_t has_channels,
                                     fedge_error *err)
{
    static const char *const AXES[2] = {"height", "width"};
    if (conv->channels == 0 || conv->out_channels == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "in_channels %u and out_channels %u must be at least 1",
                          (unsigned)conv->channels, (unsigned)conv->out_channels);
    }
    if (conv->channels != has_channels) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "in_channels is %u but the layer before gives %u channels",
                          (unsigned)conv->channels, (unsigned)has_channels);
    }
    if (conv->channels % conv->groups != 0 || conv->out_channels % conv->groups != 0) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT, "groups %u must divide in_channels %u and out_channels %u",
            (unsigned)conv->groups, (unsigned)conv->channels, (unsigned)conv->out_channels);
    }
    fedge_status status = FEDGE_OK;
    for (int i = 0; status == FEDGE_OK && i < 2; i++) {
        status = fedge_shape_slide(AXES[i], conv->kernel[i], conv->stride[i], conv->padding[i],
                                   conv->dilation[i], conv->in[i], &conv->out[i], err);
    }
    if (status != FEDGE_OK) {
        return status;
    }
    const fedge_shape padded = {
        3,
        {conv->channels, conv->in[0] + 2 * conv->padding[0], conv->in[1] + 2 * conv->padding[1]}};
    status = fedge_shape_check(&padded, err);
    return status == FEDGE_OK ? FEDGE_OK : fedge_error_prefix(err, status, "padded input");
}

/* Weights of one output channel. */
static size_t patch_size(const fedge_convolution *conv)
{
    return (size_t)(conv->channels / conv->groups) * conv->kernel[0] * conv->kernel[1];
}

uint32_t fedge_convolution_tensors(const fedge_convolution *conv, uint32_t rank,
                                   fedge_layer_tensor *list)
{
    const float bound = fedge_init_bound(patch_size(conv));
    list[WEIGHT] =
        (fedge_layer_tensor){.name = "weight",
                             .factor = conv->groups == 1 || conv->groups != conv->channels,
                             .rank = rank,
                             .shape = {conv->out_channels, conv->channels / conv->groups,
                                       conv->kernel[0], conv->kernel[1]},
                             .init = FEDGE_INIT_UNIFORM,
                             .scale = bound};
    if (rank == 3) {
        list[WEIGHT].shape[2] = conv->kernel[1];
        list[WEIGHT].shape[3] = 0;
    }
    list[BIAS] = (fedge_layer_tensor){.name = "bias",
                                      .rank = 1,
                                      .shape = {conv->out_channels},
                                      .init = FEDGE_INIT_UNIFORM,
                                      .scale = bound};
    return conv->bias ? 2 : 1;
}

/* Patches are the image itself. */
static bool is_pointwise(const fedge_convolution *conv)
{
    return conv->kernel[0] == 1 && conv->kernel[1] == 1 && conv->stride[0] == 1 &&
           conv->stride[1] == 1 && conv->padding[0] == 0 && conv->padding[1] == 0;
}

static bool is_depthwise(const fedge_convolution *conv)
{
    return conv->groups == conv->channels;
}

/* Rows of outputs whose patches are unrolled together. */
static uint32_t band_rows(const fedge_convolution *conv)
{
    const size_t row = patch_size(conv) * conv->out[1];
    const size_t rows = row >= BAND_FLOATS ? 1 : BAND_FLOATS / row;
    return rows < conv->out[0] ? (uint32_t)rows : conv->out[0];
}

void fedge_convolution_sizes(const fedge_convolution *conv, fedge_layer_sizes *sizes)
{
    if (is_depthwise(conv)) {
        return;
    }
    const uint64_t band =
        (uint64_t)patch_size(conv) * conv->out[1] * band_rows(conv) * sizeof(float);
    sizes->forward = is_pointwise(conv) ? 0 : band;
    sizes->backward = sizes->forward;
}

/* The outputs [*first, *last) of a row or column whose tap [at] falls inside the image, and the
 * input that the first of them reads (0 when there is none). */
static size_t inside(const fedge_convolution *conv, int axis, size_t at, size_t *first,
                     size_t *last)
{
    const size_t stride = conv->stride[axis], pad = conv->padding[axis];
    const size_t shift = at * conv->dilation[axis]; /* input = output · stride + shift − pad */
    const size_t end = conv->in[axis] + pad;        /* output · stride + shift < end */
    *first = shift >= pad ? 0 : (pad - shift + stride - 1) / stride;
    *last = shift >= end ? 0 : (end - shift + stride - 1) / stride;
    *last = *last > conv->out[axis] ? conv->out[axis] : *last;
    *first = *first > *last ? *last : *first;
    return *first < *last ? *first * stride + shift - pad : 0;
}

typedef struct band {
    uint32_t first, rows; /* of outputs */
    size_t pixels;        /* rows · out[1] */
} band;

/* col: (patch, pixels) from one group's channels of one example. */
static void unroll(const fedge_convolution *conv, const float *x, band at, float *col)
{
    const size_t taps = (size_t)conv->kernel[0] * conv->kernel[1], width = conv->out[1];
    const size_t stride = conv->stride[1];
    for (size_t k = 0; k < patch_size(conv); k++) {
        const float *image = x + k / taps * conv->in[0] * conv->in[1];
        size_t top, bottom, left, right;
        const size_t row = inside(conv, 0, k % taps / conv->kernel[1], &top, &bottom);
        const size_t column = inside(conv, 1, k % conv->kernel[1], &left, &right);
        for (size_t p = at.first; p < at.first + at.rows; p++, col += width) {
            if (p < top || p >= bottom) {
                memset(col, 0, width * sizeof *col);
                continue;
            }
            const float *from = image + (row + (p - top) * conv->stride[0]) * conv->in[1] + column;
            memset(col, 0, left * sizeof *col);
            for (size_t q = left; q < right; q++) {
                col[q] = from[(q - left) * stride];
            }
            memset(col + right, 0, (width - right) * sizeof *col);
        }
    }
}

/* row: (pixels, patch), the transpose of unroll's. */
static void unroll_transposed(const fedge_convolution *conv, const float *x, band at, float *rows)
{
    const size_t taps = (size_t)conv->kernel[0] * conv->kernel[1], width = conv->out[1];
    const size_t patch = patch_size(conv);
    for (size_t k = 0; k < patch; k++) {
        const float *image = x + k / taps * conv->in[0] * conv->in[1];
        size_t top, bottom, left, right;
        const size_t row = inside(conv, 0, k % taps / conv->kernel[1], &top, &bottom);
        const size_t column = inside(conv, 1, k % conv->kernel[1], &left, &right);
        for (size_t i = 0; i < at.rows; i++) {
            const size_t p = at.first + i;
            const bool here = p >= top && p < bottom;
            const float *from =
                here ? image + (row + (p - top) * conv->stride[0]) * conv->in[1] + column : NULL;
            float *to = rows + i * width * patch + k;
            for (size_t q = 0; q < width; q++) {
                to[q * patch] =
                    here && q >= left && q < right ? from[(q - left) * conv->stride[1]] : 0.0f;
            }
        }
    }
}

/* dx += what unroll's elements came from. col: (patch, pixels) of gradients. */
static void fold(const fedge_convolution *conv, const float *col, band at, float *dx)
{
    const size_t taps = (size_t)conv->kernel[0] * conv->kernel[1], width = conv->out[1];
    const size_t stride = conv->stride[1];
    for (size_t k = 0; k < patch_size(conv); k++) {
        float *image = dx + k / taps * conv->in[0] * conv->in[1];
        size_t top, bottom, left, right;
        const size_t row = inside(conv, 0, k % taps / conv->kernel[1], &top, &bottom);
        const size_t column = inside(conv, 1, k % conv->kernel[1], &left, &right);
        for (size_t p = at.first; p < at.first + at.rows; p++, col += width) {
            if (p < top || p >= bottom) {
                continue;
            }
            float *to = image + (row + (p - top) * conv->stride[0]) * conv->in[1] + column;
            for (size_t q = left; q < right; q++) {
                to[(q - left) * stride] += col[q];
            }
        }
    }
}

/* ---- depthwise: one input channel per group, too little work per patch to unroll ---- */

/* One channel pair: what is read, and what is written when it is not NULL. */
typedef struct plane {
    const float *w, *x, *dy; /* (kernel), (in), (out) */
    float *y, *dx, *dw;
} plane;

/* y += w · x, dx += w · dy, dw += dy · x over the outputs of a row that one tap reaches. */
static void slide_row(const plane *at, size_t k, size_t n, size_t stride, size_t out, size_t in)
{
    const float w = at->w[k], *x = at->x + in;
    for (size_t q = 0; at->y != NULL && q < n; q++) {
        at->y[out + q] += w * x[q * stride];
    }
    for (size_t q = 0; at->dx != NULL && q < n; q++) {
        at->dx[in + q * stride] += w * at->dy[out + q];
    }
    float sum = 0.0f;
    for (size_t q = 0; at->dw != NULL && q < n; q++) {
        sum += at->dy[out + q] * x[q * stride];
    }
    if (at->dw != NULL) {
        at->dw[k] += sum;
    }
}

static void slide(const fedge_convolution *conv, const plane *at)
{
    for (size_t k = 0; k < (size_t)conv->kernel[0] * conv->kernel[1]; k++) {
        size_t top, bottom, left, right;
        const size_t row = inside(conv, 0, k / conv->kernel[1], &top, &bottom);
        const size_t column = inside(conv, 1, k % conv->kernel[1], &left, &right);
        for (size_t p = top; p < bottom; p++) {
            slide_row(at, k, right - left, conv->stride[1], p * conv->out[1] + left,
                      (row + (p - top) * conv->stride[0]) * conv->in[1] + column);
        }
    }
}

/* ---- both passes ---- */

typedef struct sizes_of {
    size_t in, out;       /* floats of one channel's image */
    size_t channels;      /* of a group's input */
    size_t outputs;       /* of a group */
    size_t patch, weight; /* floats of one output channel's weights, of a group's */
} sizes_of;

static sizes_of measure(const fedge_convolution *conv)
{
    sizes_of s = {.in = (size_t)conv->in[0] * conv->in[1],
                  .out = (size_t)conv->out[0] * conv->out[1],
                  .channels = conv->channels / conv->groups,
                  .outputs = conv->out_channels / conv->groups,
                  .patch = patch_size(conv)};
    s.weight = s.outputs * s.patch;
    return s;
}

/* One group of one example through matrix products. */
static void forward_group(const fedge_layer_run *run, const fedge_convolution *conv,
                          const float *weight, const float *x, float *y)
{
    const sizes_of s = measure(conv);
    const uint32_t step = band_rows(conv);
    for (uint32_t row = 0; row < conv->out[0]; row += step) {
        band at = {.first = row, .rows = conv->out[0] - row < step ? conv->out[0] - row : step};
        at.pixels = (size_t)at.rows * conv->out[1];
        const size_t skip = (size_t)row * conv->out[1];
        fedge_gemm product = {.m = s.outputs, /* y (outputs, pixels) += w · col */
                              .n = at.pixels,
                              .k = s.patch,
                              .a = weight,
                              .a_row = s.patch,
                              .a_column = 1,
                              .b = x + skip,
                              .b_row = s.in,
                              .b_column = 1,
                              .c = y + skip,
                              .c_row = s.out,
                              .accumulate = true};
        if (!is_pointwise(conv)) {
            unroll(conv, x, at, run->scratch);
            product.b = run->scratch;
            product.b_row = at.pixels;
        }
        run->kernels->gemm(&product, run->gemm_pack);
    }
}

static void fill(float *y, size_t n, float value)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = value;
    }
}

void fedge_convolution_forward(const fedge_layer_run *run, const fedge_convolution *conv)
{
    const sizes_of s = measure(conv);
    for (size_t b = 0; b < run->batch; b++) {
        const float *x = run->x[0] + b * conv->channels * s.in;
        float *y = run->y + b * conv->out_channels * s.out;
        for (size_t o = 0; o < conv->out_channels; o++) {
            fill(y + o * s.out, s.out, conv->bias ? run->values[BIAS][o] : 0.0f);
        }
        for (size_t g = 0; !is_depthwise(conv) && g < conv->groups; g++) {
            forward_group(run, conv, run->values[WEIGHT] + g * s.weight, x + g * s.channels * s.in,
                          y + g * s.outputs * s.out);
        }
        for (size_t o = 0; is_depthwise(conv) && o < conv->out_channels; o++) {
            slide(conv, &(plane){.w = run->values[WEIGHT] + o * s.patch,
                                 .x = x + o / s.outputs * s.in,
                                 .y = y + o * s.out});
        }
    }
}

/* dw (outputs, patch) += dy (outputs, pixels) · patches (pixels, patch). */
static void add_weight_gradient(const fedge_layer_run *run, const fedge_convolution *conv, band at,
                                const float *x, const float *dy, float *dw)
{
    const sizes_of s = measure(conv);
    const size_t skip = (size_t)at.first * conv->out[1];
    fedge_gemm product = {.m = s.outputs,
                          .n = s.patch,
                          .k = at.pixels,
                          .a = dy + skip,
                          .a_row = s.out,
                          .a_column = 1,
                          .b = x + skip,
                          .b_row = 1,
                          .b_column = s.in,
                          .c = dw,
                          .c_row = s.patch,
                          .accumulate = true};
    if (!is_pointwise(conv)) {
        unroll_transposed(conv, x, at, run->scratch);
        product.b = run->scratch;
        product.b_row = s.patch;
        product.b_column = 1;
    }
    run->kernels->gemm(&product, run->gemm_pack);
}

/* dx += the fold of wᵀ (patch, outputs) · dy (outputs, pixels). */
static void add_input_gradient(const fedge_layer_run *run, const fedge_convolution *conv, band at,
                               const float *weight, const float *dy, float *dx)
{
    const sizes_of s = measure(conv);
    const size_t skip = (size_t)at.first * conv->out[1];
    fedge_gemm product = {.m = s.patch,
                          .n = at.pixels,
                          .k = s.outputs,
                          .a = weight,
                          .a_row = 1,
                          .a_column = s.patch,
                          .b = dy + skip,
                          .b_row = s.out,
                          .b_column = 1,
                          .c = dx + skip,
                          .c_row = s.in,
                          .accumulate = true};
    if (!is_pointwise(conv)) {
        product.c = run->scratch;
        product.c_row = at.pixels;
        product.accumulate = false;
    }
    run->kernels->gemm(&product, run->gemm_pack);
    if (!is_pointwise(conv)) {
        fold(conv, run->scratch, at, dx);
    }
}

static void backward_group(const fedge_layer_run *run, const fedge_convolution *conv, size_t group,
                           const float *x, const float *dy, float *dx)
{
    const sizes_of s = measure(conv);
    const uint32_t step = band_rows(conv);
    x += group * s.channels * s.in;
    dy += group * s.outputs * s.out;
    for (uint32_t row = 0; row < conv->out[0]; row += step) {
        band at = {.first = row, .rows = conv->out[0] - row < step ? conv->out[0] - row : step};
        at.pixels = (size_t)at.rows * conv->out[1];
        if (run->gradients[WEIGHT] != NULL) {
            add_weight_gradient(run, conv, at, x, dy, run->gradients[WEIGHT] + group * s.weight);
        }
        if (dx != NULL) {
            add_input_gradient(run, conv, at, run->values[WEIGHT] + group * s.weight, dy,
                               dx + group * s.channels * s.in);
        }
    }
}

void fedge_convolution_backward(const fedge_layer_run *run, const fedge_convolution *conv)
{
    const sizes_of s = measure(conv);
    float *dw = run->gradients[WEIGHT];
    for (size_t b = 0; b < run->batch; b++) {
        const float *x = run->x[0] + b * conv->channels * s.in;
        const float *dy = run->dy + b * conv->out_channels * s.out;
        float *dx = run->dx[0] == NULL ? NULL : run->dx[0] + b * conv->channels * s.in;
        if (dx != NULL) {
            memset(dx, 0, conv->channels * s.in * sizeof *dx);
        }
        for (size_t o = 0; run->gradients[BIAS] != NULL && o < conv->out_channels; o++) {
            float sum = 0.0f;
            for (size_t p = 0; p < s.out; p++) {
                sum += dy[o * s.out + p];
            }
            run->gradients[BIAS][o] += sum;
        }
        for (size_t g = 0; !is_depthwise(conv) && g < conv->groups; g++) {
            backward_group(run, conv, g, x, dy, dx);
        }
        for (size_t o = 0; is_depthwise(conv) && o < conv->out_channels; o++) {
            slide(conv, &(plane){.w = run->values[WEIGHT] + o * s.patch,
                                 .x = x + o / s.outputs * s.in,
                                 .dy = dy + o * s.out,
                                 .dx = dx == NULL ? NULL : dx + o / s.outputs * s.in,
                                 .dw = dw == NULL ? NULL : dw + o * s.patch});
        }
    }
}

/* Convolution: forward row by row, backward over the gradients that are not zero.
 *
 * A ReLU and a max-pooling leave about one gradient in eight, so both backward kernels walk a list
 * of non-zero gradients per output channel instead of the whole image. For a dense gradient they
 * cost no more arithmetic than a dense kernel.
 */
#include <string.h>

#include "edge/train/fused/stages.h"
#include "edge/train/kernels/kernels.h"

/* Index in a patch of an output channel's weight (in channel, row, column). */
static size_t patch_index(const fedge_stage *stage, size_t segment_stride, size_t channel,
                          size_t row, size_t column)
{
    return stage->planar
               ? (channel * stage->windows->conv.kernel[0] + row) * segment_stride + column
               : row * segment_stride + column * stage->in.padded_channels + channel;
}

/* Packs weights from state_dict order (o, channel, row, column) to blocks of packed_columns output
 * channels. */
static void pack_forward(const fedge_layer_context *context, const fedge_stage *stage)
{
    const fedge_conv_shape *shape = &stage->windows->shape;
    const size_t patch = (size_t)shape->num_segments * shape->segment_length;
    const size_t columns = context->kernels->packed_columns;
    const uint32_t *kernel = stage->windows->conv.kernel;
    const float *w = stage->weight;
    float *packed = context->scratch.packed;
    memset(packed, 0, patch * shape->out_channels * sizeof(*packed));
    memset(context->scratch.bias, 0, shape->out_channels * sizeof(*packed));
    for (size_t o = 0; o < stage->out.channels; o++) {
        const size_t begin = o / columns * columns;
        const size_t left = shape->out_channels - begin;
        const size_t width = left < columns ? left : columns;
        float *to = packed + begin * patch + o % columns;
        for (size_t c = 0; c < stage->in.channels; c++) {
            for (size_t r = 0; r < kernel[0]; r++) {
                for (size_t q = 0; q < kernel[1]; q++)
                    to[patch_index(stage, shape->segment_length, c, r, q) * width] = *w++;
            }
        }
        if (stage->bias)
            context->scratch.bias[o] = stage->bias_values[o];
    }
}

/* Copies the caller's example and a border of zeros: (c, h + 2 pad, w + 2 pad). */
static void copy_planar(const fedge_stage *stage, const float *x, float *padded)
{
    const fedge_window *conv = &stage->windows->conv;
    const size_t height = (size_t)conv->in[0] + 2 * conv->pad[0];
    const size_t width = (size_t)conv->in[1] + 2 * conv->pad[1];
    for (size_t c = 0; c < stage->in.channels; c++) {
        fedge_clear_border(&(fedge_grid){.height = conv->in[0],
                                         .width = conv->in[1],
                                         .padded_channels = 1,
                                         .pad_h = conv->pad[0],
                                         .pad_w = conv->pad[1]},
                           padded + c * height * width);
        for (size_t r = 0; r < conv->in[0]; r++) {
            memcpy(padded + (c * height + conv->pad[0] + r) * width + conv->pad[1],
                   x + (c * conv->in[0] + r) * conv->in[1], conv->in[1] * sizeof(*x));
        }
    }
}

/* Example [b] in the kernels' layout. */
static const float *example(const fedge_layer_context *context, const fedge_stage *stage,
                            const float *x, size_t b)
{
    if (!stage->planar)
        return x + b * stage->in.size;
    const size_t size =
        (size_t)stage->in.channels * stage->windows->conv.in[0] * stage->windows->conv.in[1];
    copy_planar(stage, x + b * size, context->scratch.input);
    return context->scratch.input;
}

static void convolve_row(const fedge_layer_context *context, const fedge_stage *stage,
                         const float *x, uint32_t row, float *y)
{
    context->kernels->conv_forward_row(&stage->windows->shape,
                                       x + (size_t)row * stage->windows->row_stride,
                                       context->scratch.packed, context->scratch.bias, y);
}

/* Convolves and pools one example by bands of rows, which stay in the first-level cache. */
static void forward_pooled(const fedge_layer_context *context, const fedge_stage *stage,
                           const float *x, float *y, uint8_t *argmax)
{
    const size_t row_size =
        (size_t)stage->windows->conv.out[1] * stage->windows->shape.out_channels;
    const bool whole = fedge_stage_band_rows(stage) == stage->windows->conv.out[0];
    float *band = context->scratch.band;
    for (uint32_t row = 0; whole && row < stage->windows->conv.out[0]; row++)
        convolve_row(context, stage, x, row, band + row * row_size);
    for (uint32_t row = 0; row < stage->windows->pool.out[0]; row++) {
        const uint32_t first = fedge_maxpool2d_first_row(stage, row);
        for (uint32_t r = 0; !whole && r < stage->windows->pool.kernel[0]; r++)
            convolve_row(context, stage, x, first + r, band + r * row_size);
        fedge_maxpool2d_row(context->kernels, stage, row, whole ? band + first * row_size : band,
                            y + fedge_grid_row(&stage->out, row),
                            argmax + (size_t)row * stage->windows->pool.out[1] *
                                         stage->windows->shape.out_channels);
    }
}

void fedge_conv2d_forward(const fedge_layer_context *context, const fedge_stage *stage,
                          const float *x)
{
    pack_forward(context, stage);
    for (size_t b = 0; b < context->batch; b++) {
        const float *from = example(context, stage, x, b);
        float *y = stage->activation + b * stage->out.size;
        fedge_clear_border(&stage->out, y);
        if (stage->pooled) {
            forward_pooled(context, stage, from, y, stage->argmax + b * stage->argmax_stride);
        } else {
            for (uint32_t row = 0; row < stage->windows->conv.out[0]; row++)
                convolve_row(context, stage, from, row, y + fedge_grid_row(&stage->out, row));
        }
        fedge_relu_forward(context, stage, b, 1);
    }
}

/* Appends the non-zero gradients of a row of outputs to the lists of their channels, and adds them
 * to the bias gradients. g: (pixels, padded channels); pixel p's patch begins at first + p · step,
 * plus offsets[argmax] with pooling. */
static void list_row(const fedge_layer_context *context, const fedge_stage *stage,
                     const fedge_window *window, const float *g, const uint8_t *argmax,
                     const uint32_t *offsets, uint32_t first, uint32_t step)
{
    const size_t pixels = window->out[1], capacity = window->out[0] * pixels;
    const size_t channels = stage->out.channels, stride = stage->out.padded_channels;
    uint32_t *counts = context->scratch.entry_counts;
    for (size_t p = 0; p < pixels; p++) {
        float *restrict bias = context->scratch.bias_gradient;
        for (size_t c = 0; c < channels; c++)
            bias[c] += g[p * stride + c];
        fedge_grad_entry *end = context->scratch.entries;
        for (size_t c = 0; c < channels; c++, end += capacity) {
            const uint32_t offset = !argmax ? 0 : offsets[argmax[p * stride + c]];
            const float value = g[p * stride + c];
            end[counts[c]] = (fedge_grad_entry){first + offset, value};
            counts[c] += value != 0.0f; /* NaN counts */
        }
        first += step;
    }
}

/* Makes the lists of one example, (channels, capacity), and returns the capacity. Offsets of
 * windows that begin in the padding wrap modulo 2^32; adding the offset of a maximum wraps them
 * back. */
static size_t list_gradients(const fedge_layer_context *context, const fedge_stage *stage,
                             const float *dy, const uint8_t *argmax)
{
    const fedge_window *window = stage->pooled ? &stage->windows->pool : &stage->windows->conv;
    const size_t capacity = (size_t)window->out[0] * window->out[1];
    const uint32_t pixel = stage->windows->shape.pixel_stride, line = stage->windows->row_stride;
    uint32_t offsets[FEDGE_STAGE_MAX_WINDOW], step = pixel, row_step = line, first = 0;
    if (stage->pooled) {
        for (uint32_t i = 0; i < window->kernel[0] * window->kernel[1]; i++)
            offsets[i] = i / window->kernel[1] * line + i % window->kernel[1] * pixel;
        step = window->stride[1] * pixel;
        row_step = window->stride[0] * line;
        first = 0u - window->pad[0] * line - window->pad[1] * pixel;
    }
    memset(context->scratch.entry_counts, 0,
           stage->out.channels * sizeof(*context->scratch.entry_counts));
    for (uint32_t row = 0; row < window->out[0]; row++) {
        list_row(context, stage, window, dy + fedge_grid_row(&stage->out, row),
                 stage->pooled ? argmax + (size_t)row * window->out[1] * stage->out.padded_channels
                               : NULL,
                 offsets, first + row * row_step, step);
    }
    return capacity;
}

/* Packs weights for conv_input_grad: (out channels, segments, segment_stride). */
static void pack_backward(const fedge_layer_context *context, const fedge_stage *stage)
{
    const size_t stride = stage->windows->shape.segment_stride,
                 patch = stride * stage->windows->shape.num_segments;
    const float *w = stage->weight;
    float *packed = context->scratch.packed;
    memset(packed, 0, stage->out.channels * patch * sizeof(*packed));
    for (size_t o = 0; o < stage->out.channels; o++) {
        for (size_t c = 0; c < stage->in.channels; c++) {
            for (size_t r = 0; r < stage->windows->conv.kernel[0]; r++) {
                for (size_t q = 0; q < stage->windows->conv.kernel[1]; q++)
                    packed[o * patch + patch_index(stage, stride, c, r, q)] = *w++;
            }
        }
    }
}

static void update(const fedge_layer_context *context, const fedge_stage *stage,
                   const fedge_optimizer *sgd)
{
    const size_t stride = stage->windows->shape.segment_stride,
                 patch = stride * stage->windows->shape.num_segments;
    float *w = stage->weight, *v = stage->weight_velocity;
    for (size_t o = 0; o < stage->out.channels; o++) {
        const float *gradient = context->scratch.weight_gradient + o * patch;
        for (size_t c = 0; c < stage->in.channels; c++) {
            for (size_t r = 0; r < stage->windows->conv.kernel[0]; r++) {
                for (size_t q = 0; q < stage->windows->conv.kernel[1]; q++) {
                    fedge_sgd_apply(sgd, gradient[patch_index(stage, stride, c, r, q)], w++, v);
                    v = !v ? NULL : v + 1;
                }
            }
        }
    }
    if (stage->bias) {
        fedge_sgd_update(sgd, stage->out.channels, context->scratch.bias_gradient,
                         stage->bias_values, stage->bias_velocity);
    }
}

void fedge_conv2d_backward(const fedge_layer_context *context, const fedge_stage *stage,
                           const float *x, float *dy, const fedge_optimizer *sgd, float *dx)
{
    const fedge_scratch *scratch = &context->scratch;
    const size_t channels = stage->out.channels;
    const size_t patch =
        (size_t)stage->windows->shape.num_segments * stage->windows->shape.segment_stride;
    memset(scratch->weight_gradient, 0, channels * patch * sizeof(*scratch->weight_gradient));
    memset(scratch->bias_gradient, 0, channels * sizeof(*scratch->bias_gradient));
    if (dx)
        pack_backward(context, stage);
    for (size_t b = 0; b < context->batch; b++) {
        const float *from = example(context, stage, x, b);
        fedge_relu_backward(context, stage, dy, b, 1);
        const size_t capacity =
            list_gradients(context, stage, dy + b * stage->out.size,
                           stage->pooled ? stage->argmax + b * stage->argmax_stride : NULL);
        for (size_t o = 0; o < channels; o++) {
            context->kernels->conv_weight_grad(
                &stage->windows->shape, from, scratch->entries + o * capacity,
                scratch->entry_counts[o], scratch->weight_gradient + o * patch);
        }
        if (!dx)
            continue;
        float *to = fedge_input_gradient(context, stage, dx, b);
        memset(to, 0, stage->in.size * sizeof(*to));
        for (size_t o = 0; o < channels; o++) {
            context->kernels->conv_input_grad(&stage->windows->shape, scratch->packed + o * patch,
                                              scratch->entries + o * capacity,
                                              scratch->entry_counts[o], to);
        }
        fedge_put_in_place(context, stage, dx, b);
    }
    update(context, stage, sgd);
}

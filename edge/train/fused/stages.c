/* The passes of every stage but convolutions. */
#include "edge/train/fused/stages.h"

#include <string.h>

void fedge_relu_forward(const fedge_layer_context *context, const fedge_stage *stage, size_t first,
                        size_t batch)
{
    if (stage->relu) {
        context->kernels->relu_forward(stage->activation + first * stage->out.size,
                                       batch * stage->out.size);
    }
}

void fedge_relu_backward(const fedge_layer_context *context, const fedge_stage *stage, float *dy,
                         size_t first, size_t batch)
{
    if (stage->relu && dy != stage->activation) {
        context->kernels->relu_backward(stage->activation + first * stage->out.size,
                                        dy + first * stage->out.size, batch * stage->out.size);
    }
}

float *fedge_input_gradient(const fedge_layer_context *context, const fedge_stage *stage, float *dx,
                            size_t b)
{
    return stage->in_place ? context->scratch.input : dx + b * stage->in.size;
}

void fedge_put_in_place(const fedge_layer_context *context, const fedge_stage *stage, float *dx,
                        size_t b)
{
    if (stage->in_place) {
        float *x = dx + b * stage->in.size, *gradient = context->scratch.input;
        if (stage->from_relu)
            context->kernels->relu_backward(x, gradient, stage->in.size);
        memcpy(x, gradient, stage->in.size * sizeof(*x));
    }
}

static fedge_linear_shape shape_of(const fedge_layer_context *context, const fedge_stage *stage)
{
    return (fedge_linear_shape){context->batch, stage->in.channels, stage->out.channels};
}

void fedge_linear_forward(const fedge_layer_context *context, const fedge_stage *stage,
                          const float *x)
{
    const fedge_linear_shape shape = shape_of(context, stage);
    context->kernels->linear_forward(&shape, x, stage->weight, stage->bias_values,
                                     stage->activation);
    fedge_relu_forward(context, stage, 0, context->batch);
}

void fedge_linear_backward(const fedge_layer_context *context, const fedge_stage *stage,
                           const float *x, float *dy, const fedge_optimizer *sgd, float *dx)
{
    const fedge_linear_shape shape = shape_of(context, stage);
    fedge_relu_backward(context, stage, dy, 0, context->batch);
    context->kernels->linear_backward(&shape, x, dy, stage->weight, stage->weight_velocity, sgd,
                                      dx);
    for (size_t o = 0; stage->bias && o < shape.out; o++) {
        float g = 0.0f;
        for (size_t b = 0; b < shape.batch; b++)
            g += dy[b * shape.out + o];
        fedge_sgd_apply(sgd, g, &stage->bias_values[o],
                        !stage->bias_velocity ? NULL : &stage->bias_velocity[o]);
    }
}

uint32_t fedge_maxpool2d_first_row(const fedge_stage *stage, uint32_t row)
{
    const uint32_t top = row * stage->windows->pool.stride[0];
    return top > stage->windows->pool.pad[0] ? top - stage->windows->pool.pad[0] : 0;
}

void fedge_maxpool2d_row(const fedge_kernels *kernels, const fedge_stage *stage, uint32_t row,
                         const float *rows, float *y, uint8_t *argmax)
{
    const fedge_window *pool = &stage->windows->pool;
    const uint32_t top = row * pool->stride[0]; /* counted from −pad */
    const uint32_t bottom = pool->in[0] + pool->pad[0] - top;
    const fedge_pool_shape shape = {
        .channels = stage->out.padded_channels,
        .in_w = pool->in[1],
        .out_w = pool->out[1],
        .kernel_w = pool->kernel[1],
        .stride_w = pool->stride[1],
        .pad_w = pool->pad[1],
        .row_begin = top < pool->pad[0] ? pool->pad[0] - top : 0,
        .row_end = pool->kernel[0] < bottom ? pool->kernel[0] : bottom,
    };
    kernels->maxpool_row(&shape, rows, y, argmax);
}

void fedge_maxpool2d_forward(const fedge_layer_context *context, const fedge_stage *stage,
                             const float *x)
{
    const size_t channels = stage->out.padded_channels;
    for (size_t b = 0; b < context->batch; b++) {
        float *y = stage->activation + b * stage->out.size;
        uint8_t *argmax = stage->argmax + b * stage->argmax_stride;
        fedge_clear_border(&stage->out, y);
        for (uint32_t row = 0; row < stage->windows->pool.out[0]; row++) {
            const size_t from = (size_t)fedge_maxpool2d_first_row(stage, row) *
                                stage->windows->pool.in[1] * channels;
            fedge_maxpool2d_row(context->kernels, stage, row, x + b * stage->in.size + from,
                                y + fedge_grid_row(&stage->out, row),
                                argmax + row * stage->windows->pool.out[1] * channels);
        }
    }
    fedge_relu_forward(context, stage, 0, context->batch);
}

/* One example: each output's gradient is added at the index of its maximum. */
static void scatter(const fedge_stage *stage, const float *dy, const uint8_t *argmax, float *dx)
{
    const fedge_window *pool = &stage->windows->pool;
    const size_t channels = stage->out.padded_channels;
    for (uint32_t row = 0; row < pool->out[0]; row++) {
        const float *g = dy + fedge_grid_row(&stage->out, row);
        for (size_t p = 0; p < pool->out[1]; p++) {
            for (size_t c = 0; c < stage->out.channels; c++) {
                const size_t tap = argmax[(row * pool->out[1] + p) * channels + c];
                const size_t y = row * pool->stride[0] + tap / pool->kernel[1] - pool->pad[0];
                const size_t x = p * pool->stride[1] + tap % pool->kernel[1] - pool->pad[1];
                dx[(y * pool->in[1] + x) * channels + c] += g[p * channels + c];
            }
        }
    }
}

void fedge_maxpool2d_backward(const fedge_layer_context *context, const fedge_stage *stage,
                              float *dy, float *dx)
{
    fedge_relu_backward(context, stage, dy, 0, context->batch);
    memset(dx, 0, context->batch * stage->in.size * sizeof(*dx));
    for (size_t b = 0; b < context->batch; b++) {
        scatter(stage, dy + b * stage->out.size, stage->argmax + b * stage->argmax_stride,
                dx + b * stage->in.size);
    }
}

/* ---- layouts: the caller's (c, h, w), channels-last grids, flat features ---- */

size_t fedge_grid_row(const fedge_grid *grid, uint32_t row)
{
    return (((size_t)row + grid->pad_h) * ((size_t)grid->width + 2 * grid->pad_w) + grid->pad_w) *
           grid->padded_channels;
}

void fedge_clear_border(const fedge_grid *grid, float *values)
{
    const size_t row = ((size_t)grid->width + 2 * grid->pad_w) * grid->padded_channels;
    const size_t side = (size_t)grid->pad_w * grid->padded_channels;
    const size_t image = (size_t)grid->height * row;
    memset(values, 0, grid->pad_h * row * sizeof(*values));
    values += grid->pad_h * row;
    for (size_t y = 0; side > 0 && y < grid->height; y++) {
        memset(values + y * row, 0, side * sizeof(*values));
        memset(values + (y + 1) * row - side, 0, side * sizeof(*values));
    }
    memset(values + image, 0, grid->pad_h * row * sizeof(*values));
}

void fedge_flatten_forward(const fedge_layer_context *context, const fedge_stage *stage,
                           const float *x)
{
    const fedge_grid *in = &stage->in;
    for (size_t b = 0; b < context->batch; b++) {
        float *y = stage->activation + b * stage->out.size;
        for (size_t c = 0; c < in->channels; c++) {
            const float *from = x + b * in->size + c;
            for (size_t p = 0; p < (size_t)in->height * in->width; p++)
                *y++ = from[p * in->padded_channels];
        }
    }
    fedge_relu_forward(context, stage, 0, context->batch);
}

void fedge_flatten_backward(const fedge_layer_context *context, const fedge_stage *stage, float *dy,
                            float *dx)
{
    const fedge_grid *in = &stage->in;
    fedge_relu_backward(context, stage, dy, 0, context->batch);
    for (size_t b = 0; b < context->batch; b++) {
        float *gradient = fedge_input_gradient(context, stage, dx, b);
        if (in->padded_channels > in->channels)
            memset(gradient, 0, in->size * sizeof(*dx));
        for (size_t c = 0; c < in->channels; c++) {
            float *to = gradient + c;
            for (size_t p = 0; p < (size_t)in->height * in->width; p++)
                to[p * in->padded_channels] = *dy++;
        }
        fedge_put_in_place(context, stage, dx, b);
    }
}

void fedge_import_forward(const fedge_layer_context *context, const fedge_stage *stage,
                          const float *x)
{
    const fedge_grid *out = &stage->out;
    if (!stage->image) {
        memcpy(stage->activation, x, context->batch * out->size * sizeof(*x));
    } else {
        memset(stage->activation, 0, context->batch * out->size * sizeof(*x));
        for (size_t b = 0; b < context->batch; b++) {
            float *y = stage->activation + b * out->size;
            for (size_t c = 0; c < out->channels; c++) {
                for (uint32_t row = 0; row < out->height; row++) {
                    float *to = y + fedge_grid_row(out, row) + c;
                    for (size_t p = 0; p < out->width; p++)
                        to[p * out->padded_channels] = *x++;
                }
            }
        }
    }
    fedge_relu_forward(context, stage, 0, context->batch);
}

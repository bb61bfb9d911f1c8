#include <string.h>

#include "edge/train/fused/stages.h"

uint32_t fedge_maxpool2d_first_row(const fedge_stage *stage, uint32_t row)
{
    const uint32_t top = row * stage->slide->pool.stride[0];
    return top > stage->slide->pool.pad[0] ? top - stage->slide->pool.pad[0] : 0;
}

void fedge_maxpool2d_row(const fedge_kernels *kernels, const fedge_stage *stage, uint32_t row,
                         const float *rows, float *y, uint8_t *argmax)
{
    const fedge_window *pool = &stage->slide->pool;
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
        for (uint32_t row = 0; row < stage->slide->pool.out[0]; row++) {
            const size_t from =
                (size_t)fedge_maxpool2d_first_row(stage, row) * stage->slide->pool.in[1] * channels;
            fedge_maxpool2d_row(context->kernels, stage, row, x + b * stage->in.size + from,
                                y + fedge_grid_row(&stage->out, row),
                                argmax + row * stage->slide->pool.out[1] * channels);
        }
    }
    fedge_relu_forward(context, stage, 0, context->batch);
}

/* One example: each output's gradient goes to the place of its maximum. */
static void scatter(const fedge_stage *stage, const float *dy, const uint8_t *argmax, float *dx)
{
    const fedge_window *pool = &stage->slide->pool;
    const size_t channels = stage->out.padded_channels;
    for (uint32_t row = 0; row < pool->out[0]; row++) {
        const float *g = dy + fedge_grid_row(&stage->out, row);
        for (size_t p = 0; p < pool->out[1]; p++) {
            for (size_t c = 0; c < stage->out.channels; c++) {
                const size_t place = argmax[(row * pool->out[1] + p) * channels + c];
                const size_t y = row * pool->stride[0] + place / pool->kernel[1] - pool->pad[0];
                const size_t x = p * pool->stride[1] + place % pool->kernel[1] - pool->pad[1];
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

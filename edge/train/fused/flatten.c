/* Between layouts: the caller's (c, h, w), the channels-last grids, and flat features. */
#include <string.h>

#include "edge/train/fused/stages.h"

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
        float *place = fedge_gradient_place(context, stage, dx, b);
        if (in->padded_channels > in->channels)
            memset(place, 0, in->size * sizeof(*dx));
        for (size_t c = 0; c < in->channels; c++) {
            float *to = place + c;
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

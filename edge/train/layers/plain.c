#include "edge/train/layers/plain.h"

#include <stdbool.h>
#include <string.h>

/* ---- linear ---- */

void fedge_plain_linear_forward(const fedge_plain_linear *shape, const double *x, const double *w,
                                const double *b, double *y)
{
    const size_t in = shape->in, out = shape->out;
    for (size_t n = 0; n < shape->batch; n++) {
        for (size_t o = 0; o < out; o++) {
            double sum = b ? b[o] : 0.0;
            for (size_t i = 0; i < in; i++)
                sum += x[n * in + i] * w[o * in + i];
            y[n * out + o] = sum;
        }
    }
}

static void clear(double *values, size_t count)
{
    if (values)
        memset(values, 0, count * sizeof(*values));
}

void fedge_plain_linear_backward(const fedge_plain_linear *shape, const double *x, const double *w,
                                 const double *dy, double *dx, double *dw, double *db)
{
    const size_t in = shape->in, out = shape->out;
    clear(dx, shape->batch * in);
    clear(dw, out * in);
    clear(db, out);
    for (size_t n = 0; n < shape->batch; n++) {
        for (size_t o = 0; o < out; o++) {
            const double gradient = dy[n * out + o];
            for (size_t i = 0; i < in; i++) {
                if (dx)
                    dx[n * in + i] += w[o * in + i] * gradient;
                if (dw)
                    dw[o * in + i] += x[n * in + i] * gradient;
            }
            if (db)
                db[o] += gradient;
        }
    }
}

/* ---- convolution ---- */

/* Sets the index in an image of pixel (row, column) of the padded image; false in the padding. */
static bool inside(const fedge_plain_conv2d *s, size_t row, size_t column, size_t *index)
{
    if (row < s->padding[0] || row - s->padding[0] >= s->in[0] || column < s->padding[1] ||
        column - s->padding[1] >= s->in[1])
        return false;
    *index = (row - s->padding[0]) * s->in[1] + column - s->padding[1];
    return true;
}

/* Offsets of the factors of a convolution's products: a plane of x, a plane of w, a value of y. */
typedef struct patch {
    size_t x, w, y;
    size_t row, column;
} patch;

/* All products of a patch: y += w · x, dx += w · dy, dw += x · dy, each unless NULL. */
static void multiply(const fedge_plain_conv2d *s, const patch *at, const double *x, const double *w,
                     double *y, const double *dy, double *dx, double *dw)
{
    for (size_t j = 0; j < s->kernel[0]; j++) {
        for (size_t k = 0; k < s->kernel[1]; k++) {
            size_t pixel;
            if (!inside(s, at->row * s->stride[0] + j * s->dilation[0],
                        at->column * s->stride[1] + k * s->dilation[1], &pixel))
                continue;
            const size_t tap = at->w + j * s->kernel[1] + k;
            if (y)
                y[at->y] += w[tap] * x[at->x + pixel];
            if (dx)
                dx[at->x + pixel] += w[tap] * dy[at->y];
            if (dw)
                dw[tap] += x[at->x + pixel] * dy[at->y];
        }
    }
}

/* Multiplies each output (n, o, row, column) with each input channel of its group. */
static void convolve(const fedge_plain_conv2d *s, const double *x, const double *w, double *y,
                     const double *dy, double *dx, double *dw)
{
    const size_t inputs = s->in_channels / s->groups, outputs = s->out_channels / s->groups;
    const size_t pixels = s->in[0] * s->in[1], taps = s->kernel[0] * s->kernel[1];
    const size_t count = s->batch * s->out_channels * s->out[0] * s->out[1];
    for (size_t index = 0; index < count; index++) {
        const size_t column = index % s->out[1], row = index / s->out[1] % s->out[0];
        const size_t plane = index / (s->out[0] * s->out[1]);
        const size_t o = plane % s->out_channels, n = plane / s->out_channels;
        for (size_t i = 0; i < inputs; i++) {
            const size_t channel = o / outputs * inputs + i;
            const patch at = {.x = (n * s->in_channels + channel) * pixels,
                              .w = (o * inputs + i) * taps,
                              .y = index,
                              .row = row,
                              .column = column};
            multiply(s, &at, x, w, y, dy, dx, dw);
        }
    }
}

void fedge_plain_conv2d_forward(const fedge_plain_conv2d *shape, const double *x, const double *w,
                                const double *b, double *y)
{
    const size_t plane = shape->out[0] * shape->out[1];
    for (size_t i = 0; i < shape->batch * shape->out_channels * plane; i++)
        y[i] = b ? b[i / plane % shape->out_channels] : 0.0;
    convolve(shape, x, w, y, NULL, NULL, NULL);
}

void fedge_plain_conv2d_backward(const fedge_plain_conv2d *shape, const double *x, const double *w,
                                 const double *dy, double *dx, double *dw, double *db)
{
    const size_t plane = shape->out[0] * shape->out[1];
    clear(dx, shape->batch * shape->in_channels * shape->in[0] * shape->in[1]);
    clear(dw, shape->out_channels * (shape->in_channels / shape->groups) * shape->kernel[0] *
                  shape->kernel[1]);
    clear(db, shape->out_channels);
    convolve(shape, x, w, NULL, dy, dx, dw);
    for (size_t i = 0; db && i < shape->batch * shape->out_channels * plane; i++)
        db[i / plane % shape->out_channels] += dy[i];
}

#include "edge/train/layers/convolution.h"

#include <assert.h>
#include <string.h>

#define BAND_FLOATS                                                                                \
    ((size_t)8192) /* floats of a padded channel: fills most of a first-level cache */

enum { WEIGHT, BIAS };

/* A padded channel from which outputs are computed. Index 0 is vertical, 1 is horizontal. */
typedef struct plane {
    size_t source[2], outputs[2], kernel[2], dilation[2];
    size_t stride[2];  /* strides of outputs; columns of equal column mod stride are contiguous */
    size_t spread[2];  /* distance of the source's elements in the plane; zeros between them */
    ptrdiff_t lead[2]; /* zeros before the source; < 0: elements cut off */
    size_t width;      /* columns of equal column mod stride */
    size_t pitch;      /* floats of a row */
    size_t band;       /* rows of outputs at a time */
    size_t size;       /* floats */
} plane;

bool fedge_depthwise_fits(const fedge_convolution *conv)
{
    return conv->groups > 1 && conv->groups == conv->channels && conv->stride[0] <= 2 &&
           conv->stride[1] <= 2;
}

static size_t last_tap(const plane *self, int axis)
{
    return (self->kernel[axis] - 1) * self->dilation[axis];
}

/* Rows of the plane that [rows] rows of outputs read. */
static size_t rows_needed(const plane *self, size_t rows)
{
    return (rows - 1) * self->stride[0] + last_tap(self, 0) + 1;
}

static plane measure(plane self, size_t lanes)
{
    self.width = self.outputs[1] + last_tap(&self, 1) / self.stride[1];
    const size_t row = self.stride[1] * self.width + self.spread[1] - 1;
    self.pitch = (row + lanes - 1) / lanes * lanes;
    const size_t fit = BAND_FLOATS / self.pitch, min_rows = last_tap(&self, 0) + 1;
    self.band = fit > min_rows ? (fit - min_rows) / self.stride[0] + 1 : 1;
    self.band = self.band < self.outputs[0] ? self.band : self.outputs[0];
    self.size = rows_needed(&self, self.band) * self.pitch + lanes;
    return self;
}

static plane input_plane(const fedge_convolution *conv, size_t lanes)
{
    plane self = {0};
    for (int i = 0; i < 2; i++) {
        self.source[i] = conv->in[i];
        self.outputs[i] = conv->out[i];
        self.kernel[i] = conv->kernel[i];
        self.dilation[i] = conv->dilation[i];
        self.stride[i] = conv->stride[i];
        self.spread[i] = 1;
        self.lead[i] = (ptrdiff_t)conv->padding[i];
    }
    return measure(self, lanes);
}

/* The plane of the outputs' gradient; its outputs are the input's gradient. */
static plane gradient_plane(const fedge_convolution *conv, size_t lanes)
{
    plane self = {0};
    for (int i = 0; i < 2; i++) {
        self.source[i] = conv->out[i];
        self.outputs[i] = conv->in[i];
        self.kernel[i] = conv->kernel[i];
        self.dilation[i] = conv->dilation[i];
        self.stride[i] = 1;
        self.spread[i] = conv->stride[i];
        self.lead[i] = (ptrdiff_t)last_tap(&self, i) - (ptrdiff_t)conv->padding[i];
    }
    return measure(self, lanes);
}

/* Working memory. */
typedef struct workspace {
    float *input, *gradient; /* planes */
    float *flipped;          /* a channel's weights in reverse order */
    uint32_t *columns, *gradient_columns;
    size_t bytes;
} workspace;

static workspace lay_out(const plane *input, const plane *gradient, void *scratch)
{
    const size_t taps = input->kernel[0] * input->kernel[1], taps_w = input->kernel[1];
    const size_t second = !gradient ? 0 : gradient->size;
    const size_t floats = input->size + (!gradient ? 0 : second + taps);
    workspace at = {.bytes =
                        floats * sizeof(float) + (!gradient ? 1 : 2) * taps_w * sizeof(uint32_t)};
    if (scratch) {
        at.input = scratch;
        at.gradient = at.input + input->size;
        at.flipped = at.gradient + second;
        at.columns = (uint32_t *)(void *)(at.input + floats);
        at.gradient_columns = at.columns + taps_w;
    }
    return at;
}

void fedge_depthwise_sizes(const fedge_layer_run *run, const fedge_convolution *conv,
                           fedge_layer_sizes *sizes)
{
    const plane input = input_plane(conv, run->kernels->lanes);
    const plane gradient = gradient_plane(conv, run->kernels->lanes);
    sizes->forward = lay_out(&input, NULL, NULL).bytes;
    sizes->backward = lay_out(&input, &gradient, NULL).bytes;
}

static void fill_columns(const plane *self, uint32_t *columns)
{
    for (size_t j = 0; j < self->kernel[1]; j++) {
        const size_t column = j * self->dilation[1], stride = self->stride[1];
        columns[j] = (uint32_t)(column % stride * self->width + column / stride);
    }
}

/* Zeroes the plane. The padding around the source then stays zero for all images. */
static void clear(const plane *self, float *to)
{
    memset(to, 0, self->size * sizeof(*to));
}

/* Indices [begin, end). */
typedef struct range {
    size_t begin, end;
} range;

/* Those of [n] indices i whose coordinate from + i · step is in [0, size). */
static range clip(ptrdiff_t from, size_t step, size_t n, size_t size)
{
    const ptrdiff_t by = (ptrdiff_t)step, last = (ptrdiff_t)size - 1 - from;
    const size_t begin = from < 0 ? (size_t)((-from + by - 1) / by) : 0;
    const size_t end = last < 0 ? 0 : (size_t)(last / by) + 1;
    const size_t stop = end < n ? end : n;
    return (range){begin < stop ? begin : stop, stop};
}

/* Copies rows of the source to the even and odd columns of the plane at [at]. */
static void copy_split(const plane *self, const fedge_kernels *kernels, size_t rows,
                       size_t row_stride, const float *from, float *at)
{
    const size_t lead = (size_t)self->lead[1], source_width = self->source[1], width = self->width;
    const size_t end = 2 * width > lead ? 2 * width - lead : 0; /* columns that outputs read */
    const size_t columns = source_width < end ? source_width : end, pairs = columns / 2;
    if (columns == 0)
        return;
    float *even = at + lead % 2 * width + lead / 2;
    float *odd = at + (lead + 1) % 2 * width + (lead + 1) / 2;
    kernels->split_rows(rows, pairs, from, source_width, even, odd, row_stride);
    for (size_t r = 0; columns % 2 == 1 && r < rows; r++)
        even[r * row_stride + pairs] = from[r * source_width + columns - 1];
}

/* Copies what outputs from row [row] on read of one channel to a plane with zero padding. */
static void copy_source(const plane *self, const fedge_kernels *kernels, size_t row,
                        const float *from, float *to)
{
    const ptrdiff_t top = self->lead[0] - (ptrdiff_t)(row * self->stride[0]);
    const range rows = clip(top, self->spread[0], self->source[0], rows_needed(self, self->band));
    const size_t n = rows.end - rows.begin, source_width = self->source[1];
    const size_t row_stride = self->spread[0] * self->pitch;
    if (n == 0)
        return;
    from += rows.begin * source_width;
    to += (size_t)(top + (ptrdiff_t)(rows.begin * self->spread[0])) * self->pitch;
    if (self->stride[1] == 2) {
        copy_split(self, kernels, n, row_stride, from, to);
        return;
    }
    const range columns = clip(self->lead[1], self->spread[1], source_width, self->width);
    const size_t count = columns.end - columns.begin;
    if (count == 0)
        return;
    from += columns.begin;
    to += self->lead[1] + (ptrdiff_t)(columns.begin * self->spread[1]);
    if (self->spread[1] == 2)
        kernels->spread_rows(n, count, from, source_width, to, row_stride);
    else
        kernels->copy_rows(n, count, from, source_width, 0.0f, to, row_stride);
}

/* The shape of the plane's outputs from row [row] on. */
static fedge_depthwise shape_of(const plane *self, size_t row, const uint32_t *columns)
{
    const size_t left = self->outputs[0] - row;
    return (fedge_depthwise){.rows = left < self->band ? left : self->band,
                             .width = self->outputs[1],
                             .kernel = {self->kernel[0], self->kernel[1]},
                             .step = self->stride[0] * self->pitch,
                             .pitch = self->dilation[0] * self->pitch,
                             .columns = columns};
}

/* With bands, the padding differs from band to band and is cleared first. */
static void copy_band(const plane *self, const fedge_kernels *kernels, size_t row,
                      const float *from, float *to)
{
    if (self->band < self->outputs[0])
        clear(self, to);
    copy_source(self, kernels, row, from, to);
}

void fedge_depthwise_forward(const fedge_layer_run *run, const fedge_convolution *conv)
{
    const plane input = input_plane(conv, run->kernels->lanes);
    assert(run->scratch); /* reserved by fedge_depthwise_sizes */
    const workspace at = lay_out(&input, NULL, run->scratch);
    const size_t times = conv->out_channels / conv->channels;
    const size_t in = (size_t)conv->in[0] * conv->in[1], out = (size_t)conv->out[0] * conv->out[1];
    const size_t taps = (size_t)conv->kernel[0] * conv->kernel[1];
    clear(&input, at.input);
    fill_columns(&input, at.columns);
    for (size_t i = 0; i < (size_t)run->batch * conv->channels; i++) {
        for (size_t row = 0; row < conv->out[0]; row += input.band) {
            const fedge_depthwise shape = shape_of(&input, row, at.columns);
            copy_band(&input, run->kernels, row, run->x[0] + i * in, at.input);
            for (size_t k = 0; k < times; k++) {
                const size_t image = i * times + k, o = image % conv->out_channels;
                run->kernels->depthwise(&shape, at.input, run->values[WEIGHT] + o * taps,
                                        conv->bias ? run->values[BIAS][o] : 0.0f, false,
                                        run->y + image * out + row * conv->out[1]);
            }
        }
    }
}

/* The weights' gradient from channel [i] of the batch, for all its outputs. */
static void add_weight_gradient(const fedge_layer_run *run, const fedge_convolution *conv,
                                const plane *input, const workspace *at, size_t i)
{
    const size_t times = conv->out_channels / conv->channels;
    const size_t in = (size_t)conv->in[0] * conv->in[1], out = (size_t)conv->out[0] * conv->out[1];
    const size_t taps = (size_t)conv->kernel[0] * conv->kernel[1];
    for (size_t row = 0; row < conv->out[0]; row += input->band) {
        const fedge_depthwise shape = shape_of(input, row, at->columns);
        copy_band(input, run->kernels, row, run->x[0] + i * in, at->input);
        for (size_t k = 0; k < times; k++) {
            const size_t image = i * times + k, o = image % conv->out_channels;
            run->kernels->depthwise_weight_grad(&shape, at->input,
                                                run->dy + image * out + row * conv->out[1],
                                                run->gradients[WEIGHT] + o * taps);
        }
    }
}

static void make_input_gradient(const fedge_layer_run *run, const fedge_convolution *conv,
                                const plane *gradient, const workspace *at, size_t i)
{
    const size_t times = conv->out_channels / conv->channels;
    const size_t in = (size_t)conv->in[0] * conv->in[1], out = (size_t)conv->out[0] * conv->out[1];
    const size_t taps = (size_t)conv->kernel[0] * conv->kernel[1];
    for (size_t k = 0; k < times; k++) {
        const size_t image = i * times + k, o = image % conv->out_channels;
        const float *weights = run->values[WEIGHT] + o * taps;
        for (size_t tap = 0; tap < taps; tap++)
            at->flipped[tap] = weights[taps - 1 - tap];
        for (size_t row = 0; row < conv->in[0]; row += gradient->band) {
            const fedge_depthwise shape = shape_of(gradient, row, at->gradient_columns);
            copy_band(gradient, run->kernels, row, run->dy + image * out, at->gradient);
            run->kernels->depthwise(&shape, at->gradient, at->flipped, 0.0f, k > 0,
                                    run->dx[0] + i * in + row * conv->in[1]);
        }
    }
}

void fedge_depthwise_backward(const fedge_layer_run *run, const fedge_convolution *conv)
{
    const plane input = input_plane(conv, run->kernels->lanes);
    const plane gradient = gradient_plane(conv, run->kernels->lanes);
    assert(run->scratch); /* reserved by fedge_depthwise_sizes */
    const workspace at = lay_out(&input, &gradient, run->scratch);
    clear(&input, at.input);
    clear(&gradient, at.gradient);
    fill_columns(&input, at.columns);
    fill_columns(&gradient, at.gradient_columns);
    for (size_t i = 0; i < (size_t)run->batch * conv->channels; i++) {
        if (run->gradients[WEIGHT])
            add_weight_gradient(run, conv, &input, &at, i);
        if (run->dx[0])
            make_input_gradient(run, conv, &gradient, &at, i);
    }
}

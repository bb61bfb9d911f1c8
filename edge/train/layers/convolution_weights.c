#include "edge/train/layers/convolution_weights.h"

#include <assert.h>
#include <string.h>

#define LEAST_OUTPUTS 4u            /* of a group: fewer leave rows of the product's tiles idle */
#define BAND_FLOATS ((size_t)20480) /* of channels-last input at a time, as a rule */
#define SUM_PIXELS ((size_t)256)    /* of several examples in one sum: a product's depth */
/* Floats of their input, and of their outputs, at most: tables count them in 32 bits. */
#define SUM_FLOATS ((size_t)1 << 31)

/* How a group's input lies, and how much of it at a time. */
typedef struct band {
    size_t channels, outputs; /* of a group */
    size_t examples;          /* at a time; 1 where an image is taken in bands */
    size_t rows;              /* of outputs at a time */
    size_t lines, width;      /* of the input with its padding, for so many rows */
    size_t image;             /* floats of an example's band */
    size_t segments, length;  /* runs of taps that are neighbours in memory, floats of each */
    size_t vectors;           /* of a segment */
    size_t sums;              /* floats of an output channel's sums */
} band;

static size_t divide_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

static band make_band(const fedge_convolution *conv, size_t batch, size_t lanes)
{
    band b = {.channels = conv->channels / conv->groups,
              .outputs = conv->out_channels / conv->groups,
              .examples = 1,
              .rows = conv->out[0]};
    const size_t reach = (size_t)(conv->kernel[0] - 1) * conv->dilation[0] + 1;
    b.width = (size_t)(conv->out[1] - 1) * conv->stride[1] +
              (size_t)(conv->kernel[1] - 1) * conv->dilation[1] + 1;
    b.lines = (b.rows - 1) * conv->stride[0] + reach;
    const size_t line = b.width * b.channels, fit = BAND_FLOATS / line;
    if (b.lines > fit) {
        b.rows = fit > reach ? (fit - reach) / conv->stride[0] + 1 : 1;
        b.lines = (b.rows - 1) * conv->stride[0] + reach;
    }
    b.image = b.lines * line;
    if (b.rows == conv->out[0]) {
        const size_t pixels = b.rows * conv->out[1], outputs = conv->out_channels * pixels;
        const size_t most = SUM_FLOATS / (b.image > outputs ? b.image : outputs);
        b.examples = pixels < SUM_PIXELS ? SUM_PIXELS / pixels : 1;
        b.examples = b.examples < most ? b.examples : most;
        b.examples = b.examples < batch ? b.examples : batch;
        b.examples = b.examples > 0 ? b.examples : 1;
    }
    const bool close = conv->dilation[1] == 1;
    b.segments = (size_t)conv->kernel[0] * (close ? 1 : conv->kernel[1]);
    b.length = close ? conv->kernel[1] * b.channels : b.channels;
    b.vectors = divide_up(b.length, lanes);
    b.sums = b.segments * b.vectors * lanes;
    return b;
}

/* Where the working memory's parts lie: floats and tables. */
typedef struct workplace {
    float *x, *sums;
    uint32_t *x_at, *dy_at;      /* of each pixel of the examples at a time */
    uint32_t *starts, *c_starts; /* of each vector */
    uint64_t bytes;
} workplace;

static workplace lay_out(const fedge_convolution *conv, const band *b, size_t lanes, void *scratch)
{
    const size_t x = divide_up(b->examples * b->image + lanes, 16) * 16;
    const size_t sums = b->outputs * b->sums;
    const size_t pixels = b->examples * b->rows * conv->out[1];
    const size_t vectors = b->segments * b->vectors;
    workplace at = {.bytes = ((uint64_t)x + sums) * sizeof(float) +
                             2 * ((uint64_t)pixels + vectors) * sizeof(uint32_t)};
    if (scratch) {
        at.x = scratch;
        at.sums = at.x + x;
        at.x_at = (uint32_t *)(void *)(at.sums + sums);
        at.dy_at = at.x_at + pixels;
        at.starts = at.dy_at + pixels;
        at.c_starts = at.starts + vectors;
    }
    return at;
}

bool fedge_convolution_weights_fit(const fedge_convolution *conv, const fedge_kernels *kernels)
{
    const size_t channels = conv->channels / conv->groups;
    return kernels->lanes > 1 && conv->out_channels / conv->groups >= LEAST_OUTPUTS &&
           2 * channels * (conv->dilation[1] == 1 ? conv->kernel[1] : 1) >= kernels->lanes;
}

uint64_t fedge_convolution_weights_scratch(const fedge_convolution *conv, uint32_t batch,
                                           const fedge_kernels *kernels)
{
    const band b = make_band(conv, batch, kernels->lanes);
    return lay_out(conv, &b, kernels->lanes, NULL).bytes;
}

static void fill_tables(const fedge_convolution *conv, const band *b, size_t lanes,
                        const workplace *at)
{
    const size_t line = b->width * b->channels, out = (size_t)conv->out[0] * conv->out[1];
    size_t n = 0;
    for (size_t e = 0; e < b->examples; e++) {
        for (size_t i = 0; i < b->rows; i++) {
            for (size_t j = 0; j < conv->out[1]; j++) {
                at->x_at[n] = (uint32_t)(e * b->image + i * conv->stride[0] * line +
                                         j * conv->stride[1] * b->channels);
                at->dy_at[n++] = (uint32_t)(e * conv->out_channels * out + i * conv->out[1] + j);
            }
        }
    }
    const size_t across = b->segments / conv->kernel[0];
    for (size_t v = 0; v < b->segments * b->vectors; v++) {
        const size_t s = v / b->vectors;
        at->starts[v] =
            (uint32_t)(s / across * conv->dilation[0] * line +
                       s % across * conv->dilation[1] * b->channels + v % b->vectors * lanes);
        at->c_starts[v] = (uint32_t)(v * lanes);
    }
}

/* One example's band, for outputs from row [row] on, amid zeros: beside the image they lie there
 * from the beginning, above and below it too when the band is the whole image. x: the group's
 * channels. */
static void lay_band(const fedge_convolution *conv, const band *b, const fedge_kernels *kernels,
                     size_t row, const float *x, float *to)
{
    const size_t in = (size_t)conv->in[0] * conv->in[1], left = conv->padding[1];
    const size_t right = left + conv->in[1] < b->width ? left + conv->in[1] : b->width;
    const size_t line = b->width * b->channels;
    const size_t reach = (size_t)(conv->kernel[0] - 1) * conv->dilation[0] + 1;
    for (size_t i = 0; i < b->lines; i++, to += line) {
        const size_t y = row * conv->stride[0] + i; /* counted from −padding */
        if (i % conv->stride[0] >= reach)
            continue; /* between the rows that the kernel reads */
        if (y < conv->padding[0] || y >= conv->padding[0] + (size_t)conv->in[0]) {
            if (b->rows < conv->out[0])
                memset(to, 0, line * sizeof(*to));
        } else if (left < right) {
            kernels->transpose(b->channels, right - left, x + (y - conv->padding[0]) * conv->in[1],
                               in, to + left * b->channels, b->channels);
        }
    }
}

/* gradient[o][c][tap] += sums[o][tap][c]. */
static void add_sums(const band *b, size_t lanes, const float *sums, float *gradient)
{
    const size_t pitch = b->vectors * lanes, taps = b->length / b->channels; /* of a segment */
    for (size_t o = 0; o < b->outputs; o++, sums += b->sums) {
        for (size_t c = 0; c < b->channels; c++) {
            for (size_t s = 0; s < b->segments; s++) {
                for (size_t tap = 0; tap < taps; tap++)
                    *gradient++ += sums[s * pitch + tap * b->channels + c];
            }
        }
    }
}

static void add_group(const fedge_layer_run *run, const fedge_convolution *conv, const band *b,
                      const workplace *at, size_t group)
{
    const size_t in = (size_t)conv->in[0] * conv->in[1], out = (size_t)conv->out[0] * conv->out[1];
    const float *x = run->x[0] + group * b->channels * in;
    const float *dy = run->dy + group * b->outputs * out;
    memset(at->sums, 0, b->outputs * b->sums * sizeof(*at->sums));
    for (size_t e = 0, n; e < run->batch; e += n) {
        n = run->batch - e < b->examples ? run->batch - e : b->examples;
        for (size_t row = 0; row < conv->out[0]; row += b->rows) {
            const size_t rows = conv->out[0] - row < b->rows ? conv->out[0] - row : b->rows;
            for (size_t i = 0; i < n; i++) {
                lay_band(conv, b, run->kernels, row, x + (e + i) * conv->channels * in,
                         at->x + i * b->image);
            }
            run->kernels->gemm(
                &(fedge_gemm){.m = b->outputs,
                              .n = b->sums,
                              .k = n * rows * conv->out[1],
                              .a = dy + e * conv->out_channels * out + row * conv->out[1],
                              .a_row = out,
                              .a_offsets = at->dy_at,
                              .b = at->x,
                              .b_column = 1,
                              .b_offsets = at->x_at,
                              .starts = at->starts,
                              .c_starts = at->c_starts,
                              .run = run->kernels->lanes,
                              .c = at->sums,
                              .c_row = b->sums,
                              .accumulate = true},
                run->gemm_pack);
        }
    }
}

void fedge_convolution_weights_add(const fedge_layer_run *run, const fedge_convolution *conv,
                                   float *gradient)
{
    const size_t lanes = run->kernels->lanes;
    const band b = make_band(conv, run->batch, lanes);
    assert(run->scratch); /* as fedge_convolution_weights_scratch asked */
    const workplace at = lay_out(conv, &b, lanes, run->scratch);
    fill_tables(conv, &b, lanes, &at);
    memset(at.x, 0, (b.examples * b.image + lanes) * sizeof(*at.x));
    for (size_t g = 0; g < conv->groups; g++) {
        add_group(run, conv, &b, &at, g);
        add_sums(&b, lanes, at.sums,
                 gradient + g * b.outputs * b.channels * conv->kernel[0] * conv->kernel[1]);
    }
}

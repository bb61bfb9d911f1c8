#include "edge/train/layers/convolution.h"

#include <string.h>

#define ROWS ((size_t)16) /* rows of a Linear's input at a time */
#define BAND_BYTES                                                                                 \
    ((size_t)32768) /* bytes of a convolution's patches at a time; at least one row */
#define ALIGNMENT ((size_t)64)

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The output of a sum. */
static float real(const fedge_int8_weight *w, size_t o, fedge_int8_range range, int32_t sum,
                  const float *bias)
{
    const float product = (float)(sum - range.zero * w->sums[o]) * (range.scale * w->scales[o]);
    return !bias ? product : product + bias[o];
}

/* ---- Linear ---- */

uint64_t fedge_int8_linear_scratch(size_t in, size_t out)
{
    return ROWS * (fedge_int8_stride(in) + fedge_int8_width(out) * sizeof(int32_t));
}

void fedge_int8_linear(const fedge_layer_run *run, size_t rows, const float *bias)
{
    const fedge_int8_weight *w = &run->int8;
    const size_t out = w->num_rows, width = fedge_int8_width(out);
    uint8_t *a = run->scratch;
    int32_t *c = (int32_t *)(void *)(a + ROWS * w->stride);
    const float *x = run->x[0];
    float *y = run->y;
    memset(a, 0, ROWS * w->stride);
    for (size_t first = 0; first < rows; first += ROWS) {
        const size_t n = rows - first < ROWS ? rows - first : ROWS;
        fedge_int8_range ranges[ROWS];
        for (size_t r = 0; r < n; r++, x += w->length)
            ranges[r] = fedge_int8_quantise(x, w->length, a + r * w->stride);
        run->int8_multiply(&(fedge_int8_product){
            .m = n, .n = width, .k = w->stride, .a = a, .b = w->rows, .c = c});
        for (size_t r = 0; r < n; r++, y += out) {
            for (size_t o = 0; o < out; o++)
                y[o] = real(w, o, ranges[r], c[r * width + o], bias);
        }
    }
}

/* ---- convolution ---- */

/* The parts of one group of one image, and of the scratch. */
typedef struct band_plan {
    size_t image;       /* values of the whole image */
    size_t outputs;     /* outputs of a group */
    size_t rows;        /* rows of outputs in a band */
    size_t stride;      /* bytes of a patch */
    size_t patches, at; /* bytes of the patches, and their offset after the image */
    size_t sums;        /* offset of the sums */
    uint64_t total;     /* may exceed size_t, then it is never used */
} band_plan;

static band_plan plan_bands(const fedge_convolution *conv)
{
    band_plan plan = {.image = (size_t)conv->channels * conv->in[0] * conv->in[1],
                      .outputs = conv->out_channels / conv->groups};
    plan.stride = fedge_int8_stride((size_t)(conv->channels / conv->groups) * conv->kernel[0] *
                                    conv->kernel[1]);
    const uint64_t row = (uint64_t)plan.stride * conv->out[1];
    plan.rows = row >= BAND_BYTES ? 1 : (size_t)(BAND_BYTES / row);
    plan.rows = plan.rows < conv->out[0] ? plan.rows : conv->out[0];
    plan.at = aligned(plan.image);
    plan.patches = (size_t)(plan.rows * row);
    plan.sums = plan.at + plan.patches;
    plan.total =
        plan.at + plan.rows * row +
        (uint64_t)plan.rows * conv->out[1] * fedge_int8_width(plan.outputs) * sizeof(int32_t);
    return plan;
}

uint64_t fedge_int8_convolution_scratch(const fedge_convolution *conv)
{
    return plan_bands(conv).total;
}

/* Copies the patch under one output, (channels, kernel), of one group; [zero] outside the image. */
static void copy_patch(const fedge_convolution *conv, const uint8_t *image, size_t row,
                       size_t column, uint8_t zero, uint8_t *to)
{
    const size_t channels = conv->channels / conv->groups;
    for (size_t c = 0; c < channels; c++, image += (size_t)conv->in[0] * conv->in[1]) {
        for (size_t r = 0; r < conv->kernel[0]; r++) {
            const size_t y =
                row * conv->stride[0] + r * conv->dilation[0]; /* counted from −padding */
            const bool here = y >= conv->padding[0] && y - conv->padding[0] < conv->in[0];
            const uint8_t *line = here ? image + (y - conv->padding[0]) * conv->in[1] : NULL;
            for (size_t q = 0; q < conv->kernel[1]; q++) {
                const size_t x = column * conv->stride[1] + q * conv->dilation[1];
                const bool inside = x >= conv->padding[1] && x - conv->padding[1] < conv->in[1];
                *to++ = here && inside ? line[x - conv->padding[1]] : zero;
            }
        }
    }
}

/* Copies the patches of a band of outputs of one group, and multiplies them. */
static void multiply_band(const fedge_layer_run *run, const fedge_convolution *conv,
                          const band_plan *plan, size_t group, size_t first, size_t rows,
                          uint8_t zero)
{
    const size_t pixels = rows * conv->out[1];
    uint8_t *scratch = run->scratch;
    const uint8_t *image = scratch + plan->image / conv->groups * group;
    for (size_t p = 0; p < pixels; p++) {
        copy_patch(conv, image, first + p / conv->out[1], p % conv->out[1], zero,
                   scratch + plan->at + p * plan->stride);
    }
    run->int8_multiply(
        &(fedge_int8_product){.m = pixels,
                              .n = fedge_int8_width(plan->outputs),
                              .k = plan->stride,
                              .a = scratch + plan->at,
                              .b = run->int8.rows + group * plan->outputs * plan->stride,
                              .c = (int32_t *)(void *)(scratch + plan->sums)});
}

static void convolve_image(const fedge_layer_run *run, const fedge_convolution *conv,
                           const band_plan *plan, const float *x, const float *bias, float *y)
{
    const size_t width = fedge_int8_width(plan->outputs),
                 area = (size_t)conv->out[0] * conv->out[1];
    uint8_t *scratch = run->scratch;
    const int32_t *sums = (const int32_t *)(const void *)(scratch + plan->sums);
    const fedge_int8_range range = fedge_int8_quantise(x, plan->image, scratch);
    for (size_t g = 0; g < conv->groups; g++) {
        for (size_t row = 0; row < conv->out[0]; row += plan->rows) {
            const size_t rows = conv->out[0] - row < plan->rows ? conv->out[0] - row : plan->rows;
            multiply_band(run, conv, plan, g, row, rows, (uint8_t)range.zero);
            for (size_t o = 0; o < plan->outputs; o++) {
                const size_t channel = g * plan->outputs + o;
                float *to = y + channel * area + row * conv->out[1];
                for (size_t p = 0; p < rows * conv->out[1]; p++)
                    to[p] = real(&run->int8, channel, range, sums[p * width + o], bias);
            }
        }
    }
}

void fedge_int8_convolution(const fedge_layer_run *run, const fedge_convolution *conv,
                            const float *bias)
{
    const band_plan plan = plan_bands(conv);
    uint8_t *scratch = run->scratch;
    memset(scratch + plan.at, 0, plan.patches); /* includes the padding of each patch */
    for (size_t b = 0; b < run->batch; b++) {
        convolve_image(run, conv, &plan, run->x[0] + b * plan.image, bias,
                       run->y + b * conv->out_channels * conv->out[0] * conv->out[1]);
    }
}

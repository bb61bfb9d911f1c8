/* Mul: the product of two to four inputs, as PyTorch's operator. A dimension of 1 stands for all
 * places of the others: [channels, 1, 1] scales the channels of an image, as in
 * squeeze-and-excitation. */
#include <string.h>

#include "edge/train/layers/layer.h"

enum { BLOCK = 256 }; /* gradients that are computed together */

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)layer;
    *out = in[0];
    for (uint32_t k = 1; k < num_inputs; k++) {
        bool fits = in[k].rank == out->rank;
        for (uint32_t i = 0; fits && i < out->rank; i++) {
            fits = in[k].dims[i] == out->dims[i] || in[k].dims[i] == 1 || out->dims[i] == 1;
            out->dims[i] = in[k].dims[i] > out->dims[i] ? in[k].dims[i] : out->dims[i];
        }
        if (!fits) {
            char a[FEDGE_SHAPE_TEXT_SIZE], b[FEDGE_SHAPE_TEXT_SIZE];
            return fedge_fail(
                err, FEDGE_INVALID_ARGUMENT,
                "input 0 is %s but input %u is %s: each dimension must be equal, or 1",
                fedge_shape_text(in[0].rank, in[0].dims, a), (unsigned)k,
                fedge_shape_text(in[k].rank, in[k].dims, b));
        }
    }
    return FEDGE_OK;
}

/* The batch as (outer, middle, inner), neighbouring dimensions being one where no input has 1 in
 * one of them alone; and each input's floats from one place to the next. */
typedef struct walk {
    size_t dims[4];
    size_t strides[FEDGE_MAX_LAYER_INPUTS][4];
} walk;

static bool repeats(const fedge_layer_run *run, uint32_t k, uint32_t i)
{
    return run->in[k].dims[i] == 1 && run->out.dims[i] > 1;
}

static walk walk_of(const fedge_layer_run *run)
{
    walk w = {.dims = {run->batch, 1, 1, 1}};
    uint32_t last = 3; /* filled from the end */
    for (uint32_t k = 0; k < run->num_inputs; k++)
        w.strides[k][0] = fedge_shape_count(&run->in[k]);
    for (uint32_t i = run->out.rank; i-- > 0;) {
        bool joins = i + 1 < run->out.rank;
        for (uint32_t k = 0; joins && k < run->num_inputs; k++)
            joins = repeats(run, k, i) == repeats(run, k, i + 1);
        last -= i + 1 < run->out.rank && !joins;
        for (uint32_t k = 0; !joins && k < run->num_inputs; k++) {
            size_t stride = 1;
            for (uint32_t j = i + 1; j < run->out.rank; j++)
                stride *= run->in[k].dims[j];
            w.strides[k][last] = repeats(run, k, i) ? 0 : stride;
        }
        w.dims[last] *= run->out.dims[i];
    }
    return w;
}

/* Floats from the start of input [k] to its part of row [r], of all but the last dimension. */
static size_t row_of(const walk *w, uint32_t k, size_t r)
{
    return r / (w->dims[2] * w->dims[1]) * w->strides[k][0] +
           r / w->dims[2] % w->dims[1] * w->strides[k][1] + r % w->dims[2] * w->strides[k][2];
}

static void multiply(float *y, const float *x, size_t stride, size_t n)
{
    const float one = x[0];
    for (size_t i = 0; stride == 0 && i < n; i++)
        y[i] *= one;
    for (size_t i = 0; stride != 0 && i < n; i++)
        y[i] *= x[i];
}

static void forward(const fedge_layer_run *run)
{
    const walk w = walk_of(run);
    const size_t n = w.dims[3], rows = w.dims[0] * w.dims[1] * w.dims[2];
    for (size_t r = 0; r < rows; r++) {
        float *y = run->y + r * n;
        for (size_t i = 0; i < n; i++)
            y[i] = run->x[0][row_of(&w, 0, r) + i * w.strides[0][3]];
        for (uint32_t k = 1; k < run->num_inputs; k++)
            multiply(y, run->x[k] + row_of(&w, k, r), w.strides[k][3], n);
    }
}

/* The gradient of one input from [n] places of a row: that of the product times the other inputs,
 * summed where the input has one value for them all. */
static void backward_block(const fedge_layer_run *run, const walk *w, uint32_t input, size_t row,
                           size_t at, size_t n)
{
    float product[BLOCK];
    memcpy(product, run->dy + row * w->dims[3] + at, n * sizeof(*product));
    for (uint32_t k = 0; k < run->num_inputs; k++) {
        const size_t stride = w->strides[k][3];
        if (k != input)
            multiply(product, run->x[k] + row_of(w, k, row) + at * stride, stride, n);
    }
    const size_t stride = w->strides[input][3];
    float *dx = run->dx[input] + row_of(w, input, row) + at * stride;
    if (stride != 0) {
        for (size_t i = 0; i < n; i++)
            dx[i] += product[i];
        return;
    }
    double sums[2];
    run->kernels->moments(product, n, 0.0f, sums);
    dx[0] += (float)sums[0];
}

static void backward(const fedge_layer_run *run)
{
    const walk w = walk_of(run);
    const size_t n = w.dims[3], rows = w.dims[0] * w.dims[1] * w.dims[2];
    for (uint32_t k = 0; k < run->num_inputs; k++) {
        if (!run->dx[k])
            continue;
        memset(run->dx[k], 0, run->batch * fedge_shape_count(&run->in[k]) * sizeof(*run->dx[k]));
        for (size_t r = 0; r < rows; r++) {
            for (size_t at = 0; at < n; at += BLOCK)
                backward_block(run, &w, k, r, at, n - at < BLOCK ? n - at : BLOCK);
        }
    }
}

const fedge_layer_ops fedge_layer_mul = {.min_inputs = 2,
                                         .max_inputs = FEDGE_MAX_LAYER_INPUTS,
                                         .flags = FEDGE_USES_X,
                                         .infer = infer,
                                         .forward = forward,
                                         .backward = backward};

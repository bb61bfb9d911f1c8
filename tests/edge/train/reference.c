/* An independent network in double precision, written from PyTorch's definitions alone: slow,
 * plain, and sharing no code with edge/train but the specs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/edge/train/reference.h"
#include "tests/edge/train/reference_array.h"
#include "tests/edge/train/support.h"

/* A window over the image: what Conv and pooling of one and two dimensions have in common. */
typedef struct window {
    uint32_t kernel[2], stride[2], padding[2], dilation[2];
    bool ceil_mode, one_sided; /* one_sided: no padding behind the end */
} window;

static window window_2d(const uint32_t kernel[2], const uint32_t stride[2],
                        const uint32_t padding[2])
{
    window w = {.dilation = {1, 1}};
    for (int i = 0; i < 2; i++) {
        w.kernel[i] = kernel[i];
        w.stride[i] = stride[i] == 0 ? kernel[i] : stride[i];
        w.padding[i] = padding[i];
    }
    return w;
}

/* One dimension is a row of height 1. In (c, length) the length is h: it is moved to w first. */
static window window_1d(uint32_t kernel, uint32_t stride, uint32_t padding)
{
    return window_2d((const uint32_t[2]){1, kernel}, (const uint32_t[2]){1, stride},
                     (const uint32_t[2]){0, padding});
}

static size_t out_size(const window *w, int axis, size_t in)
{
    const double free = (double)in + (w->one_sided ? 1.0 : 2.0) * w->padding[axis] -
                        (double)w->dilation[axis] * (w->kernel[axis] - 1.0) - 1.0;
    if (!w->ceil_mode)
        return (size_t)floor(free / w->stride[axis]) + 1;
    const size_t out = (size_t)(ceil(free / w->stride[axis]) + 1.0);
    return (out - 1) * w->stride[axis] >= in + w->padding[axis] ? out - 1 : out;
}

/* The input under tap (r, q) of output (y, x); false in the padding. */
static bool under(const window *w, const array *in, size_t y, size_t x, size_t r, size_t q,
                  size_t *row, size_t *column)
{
    *row = y * w->stride[0] + r * w->dilation[0] - w->padding[0]; /* wraps below 0 */
    *column = x * w->stride[1] + q * w->dilation[1] - w->padding[1];
    return *row < in->h && *column < in->w;
}

/* Output channel [o] of example [n]: one tap of the kernel at a time over the whole plane. */
static void convolve_plane(const array *in, const window *w, size_t n, size_t channel, size_t tap,
                           double weight, const array *out, double *plane)
{
    for (size_t y = 0; y < out->h; y++) {
        for (size_t x = 0; x < out->w; x++) {
            size_t row, column;
            if (under(w, in, y, x, tap / w->kernel[1], tap % w->kernel[1], &row, &column))
                plane[y * out->w + x] += weight * at(in, n, channel, row, column);
        }
    }
}

static array convolve(const array *in, const window *w, uint32_t outputs, uint32_t groups,
                      const double *weight, const double *bias)
{
    array out = array_new(in->rank, in->n, outputs, out_size(w, 0, in->h), out_size(w, 1, in->w));
    const size_t inputs = in->c / groups, taps = (size_t)w->kernel[0] * w->kernel[1];
    for (size_t i = 0; i < in->n * outputs; i++) {
        const size_t o = i % outputs, first = o / (outputs / groups) * inputs;
        double *plane = out.v + i * out.h * out.w;
        for (size_t p = 0; bias && p < out.h * out.w; p++)
            plane[p] = bias[o];
        for (size_t k = 0; k < inputs * taps; k++) {
            convolve_plane(in, w, i / outputs, first + k / taps, k % taps,
                           weight[o * inputs * taps + k], &out, plane);
        }
    }
    return out;
}

typedef enum pooling { POOL_MAX, POOL_AVERAGE, POOL_AVERAGE_INSIDE } pooling;

/* [divisor]: of an average; 0: none. */
static array pool(const array *in, const window *w, pooling kind, uint32_t divisor)
{
    array out = array_new(in->rank, in->n, in->c, out_size(w, 0, in->h), out_size(w, 1, in->w));
    const size_t taps = (size_t)w->kernel[0] * w->kernel[1];
    for (size_t i = 0; i < count(&out); i++) {
        const size_t x = i % out.w, y = i / out.w % out.h, plane = i / (out.w * out.h);
        double most = -INFINITY, sum = 0.0, inside = 0.0, padded = 0.0;
        for (size_t k = 0; k < taps; k++) {
            size_t row, column;
            padded += y * w->stride[0] + k / w->kernel[1] < in->h + 2 * w->padding[0] &&
                      x * w->stride[1] + k % w->kernel[1] < in->w + 2 * w->padding[1];
            if (under(w, in, y, x, k / w->kernel[1], k % w->kernel[1], &row, &column)) {
                const double v = at(in, plane / in->c, plane % in->c, row, column);
                most = fmax(most, v);
                sum += v;
                inside += 1.0;
            }
        }
        out.v[i] = kind == POOL_MAX       ? most
                   : divisor > 0          ? sum / divisor
                   : kind == POOL_AVERAGE ? sum / padded
                                          : sum / inside;
    }
    return out;
}

static array adaptive(const array *in, const uint32_t size[2])
{
    array out = array_new(3, in->n, in->c, size[0], size[1]);
    for (size_t i = 0; i < count(&out); i++) {
        const size_t x = i % out.w, y = i / out.w % out.h, plane = i / (out.w * out.h);
        const double top = floor((double)(y * in->h) / (double)out.h);
        const double bottom = ceil((double)((y + 1) * in->h) / (double)out.h);
        const double left = floor((double)(x * in->w) / (double)out.w);
        const double right = ceil((double)((x + 1) * in->w) / (double)out.w);
        for (size_t r = (size_t)top; r < (size_t)bottom; r++) {
            for (size_t q = (size_t)left; q < (size_t)right; q++)
                out.v[i] += at(in, plane / in->c, plane % in->c, r, q);
        }
        out.v[i] /= (bottom - top) * (right - left);
    }
    return out;
}

static double activate(const fedge_layer_spec *layer, double x)
{
    switch (layer->type) {
    case FEDGE_LAYER_RELU:
        return fmax(x, 0.0);
    case FEDGE_LAYER_RELU6:
        return fmin(fmax(x, 0.0), 6.0);
    case FEDGE_LAYER_LEAKYRELU:
        return x > 0.0 ? x : (double)layer->u.leakyrelu.negative_slope * x;
    case FEDGE_LAYER_SIGMOID:
        return 1.0 / (1.0 + exp(-x));
    case FEDGE_LAYER_TANH:
        return tanh(x);
    case FEDGE_LAYER_SILU:
        return x / (1.0 + exp(-x));
    case FEDGE_LAYER_GELU:
        return layer->u.gelu.approximate
                   ? 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)))
                   : 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    case FEDGE_LAYER_HARDSWISH:
        return x * fmin(fmax(x + 3.0, 0.0), 6.0) / 6.0;
    case FEDGE_LAYER_HARDSIGMOID:
        return fmin(fmax(x / 6.0 + 0.5, 0.0), 1.0);
    case FEDGE_LAYER_ELU:
        return x > 0.0 ? x : (double)layer->u.elu.alpha * expm1(x);
    case FEDGE_LAYER_SOFTPLUS: {
        const double beta = (double)layer->u.softplus.beta;
        return beta * x > (double)layer->u.softplus.threshold ? x : log1p(exp(beta * x)) / beta;
    }
    default:
        return x;
    }
}

/* Each value less the mean of those with the same key, over the root of their variance. */
static array normalise(const array *in, size_t key_of(const array *, size_t, size_t), size_t keys,
                       size_t parameter, double eps)
{
    array out = array_new(in->rank, in->n, in->c, in->h, in->w);
    double *sum = calloc(3 * keys, sizeof(*sum)), *squares = sum + keys, *members = squares + keys;
    assert_non_null(sum);
    for (size_t i = 0; i < count(in); i++) {
        sum[key_of(in, parameter, i)] += in->v[i];
        members[key_of(in, parameter, i)] += 1.0;
    }
    for (size_t i = 0; i < count(in); i++) {
        const size_t key = key_of(in, parameter, i);
        squares[key] += pow(in->v[i] - sum[key] / members[key], 2.0);
    }
    for (size_t i = 0; i < count(in); i++) {
        const size_t key = key_of(in, parameter, i);
        out.v[i] = (in->v[i] - sum[key] / members[key]) / sqrt(squares[key] / members[key] + eps);
    }
    free(sum);
    return out;
}

static size_t channel_of(const array *in, size_t unused, size_t i)
{
    (void)unused;
    return i / (in->h * in->w) % in->c;
}

static size_t group_of(const array *in, size_t groups, size_t i)
{
    const size_t example = in->c * in->h * in->w;
    return i / example * groups + i % example / (example / groups);
}

static size_t row_of(const array *in, size_t length, size_t i)
{
    (void)in;
    return i / length;
}

/* What a layer takes of the parameters, one tensor after another. */
static const double *take(const double **values, bool there, size_t n)
{
    const double *taken = there ? *values : NULL;
    *values += there ? n : 0;
    return taken;
}

static array norm_layer(const fedge_layer_spec *layer, const array *in, const double **values)
{
    size_t per = 1, parameters = in->c; /* values per parameter; how many parameters */
    bool weights = true, biases = true;
    array out;
    if (layer->type == FEDGE_LAYER_BATCHNORM2D || layer->type == FEDGE_LAYER_BATCHNORM1D) {
        out = normalise(in, channel_of, in->c, 0, (double)layer->u.batchnorm2d.eps);
        for (size_t i = 0; layer->u.batchnorm2d.frozen && i < count(in); i++) { /* mean 0, var 1 */
            out.v[i] = in->v[i] / sqrt(1.0 + (double)layer->u.batchnorm2d.eps);
        }
        weights = biases = layer->u.batchnorm2d.affine;
        per = in->h * in->w;
    } else if (layer->type == FEDGE_LAYER_GROUPNORM) {
        const size_t groups = layer->u.groupnorm.num_groups;
        out = normalise(in, group_of, groups * in->n, groups, (double)layer->u.groupnorm.eps);
        weights = biases = layer->u.groupnorm.affine;
        per = in->h * in->w;
    } else {
        parameters = 1;
        for (uint32_t i = 0; i < layer->u.layernorm.rank; i++)
            parameters *= layer->u.layernorm.normalized_shape[i];
        out = normalise(in, row_of, count(in) / parameters, parameters,
                        (double)layer->u.layernorm.eps);
        weights = layer->u.layernorm.elementwise_affine;
        biases = weights && layer->u.layernorm.bias;
    }
    const double *weight = take(values, weights, parameters);
    const double *bias = take(values, biases, parameters);
    for (size_t i = 0; i < count(&out); i++) {
        const size_t p = i / per % parameters;
        out.v[i] = out.v[i] * (!weight ? 1.0 : weight[p]) + (!bias ? 0.0 : bias[p]);
    }
    return out;
}

static array linear(const fedge_layer_spec *layer, const array *in, const double **values)
{
    const size_t wide = layer->u.linear.in_features, outputs = layer->u.linear.out_features;
    const size_t r = layer->u.linear.r, rows = count(in) / wide;
    const double *weight = take(values, true, wide * outputs);
    const double *bias = take(values, layer->u.linear.bias, outputs);
    const double *a = take(values, r > 0, r * wide), *b = take(values, r > 0, r * outputs);
    array out = in->rank == 1   ? array_new(1, in->n, outputs, 1, 1)
                : in->rank == 2 ? array_new(2, in->n, in->c, outputs, 1)
                                : array_new(3, in->n, in->c, in->h, outputs);
    for (size_t i = 0; i < rows * outputs; i++) {
        const double *x = in->v + i / outputs * wide;
        const size_t o = i % outputs;
        out.v[i] = !bias ? 0.0 : bias[o];
        for (size_t k = 0; k < wide; k++) {
            double w = weight[o * wide + k];
            for (size_t j = 0; j < r; j++) {
                w +=
                    (double)layer->u.linear.lora_alpha / (double)r * b[o * r + j] * a[j * wide + k];
            }
            out.v[i] += w * x[k];
        }
    }
    return out;
}

static array convolution(const fedge_layer_spec *layer, const array *in, const double **values)
{
    if (layer->type == FEDGE_LAYER_CONV2D) {
        window w =
            window_2d(layer->u.conv2d.kernel_size, layer->u.conv2d.stride, layer->u.conv2d.padding);
        w.dilation[0] = or_one(layer->u.conv2d.dilation[0]);
        w.dilation[1] = or_one(layer->u.conv2d.dilation[1]);
        const uint32_t groups = or_one(layer->u.conv2d.groups), out = layer->u.conv2d.out_channels;
        const size_t weights = in->c / groups * out * w.kernel[0] * w.kernel[1];
        const double *weight = take(values, true, weights);
        return convolve(in, &w, out, groups, weight, take(values, layer->u.conv2d.bias, out));
    }
    window w =
        window_1d(layer->u.conv1d.kernel_size, layer->u.conv1d.stride, layer->u.conv1d.padding);
    w.dilation[1] = or_one(layer->u.conv1d.dilation);
    if (layer->u.conv1d.causal) {
        w.padding[1] = w.dilation[1] * (w.kernel[1] - 1);
        w.one_sided = true;
    }
    const uint32_t groups = or_one(layer->u.conv1d.groups), out = layer->u.conv1d.out_channels;
    const double *weight = take(values, true, in->c / groups * out * w.kernel[1]);
    return convolve(in, &w, out, groups, weight, take(values, layer->u.conv1d.bias, out));
}

static array pooled(const fedge_layer_spec *layer, const array *in)
{
    window w;
    switch (layer->type) {
    case FEDGE_LAYER_MAXPOOL2D:
        w = window_2d(layer->u.maxpool2d.kernel_size, layer->u.maxpool2d.stride,
                      layer->u.maxpool2d.padding);
        w.dilation[0] = or_one(layer->u.maxpool2d.dilation[0]);
        w.dilation[1] = or_one(layer->u.maxpool2d.dilation[1]);
        w.ceil_mode = layer->u.maxpool2d.ceil_mode;
        return pool(in, &w, POOL_MAX, 0);
    case FEDGE_LAYER_AVGPOOL2D:
        w = window_2d(layer->u.avgpool2d.kernel_size, layer->u.avgpool2d.stride,
                      layer->u.avgpool2d.padding);
        w.ceil_mode = layer->u.avgpool2d.ceil_mode;
        return pool(in, &w,
                    layer->u.avgpool2d.count_include_pad ? POOL_AVERAGE : POOL_AVERAGE_INSIDE,
                    layer->u.avgpool2d.divisor_override);
    case FEDGE_LAYER_MAXPOOL1D:
        w = window_1d(layer->u.maxpool1d.kernel_size, layer->u.maxpool1d.stride,
                      layer->u.maxpool1d.padding);
        w.dilation[1] = or_one(layer->u.maxpool1d.dilation);
        w.ceil_mode = layer->u.maxpool1d.ceil_mode;
        return pool(in, &w, POOL_MAX, 0);
    case FEDGE_LAYER_AVGPOOL1D:
        w = window_1d(layer->u.avgpool1d.kernel_size, layer->u.avgpool1d.stride,
                      layer->u.avgpool1d.padding);
        w.ceil_mode = layer->u.avgpool1d.ceil_mode;
        return pool(in, &w,
                    layer->u.avgpool1d.count_include_pad ? POOL_AVERAGE : POOL_AVERAGE_INSIDE, 0);
    default:
        return adaptive(in, layer->u.adaptiveavgpool2d.output_size);
    }
}

static array embed(const fedge_layer_spec *layer, const array *in, const double **values)
{
    const size_t dim = layer->u.embedding.embedding_dim;
    const double *weight = take(values, true, layer->u.embedding.num_embeddings * dim);
    array out = array_new(2, in->n, in->c, dim, 1);
    for (size_t i = 0; i < count(&out); i++)
        out.v[i] = weight[(size_t)in->v[i / dim] * dim + i % dim];
    return out;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* The sum of gate row [o]: weight (rows, n) times x, and the bias. */
static double gate_sum(const double *weight, const double *bias, size_t o, const double *x,
                       size_t n)
{
    double sum = !bias ? 0.0 : bias[o];
    for (size_t k = 0; k < n; k++)
        sum += weight[o * n + k] * x[k];
    return sum;
}

/* One layer of LSTM or GRU over (steps, features), by PyTorch's equations, from the first step on
 * or from the last back; states begin as 0. To columns [at, at + n) of [out]. */
static void recur(const fedge_layer_spec *layer, const array *in, const double **values,
                  bool reverse, array *out, size_t at)
{
    const bool lstm = layer->type == FEDGE_LAYER_LSTM;
    const size_t wide = in->h, n = layer->u.recurrent.hidden_size, rows = (lstm ? 4 : 3) * n;
    const double *w = take(values, true, rows * wide), *u = take(values, true, rows * n);
    const double *b = take(values, layer->u.recurrent.bias, rows);
    const double *d = take(values, layer->u.recurrent.bias, rows);
    double *c = calloc(2 * n, sizeof(*c)), *zeros = c + n;
    assert_non_null(c);
    for (size_t i = 0; i < in->n * in->c; i++) {
        const bool first = i % in->c == 0;
        const size_t row = reverse ? i - i % in->c + (in->c - 1 - i % in->c) : i;
        const double *x = in->v + row * wide;
        double *h = out->v + row * out->h + at;
        const double *before = first ? zeros : reverse ? h + out->h : h - out->h;
        for (size_t k = 0; k < n; k++) {
            double s[4], t[4]; /* of the input and of the state */
            for (size_t g = 0; g < rows / n; g++) {
                s[g] = gate_sum(w, b, g * n + k, x, wide);
                t[g] = gate_sum(u, d, g * n + k, before, n);
            }
            if (lstm) {
                c[k] = sigmoid(s[1] + t[1]) * (first ? 0.0 : c[k]) +
                       sigmoid(s[0] + t[0]) * tanh(s[2] + t[2]);
                h[k] = sigmoid(s[3] + t[3]) * tanh(c[k]);
            } else {
                const double r = sigmoid(s[0] + t[0]), z = sigmoid(s[1] + t[1]);
                h[k] = (1.0 - z) * tanh(s[2] + r * t[2]) + z * before[k];
            }
        }
    }
    free(c);
}

static array recurrent(const fedge_layer_spec *layer, const array *in, const double **values)
{
    const size_t n = layer->u.recurrent.hidden_size;
    const bool both = layer->u.recurrent.bidirectional;
    array out = array_new(2, in->n, in->c, both ? 2 * n : n, 1);
    recur(layer, in, values, false, &out, 0);
    if (both)
        recur(layer, in, values, true, &out, n);
    for (uint32_t l = 1; l < layer->u.recurrent.num_layers; l++) {
        const array below = out;
        out = array_new(2, in->n, in->c, n, 1);
        recur(layer, &below, values, false, &out, 0);
        free(below.v);
    }
    return out;
}

/* One place of a dimension, or the mean over all; the others move up behind it. */
static array without_dimension(const fedge_layer_spec *layer, const array *in)
{
    const bool select = layer->type == FEDGE_LAYER_SELECT;
    const int32_t dim = select ? layer->u.select.dim : layer->u.mean.dim;
    const size_t sizes[3] = {in->c, in->h, in->w}, rank = in->rank;
    const size_t gone = dim > 0 ? (size_t)dim - 1 : (size_t)(dim + (int32_t)rank);
    const size_t left[2] = {gone == 0 ? in->h : in->c, gone == 2 ? in->h : rank == 3 ? in->w : 1};
    array out = array_new(rank - 1, in->n, left[0], left[1], 1);
    for (size_t i = 0; i < count(in); i++) {
        const size_t place[3] = {i / (in->h * in->w) % in->c, i / in->w % in->h, i % in->w};
        const size_t a = gone == 0 ? place[1] : place[0], b = gone == 2 ? place[1] : place[2];
        const int32_t index = layer->u.select.index;
        const size_t wanted = index < 0 ? sizes[gone] - (size_t)-index : (size_t)index;
        double *to = &out.v[(i / (in->c * in->h * in->w) * left[0] + a) * left[1] + b];
        if (!select)
            *to += in->v[i] / (double)sizes[gone];
        else if (place[gone] == wanted)
            *to = in->v[i];
    }
    return out;
}

/* One layer of any type; *values moves on behind its parameters. Two-dimensional layers of
 * (c, length) see the length as a width. Dropout inside layers draws from [rng]. */
static array run_layer(const fedge_layer_spec *layer, const array *inputs, uint32_t num_inputs,
                       const double **values, fedge_rng *rng)
{
    array in = inputs[0], out;
    const bool one_dimensional =
        layer->type == FEDGE_LAYER_CONV1D || layer->type == FEDGE_LAYER_CONVTRANSPOSE1D ||
        (layer->type == FEDGE_LAYER_UPSAMPLE && in.rank == 2) ||
        layer->type == FEDGE_LAYER_MAXPOOL1D || layer->type == FEDGE_LAYER_AVGPOOL1D;
    if (one_dimensional) {
        in.w = in.h;
        in.h = 1;
    }
    if (reference_more_layer(layer, &in, inputs, num_inputs, values, &out)) {
        out.h = one_dimensional ? out.w : out.h;
        out.w = one_dimensional ? 1 : out.w;
        return out;
    }
    switch (layer->type) {
    case FEDGE_LAYER_LINEAR:
        return linear(layer, &in, values);
    case FEDGE_LAYER_CONV1D:
    case FEDGE_LAYER_CONV2D:
        out = convolution(layer, &in, values);
        break;
    case FEDGE_LAYER_MAXPOOL1D:
    case FEDGE_LAYER_AVGPOOL1D:
    case FEDGE_LAYER_MAXPOOL2D:
    case FEDGE_LAYER_AVGPOOL2D:
    case FEDGE_LAYER_ADAPTIVEAVGPOOL2D:
        out = pooled(layer, &in);
        break;
    case FEDGE_LAYER_BATCHNORM1D:
    case FEDGE_LAYER_BATCHNORM2D:
    case FEDGE_LAYER_GROUPNORM:
    case FEDGE_LAYER_LAYERNORM:
        return norm_layer(layer, &in, values);
    case FEDGE_LAYER_EMBEDDING:
        return embed(layer, &in, values);
    case FEDGE_LAYER_LSTM:
    case FEDGE_LAYER_GRU:
        return recurrent(layer, &in, values);
    case FEDGE_LAYER_SELECT:
    case FEDGE_LAYER_MEAN:
        return without_dimension(layer, &in);
    case FEDGE_LAYER_POSITIONALEMBEDDING:
    case FEDGE_LAYER_MULTIHEADATTENTION:
    case FEDGE_LAYER_TRANSFORMERENCODERLAYER:
        out = array_new(in.rank, in.n, in.c, in.h, in.w);
        reference_attention_layer(layer, in.v, in.n, in.c, values, rng, out.v);
        return out;
    case FEDGE_LAYER_FLATTEN:
        out = array_new(1, in.n, in.c * in.h * in.w, 1, 1);
        memcpy(out.v, in.v, count(&in) * sizeof(*in.v));
        return out;
    default: /* one number to one number */
        out = array_new(in.rank, in.n, in.c, in.h, in.w);
        for (size_t i = 0; i < count(&in); i++) {
            out.v[i] = activate(layer, in.v[i]);
            for (uint32_t k = 1; k < num_inputs; k++)
                out.v[i] += inputs[k].v[i];
        }
        return out;
    }
    if (one_dimensional) {
        out.h = out.w;
        out.w = 1;
    }
    return out;
}

static double cross_entropy(const double *y, size_t classes, int32_t label, double smoothing)
{
    double peak = -INFINITY, sum = 0.0, all = 0.0;
    for (size_t c = 0; c < classes; c++) {
        peak = fmax(peak, y[c]);
        all += y[c];
    }
    for (size_t c = 0; c < classes; c++)
        sum += exp(y[c] - peak);
    return log(sum) + peak - (1.0 - smoothing) * y[label] - smoothing / (double)classes * all;
}

/* Of one output and its target. */
static double distance(const fedge_model_spec *spec, double y, double target)
{
    const double d = fabs(y - target),
                 delta = spec->loss_delta == 0.0f ? 1.0 : (double)spec->loss_delta;
    switch (spec->loss) {
    case FEDGE_LOSS_BCE_WITH_LOGITS:
        return -target * log(1.0 / (1.0 + exp(-y))) -
               (1.0 - target) * log(1.0 - 1.0 / (1.0 + exp(-y)));
    case FEDGE_LOSS_MSE:
        return d * d;
    case FEDGE_LOSS_L1:
        return d;
    case FEDGE_LOSS_SMOOTH_L1:
        return d <= delta ? d * d / (2.0 * delta) : d - delta / 2.0;
    default:
        return d <= delta ? d * d / 2.0 : delta * (d - delta / 2.0);
    }
}

double reference_loss(const fedge_model_spec *spec, const double *values, const double *x,
                      const int32_t *labels, uint32_t batch)
{
    const uint32_t *dims = spec->input_shape;
    fedge_rng rng = fedge_rng_stream(0, FEDGE_PURPOSE_DROPOUT, 0, 0, 0); /* the first step's */
    array *made = calloc(spec->num_layers + 1, sizeof(*made));           /* [0]: the input */
    assert_non_null(made);
    made[0] = array_new(spec->input_rank, batch, dims[0], spec->input_rank > 1 ? dims[1] : 1,
                        spec->input_rank > 2 ? dims[2] : 1);
    memcpy(made[0].v, x, count(&made[0]) * sizeof(*x));
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        const fedge_layer_spec *layer = &spec->layers[i];
        array inputs[FEDGE_MAX_LAYER_INPUTS] = {made[i]};
        for (uint32_t k = 0; k < layer->num_inputs; k++) {
            const uint16_t from = layer->inputs[k];
            inputs[k] = made[from == FEDGE_INPUT_MODEL ? 0 : from + 1];
        }
        made[i + 1] = run_layer(layer, inputs, layer->num_inputs, &values, &rng);
    }
    const array *y = &made[spec->num_layers];
    double loss = 0.0;
    for (size_t b = 0; b < batch; b++) {
        if (spec->loss == FEDGE_LOSS_CROSS_ENTROPY) {
            loss += cross_entropy(y->v + b * y->c, y->c, labels[b], (double)spec->label_smoothing);
            continue;
        }
        for (size_t c = 0; c < y->c; c++) {
            const double target = y->c == 1 ? (double)labels[b] : (size_t)labels[b] == c;
            loss += distance(spec, y->v[b * y->c + c], target) / (double)y->c;
        }
    }
    for (uint32_t i = 0; i <= spec->num_layers; i++)
        free(made[i].v);
    free(made);
    return loss;
}

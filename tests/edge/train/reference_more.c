/* The reference's layers that small builds leave out. */
#include <math.h>
#include <string.h>

#include "tests/edge/train/reference_array.h"

/* The place of element [i] along PyTorch's dimension [dim] of [a], and its neighbours' distance. */
static size_t place_along(const array *a, int32_t dim, size_t i, size_t *stride, size_t *length)
{
    const size_t sizes[3] = {a->c, a->h, a->w}, strides[3] = {a->h * a->w, a->w, 1};
    const size_t which = dim > 0 ? (size_t)dim - 1 : (size_t)(dim + (int32_t)a->rank);
    *stride = strides[which];
    *length = sizes[which];
    return i / strides[which] % sizes[which];
}

static array softmax_layer(const fedge_layer_spec *layer, const array *in)
{
    array out = array_new(in->rank, in->n, in->c, in->h, in->w);
    for (size_t i = 0; i < count(in); i++) {
        size_t stride, length;
        const size_t place = place_along(in, layer->u.softmax.dim, i, &stride, &length);
        double sum = 0.0;
        for (size_t k = 0; k < length; k++)
            sum += exp(in->v[i - place * stride + k * stride] - in->v[i]);
        out.v[i] = 1.0 / sum;
    }
    return out;
}

static array glu_layer(const fedge_layer_spec *layer, const array *in)
{
    size_t stride, length, made = 0;
    (void)place_along(in, layer->u.glu.dim, 0, &stride, &length);
    array out = array_new(in->rank, in->n, in->c, in->h, in->w);
    for (size_t i = 0; i < count(in); i++) {
        if (place_along(in, layer->u.glu.dim, i, &stride, &length) < length / 2)
            out.v[made++] = in->v[i] / (1.0 + exp(-in->v[i + length / 2 * stride]));
    }
    const size_t which =
        layer->u.glu.dim > 0 ? (size_t)layer->u.glu.dim : in->rank + 1 - (size_t)-layer->u.glu.dim;
    *(which == 1 ? &out.c : which == 2 ? &out.h : &out.w) /= 2;
    return out;
}

/* The sum of squares of each row of the last dimensions. */
static array rms_norm(const fedge_layer_spec *layer, const array *in, const double **values)
{
    size_t width = 1;
    for (uint32_t i = 0; i < layer->u.rmsnorm.rank; i++)
        width *= layer->u.rmsnorm.normalized_shape[i];
    const double *weight = layer->u.rmsnorm.elementwise_affine ? *values : NULL;
    *values += weight ? width : 0;
    array out = array_new(in->rank, in->n, in->c, in->h, in->w);
    for (size_t i = 0; i < count(in); i++) {
        const double *row = in->v + i / width * width;
        double squares = 0.0;
        for (size_t k = 0; k < width; k++)
            squares += row[k] * row[k];
        out.v[i] = in->v[i] / sqrt(squares / (double)width + (double)layer->u.rmsnorm.eps) *
                   (weight ? weight[i % width] : 1.0);
    }
    return out;
}

static array product(const array *inputs, uint32_t num_inputs)
{
    array out = array_new(inputs[0].rank, inputs[0].n, 1, 1, 1);
    free(out.v);
    for (uint32_t k = 0; k < num_inputs; k++) {
        out.c = inputs[k].c > out.c ? inputs[k].c : out.c;
        out.h = inputs[k].h > out.h ? inputs[k].h : out.h;
        out.w = inputs[k].w > out.w ? inputs[k].w : out.w;
    }
    out = array_new(out.rank, out.n, out.c, out.h, out.w);
    for (size_t i = 0; i < count(&out); i++) {
        const size_t x = i % out.w, y = i / out.w % out.h, c = i / (out.w * out.h) % out.c;
        out.v[i] = 1.0;
        for (uint32_t k = 0; k < num_inputs; k++) {
            const array *in = &inputs[k];
            out.v[i] *= at(in, i / (out.w * out.h * out.c), c % in->c, y % in->h, x % in->w);
        }
    }
    return out;
}

static array concatenate(const fedge_layer_spec *layer, const array *inputs, uint32_t num_inputs)
{
    const int32_t dim = layer->u.concat.dim;
    const size_t which = dim > 0 ? (size_t)dim : inputs[0].rank + 1 - (size_t)-dim;
    size_t all = 0, before = 0;
    for (uint32_t k = 0; k < num_inputs; k++)
        all += which == 1 ? inputs[k].c : which == 2 ? inputs[k].h : inputs[k].w;
    array out = array_new(inputs[0].rank, inputs[0].n, which == 1 ? all : inputs[0].c,
                          which == 2 ? all : inputs[0].h, which == 3 ? all : inputs[0].w);
    for (uint32_t k = 0; k < num_inputs; k++) {
        const array *in = &inputs[k];
        for (size_t i = 0; i < count(in); i++) {
            const size_t x = i % in->w + (which == 3 ? before : 0);
            const size_t y = i / in->w % in->h + (which == 2 ? before : 0);
            const size_t c = i / (in->w * in->h) % in->c + (which == 1 ? before : 0);
            const size_t n = i / (in->w * in->h * in->c);
            out.v[((n * out.c + c) * out.h + y) * out.w + x] = in->v[i];
        }
        before += which == 1 ? in->c : which == 2 ? in->h : in->w;
    }
    return out;
}

/* The coordinate in the input of place [i] of [out]. */
static double source_of(const fedge_layer_spec *layer, size_t i, size_t in, size_t out)
{
    if (layer->u.upsample.mode == 0)
        return floor((double)i * (double)in / (double)out);
    if (layer->u.upsample.align_corners)
        return out == 1 ? 0.0 : (double)i * (double)(in - 1) / (double)(out - 1);
    return fmax(0.0, ((double)i + 0.5) * (double)in / (double)out - 0.5);
}

/* By weights that fall from 1 to 0 at a distance of 1. */
static array upsample(const fedge_layer_spec *layer, const array *in)
{
    const uint32_t *size = layer->u.upsample.size, *factor = layer->u.upsample.scale_factor;
    const bool flat = in->h == 1;
    array out = array_new(in->rank, in->n, in->c,
                          flat      ? 1
                          : size[0] ? size[0]
                                    : in->h * factor[0],
                          size[1] ? size[1] : in->w * factor[1]);
    for (size_t i = 0; i < count(&out); i++) {
        const double y = source_of(layer, i / out.w % out.h, in->h, out.h);
        const double x = source_of(layer, i % out.w, in->w, out.w);
        double sum = 0.0, weights = 0.0;
        for (size_t k = 0; k < in->h * in->w; k++) {
            const size_t row = k / in->w, column = k % in->w;
            const double weight =
                fmax(0.0, 1.0 - fabs(y - (double)row)) * fmax(0.0, 1.0 - fabs(x - (double)column));
            sum += weight * in->v[i / (out.w * out.h) * in->h * in->w + k];
            weights += weight;
        }
        out.v[i] = sum / weights;
    }
    return out;
}

/* Each value of the input is added, times the kernel, to the places under it. */
static array transposed(const fedge_layer_spec *layer, const array *in, const double **values)
{
    const bool one = layer->type == FEDGE_LAYER_CONVTRANSPOSE1D;
    fedge_layer_spec wide = *layer;
    if (one) {
        wide.u.convtranspose2d.in_channels = layer->u.convtranspose1d.in_channels;
        wide.u.convtranspose2d.out_channels = layer->u.convtranspose1d.out_channels;
        for (int i = 0; i < 2; i++) {
            wide.u.convtranspose2d.kernel_size[i] = i ? layer->u.convtranspose1d.kernel_size : 1;
            wide.u.convtranspose2d.stride[i] = i ? layer->u.convtranspose1d.stride : 1;
            wide.u.convtranspose2d.padding[i] = i ? layer->u.convtranspose1d.padding : 0;
            wide.u.convtranspose2d.output_padding[i] =
                i ? layer->u.convtranspose1d.output_padding : 0;
            wide.u.convtranspose2d.dilation[i] = i ? layer->u.convtranspose1d.dilation : 1;
        }
        wide.u.convtranspose2d.groups = layer->u.convtranspose1d.groups;
        wide.u.convtranspose2d.bias = layer->u.convtranspose1d.bias;
    }
    const uint32_t *kernel = wide.u.convtranspose2d.kernel_size;
    const uint32_t *stride = wide.u.convtranspose2d.stride, *pad = wide.u.convtranspose2d.padding;
    const uint32_t *more = wide.u.convtranspose2d.output_padding;
    const uint32_t d[2] = {or_one(wide.u.convtranspose2d.dilation[0]),
                           or_one(wide.u.convtranspose2d.dilation[1])};
    const size_t groups = or_one(wide.u.convtranspose2d.groups);
    const size_t outputs = wide.u.convtranspose2d.out_channels,
                 taps = (size_t)kernel[0] * kernel[1];
    array out =
        array_new(in->rank, in->n, outputs,
                  (in->h - 1) * stride[0] + d[0] * (kernel[0] - 1) + more[0] + 1 - 2 * pad[0],
                  (in->w - 1) * stride[1] + d[1] * (kernel[1] - 1) + more[1] + 1 - 2 * pad[1]);
    const double *weight = *values, *bias = weight + in->c * outputs / groups * taps;
    *values = bias + (wide.u.convtranspose2d.bias ? outputs : 0);
    for (size_t i = 0; wide.u.convtranspose2d.bias && i < count(&out); i++)
        out.v[i] = bias[i / (out.h * out.w) % outputs];
    for (size_t i = 0; i < count(in); i++) {
        const size_t c = i / (in->h * in->w) % in->c, n = i / (in->h * in->w * in->c);
        for (size_t k = 0; k < outputs / groups * taps; k++) {
            const size_t o = c / (in->c / groups) * (outputs / groups) + k / taps;
            const size_t y = i / in->w % in->h * stride[0] + k % taps / kernel[1] * d[0] - pad[0];
            const size_t x = i % in->w * stride[1] + k % kernel[1] * d[1] - pad[1];
            if (y < out.h && x < out.w) {
                out.v[((n * outputs + o) * out.h + y) * out.w + x] +=
                    in->v[i] * weight[c * (outputs / groups) * taps + k];
            }
        }
    }
    return out;
}

static array prelu_layer(const fedge_layer_spec *layer, const array *in, const double **values)
{
    const size_t weights = layer->u.prelu.num_parameters;
    const double *weight = *values;
    *values += weights;
    array out = array_new(in->rank, in->n, in->c, in->h, in->w);
    for (size_t i = 0; i < count(in); i++) {
        const double slope = weight[weights == 1 ? 0 : i / (in->h * in->w) % in->c];
        out.v[i] = in->v[i] > 0.0 ? in->v[i] : slope * in->v[i];
    }
    return out;
}

bool reference_more_layer(const fedge_layer_spec *layer, const array *in, const array *inputs,
                          uint32_t num_inputs, const double **values, array *out)
{
    switch ((int)layer->type) {
    case FEDGE_LAYER_CONVTRANSPOSE1D:
    case FEDGE_LAYER_CONVTRANSPOSE2D:
        *out = transposed(layer, in, values);
        return true;
    case FEDGE_LAYER_UPSAMPLE:
        *out = upsample(layer, in);
        return true;
    case FEDGE_LAYER_RMSNORM:
        *out = rms_norm(layer, in, values);
        return true;
    case FEDGE_LAYER_MUL:
        *out = product(inputs, num_inputs);
        return true;
    case FEDGE_LAYER_CONCAT:
        *out = concatenate(layer, inputs, num_inputs);
        return true;
    case FEDGE_LAYER_SOFTMAX:
        *out = softmax_layer(layer, in);
        return true;
    case FEDGE_LAYER_GLU:
        *out = glu_layer(layer, in);
        return true;
    case FEDGE_LAYER_PRELU:
        *out = prelu_layer(layer, in, values);
        return true;
    default:
        return false;
    }
}

#include "tests/edge/train/support.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "edge/core/os.h"

#if defined(__SANITIZE_ADDRESS__)
#define CANARY_BYTES 0 /* the sanitizer sees the first byte behind the block, read or written */
#else
#define CANARY_BYTES 64
#endif
#define CANARY 0xa5

void spec_input(fedge_model_spec *spec, uint32_t rank, uint32_t a, uint32_t b, uint32_t c)
{
    memset(spec, 0, sizeof *spec);
    spec->input_rank = rank;
    spec->input_shape[0] = a;
    spec->input_shape[1] = b;
    spec->input_shape[2] = c;
}

static fedge_layer_spec *add(fedge_model_spec *spec, fedge_layer_type type)
{
    assert_true(spec->num_layers < FEDGE_MAX_LAYERS);
    fedge_layer_spec *layer = &spec->layers[spec->num_layers++];
    layer->type = type;
    return layer;
}

fedge_layer_spec *spec_conv(fedge_model_spec *spec, uint32_t in, uint32_t out, uint32_t kernel,
                            uint32_t stride, uint32_t padding)
{
    fedge_layer_spec *layer = add(spec, FEDGE_LAYER_CONV2D);
    layer->u.conv2d.in_channels = in;
    layer->u.conv2d.out_channels = out;
    layer->u.conv2d.bias = true;
    for (int i = 0; i < 2; i++) {
        layer->u.conv2d.kernel_size[i] = kernel;
        layer->u.conv2d.stride[i] = stride;
        layer->u.conv2d.padding[i] = padding;
    }
    return layer;
}

fedge_layer_spec *spec_pool(fedge_model_spec *spec, uint32_t kernel, uint32_t stride,
                            uint32_t padding)
{
    fedge_layer_spec *layer = add(spec, FEDGE_LAYER_MAXPOOL2D);
    for (int i = 0; i < 2; i++) {
        layer->u.maxpool2d.kernel_size[i] = kernel;
        layer->u.maxpool2d.stride[i] = stride;
        layer->u.maxpool2d.padding[i] = padding;
    }
    return layer;
}

fedge_layer_spec *spec_linear(fedge_model_spec *spec, uint32_t in, uint32_t out)
{
    fedge_layer_spec *layer = add(spec, FEDGE_LAYER_LINEAR);
    layer->u.linear.in_features = in;
    layer->u.linear.out_features = out;
    layer->u.linear.bias = true;
    return layer;
}

void spec_relu(fedge_model_spec *spec)
{
    (void)add(spec, FEDGE_LAYER_RELU);
}

void spec_flatten(fedge_model_spec *spec)
{
    (void)add(spec, FEDGE_LAYER_FLATTEN);
}

static uint32_t between(fedge_rng *rng, uint32_t low, uint32_t high)
{
    return low + fedge_rng_below(rng, high - low + 1);
}

/* A convolution that fits size (c, h, w), which is updated. */
static void random_conv(fedge_model_spec *spec, fedge_rng *rng, uint32_t size[3])
{
    const uint32_t out = between(rng, 1, 37);
    fedge_layer_spec *layer = spec_conv(spec, size[0], out, 1, 1, 0);
    layer->u.conv2d.bias = fedge_rng_below(rng, 4) != 0;
    for (int i = 0; i < 2; i++) {
        const uint32_t padding = between(rng, 0, 2);
        const uint32_t room = size[i + 1] + 2 * padding;
        const uint32_t kernel = between(rng, 1, room < 5 ? room : 5);
        const uint32_t stride = between(rng, 1, 2);
        layer->u.conv2d.padding[i] = padding;
        layer->u.conv2d.kernel_size[i] = kernel;
        layer->u.conv2d.stride[i] = stride;
        size[i + 1] = (room - kernel) / stride + 1;
    }
    size[0] = out;
}

static void random_pool(fedge_model_spec *spec, fedge_rng *rng, uint32_t size[3])
{
    fedge_layer_spec *layer = spec_pool(spec, 1, 0, 0);
    for (int i = 0; i < 2; i++) {
        const uint32_t kernel = between(rng, 1, size[i + 1] < 3 ? size[i + 1] : 3);
        const uint32_t padding = between(rng, 0, kernel / 2);
        const uint32_t stride = between(rng, 0, 3);
        layer->u.maxpool2d.kernel_size[i] = kernel;
        layer->u.maxpool2d.padding[i] = padding;
        layer->u.maxpool2d.stride[i] = stride;
        size[i + 1] = (size[i + 1] + 2 * padding - kernel) / (stride == 0 ? kernel : stride) + 1;
    }
}

void spec_random(fedge_model_spec *spec, fedge_rng *rng)
{
    uint32_t size[3] = {between(rng, 1, 20), between(rng, 3, 17), between(rng, 3, 33)};
    spec_input(spec, 3, size[0], size[1], size[2]);
    const uint32_t layers = between(rng, 0, 4);
    for (uint32_t i = 0; i < layers; i++) {
        const uint32_t what = fedge_rng_below(rng, 6);
        if (what < 3) {
            random_conv(spec, rng, size);
        } else if (what < 5) {
            random_pool(spec, rng, size);
        } else {
            spec_relu(spec);
        }
    }
    spec_flatten(spec);
    if (fedge_rng_below(rng, 4) == 0) {
        spec_relu(spec);
    }
    uint32_t features = size[0] * size[1] * size[2];
    for (uint32_t i = between(rng, 0, 2); i > 0; i--) {
        const uint32_t out = between(rng, 1, 45);
        spec_linear(spec, features, out)->u.linear.bias = fedge_rng_below(rng, 4) != 0;
        spec_relu(spec);
        features = out;
    }
    spec_linear(spec, features, between(rng, 2, 19));
}

void model_open(test_model *self, const fedge_model_spec *spec, const fedge_model_options *options,
                uint64_t seed, size_t shift)
{
    fedge_error err = {0};
    fedge_schema_init(&self->schema, self->tensors, 64);
    if (fedge_model_schema(spec, &self->schema, &err) != FEDGE_OK ||
        fedge_model_size(spec, options, &self->memory, &err) != FEDGE_OK) {
        fail_msg("%s", err.message);
    }
    self->block = aligned_alloc(64, shift + self->memory.total + CANARY_BYTES);
    assert_non_null(self->block);
    memset(self->block, CANARY, shift + self->memory.total + CANARY_BYTES);
    if (fedge_model_new(&self->model, spec, options, self->block + shift, self->memory.total,
                        &err) != FEDGE_OK ||
        fedge_model_init_values(spec, &self->schema, seed, fedge_model_values(self->model), &err) !=
            FEDGE_OK) {
        fail_msg("%s", err.message);
    }
    self->memory.total += shift;
}

void model_close(test_model *self)
{
    const size_t end = self->memory.total + CANARY_BYTES;
    for (size_t i = self->memory.total; i < end; i++) {
        assert_int_equal(self->block[i], CANARY);
    }
    free(self->block);
}

void fill_batch(fedge_rng *rng, float *x, size_t n, int32_t *labels, uint32_t batch,
                uint32_t classes)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)fedge_rng_normal(rng);
    }
    for (uint32_t i = 0; i < batch; i++) {
        labels[i] = (int32_t)fedge_rng_below(rng, classes);
    }
}

/* ---- the reference: one example, (c, h, w) throughout ---- */

typedef struct image {
    size_t c, h, w; /* flat: count, 1, 1 */
    double *v;      /* from malloc */
} image;

static image image_new(size_t c, size_t h, size_t w)
{
    const image made = {c, h, w, calloc(c * h * w, sizeof(double))};
    assert_non_null(made.v);
    return made;
}

/* The value at (c, y, x) counted in the padded image; [outside] in the padding. */
static double padded_at(const image *in, size_t c, size_t y, size_t x, const uint32_t padding[2],
                        double outside)
{
    if (y < padding[0] || x < padding[1] || y >= in->h + padding[0] || x >= in->w + padding[1]) {
        return outside;
    }
    return in->v[(c * in->h + y - padding[0]) * in->w + x - padding[1]];
}

static image reference_conv(const fedge_layer_spec *layer, const image *in, const double *weight,
                            const double *bias)
{
    const uint32_t *kernel = layer->u.conv2d.kernel_size, *stride = layer->u.conv2d.stride;
    const uint32_t *padding = layer->u.conv2d.padding;
    image out = image_new(layer->u.conv2d.out_channels,
                          (in->h + 2 * padding[0] - kernel[0]) / stride[0] + 1,
                          (in->w + 2 * padding[1] - kernel[1]) / stride[1] + 1);
    for (size_t i = 0; i < out.c * out.h * out.w; i++) {
        const size_t o = i / (out.h * out.w), y = i / out.w % out.h, x = i % out.w;
        double sum = bias == NULL ? 0.0 : bias[o];
        for (size_t c = 0; c < in->c; c++) {
            for (size_t r = 0; r < kernel[0]; r++) {
                for (size_t q = 0; q < kernel[1]; q++) {
                    sum += weight[((o * in->c + c) * kernel[0] + r) * kernel[1] + q] *
                           padded_at(in, c, y * stride[0] + r, x * stride[1] + q, padding, 0.0);
                }
            }
        }
        out.v[i] = sum;
    }
    return out;
}

static image reference_pool(const fedge_layer_spec *layer, const image *in)
{
    const uint32_t *kernel = layer->u.maxpool2d.kernel_size;
    const uint32_t *padding = layer->u.maxpool2d.padding;
    uint32_t stride[2];
    for (int i = 0; i < 2; i++) {
        stride[i] = layer->u.maxpool2d.stride[i] == 0 ? kernel[i] : layer->u.maxpool2d.stride[i];
    }
    image out = image_new(in->c, (in->h + 2 * padding[0] - kernel[0]) / stride[0] + 1,
                          (in->w + 2 * padding[1] - kernel[1]) / stride[1] + 1);
    for (size_t i = 0; i < out.c * out.h * out.w; i++) {
        const size_t c = i / (out.h * out.w), y = i / out.w % out.h, x = i % out.w;
        double best = -INFINITY;
        for (size_t r = 0; r < kernel[0]; r++) {
            for (size_t q = 0; q < kernel[1]; q++) {
                best = fmax(best, padded_at(in, c, y * stride[0] + r, x * stride[1] + q, padding,
                                            -INFINITY));
            }
        }
        out.v[i] = best;
    }
    return out;
}

static image reference_linear(const fedge_layer_spec *layer, const image *in, const double *weight,
                              const double *bias)
{
    image out = image_new(layer->u.linear.out_features, 1, 1);
    for (size_t o = 0; o < out.c; o++) {
        out.v[o] = bias == NULL ? 0.0 : bias[o];
        for (size_t k = 0; k < in->c; k++) {
            out.v[o] += weight[o * in->c + k] * in->v[k];
        }
    }
    return out;
}

/* One layer; advances *values past its parameters and takes over [in]. */
static image reference_layer(const fedge_layer_spec *layer, image in, const double **values)
{
    image out;
    const double *weight = *values;
    size_t weights = 0;
    if (layer->type == FEDGE_LAYER_CONV2D) {
        weights = (size_t)layer->u.conv2d.out_channels * in.c * layer->u.conv2d.kernel_size[0] *
                  layer->u.conv2d.kernel_size[1];
        out = reference_conv(layer, &in, weight, layer->u.conv2d.bias ? weight + weights : NULL);
        *values += weights + (layer->u.conv2d.bias ? out.c : 0);
    } else if (layer->type == FEDGE_LAYER_LINEAR) {
        weights = (size_t)layer->u.linear.out_features * in.c;
        out = reference_linear(layer, &in, weight, layer->u.linear.bias ? weight + weights : NULL);
        *values += weights + (layer->u.linear.bias ? out.c : 0);
    } else if (layer->type == FEDGE_LAYER_MAXPOOL2D) {
        out = reference_pool(layer, &in);
    } else {
        const bool flat = layer->type == FEDGE_LAYER_FLATTEN;
        const size_t count = in.c * in.h * in.w;
        out = flat ? image_new(count, 1, 1) : image_new(in.c, in.h, in.w);
        for (size_t i = 0; i < count; i++) {
            out.v[i] = flat ? in.v[i] : fmax(in.v[i], 0.0);
        }
    }
    free(in.v);
    return out;
}

double reference_loss(const fedge_model_spec *spec, const double *values, const double *x,
                      const int32_t *labels, uint32_t batch)
{
    double loss = 0.0;
    const size_t size = fedge_model_input_count(spec);
    for (size_t b = 0; b < batch; b++) {
        const double *at = values;
        image v = spec->input_rank == 3
                      ? image_new(spec->input_shape[0], spec->input_shape[1], spec->input_shape[2])
                      : image_new(size, 1, 1);
        memcpy(v.v, x + b * size, size * sizeof *x);
        for (uint32_t i = 0; i < spec->num_layers; i++) {
            v = reference_layer(&spec->layers[i], v, &at);
        }
        double peak = -INFINITY, sum = 0.0;
        for (size_t c = 0; c < v.c; c++) {
            peak = fmax(peak, v.v[c]);
        }
        for (size_t c = 0; c < v.c; c++) {
            sum += exp(v.v[c] - peak);
        }
        loss += log(sum) + peak - v.v[labels[b]];
        free(v.v);
    }
    return loss;
}

unsigned kernel_levels(unsigned disabled[MAX_LEVELS])
{
    const unsigned features = fedge_os_cpu_features();
    unsigned n = 0;
    disabled[n++] = ~0u;
    if (features & FEDGE_CPU_AVX2) {
        disabled[n++] = FEDGE_CPU_AVX512;
    }
    if (features & (FEDGE_CPU_AVX512 | FEDGE_CPU_NEON)) {
        disabled[n++] = 0;
    }
    return n;
}

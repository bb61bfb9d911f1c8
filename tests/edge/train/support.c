#include "tests/edge/train/support.h"

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
    memset(spec, 0, sizeof(*spec));
    spec->input_rank = rank;
    spec->input_shape[0] = a;
    spec->input_shape[1] = b;
    spec->input_shape[2] = c;
}

fedge_layer_spec *spec_add(fedge_model_spec *spec, fedge_layer_type type)
{
    assert_true(spec->num_layers < FEDGE_MAX_LAYERS);
    fedge_layer_spec *layer = &spec->layers[spec->num_layers++];
    layer->type = type;
    return layer;
}

fedge_layer_spec *spec_conv(fedge_model_spec *spec, uint32_t in, uint32_t out, uint32_t kernel,
                            uint32_t stride, uint32_t padding)
{
    fedge_layer_spec *layer = spec_add(spec, FEDGE_LAYER_CONV2D);
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
    fedge_layer_spec *layer = spec_add(spec, FEDGE_LAYER_MAXPOOL2D);
    for (int i = 0; i < 2; i++) {
        layer->u.maxpool2d.kernel_size[i] = kernel;
        layer->u.maxpool2d.stride[i] = stride;
        layer->u.maxpool2d.padding[i] = padding;
    }
    return layer;
}

fedge_layer_spec *spec_linear(fedge_model_spec *spec, uint32_t in, uint32_t out)
{
    fedge_layer_spec *layer = spec_add(spec, FEDGE_LAYER_LINEAR);
    layer->u.linear.in_features = in;
    layer->u.linear.out_features = out;
    layer->u.linear.bias = true;
    return layer;
}

void spec_relu(fedge_model_spec *spec)
{
    (void)spec_add(spec, FEDGE_LAYER_RELU);
}

void spec_flatten(fedge_model_spec *spec)
{
    (void)spec_add(spec, FEDGE_LAYER_FLATTEN);
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
        if (what < 3)
            random_conv(spec, rng, size);
        else if (what < 5)
            random_pool(spec, rng, size);
        else
            spec_relu(spec);
    }
    spec_flatten(spec);
    if (fedge_rng_below(rng, 4) == 0)
        spec_relu(spec);
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
        fedge_model_size(spec, options, &self->memory, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    self->block = aligned_alloc(64, shift + self->memory.total + CANARY_BYTES);
    assert_non_null(self->block);
    memset(self->block, CANARY, shift + self->memory.total + CANARY_BYTES);
    float *values = malloc((self->schema.num_elements + 1) * sizeof(*values));
    assert_non_null(values);
    if (fedge_model_new(&self->model, spec, options, self->block + shift, self->memory.total,
                        &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    fedge_model_init_values(spec, seed, values);
    fedge_model_load(self->model, values);
    free(values);
    self->memory.total += shift;
}

void model_close(test_model *self)
{
    const size_t end = self->memory.total + CANARY_BYTES;
    for (size_t i = self->memory.total; i < end; i++)
        assert_int_equal(self->block[i], CANARY);
    free(self->block);
}

void fill_batch(fedge_rng *rng, float *x, size_t n, int32_t *labels, uint32_t batch,
                uint32_t classes)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)fedge_rng_normal(rng);
    for (uint32_t i = 0; i < batch; i++)
        labels[i] = (int32_t)fedge_rng_below(rng, classes);
}

unsigned kernel_levels(unsigned disabled[MAX_LEVELS])
{
    const unsigned features = fedge_os_cpu_features();
    unsigned n = 0;
    disabled[n++] = ~0u;
    if (features & FEDGE_CPU_AVX2)
        disabled[n++] = FEDGE_CPU_AVX512;
    if (features & (FEDGE_CPU_AVX512 | FEDGE_CPU_NEON))
        disabled[n++] = 0;
    return n;
}

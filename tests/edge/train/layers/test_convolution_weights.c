/* The gradient of a convolution's weights where images are large: how many examples are summed at a
 * time, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "edge/train/layers/convolution.h"
#include "tests/edge/train/support.h"

#define SEED 17

static const fedge_kernels *kernels_of(unsigned disabled)
{
    return fedge_kernels_choose(fedge_os_cpu_features() & ~disabled);
}

/* One place of output for a square image: the kernel is as large. */
static fedge_convolution whole_image(uint32_t channels, uint32_t out_channels, uint32_t side)
{
    return (fedge_convolution){.rank = 3,
                               .channels = channels,
                               .out_channels = out_channels,
                               .groups = 1,
                               .kernel = {side, side},
                               .stride = {1, 1},
                               .dilation = {1, 1},
                               .in = {side, side},
                               .out = {1, 1}};
}

/* 32 bits count places in the input, and in the outputs' gradient: of examples of 2^24 floats 128
 * are summed at a time, of small ones 256. */
static void test_examples_at_a_time(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    const fedge_convolution input = whole_image(64, 4, 512), small = whole_image(64, 4, 4);
    const fedge_convolution output = whole_image(64, 1 << 24, 1);
    for (unsigned i = 0; i < num_levels; i++) {
        const fedge_kernels *kernels = kernels_of(levels[i]);
        assert_true(sizeof(size_t) == 4 ||
                    fedge_convolution_weights_scratch(&input, 127, kernels) <
                        fedge_convolution_weights_scratch(&input, 128, kernels));
        assert_int_equal(fedge_convolution_weights_scratch(&input, 128, kernels),
                         fedge_convolution_weights_scratch(&input, 256, kernels));
        assert_int_equal(fedge_convolution_weights_scratch(&output, 128, kernels),
                         fedge_convolution_weights_scratch(&output, 256, kernels));
        const uint64_t one = fedge_convolution_weights_scratch(&small, 1, kernels);
        const uint64_t all = fedge_convolution_weights_scratch(&small, 256, kernels);
        assert_int_equal(all - one, 255 * (1024 * sizeof(float) + 2 * sizeof(uint32_t)));
    }
}

/* Ones, zeros and minus ones: their sums are exact in any order. */
static float *small_integers(fedge_rng *rng, size_t n)
{
    float *values = malloc(n * sizeof(*values));
    assert_non_null(values);
    for (size_t i = 0; i < n; i++)
        values[i] = (float)fedge_rng_below(rng, 3) - 1.0f;
    return values;
}

static void add_gradient(const fedge_convolution *conv, const fedge_kernels *kernels,
                         uint32_t batch, const float *x, const float *dy, float *gradient)
{
    const size_t bytes = (size_t)fedge_convolution_weights_scratch(conv, batch, kernels);
    fedge_layer_run run = {.kernels = kernels, .batch = batch, .x = {x}, .dy = dy};
    run.scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    run.gemm_pack = aligned_alloc(64, (kernels->gemm_pack * sizeof(float) + 63) / 64 * 64);
    assert_true(run.scratch && run.gemm_pack);
    fedge_convolution_weights_add(&run, conv, gradient);
    free(run.gemm_pack);
    free(run.scratch);
}

/* A batch of more images than are summed at a time has the gradient of its examples one by one. */
static void test_many_images(void **state)
{
    (void)state;
    enum { CHANNELS = 75, SIDE = 5, OUT = 4, BATCH = 600, IMAGE = CHANNELS * SIDE * SIDE };
    const fedge_convolution conv = whole_image(CHANNELS, OUT, SIDE);
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 0, 0, 0);
    float *x = small_integers(&rng, (size_t)BATCH * IMAGE);
    float *dy = small_integers(&rng, (size_t)BATCH * OUT);
    float *expected = calloc((size_t)OUT * IMAGE, sizeof(*expected));
    float *gradient = malloc((size_t)OUT * IMAGE * sizeof(*gradient));
    assert_true(expected && gradient);
    for (size_t e = 0; e < BATCH; e++) {
        for (size_t i = 0; i < (size_t)OUT * IMAGE; i++)
            expected[i] += dy[e * OUT + i / IMAGE] * x[e * IMAGE + i % IMAGE];
    }
    for (unsigned i = 0; i < num_levels; i++) {
        const fedge_kernels *kernels = kernels_of(levels[i]);
        if (!fedge_convolution_weights_fit(&conv, kernels))
            continue; /* the scalar kernels */
        memset(gradient, 0, (size_t)OUT * IMAGE * sizeof(*gradient));
        add_gradient(&conv, kernels, BATCH, x, dy, gradient);
        assert_memory_equal(gradient, expected, (size_t)OUT * IMAGE * sizeof(*gradient));
    }
    free(gradient);
    free(expected);
    free(dy);
    free(x);
}

/* As many weights as a model may have, in rows of half a vector: their sums take 2^32 floats. */
static void test_too_many_sums(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    for (unsigned i = 0; sizeof(size_t) > 4 && i < num_levels; i++) {
        static fedge_model_spec spec;
        const uint32_t channels = kernels_of(levels[i])->lanes / 2;
        const fedge_model_options options = {
            .max_batch = 1, .training = true, .general = true, .disabled_cpu_features = levels[i]};
        fedge_model_memory memory;
        fedge_error err = {0};
        if (channels == 0)
            continue; /* the scalar kernels */
        for (uint32_t less = 0; less < 2; less++) {
            const uint32_t out = ((1u << 15) / channels) >> less;
            spec_input(&spec, 3, channels, FEDGE_MAX_SPATIAL, 1);
            fedge_layer_spec *layer = spec_conv(&spec, channels, out, 1, 1, 0);
            layer->u.conv2d.kernel_size[0] = FEDGE_MAX_SPATIAL;
            layer->u.conv2d.bias = false;
            spec_flatten(&spec);
            const fedge_status status = fedge_model_size(&spec, &options, &memory, &err);
            assert_int_equal(status, less ? FEDGE_OK : FEDGE_TOO_BIG);
        }
        assert_non_null(strstr(err.message, "layer 0 (Conv2d"));
        assert_non_null(strstr(err.message, "more bytes than can be planned"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_examples_at_a_time),
                                       cmocka_unit_test(test_many_images),
                                       cmocka_unit_test(test_too_many_sums)};
    return cmocka_run_group_tests_name("train convolution weights", tests, NULL, NULL);
}

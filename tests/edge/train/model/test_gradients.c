/* Every layer and small networks against finite differences of an independent network in double
 * precision; the vector kernels against the scalar ones on random shapes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/edge/core/long.h"
#include "tests/edge/train/support.h"

#define SEED 7
/* An emulator takes minutes for what is seconds elsewhere: it gets one random network in eight, and
 * a test that is not to take its time one in four. */
#ifdef FEDGE_EMULATED
#define NETWORKS(n) ((n) / 8)
#else
#define NETWORKS(n) (fedge_test_is_long() ? (n) : (n) / 4)
#endif

static void test_linear(void **state)
{
    (void)state;
    fedge_model_spec spec;
    spec_input(&spec, 1, 13, 0, 0);
    spec_linear(&spec, 13, 5);
    check_spec(&spec, 1, 100);
    check_spec(&spec, 7, 100);
    spec.layers[0].u.linear.bias = false;
    check_spec(&spec, 4, 100);
    spec_input(&spec, 1, 67, 0, 0);
    spec_linear(&spec, 67, 33);
    spec_relu(&spec);
    spec_linear(&spec, 33, 17);
    spec_relu(&spec);
    spec_linear(&spec, 17, 3);
    check_spec(&spec, 33, 40);
    spec_input(&spec, 1, 2100, 0, 0); /* more than one chunk of a dot product */
    spec_linear(&spec, 2100, 40);
    spec_relu(&spec);
    spec_linear(&spec, 40, 3);
    check_spec(&spec, 3, 40);
}

static void test_conv(void **state)
{
    (void)state;
    fedge_model_spec spec;
    spec_input(&spec, 3, 1, 9, 7);
    spec_conv(&spec, 1, 5, 3, 1, 0);
    spec_flatten(&spec);
    spec_linear(&spec, 5 * 7 * 5, 3);
    check_spec(&spec, 3, 60);
    spec_input(&spec, 3, 3, 8, 11);
    spec_conv(&spec, 3, 18, 3, 2, 1);
    spec_relu(&spec);
    spec_conv(&spec, 18, 33, 5, 1, 2);
    spec_relu(&spec);
    spec_conv(&spec, 33, 4, 2, 2, 1);
    spec_flatten(&spec);
    check_spec(&spec, 2, 40);
    spec_input(&spec, 3, 20, 6, 6); /* many channels: the input is imported */
    spec_conv(&spec, 20, 17, 3, 1, 1)->u.conv2d.bias = false;
    spec_flatten(&spec);
    spec_linear(&spec, 17 * 36, 3);
    check_spec(&spec, 2, 40);
}

static void test_conv_rectangular(void **state)
{
    (void)state;
    fedge_model_spec spec;
    spec_input(&spec, 3, 2, 10, 13);
    fedge_layer_spec *conv = spec_conv(&spec, 2, 6, 1, 1, 0);
    conv->u.conv2d.kernel_size[0] = 1;
    conv->u.conv2d.kernel_size[1] = 4;
    conv->u.conv2d.stride[0] = 2;
    conv->u.conv2d.padding[1] = 3;
    conv = spec_conv(&spec, 6, 7, 1, 1, 0); /* in: (6, 5, 16) */
    conv->u.conv2d.kernel_size[0] = 4;
    conv->u.conv2d.kernel_size[1] = 2;
    conv->u.conv2d.stride[1] = 3;
    conv->u.conv2d.padding[0] = 1;
    spec_flatten(&spec); /* (7, 4, 5) */
    spec_linear(&spec, 140, 4);
    check_spec(&spec, 2, 60);
}

static void test_pool(void **state)
{
    (void)state;
    fedge_model_spec spec;
    static const uint32_t windows[][3] = {{2, 0, 0}, {3, 2, 1}, {2, 1, 0}, {2, 3, 1}, {3, 0, 0}};
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        const uint32_t kernel = windows[i][0], stride = windows[i][1], padding = windows[i][2];
        const uint32_t step = stride == 0 ? kernel : stride;
        const uint32_t out = (10 + 2 * padding - kernel) / step + 1;
        spec_input(&spec, 3, 2, 10, 10);
        spec_conv(&spec, 2, 6, 3, 1, 1);
        spec_relu(&spec);
        spec_pool(&spec, kernel, stride, padding); /* behind a convolution */
        spec_pool(&spec, 2, 1, 0);                 /* behind a pooling */
        spec_flatten(&spec);
        spec_linear(&spec, 6 * (out - 1) * (out - 1), 3);
        check_spec(&spec, 3, 40);
    }
    spec_input(&spec, 3, 3, 6, 6); /* first */
    spec_pool(&spec, 2, 0, 0);
    spec_relu(&spec);
    spec_conv(&spec, 3, 4, 2, 1, 1);
    spec_pool(&spec, 2, 0, 0);
    spec_relu(&spec);
    spec_flatten(&spec);
    spec_linear(&spec, 16, 3);
    check_spec(&spec, 3, 40);
}

static void test_relu_and_flatten(void **state)
{
    (void)state;
    fedge_model_spec spec;
    spec_input(&spec, 2, 4, 5, 0);
    spec_relu(&spec);
    spec_flatten(&spec);
    spec_flatten(&spec);
    spec_linear(&spec, 20, 8);
    spec_relu(&spec);
    spec_relu(&spec);
    spec_flatten(&spec);
    spec_linear(&spec, 8, 3);
    spec_relu(&spec);
    check_spec(&spec, 6, 100);
    spec_input(&spec, 3, 2, 5, 5);
    spec_conv(&spec, 2, 3, 2, 1, 0);
    spec_flatten(&spec);
    spec_relu(&spec);
    spec_linear(&spec, 48, 3);
    check_spec(&spec, 6, 100);
}

static void test_quickstart_network(void **state)
{
    (void)state;
    fedge_model_spec spec;
    spec_input(&spec, 3, 1, 28, 28);
    spec_conv(&spec, 1, 16, 3, 1, 0);
    spec_relu(&spec);
    spec_pool(&spec, 2, 0, 0);
    spec_conv(&spec, 16, 32, 3, 1, 0);
    spec_relu(&spec);
    spec_pool(&spec, 2, 0, 0);
    spec_flatten(&spec);
    spec_linear(&spec, 800, 64);
    spec_relu(&spec);
    spec_linear(&spec, 64, 10);
    check_spec(&spec, 3, 6);
}

static void test_random_networks(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 2, 0, 0);
    for (int i = 0; i < NETWORKS(40); i++) {
        fedge_model_spec spec;
        spec_random(&spec, &rng);
        check_spec(&spec, 1 + fedge_rng_below(&rng, 3), 4);
    }
}

/* Gradients of one network and batch on each level, compared with the scalar level's. The sums have
 * at most N = 4,000 terms of the size of the tensor's largest gradient, whose errors add up like a
 * random walk: sqrt(N) · 2^-24 is 4e-6; the bound leaves a factor of five for the layers between.
 */
static void test_levels_agree(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 3, 0, 0);
    for (int round = 0; round < NETWORKS(100); round++) {
        fedge_model_spec spec;
        spec_random(&spec, &rng);
        const uint32_t batch = 1 + fedge_rng_below(&rng, 33);
        const size_t size = fedge_model_input_count(&spec);
        float *x = malloc(size * batch * sizeof(*x));
        int32_t *labels = malloc(batch * sizeof(*labels));
        assert_true(x && labels);
        fill_batch(&rng, x, size * batch, labels, batch, fedge_model_num_classes(&spec));
        double *scalar = NULL, scalar_loss = 0.0;
        for (unsigned level = 0; level < 2 * num_levels; level++) {
            const fedge_model_options options = {.max_batch = batch,
                                                 .training = true,
                                                 .general = level >= num_levels,
                                                 .disabled_cpu_features =
                                                     levels[level % num_levels]};
            test_model self;
            model_open(&self, &spec, &options, SEED, 0);
            double *gradient = new_doubles(fedge_model_num_values(self.model)), loss = 0.0;
            model_gradient(&self, x, labels, batch, gradient, &loss);
            if (!scalar) {
                scalar = gradient;
                scalar_loss = loss;
                model_close(&self);
                continue;
            }
            assert_true(fabs(loss - scalar_loss) <= 1e-5 * (1.0 + fabs(scalar_loss)));
            for (uint32_t t = 0; t < self.schema.num_tensors; t++) {
                const fedge_tensor_spec *tensor = &self.schema.tensors[t];
                double largest = 0.0;
                for (size_t i = 0; i < tensor->count; i++)
                    largest = fmax(largest, fabs(scalar[tensor->offset + i]));
                for (size_t i = 0; i < tensor->count; i++) {
                    const size_t at = tensor->offset + i;
                    if (!(fabs(gradient[at] - scalar[at]) <= 2e-5 * largest + 1e-7)) {
                        fail_msg("round %d, %s[%zu]: %s %.9g, scalar %.9g", round, tensor->name, i,
                                 fedge_model_kernels(self.model), gradient[at], scalar[at]);
                    }
                }
            }
            free(gradient);
            model_close(&self);
        }
        free(scalar);
        free(labels);
        free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),           cmocka_unit_test(test_conv),
        cmocka_unit_test(test_conv_rectangular), cmocka_unit_test(test_pool),
        cmocka_unit_test(test_relu_and_flatten), cmocka_unit_test(test_quickstart_network),
        cmocka_unit_test(test_random_networks),  cmocka_unit_test(test_levels_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

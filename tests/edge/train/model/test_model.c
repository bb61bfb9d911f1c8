/* Models in their blocks: sizes, SGD, evaluation, bad input, equal bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/edge/train/support.h"

#define SEED 11

static void small_cnn(fedge_model_spec *spec)
{
    spec_input(spec, 3, 1, 12, 12);
    spec_conv(spec, 1, 5, 3, 1, 1);
    spec_relu(spec);
    spec_pool(spec, 2, 0, 0);
    spec_conv(spec, 5, 9, 3, 1, 1);
    spec_relu(spec);
    spec_pool(spec, 2, 0, 0);
    spec_flatten(spec);
    spec_linear(spec, 81, 4);
}

static size_t bytes_of(const fedge_layer_memory *layer)
{
    return layer->values + layer->optimizer + layer->output + layer->saved + layer->gradient +
           layer->scratch;
}

/* A block that is too small: both numbers, and the layer that takes most of what is asked for. */
static void test_block_too_small(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    static fedge_layer_memory layers[FEDGE_MAX_LAYERS];
    small_cnn(&spec);
    spec.layers[7].u.linear.out_features = 120;
    (void)snprintf(spec.layers[7].name, sizeof(spec.layers[7].name), "head");
    for (int i = 0; i < 6; i++) {
        /* For one example the last layer's parameters are most, for many a convolution's output. */
        const fedge_model_options options = {
            .max_batch = i % 2 == 0 ? 1 : 4000, .training = i < 4, .general = i / 2 == 1};
        fedge_error err = {0};
        fedge_model_memory memory;
        fedge_model *model = NULL;
        char expected[sizeof((fedge_error *)0)->message], block[1], position[4];
        uint32_t largest = 0;
        assert_int_equal(fedge_model_size(&spec, &options, &memory, &err), FEDGE_OK);
        assert_int_equal(fedge_model_layer_memory(&spec, &options, layers, &err), FEDGE_OK);
        for (uint32_t k = 0; k < spec.num_layers; k++)
            largest = bytes_of(&layers[k]) > bytes_of(&layers[largest]) ? k : largest;
        assert_int_equal(fedge_model_new(&model, &spec, &options, block, 1, &err), FEDGE_TOO_BIG);
        snprintf(position, sizeof(position), "%u", (unsigned)largest);
        snprintf(expected, sizeof(expected),
                 "the model needs a block of %zu bytes but was given 1; layer %u (%s \"%s\") takes "
                 "the most, %zu, not all at once",
                 memory.total, (unsigned)largest, fedge_layer_type_name(spec.layers[largest].type),
                 largest == 7 ? "head" : position, bytes_of(&layers[largest]));
        assert_string_equal(err.message, expected);
        assert_int_equal(largest == 7, i % 2 == 0);
        assert_null(model);
    }
}

static void test_memory(void **state)
{
    (void)state;
    fedge_error err = {0};
    fedge_model_spec spec;
    fedge_model_memory memory, less;
    fedge_model *model;
    small_cnn(&spec);
    fedge_model_options options = {.max_batch = 8, .training = true, .momentum = 0.9f};
    assert_int_equal(fedge_model_size(&spec, &options, &memory, &err), FEDGE_OK);
    assert_int_equal(memory.total, memory.parameters + memory.gradients + memory.velocity +
                                       memory.activations + memory.scratch);
    assert_true(memory.velocity == memory.parameters && memory.total % 64 == 0);
    unsigned char *block = aligned_alloc(64, memory.total + 64);
    assert_non_null(block);
    assert_int_equal(fedge_model_new(&model, &spec, &options, block, memory.total - 1, &err),
                     FEDGE_TOO_BIG);
    assert_non_null(strstr(err.message, "block of"));
    assert_int_equal(fedge_model_new(&model, &spec, &options, block + 4, memory.total, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_int_equal(fedge_model_new(&model, &spec, &options, NULL, memory.total, &err),
                     FEDGE_INVALID_ARGUMENT);
    free(block);
    options.momentum = 0.0f;
    assert_int_equal(fedge_model_size(&spec, &options, &less, &err), FEDGE_OK);
    assert_int_equal(less.total, memory.total - memory.velocity);
    options.training = false;
    assert_int_equal(fedge_model_size(&spec, &options, &memory, &err), FEDGE_OK);
    assert_true(memory.gradients == 0 && memory.total < less.total);
    options.max_batch = 0;
    assert_int_equal(fedge_model_size(&spec, &options, &memory, &err), FEDGE_INVALID_ARGUMENT);
    options.max_batch = FEDGE_MAX_BATCH + 1;
    assert_int_equal(fedge_model_size(&spec, &options, &memory, &err), FEDGE_INVALID_ARGUMENT);
}

/* On random networks: the planned block is enough (canary, or the sanitizer), its last part is
 * used, and evaluation agrees with the loss of a step. */
static void test_blocks(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int i = 0; i < 120; i++) {
        fedge_error err = {0};
        fedge_model_spec spec;
        spec_random(&spec, &rng);
        const uint32_t batch = 1 + fedge_rng_below(&rng, 9);
        fedge_model_options options = {.max_batch = batch,
                                       .training = true,
                                       .momentum = i % 2 == 0 ? 0.9f : 0.0f,
                                       .general = i % 4 >= 2,
                                       .disabled_cpu_features = levels[(unsigned)i % num_levels]};
        test_model training, evaluation;
        model_open(&training, &spec, &options, SEED, 0);
        options.training = false;
        model_open(&evaluation, &spec, &options, SEED, 0);
        assert_string_equal(fedge_model_kernels(training.model),
                            fedge_model_kernels(evaluation.model));
        const size_t size = fedge_model_input_count(&spec);
        float *x = malloc(size * batch * sizeof(*x));
        int32_t *labels = malloc(batch * sizeof(*labels));
        assert_true(x && labels);
        fill_batch(&rng, x, size * batch, labels, batch, fedge_model_num_classes(&spec));
        const fedge_optimizer sgd = {.learning_rate = 0.01f, .momentum = options.momentum};
        double loss[3];
        uint32_t correct[3];
        assert_int_equal(
            fedge_model_evaluate(evaluation.model, x, labels, batch, &loss[0], &correct[0], &err),
            FEDGE_OK);
        assert_int_equal(
            fedge_model_evaluate(training.model, x, labels, batch, &loss[1], &correct[1], &err),
            FEDGE_OK);
        assert_int_equal(
            fedge_model_step(training.model, x, labels, batch, &sgd, &loss[2], &correct[2], &err),
            FEDGE_OK);
        assert_true(loss[0] == loss[1] && loss[1] == loss[2]);
        assert_true(correct[0] == correct[1] && correct[1] == correct[2] && correct[0] <= batch);
        free(labels);
        free(x);
        model_close(&evaluation);
        model_close(&training);
    }
}

/* Logistic regression small enough to write its step out: p = softmax, g = (p − onehot) xᵀ / batch.
 */
static void test_sgd(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    enum { IN = 19, OUT = 3, BATCH = 4, COUNT = IN * OUT + OUT };
    fedge_model_spec spec;
    spec_input(&spec, 1, IN, 0, 0);
    spec_linear(&spec, IN, OUT);
    for (unsigned level = 0; level < num_levels; level++) {
        fedge_error err = {0};
        const fedge_optimizer sgd = {
            .learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f};
        const fedge_model_options options = {.max_batch = BATCH,
                                             .training = true,
                                             .momentum = 0.9f,
                                             .disabled_cpu_features = levels[level]};
        test_model self;
        model_open(&self, &spec, &options, SEED, 0);
        float *values = fedge_model_values(self.model), x[BATCH * IN];
        int32_t labels[BATCH];
        double w[COUNT], v[COUNT] = {0};
        for (int i = 0; i < COUNT; i++)
            w[i] = (double)values[i];
        fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 1, 0, 0);
        for (int step = 0; step < 12; step++) {
            if (step == 6) { /* a new round of a client */
                fedge_model_reset_optimizer(self.model);
                memset(v, 0, sizeof(v));
            }
            fill_batch(&rng, x, BATCH * IN, labels, BATCH, OUT);
            double g[COUNT] = {0}, loss_sum;
            for (int b = 0; b < BATCH; b++) {
                double p[OUT], sum = 0.0;
                for (int o = 0; o < OUT; o++) {
                    p[o] = w[IN * OUT + o];
                    for (int k = 0; k < IN; k++)
                        p[o] += w[o * IN + k] * (double)x[b * IN + k];
                    p[o] = exp(p[o]);
                    sum += p[o];
                }
                for (int o = 0; o < OUT; o++) {
                    const double d = (p[o] / sum - (labels[b] == o)) / BATCH;
                    g[IN * OUT + o] += d;
                    for (int k = 0; k < IN; k++)
                        g[o * IN + k] += d * (double)x[b * IN + k];
                }
            }
            uint32_t correct;
            assert_int_equal(
                fedge_model_step(self.model, x, labels, BATCH, &sgd, &loss_sum, &correct, &err),
                FEDGE_OK);
            for (int i = 0; i < COUNT; i++) {
                v[i] = 0.9 * v[i] + g[i] + 0.01 * w[i];
                w[i] -= 0.1 * v[i];
                assert_true(fabs(w[i] - (double)values[i]) <= 1e-5);
            }
        }
        model_close(&self);
    }
}

/* Momentum and weight decay reach the convolution's weights and biases too: two steps on one batch
 * equal two plain ones corrected by hand. With lr = r, v1 = g1 + d·w0, w1 = w0 − r·v1,
 * v2 = m·v1 + g2 + d·w1; plain models at w0 and at w1 tell g1 and g2. */
static void test_sgd_of_convolutions(void **state)
{
    (void)state;
    fedge_error err = {0};
    fedge_model_spec spec;
    small_cnn(&spec);
    enum { BATCH = 3 };
    const fedge_optimizer full = {.learning_rate = 0.25f, .momentum = 0.5f, .weight_decay = 0.125f};
    const fedge_optimizer plain = {.learning_rate = 0.25f};
    const fedge_model_options options = {.max_batch = BATCH, .training = true, .momentum = 0.5f};
    test_model self, probe;
    model_open(&self, &spec, &options, SEED, 0);
    model_open(&probe, &spec, &options, SEED, 0);
    const size_t n = fedge_model_num_values(self.model);
    float x[BATCH * 144], *w = fedge_model_values(self.model), *p = fedge_model_values(probe.model);
    int32_t labels[BATCH];
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 2, 0, 0);
    fill_batch(&rng, x, BATCH * 144, labels, BATCH, 4);
    double *v = calloc(n, sizeof(*v)), *before = calloc(n, sizeof(*before));
    assert_true(v && before);
    for (int step = 0; step < 3; step++) {
        double loss;
        uint32_t correct;
        memcpy(p, w, n * sizeof(*p));
        assert_int_equal(
            fedge_model_step(probe.model, x, labels, BATCH, &plain, &loss, &correct, &err),
            FEDGE_OK);
        for (size_t i = 0; i < n; i++)
            before[i] = (double)w[i];
        assert_int_equal(
            fedge_model_step(self.model, x, labels, BATCH, &full, &loss, &correct, &err), FEDGE_OK);
        for (size_t i = 0; i < n; i++) {
            const double g = (before[i] - (double)p[i]) / 0.25;
            v[i] = 0.5 * v[i] + g + 0.125 * before[i];
            assert_true(fabs((double)w[i] - (before[i] - 0.25 * v[i])) <= 1e-6);
        }
    }
    free(before);
    free(v);
    model_close(&probe);
    model_close(&self);
}

static void test_bad_steps(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    fedge_error err = {0};
    fedge_model_spec spec;
    small_cnn(&spec);
    enum { BATCH = 3 };
    for (unsigned level = 0; level < num_levels; level++) {
        fedge_model_options options = {
            .max_batch = BATCH, .training = true, .disabled_cpu_features = levels[level]};
        test_model self;
        model_open(&self, &spec, &options, SEED, 0);
        float x[(BATCH + 1) * 144];
        int32_t labels[BATCH + 1];
        fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 3, 0, 0);
        fill_batch(&rng, x, (BATCH + 1) * 144, labels, BATCH + 1, 4);
        const size_t bytes = fedge_model_num_values(self.model) * sizeof(float);
        float *before = malloc(bytes);
        assert_non_null(before);
        memcpy(before, fedge_model_values(self.model), bytes);
        const fedge_optimizer sgd = {.learning_rate = 0.1f},
                              momentum = {.learning_rate = 0.1f, .momentum = 0.9f};
        double loss;
        uint32_t correct;
        fedge_model *m = self.model;
        assert_int_equal(fedge_model_step(m, x, labels, 0, &sgd, &loss, &correct, &err),
                         FEDGE_INVALID_ARGUMENT);
        assert_int_equal(fedge_model_step(m, x, labels, BATCH + 1, &sgd, &loss, &correct, &err),
                         FEDGE_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "batch of 4"));
        assert_int_equal(fedge_model_step(m, x, labels, BATCH, &momentum, &loss, &correct, &err),
                         FEDGE_INVALID_ARGUMENT);
        const int32_t good = labels[1];
        labels[1] = 4;
        assert_int_equal(fedge_model_step(m, x, labels, BATCH, &sgd, &loss, &correct, &err),
                         FEDGE_OUT_OF_RANGE);
        assert_non_null(strstr(err.message, "label 4 of example 1"));
        labels[1] = -1;
        assert_int_equal(fedge_model_evaluate(m, x, labels, BATCH, &loss, &correct, &err),
                         FEDGE_OUT_OF_RANGE);
        labels[1] = good;
        static const float bad[] = {NAN, INFINITY, -INFINITY};
        for (size_t i = 0; i < 3; i++) {
            for (size_t at = 0; at < BATCH * 144; at += 29) {
                const float saved = x[at];
                x[at] = bad[i];
                assert_int_equal(fedge_model_step(m, x, labels, BATCH, &sgd, &loss, &correct, &err),
                                 FEDGE_NOT_FINITE);
                x[at] = saved;
            }
        }
        /* The last place that was tried. */
        assert_string_equal(err.message,
                            "layer 0 (Conv2d): value 118 of example 2 in the batch is -inf, "
                            "which is not finite: clean the data, or mend its normalisation");
        assert_memory_equal(before, fedge_model_values(m), bytes);
        assert_int_equal(fedge_model_step(m, x, labels, BATCH, &sgd, &loss, &correct, &err),
                         FEDGE_OK);
        free(before);
        model_close(&self);
        options.training = false;
        model_open(&self, &spec, &options, SEED, 0);
        assert_int_equal(
            fedge_model_step(self.model, x, labels, BATCH, &sgd, &loss, &correct, &err),
            FEDGE_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "training"));
        model_close(&self);
    }
}

/* Whose the targets are, which of them it is, and what to do when it is the loss. */
static void test_targets_that_are_not_finite(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    const fedge_optimizer sgd = {.learning_rate = 0.1f};
    const fedge_model_options options = {.max_batch = 2, .training = true};
    fedge_error err = {0};
    float x[8] = {0}, targets[6] = {0, 1, 0, 1, INFINITY, 1};
    double loss;
    uint32_t correct;
    test_model self;
    const fedge_batch batch = {.x = x, .targets = targets, .size = 2};
    spec_input(&spec, 2, 2, 2, 0);
    spec_flatten(&spec);
    spec_linear(&spec, 4, 3);
    spec.loss = FEDGE_LOSS_MSE;
    model_open(&self, &spec, &options, SEED, 0);
    assert_int_equal(fedge_model_train(self.model, &batch, &sgd, &loss, &correct, &err),
                     FEDGE_NOT_FINITE);
    assert_string_equal(err.message, "MSELoss: target 1 of example 1 in the batch is inf, which is "
                                     "not finite: clean the data, or mend its normalisation");
    x[7] = INFINITY;
    assert_int_equal(fedge_model_train(self.model, &batch, &sgd, &loss, &correct, &err),
                     FEDGE_NOT_FINITE);
    assert_non_null(strstr(err.message, "layer 0 (Flatten): value 3 of example 1 in the batch"));
    x[7] = targets[4] = 0.0f;
    fedge_model_values(self.model)[14] = -INFINITY; /* a bias */
    assert_int_equal(fedge_model_train(self.model, &batch, &sgd, &loss, &correct, &err),
                     FEDGE_NOT_FINITE);
    assert_string_equal(err.message,
                        "MSELoss: the loss of a batch of 2 examples is inf: lower the learning "
                        "rate, clip the gradients' norm, or normalise the data");
    fedge_model_values(self.model)[14] = -(float)NAN; /* a NaN's sign says nothing */
    assert_int_equal(fedge_model_train(self.model, &batch, &sgd, &loss, &correct, &err),
                     FEDGE_NOT_FINITE);
    assert_non_null(strstr(err.message, "examples is nan: "));
    x[7] = -(float)NAN;
    assert_int_equal(fedge_model_train(self.model, &batch, &sgd, &loss, &correct, &err),
                     FEDGE_NOT_FINITE);
    assert_non_null(strstr(err.message, "in the batch is nan, "));
    model_close(&self);
}

/* What overflows is never lost on the way, wherever in a pooling window it stands. */
static void test_overflow_reaches_the_loss(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    fedge_model_spec spec;
    spec_input(&spec, 3, 1, 4, 4);
    spec_conv(&spec, 1, 3, 1, 1, 0);
    spec_relu(&spec);
    spec_pool(&spec, 2, 0, 0);
    spec_flatten(&spec);
    spec_linear(&spec, 12, 2);
    for (unsigned level = 0; level < num_levels; level++) {
        const fedge_model_options options = {.max_batch = 1,
                                             .disabled_cpu_features = levels[level]};
        test_model self;
        model_open(&self, &spec, &options, SEED, 0);
        fedge_model_values(self.model)[0] = 4.0f;
        for (int i = 0; i < 16; i++) {
            fedge_error err = {0};
            float x[16];
            int32_t label;
            double loss;
            uint32_t correct;
            fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 5, 0, 0);
            fill_batch(&rng, x, 16, &label, 1, 2);
            x[i] = 3e38f;
            assert_int_equal(fedge_model_evaluate(self.model, x, &label, 1, &loss, &correct, &err),
                             FEDGE_NOT_FINITE);
        }
        model_close(&self);
    }
}

/* The same bits whatever the addresses of the block and of the inputs, and whatever ran before. */
static void test_equal_bits(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 4, 0, 0);
    for (int round = 0; round < 30; round++) {
        fedge_error err = {0};
        fedge_model_spec spec;
        spec_random(&spec, &rng);
        const uint32_t batch = 1 + fedge_rng_below(&rng, 12);
        const size_t size = fedge_model_input_count(&spec) * batch;
        float *x = malloc((size + 1) * sizeof(*x));
        int32_t labels[16];
        assert_non_null(x);
        const fedge_model_options options = {.max_batch = batch,
                                             .training = true,
                                             .general = round % 2 == 1,
                                             .disabled_cpu_features =
                                                 levels[(unsigned)round / 2 % num_levels]};
        test_model self[2];
        const fedge_optimizer sgd = {.learning_rate = 0.05f};
        double loss[2];
        uint32_t correct[2];
        const fedge_rng start = rng;
        for (size_t i = 0; i < 2; i++) {
            rng = start;
            model_open(&self[i], &spec, &options, SEED, i * 64);
            for (int step = 0; step < 3; step++) {
                fill_batch(&rng, x + i, size, labels, batch, fedge_model_num_classes(&spec));
                assert_int_equal(fedge_model_step(self[i].model, x + i, labels, batch, &sgd,
                                                  &loss[i], &correct[i], &err),
                                 FEDGE_OK);
            }
        }
        assert_true(loss[0] == loss[1] && correct[0] == correct[1]);
        assert_memory_equal(fedge_model_values(self[0].model), fedge_model_values(self[1].model),
                            fedge_model_num_values(self[0].model) * sizeof(float));
        model_close(&self[0]);
        model_close(&self[1]);
        free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_block_too_small),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_sgd_of_convolutions),
        cmocka_unit_test(test_bad_steps),
        cmocka_unit_test(test_overflow_reaches_the_loss),
        cmocka_unit_test(test_equal_bits),
        cmocka_unit_test(test_targets_that_are_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Numbers of 16 bits: the conversions over all of them, and models that keep activations so. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "edge/core/rng.h"
#include "edge/train/kernels/half.h"
#include "tests/edge/train/support.h"

static float widen(fedge_storage storage, uint16_t x)
{
    float wide;
    fedge_half_to_floats(storage, &x, 1, &wide);
    return wide;
}

static uint16_t narrow(fedge_storage storage, float x)
{
    uint16_t half;
    fedge_half_from_floats(storage, &x, 1, &half);
    return half;
}

/* Every number comes back; between two neighbours the nearer is taken, and the even one halfway. */
static void check_all(fedge_storage storage, uint16_t infinity)
{
    for (uint32_t sign = 0; sign <= 0x8000u; sign += 0x8000u) {
        for (uint32_t i = 0; i < infinity; i++) {
            const uint16_t low = (uint16_t)(sign | i), high = (uint16_t)(low + 1);
            const float a = widen(storage, low);
            assert_int_equal(narrow(storage, a), low);
            /* What would follow the largest if the exponent went on. */
            const float b = i + 1 < infinity ? widen(storage, high)
                                             : 2.0f * a - widen(storage, (uint16_t)(low - 1));
            const float middle = (float)(((double)a + (double)b) / 2.0);
            if (isinf(b) || i + 1u == infinity)
                continue; /* the largest stands for all that is larger and finite */
            assert_int_equal(narrow(storage, middle), i % 2 == 0 ? low : high);
            assert_int_equal(narrow(storage, nextafterf(middle, a)), low);
            assert_int_equal(narrow(storage, nextafterf(middle, b)), high);
        }
        assert_true(isinf(widen(storage, (uint16_t)(sign | infinity))));
        for (uint32_t i = infinity + 1u; i <= 0x7fffu; i++) {
            assert_true(isnan(widen(storage, (uint16_t)(sign | i))));
            assert_true(isnan(widen(storage, narrow(storage, widen(storage, (uint16_t)i)))));
        }
    }
    assert_int_equal(narrow(storage, INFINITY), infinity);
    assert_int_equal(narrow(storage, -INFINITY), 0x8000u | infinity);
    assert_true(isfinite(widen(storage, narrow(storage, -3e38f))));
}

static void test_fp16(void **state)
{
    (void)state;
    check_all(FEDGE_STORAGE_FP16, 0x7c00u);
    assert_true(widen(FEDGE_STORAGE_FP16, 0x3c01u) == 1.0f + 0x1p-10f);
    assert_true(widen(FEDGE_STORAGE_FP16, 0x7bffu) == 65504.0f);
    assert_true(widen(FEDGE_STORAGE_FP16, 0x0001u) == 0x1p-24f);
}

static void test_bf16(void **state)
{
    (void)state;
    check_all(FEDGE_STORAGE_BF16, 0x7f80u);
    assert_true(widen(FEDGE_STORAGE_BF16, 0x3f81u) == 1.0f + 0x1p-7f);
}

/* ---- activations ---- */

enum { IN = 5, HIDDEN = 7, OUT = 3, BATCH = 4 };

/* Gradients of Linear, Tanh, Linear and the cross entropy, where what Tanh made is rounded after it
 * has been used forward: w1, b1, w2, b2 in the order of the model's values. */
static void reference(fedge_storage storage, const float *values, const float *x,
                      const int32_t *labels, double *gradient)
{
    const float *w1 = values, *b1 = w1 + HIDDEN * IN, *w2 = b1 + HIDDEN, *b2 = w2 + OUT * HIDDEN;
    double *g1 = gradient, *gb1 = g1 + HIDDEN * IN, *g2 = gb1 + HIDDEN, *gb2 = g2 + OUT * HIDDEN;
    for (int b = 0; b < BATCH; b++) {
        double h[HIDDEN], p[OUT], sum = 0.0;
        for (int j = 0; j < HIDDEN; j++) {
            h[j] = (double)b1[j];
            for (int k = 0; k < IN; k++)
                h[j] += (double)w1[j * IN + k] * (double)x[b * IN + k];
            h[j] = tanh(h[j]);
        }
        for (int o = 0; o < OUT; o++) {
            p[o] = (double)b2[o];
            for (int j = 0; j < HIDDEN; j++)
                p[o] += (double)w2[o * HIDDEN + j] * h[j];
            sum += exp(p[o]);
        }
        for (int j = 0; j < HIDDEN && storage != FEDGE_STORAGE_FP32; j++)
            h[j] = (double)widen(storage, narrow(storage, (float)h[j]));
        for (int o = 0; o < OUT; o++) {
            const double dy = (exp(p[o]) / sum - (o == labels[b] ? 1.0 : 0.0)) / BATCH;
            gb2[o] += dy;
            for (int j = 0; j < HIDDEN; j++) {
                const double dh = dy * (double)w2[o * HIDDEN + j] * (1.0 - h[j] * h[j]);
                g2[o * HIDDEN + j] += dy * h[j];
                gb1[j] += dh;
                for (int k = 0; k < IN; k++)
                    g1[j * IN + k] += dh * (double)x[b * IN + k];
            }
        }
    }
}

/* The same rounding, so the same to fp32's accuracy: gradients below 1, from differences of values
 * below 1 after a step of rate 1, are within 1e-6. Rounded elsewhere or not at all they would be
 * off by 2^-9 of themselves. */
static void check_rounding(fedge_storage storage)
{
    static fedge_model_spec spec;
    memset(&spec, 0, sizeof(spec));
    spec_input(&spec, 1, IN, 0, 0);
    spec_linear(&spec, IN, HIDDEN);
    spec_add(&spec, FEDGE_LAYER_TANH);
    spec_linear(&spec, HIDDEN, OUT);
    const fedge_model_options options = {
        .max_batch = BATCH, .training = true, .activations = storage};
    test_model under;
    model_open(&under, &spec, &options, 11, 0);
    const size_t n = fedge_model_num_values(under.model);
    float x[BATCH * IN];
    int32_t labels[BATCH];
    double expected[128] = {0}, plain[128] = {0}, gradient[128], loss;
    assert_true(n <= 128);
    fedge_rng rng = fedge_rng_stream(11, FEDGE_PURPOSE_TEST, 9, 0, 0);
    fill_batch(&rng, x, BATCH * IN, labels, BATCH, OUT);
    reference(storage, fedge_model_values(under.model), x, labels, expected);
    reference(FEDGE_STORAGE_FP32, fedge_model_values(under.model), x, labels, plain);
    model_gradient(&under, x, labels, BATCH, gradient, &loss);
    double apart = 0.0;
    for (size_t i = 0; i < n; i++) {
        assert_true(fabs(gradient[i] - expected[i]) <= 1e-6);
        apart = fmax(apart, fabs(expected[i] - plain[i]));
    }
    assert_true(apart > 1e-5); /* the rounding shows */
    model_close(&under);
}

static void test_what_is_kept_is_rounded(void **state)
{
    (void)state;
    check_rounding(FEDGE_STORAGE_BF16);
    check_rounding(FEDGE_STORAGE_FP16);
}

static size_t activations_of(fedge_storage storage, uint32_t depth)
{
    static fedge_model_spec spec;
    fedge_model_memory memory;
    memset(&spec, 0, sizeof(spec));
    spec_input(&spec, 1, 256, 0, 0);
    for (uint32_t i = 0; i < depth; i++) {
        spec_linear(&spec, 256, 256);
        spec_add(&spec, FEDGE_LAYER_TANH);
    }
    spec_linear(&spec, 256, 2);
    /* With clipping the gradients of weights lie apart, so that activations are counted alone. */
    const fedge_model_options options = {
        .max_batch = 64, .training = true, .clip = true, .activations = storage};
    assert_int_equal(fedge_model_size(&spec, &options, &memory, NULL), FEDGE_OK);
    return memory.activations;
}

/* Each further layer keeps one array, in half the bytes. */
static void test_memory(void **state)
{
    (void)state;
    const size_t array = (size_t)64 * 256 * 4;
    for (fedge_storage storage = FEDGE_STORAGE_FP32; storage < FEDGE_STORAGE_COUNT; storage++) {
        const size_t each = storage == FEDGE_STORAGE_FP32 ? array : array / 2;
        assert_int_equal(activations_of(storage, 20) - activations_of(storage, 10), 10 * each);
    }
    /* A few arrays in fp32 are at work besides. */
    assert_true(activations_of(FEDGE_STORAGE_BF16, 20) < activations_of(0, 20) * 7 / 10);
}

/* ---- weights ---- */

/* A step of a model with 16-bit weights is the same model's step in fp32, rounded, bit by bit. The
 * fp32 model keeps its gradients apart (clip, with a norm that nothing reaches), so that both step
 * along a gradient and not inside a kernel. */
static void check_steps(fedge_storage storage, const fedge_optimizer *optimizer)
{
    static fedge_model_spec spec;
    memset(&spec, 0, sizeof(spec));
    spec_input(&spec, 3, 2, 6, 6);
    spec_conv(&spec, 2, 9, 3, 1, 0);
    spec_relu(&spec);
    spec_flatten(&spec);
    spec_linear(&spec, 144, 31);
    spec_add(&spec, FEDGE_LAYER_TANH);
    spec_linear(&spec, 31, OUT);
    fedge_model_options options = {.max_batch = BATCH,
                                   .training = true,
                                   .general = true,
                                   .clip = true,
                                   .momentum = optimizer->momentum,
                                   .optimizer = optimizer->type,
                                   .proximal = optimizer->proximal_mu > 0.0f};
    test_model exact, small;
    model_open(&exact, &spec, &options, 13, 0);
    options.clip = optimizer->clip_norm > 0.0f;
    options.weights = storage;
    model_open(&small, &spec, &options, 13, 0);
    assert_null(fedge_model_values(small.model));
    const size_t n = fedge_model_num_values(exact.model);
    float *values = fedge_model_values(exact.model), *stored = malloc(n * sizeof(*stored));
    float x[BATCH * 72];
    int32_t labels[BATCH];
    double loss, loss_small;
    uint32_t correct;
    assert_non_null(stored);
    fedge_model_store(small.model, values); /* rounded */
    fedge_model_reset_optimizer(exact.model);
    fedge_model_reset_optimizer(small.model);
    fedge_rng rng = fedge_rng_stream(13, FEDGE_PURPOSE_TEST, 11, 0, 0);
    for (int step = 0; step < 3; step++) {
        fill_batch(&rng, x, BATCH * 72, labels, BATCH, OUT);
        assert_int_equal(
            fedge_model_step(exact.model, x, labels, BATCH, optimizer, &loss, &correct, NULL),
            FEDGE_OK);
        assert_int_equal(
            fedge_model_step(small.model, x, labels, BATCH, optimizer, &loss_small, &correct, NULL),
            FEDGE_OK);
        assert_true(loss == loss_small);
        for (size_t i = 0; i < n; i++)
            values[i] = widen(storage, narrow(storage, values[i]));
        fedge_model_store(small.model, stored);
        assert_memory_equal(stored, values, n * sizeof(*values));
    }
    free(stored);
    model_close(&exact);
    model_close(&small);
}

static void test_steps_round(void **state)
{
    (void)state;
    const fedge_optimizer sgd = {.learning_rate = 0.05f, .momentum = 0.9f};
    const fedge_optimizer adam = {.learning_rate = 0.01f, .type = FEDGE_OPTIMIZER_ADAM};
    const fedge_optimizer pulled = {.learning_rate = 0.05f, .proximal_mu = 0.5f};
    for (fedge_storage storage = FEDGE_STORAGE_BF16; storage < FEDGE_STORAGE_COUNT; storage++) {
        check_steps(storage, &sgd);
        check_steps(storage, &adam);
        check_steps(storage, &pulled);
    }
}

/* What is trained is the start and the change: values that did not move come back as they were, not
 * rounded. */
static void test_rounding_the_start_is_no_change(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    memset(&spec, 0, sizeof(spec));
    spec_input(&spec, 1, 2, 0, 0);
    spec_linear(&spec, 2, 2);
    const fedge_model_options options = {
        .max_batch = 1, .training = true, .weights = FEDGE_STORAGE_BF16};
    test_model under;
    model_open(&under, &spec, &options, 1, 0);
    float values[6] = {0.1001f, 0.2003f, -0.3007f, 0.4009f, 0.0f, 0.0f};
    float trained[6];
    const fedge_optimizer slow = {.learning_rate = 1e-6f}, fast = {.learning_rate = 0.5f};
    double loss;
    uint32_t correct;
    memcpy(trained, values, sizeof(values));
    fedge_model_set_state(under.model, values);
    assert_int_equal(fedge_model_step(under.model, (float[]){1.0f, 0.0f}, (int32_t[]){0}, 1, &slow,
                                      &loss, &correct, NULL),
                     FEDGE_OK);
    fedge_model_get_trained(under.model, trained);
    assert_memory_equal(trained, values, 4 * sizeof(*values)); /* and a small change is lost */
    assert_int_equal(fedge_model_step(under.model, (float[]){1.0f, 0.0f}, (int32_t[]){0}, 1, &fast,
                                      &loss, &correct, NULL),
                     FEDGE_OK);
    fedge_model_get_trained(under.model, trained);
    assert_true(trained[0] > values[0] + 0.1f && trained[2] < values[2] - 0.1f);
    assert_true(trained[1] == values[1] && trained[3] == values[3]);
    model_close(&under);
}

/* Two bytes each; beside them the largest layer in fp32, when it is at work. */
static void test_memory_of_weights(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    fedge_model_memory exact, small;
    memset(&spec, 0, sizeof(spec));
    spec_input(&spec, 1, 256, 0, 0);
    for (int i = 0; i < 12; i++) {
        spec_linear(&spec, 256, 256);
        spec_add(&spec, FEDGE_LAYER_TANH);
    }
    fedge_model_options options = {.max_batch = 4, .training = true, .general = true};
    assert_int_equal(fedge_model_size(&spec, &options, &exact, NULL), FEDGE_OK);
    options.weights = FEDGE_STORAGE_BF16;
    assert_int_equal(fedge_model_size(&spec, &options, &small, NULL), FEDGE_OK);
    assert_int_equal(exact.parameters, 12 * 257 * 256 * 4);
    assert_int_equal(small.parameters, 12 * 257 * 256 * 2);
    assert_true(small.total < exact.total * 3 / 4);
}

static double learn(fedge_storage storage)
{
    static fedge_model_spec spec;
    enum { SIDE = 8, EXAMPLES = 16 };
    float x[EXAMPLES * SIDE * SIDE];
    int32_t labels[EXAMPLES];
    double loss = 0.0;
    uint32_t correct;
    memset(&spec, 0, sizeof(spec));
    spec_input(&spec, 3, 1, SIDE, SIDE);
    spec_conv(&spec, 1, 6, 3, 1, 1);
    spec_add(&spec, FEDGE_LAYER_TANH);
    spec_pool(&spec, 2, 2, 0);
    spec_conv(&spec, 6, 8, 3, 1, 0);
    spec_relu(&spec);
    spec_flatten(&spec);
    spec_linear(&spec, 32, 2);
    const fedge_model_options options = {.max_batch = EXAMPLES,
                                         .training = true,
                                         .general = true,
                                         .activations = storage,
                                         .weights = storage};
    const fedge_optimizer sgd = {.learning_rate = 0.1f};
    fedge_rng rng = fedge_rng_stream(5, FEDGE_PURPOSE_TEST, 10, 0, 0);
    test_model under;
    model_open(&under, &spec, &options, 5, 0);
    for (int step = 0; step < 150; step++) {
        fill_batch(&rng, x, EXAMPLES * SIDE * SIDE, labels, EXAMPLES, 2);
        for (size_t i = 0; i < EXAMPLES * SIDE * SIDE; i++) { /* class 1 is brighter to the left */
            x[i] += labels[i / (SIDE * SIDE)] == 1 && i % SIDE < SIDE / 2 ? 1.0f : 0.0f;
        }
        assert_int_equal(
            fedge_model_step(under.model, x, labels, EXAMPLES, &sgd, &loss, &correct, NULL),
            FEDGE_OK);
    }
    model_close(&under);
    return loss / EXAMPLES;
}

static void test_it_learns(void **state)
{
    (void)state;
    for (fedge_storage storage = FEDGE_STORAGE_FP32; storage < FEDGE_STORAGE_COUNT; storage++)
        assert_true(learn(storage) < 0.1);
}

/* Indices that bf16 does not have reach the backward pass as they are, though a layer made them. */
static void test_indices_stay_exact(void **state)
{
    (void)state;
    enum { ROWS = 512, STEPS = 2 };
    const float x[STEPS] = {257, 511};
    const int32_t label = 1;
    const fedge_model_options options = {
        .max_batch = 1, .training = true, .activations = FEDGE_STORAGE_BF16};
    const fedge_optimizer sgd = {.learning_rate = 1.0f};
    fedge_model_spec spec;
    test_model model;
    fedge_error err = {0};
    double loss;
    uint32_t correct;
    spec_input(&spec, 2, STEPS, 1, 0);
    fedge_layer_spec *first = spec_add(&spec, FEDGE_LAYER_SELECT);
    first->u.select.dim = 2;
    fedge_layer_spec *table = spec_add(&spec, FEDGE_LAYER_EMBEDDING);
    table->u.embedding.num_embeddings = ROWS;
    table->u.embedding.embedding_dim = 1;
    spec_flatten(&spec);
    spec_linear(&spec, STEPS, 2);
    model_open(&model, &spec, &options, 3, 0);
    const float *w = fedge_model_values(model.model);
    float before[ROWS];
    memcpy(before, w, sizeof(before));
    assert_int_equal(fedge_model_step(model.model, x, &label, 1, &sgd, &loss, &correct, &err),
                     FEDGE_OK);
    for (uint32_t row = 0; row < ROWS; row++)
        assert_int_equal(w[row] != before[row], row == 257 || row == 511);
    model_close(&model);
}

static void test_unknown_storage_is_refused(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    fedge_model_memory memory;
    fedge_error err = {0};
    memset(&spec, 0, sizeof(spec));
    spec_input(&spec, 1, 2, 0, 0);
    spec_linear(&spec, 2, 2);
    const fedge_model_options options = {.max_batch = 1, .activations = FEDGE_STORAGE_COUNT};
    assert_int_equal(fedge_model_size(&spec, &options, &memory, &err), FEDGE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "activations"));
    const fedge_model_options weights = {.max_batch = 1, .weights = FEDGE_STORAGE_COUNT};
    assert_int_equal(fedge_model_size(&spec, &weights, &memory, &err), FEDGE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "weights"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp16),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_what_is_kept_is_rounded),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_steps_round),
        cmocka_unit_test(test_rounding_the_start_is_no_change),
        cmocka_unit_test(test_memory_of_weights),
        cmocka_unit_test(test_it_learns),
        cmocka_unit_test(test_indices_stay_exact),
        cmocka_unit_test(test_unknown_storage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

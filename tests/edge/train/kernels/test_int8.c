/* Evaluation in int8: the integer kernels bit by bit, layers against their definition in double
 * precision on quantised values, and what it costs a trained model. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "edge/train/kernels/int8.h"
#include "tests/edge/train/support.h"

#define MAX_ROWS 40
#define MAX_DEPTH ((size_t)4096)

static void test_kernels_agree(void **state)
{
    (void)state;
    static uint8_t a[MAX_ROWS * MAX_DEPTH];
    static int8_t b[MAX_ROWS * MAX_DEPTH];
    static int32_t c[MAX_ROWS * MAX_ROWS], expected[MAX_ROWS * MAX_ROWS];
    unsigned disabled[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(disabled);
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 6, 0, 0);
    for (int round = 0; round < 60; round++) {
        const bool extremes = round % 4 == 0; /* 255 · −127 all along */
        for (size_t i = 0; i < sizeof(a); i++) {
            a[i] = extremes ? 255 : (uint8_t)fedge_rng_below(&rng, 256);
            b[i] = (int8_t)(extremes ? -127 : (int)fedge_rng_below(&rng, 255) - 127);
        }
        fedge_int8_product args = {.m = 1 + fedge_rng_below(&rng, MAX_ROWS),
                                   .n = 4 + 4 * fedge_rng_below(&rng, MAX_ROWS / 4),
                                   .k = 64 + 64 * fedge_rng_below(&rng, MAX_DEPTH / 64),
                                   .a = a,
                                   .b = b,
                                   .c = expected};
        fedge_int8_multiply_scalar(&args);
        args.c = c;
        for (unsigned level = 0; level < num_levels; level++) {
            memset(c, 0x55, sizeof(c));
            fedge_int8_choose(fedge_os_cpu_features() & ~disabled[level])(&args);
            assert_memory_equal(c, expected, args.m * args.n * sizeof(*c));
        }
    }
}

/* The longest row that is allowed does not overflow. */
static void test_the_longest_row(void **state)
{
    (void)state;
    uint8_t *a = malloc(FEDGE_INT8_MAX_LENGTH);
    int8_t *b = malloc(4 * FEDGE_INT8_MAX_LENGTH);
    int32_t c[4];
    assert_non_null(a);
    assert_non_null(b);
    memset(a, 255, FEDGE_INT8_MAX_LENGTH);
    memset(b, 127, 4 * FEDGE_INT8_MAX_LENGTH);
    const fedge_int8_product args = {1, 4, FEDGE_INT8_MAX_LENGTH, a, b, c};
    fedge_int8_choose(fedge_os_cpu_features())(&args);
    for (int j = 0; j < 4; j++)
        assert_int_equal(c[j], 255 * 127 * 65536);
    free(a);
    free(b);
}

static void test_ranges(void **state)
{
    (void)state;
    uint8_t q[4];
    fedge_int8_range range = fedge_int8_quantise((const float[]){0.0f, 1.0f, 2.55f, 0.5f}, 4, q);
    assert_int_equal(range.zero, 0);
    assert_true(fabsf(range.scale - 0.01f) < 1e-8f);
    assert_memory_equal(q, ((uint8_t[]){0, 100, 255, 50}), 4);
    range = fedge_int8_quantise((const float[]){-1.0f, 1.55f, 0.0f, -0.5f}, 4, q);
    assert_int_equal(range.zero, 100);
    assert_memory_equal(q, ((uint8_t[]){0, 255, 100, 50}), 4);
    range = fedge_int8_quantise((const float[]){-3e38f, 3e38f, 0.0f, 1.0f}, 4, q);
    assert_true(isfinite(range.scale) && q[0] == 0 && q[1] == 255);
    range = fedge_int8_quantise((const float[]){0.0f, 0.0f, 1e-45f, 0.0f}, 4, q);
    assert_true(range.scale == 0.0f);
    range = fedge_int8_quantise((const float[]){0.0f, NAN, 1.0f, 0.0f}, 4, q);
    assert_true(isnan(range.scale));
    range = fedge_int8_quantise((const float[]){0.0f, -INFINITY, 1.0f, 0.0f}, 4, q);
    assert_true(isnan(range.scale));
}

/* ---- layers ---- */

/* The values that int8 stands for, in place: activations of one range. */
static void round_activations(double *x, size_t n)
{
    double least = 0.0, most = 0.0;
    for (size_t i = 0; i < n; i++) {
        least = fmin(least, x[i]);
        most = fmax(most, x[i]);
    }
    const double scale = (most - least) / 255.0, zero = nearbyint(-least / scale);
    for (size_t i = 0; i < n; i++)
        x[i] = scale * (fmin(fmax(nearbyint(x[i] / scale) + zero, 0.0), 255.0) - zero);
}

static void round_row(double *w, size_t n)
{
    double most = 0.0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(w[i]));
    for (size_t i = 0; i < n; i++)
        w[i] = nearbyint(w[i] / most * 127.0) * most / 127.0;
}

#define BATCH 3

/* One layer and the loss, whose value in double precision on rounded numbers is known. The double
 * and the float may put a number that lies between two steps on either: a few in a thousand do,
 * each by one step, so the losses, of the order of 1, agree to 2e-3. Without rounding they would
 * not. */
static void check_layer(const fedge_model_spec *spec, size_t rows, size_t row_length,
                        size_t example_rows)
{
    test_model under;
    unsigned disabled[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(disabled);
    float x[BATCH * 200];
    int32_t labels[BATCH];
    double first = 0.0;
    fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TEST, 7, 0, 0);
    for (unsigned level = 0; level < num_levels; level++) {
        const fedge_model_options options = {.max_batch = BATCH,
                                             .precision = FEDGE_PRECISION_INT8,
                                             .disabled_cpu_features = disabled[level]};
        const fedge_model_options plain = {.max_batch = BATCH};
        model_open(&under, spec, &plain, 3, 0);
        const size_t n = fedge_model_num_values(under.model);
        const size_t example = fedge_model_example_size(under.model);
        float *values = malloc(n * sizeof(*values));
        assert_non_null(values);
        memcpy(values, fedge_model_values(under.model), n * sizeof(*values));
        model_close(&under);
        if (level == 0)
            fill_batch(&rng, x, BATCH * example, labels, BATCH, (uint32_t)rows);
        double *w = to_double(values, n), *in = to_double(x, BATCH * example);
        for (size_t r = 0; r < rows; r++)
            round_row(w + r * row_length, row_length);
        for (size_t r = 0; r < BATCH * example_rows; r++)
            round_activations(in + r * example / example_rows, example / example_rows);
        const double expected = reference_loss(spec, w, in, labels, BATCH);
        double loss = 0.0;
        uint32_t correct = 0;
        model_open(&under, spec, &options, 3, 0);
        assert_null(fedge_model_values(under.model));
        fedge_model_load(under.model, values);
        assert_int_equal(fedge_model_evaluate(under.model, x, labels, BATCH, &loss, &correct, NULL),
                         FEDGE_OK);
        assert_true(fabs(loss - expected) <= 2e-3 * BATCH);
        first = level == 0 ? loss : first;
        assert_true(loss == first); /* the same integers on every level */
        model_close(&under);
        free(w);
        free(in);
        free(values);
    }
}

static void test_layers(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    memset(&spec, 0, sizeof(spec));
    spec_input(&spec, 1, 133, 0, 0);
    spec_linear(&spec, 133, 7);
    check_layer(&spec, 7, 133, 1);
    memset(&spec, 0, sizeof(spec));
    spec_input(&spec, 3, 2, 9, 7);
    spec_conv(&spec, 2, 5, 3, 2, 1);
    spec_flatten(&spec);
    check_layer(&spec, 5, 18, 1);
    memset(&spec, 0, sizeof(spec));
    spec_input(&spec, 3, 6, 4, 5);
    fedge_layer_spec *conv = spec_conv(&spec, 6, 9, 3, 1, 2);
    conv->u.conv2d.groups = 3;
    conv->u.conv2d.dilation[0] = conv->u.conv2d.dilation[1] = 2;
    spec_flatten(&spec);
    check_layer(&spec, 9, 18, 1);
}

static void test_what_is_not_finite_is_found(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    test_model under;
    fedge_error err = {0};
    memset(&spec, 0, sizeof(spec));
    spec_input(&spec, 1, 4, 0, 0);
    spec_linear(&spec, 4, 2);
    const fedge_model_options options = {.max_batch = 1, .precision = FEDGE_PRECISION_INT8};
    model_open(&under, &spec, &options, 3, 0);
    float values[10] = {1, 2, 3, 4, 5, 6, 7, 8, 0, 0};
    const float x[4] = {0, 1, NAN, 0};
    double loss;
    uint32_t correct;
    fedge_model_load(under.model, values);
    assert_int_equal(fedge_model_evaluate(under.model, x, (int32_t[]){0}, 1, &loss, &correct, &err),
                     FEDGE_NOT_FINITE);
    values[5] = INFINITY;
    fedge_model_load(under.model, values);
    assert_int_equal(
        fedge_model_evaluate(under.model, values, (int32_t[]){0}, 1, &loss, &correct, &err),
        FEDGE_NOT_FINITE);
    model_close(&under);
}

/* A band of patches is at least a row of outputs: here 65,409 of 65,536 bytes, beside the image. */
static void test_large_patches(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    fedge_model_memory memory;
    spec_input(&spec, 3, 512, 1, 65536);
    spec_conv(&spec, 512, 1, 128, 1, 0)->u.conv2d.kernel_size[0] = 1;
    spec_flatten(&spec);
    spec_linear(&spec, 65409, 2);
    const fedge_model_options options = {.max_batch = 1, .precision = FEDGE_PRECISION_INT8};
    const fedge_status status = fedge_model_size(&spec, &options, &memory, NULL);
    if (sizeof(size_t) > 4) {
        assert_int_equal(status, FEDGE_OK);
        assert_true(memory.total > UINT32_MAX);
    } else {
        assert_int_equal(status, FEDGE_TOO_BIG);
    }
}

/* ---- a trained model ---- */

static void spec_small_cnn(fedge_model_spec *spec)
{
    memset(spec, 0, sizeof(*spec));
    spec_input(spec, 3, 1, 12, 12);
    spec_conv(spec, 1, 8, 3, 1, 1);
    spec_relu(spec);
    spec_pool(spec, 2, 2, 0);
    spec_conv(spec, 8, 12, 3, 1, 0);
    spec_relu(spec);
    spec_flatten(spec);
    spec_linear(spec, 192, 40);
    spec_relu(spec);
    spec_linear(spec, 40, 4);
}

/* Examples of four classes: a quadrant that is brighter, in noise. */
static void fill_quadrants(fedge_rng *rng, float *x, int32_t *labels, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        labels[i] = (int32_t)fedge_rng_below(rng, 4);
        for (uint32_t p = 0; p < 144; p++) {
            const bool inside = (p / 12 / 6) * 2 + p % 12 / 6 == (uint32_t)labels[i];
            x[i * 144 + p] = (float)fedge_rng_normal(rng) + (inside ? 0.6f : 0.0f);
        }
    }
}

#define TESTED 500

/* Rounding to 8 bits may move an example across a border that it is near: at most one in a hundred
 * does, and the loss changes by at most a hundredth. */
static void test_a_trained_model_keeps_its_accuracy(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    static float x[TESTED * 144];
    static int32_t labels[TESTED];
    test_model trained, small;
    spec_small_cnn(&spec);
    const fedge_model_options options = {.max_batch = TESTED, .training = true};
    const fedge_model_options in_int8 = {.max_batch = TESTED, .precision = FEDGE_PRECISION_INT8};
    const fedge_optimizer sgd = {.learning_rate = 0.05f};
    fedge_rng rng = fedge_rng_stream(7, FEDGE_PURPOSE_TEST, 8, 0, 0);
    double loss, loss_int8;
    uint32_t correct, correct_int8;
    model_open(&trained, &spec, &options, 7, 0);
    for (int step = 0; step < 200; step++) {
        fill_quadrants(&rng, x, labels, 20);
        assert_int_equal(
            fedge_model_step(trained.model, x, labels, 20, &sgd, &loss, &correct, NULL), FEDGE_OK);
    }
    fill_quadrants(&rng, x, labels, TESTED);
    assert_int_equal(fedge_model_evaluate(trained.model, x, labels, TESTED, &loss, &correct, NULL),
                     FEDGE_OK);
    model_open(&small, &spec, &in_int8, 7, 0);
    fedge_model_load(small.model, fedge_model_values(trained.model));
    assert_int_equal(
        fedge_model_evaluate(small.model, x, labels, TESTED, &loss_int8, &correct_int8, NULL),
        FEDGE_OK);
    assert_in_range(correct, TESTED * 7 / 10, TESTED * 99 / 100);
    assert_true(abs((int)correct - (int)correct_int8) <= TESTED / 100);
    assert_true(fabs(loss - loss_int8) <= 0.01 * TESTED && loss != loss_int8);
    model_close(&small);
    model_close(&trained);
}

/* The weights of a large model take a quarter of their bytes, scales and sums added. */
static void test_memory(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    fedge_model_memory memory;
    memset(&spec, 0, sizeof(spec));
    spec_input(&spec, 1, 784, 0, 0);
    spec_linear(&spec, 784, 200);
    spec_relu(&spec);
    spec_linear(&spec, 200, 10);
    fedge_model_options options = {.max_batch = 1, .precision = FEDGE_PRECISION_INT8};
    assert_int_equal(fedge_model_size(&spec, &options, &memory, NULL), FEDGE_OK);
    /* Rows of 832 and 256 bytes, three more each; scales and sums; biases; all up to 64. */
    assert_int_equal(memory.parameters,
                     203 * 832 + 2 * 832 + 13 * 256 + 2 * 64 + (210 * 4 + 63) / 64 * 64);
    fedge_layer_memory layers[3];
    fedge_model *model;
    fedge_error err = {0};
    assert_int_equal(fedge_model_layer_memory(&spec, &options, layers, NULL), FEDGE_OK);
    assert_int_equal(layers[0].values, 203 * 832 + 200 * 8 + 200 * 4);
    assert_int_equal(layers[2].values, 13 * 256 + 10 * 8 + 10 * 4);
    assert_int_equal(fedge_model_new(&model, &spec, &options, NULL, 64, &err), FEDGE_TOO_BIG);
    static const char largest[] = "layer 0 (Linear \"0\") takes the most, ";
    const char *most = strstr(err.message, largest);
    assert_non_null(most);
    assert_in_range(strtoul(most + sizeof(largest) - 1, NULL, 10), layers[0].values, memory.total);
    options.training = true;
    assert_int_equal(fedge_model_size(&spec, &options, &memory, &err), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "without training"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_agree),
        cmocka_unit_test(test_the_longest_row),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_what_is_not_finite_is_found),
        cmocka_unit_test(test_large_patches),
        cmocka_unit_test(test_a_trained_model_keeps_its_accuracy),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The scalar kernels of Linear, which pass over zeros and keep several sums at a time, against the
 * loops that define them: the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "edge/core/rng.h"
#include "edge/train/kernels/kernels.h"

#define MAX_IN 600 /* more than two chunks of groups */
#define MAX_OUT 21
#define MAX_BATCH 3

static float x[MAX_BATCH * MAX_IN], dy[MAX_BATCH * MAX_OUT], y[MAX_BATCH * MAX_OUT];
static float w[MAX_OUT * MAX_IN], stepped[MAX_OUT * MAX_IN], bias[MAX_OUT], dx[MAX_BATCH * MAX_IN];

/* Runs of zeros between values, as in images. */
static void fill(fedge_rng *rng, float *values, size_t n, uint32_t zeros_in_four)
{
    bool zero = false;
    for (size_t i = 0; i < n; i++) {
        if (fedge_rng_below(rng, 3) == 0)
            zero = fedge_rng_below(rng, 4) < zeros_in_four;
        values[i] = zero ? 0.0f : 2.0f * fedge_rng_float(rng) - 1.0f;
    }
}

static fedge_linear_shape random_layer(fedge_rng *rng)
{
    const fedge_linear_shape shape = {1 + fedge_rng_below(rng, MAX_BATCH),
                                      1 + fedge_rng_below(rng, MAX_IN),
                                      1 + fedge_rng_below(rng, MAX_OUT)};
    const uint32_t zeros = fedge_rng_below(rng, 5);
    fill(rng, x, (size_t)shape.batch * shape.in, zeros);
    fill(rng, dy, (size_t)shape.batch * shape.out, zeros);
    fill(rng, w, (size_t)shape.in * shape.out, 0);
    fill(rng, bias, shape.out, 0);
    return shape;
}

static void assert_bits(float actual, float expected)
{
    /* A sum of zeros may have either sign. */
    assert_true(memcmp(&actual, &expected, sizeof(actual)) == 0 ||
                (actual == 0.0f && expected == 0.0f));
}

static void test_forward(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 1, 0, 0);
    for (int round = 0; round < 200; round++) {
        const fedge_linear_shape shape = random_layer(&rng);
        const bool biased = round % 2 == 0;
        fedge_kernels_scalar.linear_forward(&shape, x, w, biased ? bias : NULL, y);
        for (uint32_t b = 0; b < shape.batch; b++) {
            for (uint32_t o = 0; o < shape.out; o++) {
                float sum = biased ? bias[o] : 0.0f;
                for (uint32_t k = 0; k < shape.in; k++)
                    sum += x[b * shape.in + k] * w[o * shape.in + k];
                assert_bits(y[b * shape.out + o], sum);
            }
        }
    }
}

static void check_input_gradient(const fedge_linear_shape *shape)
{
    for (uint32_t b = 0; b < shape->batch; b++) {
        for (uint32_t k = 0; k < shape->in; k++) {
            float sum = 0.0f;
            for (uint32_t o = 0; o < shape->out; o++)
                sum += dy[b * shape->out + o] * w[o * shape->in + k];
            assert_bits(dx[b * shape->in + k], sum);
        }
    }
}

static void test_backward(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 2, 0, 0);
    for (int round = 0; round < 200; round++) {
        const fedge_linear_shape shape = random_layer(&rng);
        const fedge_optimizer sgd = {.learning_rate = 0.125f,
                                     .weight_decay = round % 3 == 0 ? 0.25f : 0.0f};
        memcpy(stepped, w, sizeof(w));
        fedge_kernels_scalar.linear_backward(&shape, x, dy, stepped, NULL, &sgd, dx);
        check_input_gradient(&shape);
        for (uint32_t o = 0; o < shape.out; o++) {
            for (uint32_t k = 0; k < shape.in; k++) {
                float g = 0.0f;
                for (uint32_t b = 0; b < shape.batch; b++)
                    g += dy[b * shape.out + o] * x[b * shape.in + k];
                const float before = w[o * shape.in + k];
                g += sgd.weight_decay * before;
                /* A power of two as the rate: it may be multiplied first or last. */
                assert_bits(stepped[o * shape.in + k], before - sgd.learning_rate * g);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

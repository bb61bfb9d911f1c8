/* exp, sigmoid, tanh and GELU of every kernel table against libm in double precision. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "edge/core/os.h"
#include "edge/train/kernels/kernels.h"
#include "tests/edge/train/support.h"

#define BLOCK 1024
#define STRIDE 1021u /* of the bit patterns of all numbers; a prime */

typedef void (*each_fn)(const float *x, float *y, size_t n);

static double exact_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

typedef struct function {
    const char *name;
    each_fn (*of)(const fedge_kernels *kernels);
    double (*exact)(double x);
    double ulps; /* of kernels.h */
} function;

static each_fn exp_of(const fedge_kernels *kernels)
{
    return kernels->exp;
}

static each_fn sigmoid_of(const fedge_kernels *kernels)
{
    return kernels->sigmoid;
}

static each_fn tanh_of(const fedge_kernels *kernels)
{
    return kernels->tanh;
}

static const function FUNCTIONS[] = {{"exp", exp_of, exp, 2.0},
                                     {"sigmoid", sigmoid_of, exact_sigmoid, 4.0},
                                     {"tanh", tanh_of, tanh, 4.0}};
#define NUM_FUNCTIONS (sizeof(FUNCTIONS) / sizeof(FUNCTIONS[0]))

static const fedge_kernels *kernels_at(unsigned level)
{
    unsigned levels[MAX_LEVELS];
    const unsigned n = kernel_levels(levels);
    return level < n ? fedge_kernels_choose(fedge_os_cpu_features() & ~levels[level]) : NULL;
}

/* Distance of [y] from [exact] in units of the last place that a float at [exact] has. */
static double distance(float y, double exact)
{
    if (exact > (double)FLT_MAX)
        return isinf(y) || y == FLT_MAX ? 0.0 : INFINITY;
    int exponent;
    (void)frexp(exact, &exponent);
    return fabs((double)y - exact) / ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

static void check_block(const fedge_kernels *kernels, const function *f, const float *x, size_t n)
{
    float y[BLOCK];
    f->of(kernels)(x, y, n);
    for (size_t i = 0; i < n; i++) {
        const double exact = f->exact((double)x[i]);
        const bool tiny = fabs(exact) < 2.0 * (double)FLT_MIN && f->exact != tanh;
        const double bound = tiny ? (double)(1u << 24) : f->ulps; /* 2 · 2^-126 in such units */
        if (!(distance(y[i], exact) < bound) || (f->exact == tanh && !(fabsf(y[i]) <= 1.0f))) {
            fail_msg("%s(%a) on %s: %a, not %a: %g ulps", f->name, (double)x[i], kernels->name,
                     (double)y[i], exact, distance(y[i], exact));
        }
    }
}

/* Numbers of both signs and all sizes. */
static void test_all_numbers(void **state)
{
    (void)state;
    const fedge_kernels *kernels;
    for (unsigned level = 0; (kernels = kernels_at(level)) != NULL; level++) {
        float x[BLOCK];
        size_t n = 0;
        for (uint64_t bits = 0; bits <= UINT32_MAX; bits += STRIDE) {
            const uint32_t pattern = (uint32_t)bits;
            memcpy(&x[n], &pattern, sizeof(pattern));
            n += isnan(x[n]) ? 0 : 1;
            if (n == BLOCK || bits + STRIDE > UINT32_MAX) {
                for (size_t f = 0; f < NUM_FUNCTIONS; f++)
                    check_block(kernels, &FUNCTIONS[f], x, n);
                n = 0;
            }
        }
    }
}

/* Where values change most, and around the bounds of the exponent, one number after another. */
static void test_edges(void **state)
{
    (void)state;
    static const float starts[] = {-104.01f,  -103.28f, -88.73f,    -87.34f, -18.03f,
                                   -9.02f,    -0.3466f, -0.17329f,  -1e-40f, 0.0f,
                                   0.173285f, 0.3465f,  0.625f,     8.99f,   9.0495f,
                                   17.32f,    88.0f,    88.722839f, 88.99f,  103.97f};
    const fedge_kernels *kernels;
    for (unsigned level = 0; (kernels = kernels_at(level)) != NULL; level++) {
        for (size_t s = 0; s < sizeof(starts) / sizeof(starts[0]); s++) {
            float x[BLOCK];
            x[0] = starts[s];
            for (size_t i = 1; i < BLOCK; i++)
                x[i] = nextafterf(x[i - 1], INFINITY);
            for (size_t f = 0; f < NUM_FUNCTIONS; f++)
                check_block(kernels, &FUNCTIONS[f], x, BLOCK);
        }
    }
}

static void test_special_numbers(void **state)
{
    (void)state;
    const fedge_kernels *kernels;
    for (unsigned level = 0; (kernels = kernels_at(level)) != NULL; level++) {
        const float x[5] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f};
        float y[5];
        kernels->exp(x, y, 5);
        assert_true(isnan(y[0]) && isinf(y[1]) && y[1] > 0.0f && y[2] == 0.0f);
        assert_true(y[3] == 1.0f && y[4] == 1.0f);
        kernels->sigmoid(x, y, 5);
        assert_true(isnan(y[0]) && y[1] == 1.0f && y[2] == 0.0f && y[3] == 0.5f && y[4] == 0.5f);
        kernels->tanh(x, y, 5);
        assert_true(isnan(y[0]) && y[1] == 1.0f && y[2] == -1.0f && y[3] == 0.0f && y[4] == 0.0f);
        assert_true(!signbit(y[3]) && signbit(y[4]));
    }
}

/* One GELU and its slope within the bounds of kernels.h. */
static void check_gelu(const fedge_kernels *kernels, float x, float y, float slope)
{
    const double wide = (double)x, root = sqrt(2.0), unit = ldexp(1.0, -23);
    const double share = 0.5 * erfc(-wide / root), tail = 0.5 * erfc(fabs(wide) / root);
    const double change = wide * exp(-wide * wide / 2.0) / sqrt(2.0 * acos(-1.0));
    const double value = wide * share, grows = wide * wide + 8.0;
    const double bound = unit * (fabs(value) + fabs(wide) * tail * grows);
    if (!(fabs((double)y - value) <= bound + 1e-37))
        fail_msg("gelu(%a) on %s: %a, not %a", (double)x, kernels->name, (double)y, value);
    if (!(fabs((double)slope - share - change) <= unit * (2.0 + fabs(change) * grows))) {
        fail_msg("gelu'(%a) on %s: %a, not %a", (double)x, kernels->name, (double)slope,
                 share + change);
    }
}

static void test_gelu(void **state)
{
    (void)state;
    const fedge_kernels *kernels;
    for (unsigned level = 0; (kernels = kernels_at(level)) != NULL; level++) {
        float x[BLOCK + 1], ones[BLOCK], y[BLOCK + 1], again[BLOCK + 1], slope[BLOCK + 1];
        for (size_t block = 0; block < 512; block++) {
            const size_t n = BLOCK - block % 19; /* ends in parts of vectors too */
            for (size_t i = 0; i < n; i++) {
                x[i] = -16.0f + (float)(block * BLOCK + i) * (32.0f / (512 * BLOCK));
                ones[i] = 1.0f;
            }
            y[n] = slope[n] = again[n] = 7.0f;
            kernels->gelu(x, y, n);
            kernels->gelu_backward(x, ones, slope, block % 2 ? again : NULL, n);
            for (size_t i = 0; i < n; i++) {
                check_gelu(kernels, x[i], y[i], slope[i]);
                assert_true(block % 2 == 0 || again[i] == y[i]);
            }
            assert_true(y[n] == 7.0f && slope[n] == 7.0f && again[n] == 7.0f);
        }
        x[0] = NAN;
        x[1] = INFINITY;
        x[2] = 0.0f;
        kernels->gelu(x, y, 3);
        assert_true(isnan(y[0]) && !isfinite(y[1]) && y[2] == 0.0f);
    }
}

/* Any length, any place, in place or not: the same bits, and nothing behind the end. */
static void test_lengths(void **state)
{
    (void)state;
    enum { MOST = 50 };
    const fedge_kernels *kernels;
    for (unsigned level = 0; (kernels = kernels_at(level)) != NULL; level++) {
        for (size_t f = 0; f < NUM_FUNCTIONS; f++) {
            const each_fn each = FUNCTIONS[f].of(kernels);
            float x[MOST], alone[MOST], y[MOST + 1];
            for (size_t i = 0; i < MOST; i++) {
                x[i] = ((float)i - 25.0f) * 0.37f;
                each(&x[i], &alone[i], 1);
            }
            for (size_t from = 0; from < MOST; from++) {
                for (size_t n = 0; from + n <= MOST; n++) {
                    memcpy(y, x, sizeof(x));
                    y[MOST] = 7.0f;
                    each(y + from, y + from, n);
                    assert_memory_equal(y, x, from * sizeof(*x));
                    assert_memory_equal(y + from, alone + from, n * sizeof(*x));
                    assert_memory_equal(y + from + n, x + from + n, (MOST - from - n) * sizeof(*x));
                    assert_true(y[MOST] == 7.0f);
                }
            }
        }
    }
}

/* The largest and the smallest numbers are finite; the least NaN, in any one place, is not. */
static void test_what_is_finite(void **state)
{
    (void)state;
    enum { MOST = 150 };
    static const uint32_t FINITE[] = {0x00000000, 0x80000000, 0x00000001, 0x807fffff,
                                      0x00800000, 0x3f800000, 0x7f7fffff, 0xff7fffff};
    static const uint32_t NOT[] = {0x7f800000, 0xff800000, 0x7f800001, 0xff800001, 0x7fffffff};
    const fedge_kernels *kernels;
    for (unsigned level = 0; (kernels = kernels_at(level)) != NULL; level++) {
        float x[MOST];
        for (size_t i = 0; i < MOST; i++)
            memcpy(&x[i], &FINITE[i % (sizeof(FINITE) / sizeof(FINITE[0]))], sizeof(x[i]));
        for (size_t n = 0; n < MOST; n++) {
            assert_true(kernels->all_finite(x, n));
            const float saved = x[n];
            memcpy(&x[n], &NOT[n % (sizeof(NOT) / sizeof(NOT[0]))], sizeof(x[n]));
            assert_true(kernels->all_finite(x, n));
            assert_false(kernels->all_finite(x, n + 1));
            assert_false(kernels->all_finite(x, MOST));
            x[n] = saved;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_numbers),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_special_numbers),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_what_is_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "edge/core/vec.h"

#define MAX_N 300
#define GUARD 12345.0f

/* Random floats over many magnitudes, now and then zero, denormal or infinite. */
static float draw(fedge_rng *rng)
{
    switch (fedge_rng_below(rng, 40)) {
    case 0:
        return -0.0f;
    case 1:
        return 1e-41f;
    case 2:
        return -INFINITY;
    default:
        return ldexpf(fedge_rng_float(rng) - 0.5f, (int)fedge_rng_below(rng, 40) - 20);
    }
}

/* Every level of this machine against the scalar reference: random sizes, offsets, contents. */
static void levels_agree_bit_for_bit(void **state)
{
    (void)state;
    const fedge_vec_kernels *reference = fedge_vec_kernels_for(0);
    const fedge_vec_kernels *fast = fedge_vec_kernels_for(fedge_os_cpu_features());
    assert_string_equal(reference->name, "scalar");
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int trial = 0; trial < 2000; trial++) {
        float x[MAX_N + 8], y[MAX_N + 8], a[MAX_N + 9], b[MAX_N + 9];
        size_t n = fedge_rng_below(&rng, MAX_N + 1);
        size_t at = fedge_rng_below(&rng, 8);
        float factor = fedge_rng_float(&rng) - 0.5f;
        for (size_t i = 0; i < MAX_N + 8; i++) {
            x[i] = draw(&rng);
            y[i] = fedge_rng_float(&rng); /* finite: no NaN, whose payload is nobody's promise */
        }
        memcpy(a, y, sizeof y);
        memcpy(b, y, sizeof y);
        a[at + n] = b[at + n] = GUARD;
        reference->axpy(factor, x + at, a + at, n);
        fast->axpy(factor, x + at, b + at, n);
        assert_memory_equal(a + at, b + at, (n + 1) * sizeof a[0]);
        memcpy(a + at, x + at, n * sizeof a[0]);
        memcpy(b + at, x + at, n * sizeof a[0]);
        reference->scale(factor, a + at, n);
        fast->scale(factor, b + at, n);
        assert_memory_equal(a + at, b + at, (n + 1) * sizeof a[0]);
        reference->sub(x + at, y + at, a + at, n);
        fast->sub(x + at, y + at, b + at, n);
        assert_memory_equal(a + at, b + at, (n + 1) * sizeof a[0]);
        float most[2] = {reference->max_abs(x + at, n), fast->max_abs(x + at, n)};
        assert_memory_equal(&most[0], &most[1], sizeof most[0]);
        reference->fill(factor, a + at, n);
        fast->fill(factor, b + at, n);
        assert_memory_equal(a + at, b + at, (n + 1) * sizeof a[0]);
    }
}

static void dot_keeps_its_bound(void **state)
{
    (void)state;
    const fedge_vec_kernels *levels[] = {fedge_vec_kernels_for(0),
                                         fedge_vec_kernels_for(fedge_os_cpu_features())};
    fedge_rng rng = fedge_rng_stream(2, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int trial = 0; trial < 2000; trial++) {
        float x[MAX_N], y[MAX_N];
        size_t n = fedge_rng_below(&rng, MAX_N + 1);
        double exact = 0.0, magnitude = 0.0;
        for (size_t i = 0; i < n; i++) {
            x[i] = fedge_rng_float(&rng) - 0.5f;
            y[i] = fedge_rng_float(&rng) - 0.5f;
            exact += (double)x[i] * (double)y[i];
            magnitude += fabs((double)x[i] * (double)y[i]);
        }
        for (int level = 0; level < 2; level++)
            assert_true(fabs((double)levels[level]->dot(x, y, n) - exact) <=
                        (double)n * 0x1p-23 * magnitude);
    }
}

static void the_functions_do_what_they_say(void **state)
{
    (void)state;
    float x[] = {1, -2, 3, 4, 5, 6, 7, 8, -9, 10};
    float y[10];
    fedge_vec_fill(2.0f, y, 10);
    assert_true(fedge_vec_dot(x, y, 10) == 66.0f);
    fedge_vec_axpy(3.0f, x, y, 10);
    assert_true(y[0] == 5.0f && y[1] == -4.0f && y[9] == 32.0f);
    fedge_vec_scale(0.5f, y, 10);
    assert_true(y[0] == 2.5f && y[9] == 16.0f);
    fedge_vec_sub(y, x, y, 10); /* in place */
    assert_true(y[0] == 1.5f && y[9] == 6.0f);
    assert_true(fedge_vec_max_abs(x, 9) == 9.0f);
    assert_true(fedge_vec_max_abs(x, 0) == 0.0f);
    assert_true(fedge_vec_dot(x, y, 0) == 0.0f);
}

static void max_abs_shows_what_is_not_finite(void **state)
{
    (void)state;
    for (size_t place = 0; place < 20; place++) {
        float x[20];
        fedge_vec_fill(-3e38f, x, 20);
        x[place] = -INFINITY;
        assert_true(isinf(fedge_vec_max_abs(x, 20)));
        x[place] = -NAN;
        x[(place + 1) % 20] = INFINITY;
        assert_true(isnan(fedge_vec_max_abs(x, 20)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_agree_bit_for_bit),
        cmocka_unit_test(dot_keeps_its_bound),
        cmocka_unit_test(the_functions_do_what_they_say),
        cmocka_unit_test(max_abs_shows_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

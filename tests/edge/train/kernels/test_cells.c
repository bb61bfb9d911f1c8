/* Steps of LSTM and GRU on every kernel table against the scalar one, whose gradients
 * test_recurrent proves. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "edge/train/kernels/kernels.h"
#include "tests/edge/train/support.h"

#define MOST 40
#define CANARY 7.0f

/* Everything that a step reads and writes, with room behind. */
typedef struct arrays {
    float gates[4 * MOST + 1], h_prev[MOST], c_prev[MOST], h[MOST + 1], c[MOST + 1], dy[MOST];
    float dh[MOST + 1], dc[MOST + 1];
} arrays;

typedef struct cell {
    void (*forward)(const fedge_cell_step *step), (*backward)(const fedge_cell_step *step);
} cell;

static cell cell_of(const fedge_kernels *kernels, bool lstm)
{
    return lstm ? (cell){kernels->lstm_forward, kernels->lstm_backward}
                : (cell){kernels->gru_forward, kernels->gru_backward};
}

static const fedge_kernels *kernels_at(unsigned level)
{
    unsigned levels[MAX_LEVELS];
    const unsigned n = kernel_levels(levels);
    return level < n ? fedge_kernels_choose(fedge_os_cpu_features() & ~levels[level]) : NULL;
}

static fedge_cell_step step_of(arrays *at, size_t hidden)
{
    return (fedge_cell_step){.hidden = hidden,
                             .gates = at->gates,
                             .h_prev = at->h_prev,
                             .c_prev = at->c_prev,
                             .h = at->h,
                             .c = at->c,
                             .dy = at->dy,
                             .dh = at->dh,
                             .dc = at->dc};
}

static void fill(fedge_rng *rng, float *v, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        v[i] = scale * (float)fedge_rng_normal(rng);
}

static void fill_all(fedge_rng *rng, arrays *at, size_t hidden, float gradient)
{
    *at = (arrays){0};
    fill(rng, at->gates, 4 * hidden, 1.5f);
    fill(rng, at->h_prev, hidden, 0.5f);
    fill(rng, at->c_prev, hidden, 1.0f);
    fill(rng, at->dy, hidden, gradient);
    fill(rng, at->dh, hidden, gradient);
    fill(rng, at->dc, hidden, gradient);
    at->gates[4 * hidden] = at->h[hidden] = at->c[hidden] = at->dh[hidden] = CANARY;
    at->dc[hidden] = CANARY;
}

/* A dozen roundings of numbers up to about 5, and functions within 4 units of the last place; both
 * sides, so 64 units. A number at the edge of FEDGE_MIN_CELL_GRADIENT may be 0 on one side alone.
 */
static void compare(const float *a, const float *b, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) {
        assert_true(fabsf(a[i] - b[i]) <=
                    64.0f * 0x1p-24f * scale + 1.001f * FEDGE_MIN_CELL_GRADIENT);
        assert_true(a[i] == 0.0f || fabsf(a[i]) > 0x1p-126f);
    }
}

static void check_step(const fedge_kernels *kernels, fedge_rng *rng, size_t hidden, float gradient,
                       bool lstm)
{
    arrays fast, plain;
    fill_all(rng, &plain, hidden, gradient);
    fast = plain;
    const fedge_cell_step step = step_of(&fast, hidden), expected = step_of(&plain, hidden);
    cell_of(kernels, lstm).forward(&step);
    cell_of(&fedge_kernels_scalar, lstm).forward(&expected);
    compare(fast.h, plain.h, hidden, 5.0f);
    compare(fast.c, plain.c, lstm ? hidden : 0, 5.0f);
    compare(fast.gates, plain.gates, 4 * hidden, 5.0f);
    plain.gates[4 * hidden] = CANARY;
    fast = plain; /* backward from the same values */
    cell_of(kernels, lstm).backward(&step);
    cell_of(&fedge_kernels_scalar, lstm).backward(&expected);
    compare(fast.gates, plain.gates, 4 * hidden, 25.0f * gradient);
    compare(fast.dh, plain.dh, hidden, 25.0f * gradient);
    compare(fast.dc, plain.dc, lstm ? hidden : 0, 25.0f * gradient);
    assert_true(fast.gates[4 * hidden] == CANARY && fast.h[hidden] == CANARY);
    assert_true(fast.c[hidden] == CANARY && fast.dh[hidden] == CANARY);
    assert_true(fast.dc[hidden] == CANARY);
}

static void test_steps(void **state)
{
    (void)state;
    static const float gradients[] = {1.0f, 1e-3f, 1e-20f, 3e-27f, 1e-30f, 1e-37f};
    const fedge_kernels *kernels;
    for (unsigned level = 0; (kernels = kernels_at(level)) != NULL; level++) {
        fedge_rng rng = fedge_rng_stream(5, FEDGE_PURPOSE_TEST, 5, level, 0);
        for (size_t i = 0; i < 12 * MOST; i++)
            check_step(kernels, &rng, 1 + i % MOST, gradients[i / 2 % 6], i / MOST % 2 == 0);
    }
}

/* What has faded is 0, what is not a number stays so. */
static void test_tiny_gradients_and_nan(void **state)
{
    (void)state;
    enum { HIDDEN = 19 };
    const fedge_kernels *kernels;
    for (unsigned level = 0; (kernels = kernels_at(level)) != NULL; level++) {
        for (int lstm = 0; lstm < 2; lstm++) {
            fedge_rng rng = fedge_rng_stream(5, FEDGE_PURPOSE_TEST, 6, level, 0);
            arrays at;
            const fedge_cell_step step = step_of(&at, HIDDEN);
            fill_all(&rng, &at, HIDDEN, 1e-33f);
            at.dy[7] = NAN;
            cell_of(kernels, lstm != 0).forward(&step);
            cell_of(kernels, lstm != 0).backward(&step);
            for (size_t i = 0; i < 4 * HIDDEN; i++)
                assert_true(i % HIDDEN == 7 ? isnan(at.gates[i]) : at.gates[i] == 0.0f);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_tiny_gradients_and_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

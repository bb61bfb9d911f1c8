/* Products of rows, the fast ones against the plain one, at the largest values there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/reduce/rows.h"
#include "edge/core/rng.h"

#define COUNT 4096

static int32_t rows[5][COUNT];

static void compare(size_t count)
{
    const int32_t *const four[4] = {rows[1], rows[2], rows[3], rows[4]};
    int64_t fast[4], plain[4];
    fedge_dots(rows[0], four, count, fast);
    fedge_dots_scalar(rows[0], four, count, plain);
    for (int j = 0; j < 4; j++)
        assert_true(fast[j] == plain[j]);
    fedge_squares(four, count, fast);
    fedge_squares_scalar(four, count, plain);
    for (int j = 0; j < 4; j++) {
        int64_t same[4];
        const int32_t *const itself[4] = {four[j], four[j], four[j], four[j]};
        fedge_dots_scalar(four[j], itself, count, same);
        assert_true(fast[j] == plain[j] && plain[j] == same[0]);
    }
}

static void fast_dots_are_the_plain_ones(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TIE_BREAK, 0, 0, 0);
    for (int i = 0; i < 5; i++) {
        for (size_t k = 0; k < COUNT; k++)
            rows[i][k] = (int32_t)fedge_rng_below(&rng, 1u << 25) - (1 << 24);
    }
    const size_t counts[] = {1, 7, 8, 15, 16, 17, 100, COUNT - 1, COUNT};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        compare(counts[i]);
}

static void the_largest_fit(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        for (size_t k = 0; k < COUNT; k++)
            rows[i][k] = i == 2 ? -(1 << 24) : 1 << 24;
    }
    compare(COUNT);
    const int32_t *const four[4] = {rows[1], rows[2], rows[3], rows[4]};
    int64_t dots[4];
    fedge_dots(rows[0], four, COUNT, dots);
    assert_true(dots[0] == (int64_t)1 << 60 && dots[1] == -((int64_t)1 << 60));
    fedge_squares(four, COUNT, dots);
    assert_true(dots[0] == (int64_t)1 << 60 && dots[1] == (int64_t)1 << 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_dots_are_the_plain_ones),
        cmocka_unit_test(the_largest_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Products of some pairs of a tile's rows are those that all pairs have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "aggregator/reduce/tile.h"
#include "edge/core/rng.h"

#define MOST 13
#define COUNT 5000
#define SHIFT 6

static int32_t values[MOST][COUNT];

/* Of rows that lie in two tiles. */
static void take(uint32_t num, fedge_tile_products products, fedge_tile_sum *sums)
{
    const fedge_tile_ops *ops = &fedge_tile_cpu;
    const fedge_tile_config config = {.num = num, .num_threads = 2, .size = ops->size};
    void *state = NULL;
    assert_int_equal(ops->open(NULL, &config, &state, NULL), FEDGE_OK);
    for (uint32_t thread = 0; thread < 2; thread++) {
        const size_t at = thread * ops->size, count = thread == 0 ? ops->size : COUNT - at;
        int32_t **rows = ops->rows(state, thread, num, count);
        for (uint32_t i = 0; i < num; i++)
            memcpy(rows[i], values[i] + at, count * sizeof(**rows));
        assert_int_equal(ops->load(state, thread, num, count, NULL), FEDGE_OK);
        assert_int_equal(ops->dots(state, thread, num, count, SHIFT, products, NULL), FEDGE_OK);
    }
    assert_int_equal(ops->take_dots(state, num, sums, NULL), FEDGE_OK);
    ops->close(state);
}

static void some_products_are_those_of_all(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (uint32_t i = 0; i < MOST; i++) {
        for (size_t k = 0; k < COUNT; k++)
            values[i][k] = (int32_t)fedge_rng_below(&rng, 1u << 31) - (1 << 30);
    }
    for (uint32_t num = 1; num <= MOST; num++) {
        enum { PAIRS = MOST * (MOST + 1) / 2 };
        static const fedge_tile_sum NONE;
        fedge_tile_sum all[PAIRS], norms[PAIRS], last[PAIRS];
        take(num, FEDGE_PRODUCTS_ALL, all);
        take(num, FEDGE_PRODUCTS_NORMS, norms);
        take(num, FEDGE_PRODUCTS_LAST, last);
        for (uint32_t i = 0; i < num; i++) {
            for (uint32_t j = 0; j <= i; j++) {
                const size_t pair = fedge_tile_pair(i, j);
                const fedge_tile_sum *of_last = i == j || i + 1 == num ? &all[pair] : &NONE;
                assert_memory_equal(&norms[pair], i == j ? &all[pair] : &NONE, sizeof(NONE));
                assert_memory_equal(&last[pair], of_last, sizeof(NONE));
            }
            assert_true(all[fedge_tile_pair(i, i)].high > 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(some_products_are_those_of_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

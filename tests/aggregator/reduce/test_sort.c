/* Rows that are sorted side by side, against qsort. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "aggregator/reduce/rows.h"
#include "edge/core/rng.h"

#define MOST 300
#define COLUMNS 77 /* not a multiple of what is done at a time */

static int by_value(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void check(uint32_t num, uint32_t range)
{
    static int32_t values[MOST][COLUMNS], expected[COLUMNS][MOST];
    int32_t *rows[MOST];
    fedge_rng rng = fedge_rng_stream(num, FEDGE_PURPOSE_TIE_BREAK, range, 0, 0);
    for (uint32_t i = 0; i < num; i++) {
        rows[i] = values[i];
        for (uint32_t k = 0; k < COLUMNS; k++) {
            values[i][k] = (int32_t)fedge_rng_below(&rng, range) - (int32_t)(range / 2);
            expected[k][i] = values[i][k];
        }
    }
    fedge_sort_rows(rows, num, COLUMNS);
    for (uint32_t k = 0; k < COLUMNS; k++) {
        qsort(expected[k], num, sizeof(int32_t), by_value);
        for (uint32_t i = 0; i < num; i++)
            assert_int_equal(rows[i][k], expected[k][i]);
    }
}

static void any_number_of_rows(void **state)
{
    (void)state;
    for (uint32_t num = 1; num <= 70; num++)
        check(num, 1u << 31);
    check(MOST, 1u << 31);
}

static void rows_with_many_equal_values(void **state)
{
    (void)state;
    for (uint32_t num = 2; num <= 33; num++)
        check(num, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_rows),
        cmocka_unit_test(rows_with_many_equal_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

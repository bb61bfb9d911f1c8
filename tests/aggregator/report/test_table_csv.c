#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdlib.h>

#include "aggregator/report/table_csv.h"
#include "edge/core/os.h"

#define TABLE "test_table.csv"

static fedge_error err;

static void values_have_mean_and_deviation(void **state)
{
    (void)state;
    fedge_spread of = {0};
    assert_true(isnan(fedge_spread_mean(&of)) && isnan(fedge_spread_deviation(&of)));
    fedge_spread_add(&of, 2.0);
    fedge_spread_add(&of, NAN);
    assert_true(of.count == 1 && fedge_spread_mean(&of) == 2.0);
    assert_true(isnan(fedge_spread_deviation(&of)));
    fedge_spread_add(&of, 4.0);
    fedge_spread_add(&of, 9.0);
    assert_true(fedge_spread_mean(&of) == 5.0);
    assert_true(fabs(fedge_spread_deviation(&of) - sqrt(13.0)) < 1e-12);
}

static void fill(fedge_table_csv *table, const char *first)
{
    fedge_spread of = {0};
    fedge_spread_add(&of, 0.125);
    fedge_table_csv_init(table);
    fedge_table_csv_text(table, first);
    fedge_table_csv_spread_head(table, "loss");
    fedge_table_csv_end_row(table);
    fedge_table_csv_text(table, "lr=0.1,\"a\"");
    fedge_table_csv_spread(table, &of);
    fedge_table_csv_end_row(table);
}

static void tables_are_csv(void **state)
{
    (void)state;
    fedge_table_csv table;
    uint8_t *text = NULL;
    size_t size = 0;
    assert_int_equal(fedge_os_remove_tree(TABLE, NULL), FEDGE_OK);
    fill(&table, "run");
    for (int again = 0; again < 2; again++)
        assert_int_equal(fedge_table_csv_write(&table, TABLE, &err), FEDGE_OK);
    fedge_table_csv_fini(&table);
    assert_int_equal(fedge_os_read_file(TABLE, 1000, &text, &size, &err), FEDGE_OK);
    assert_string_equal((char *)text, "run,loss,loss_deviation\n\"lr=0.1,\"\"a\"\"\",0.125,\n");
    free(text);
    /* A table of another kind may be somebody's. */
    fill(&table, "runs");
    assert_int_equal(fedge_table_csv_write(&table, TABLE, &err), FEDGE_EXISTS);
    fedge_table_csv_fini(&table);
    assert_int_equal(fedge_os_remove_tree(TABLE, NULL), FEDGE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_have_mean_and_deviation),
        cmocka_unit_test(tables_are_csv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Metrics of a plugin: which tables are refused, and how values are written. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "aggregator/rounds/round_summary.h"

static void add(void *state, const fedge_metric_batch *batch)
{
    (void)state;
    (void)batch;
}

static int finish(const void *state, double *values, char *message)
{
    (void)state;
    (void)values;
    (void)message;
    return 0;
}

static const char *const NAMES[] = {"top5_accuracy", "f1"};

static fedge_metric_plugin good(void)
{
    return (fedge_metric_plugin){.struct_size = sizeof(fedge_metric_plugin),
                                 .version = FEDGE_METRIC_PLUGIN_VERSION,
                                 .num_metrics = 2,
                                 .names = NAMES,
                                 .state_size = 8,
                                 .add = add,
                                 .finish = finish};
}

static void refused(fedge_metric_plugin table, const char *words)
{
    const char *wrong = fedge_metrics_wrong(&table);
    assert_non_null(wrong);
    if (!strstr(wrong, words))
        fail_msg("'%s' does not say '%s'", wrong, words);
}

static void test_a_good_table(void **state)
{
    (void)state;
    fedge_metric_plugin table = good();
    assert_null(fedge_metrics_wrong(&table));
    table.state_size = FEDGE_METRIC_PLUGIN_MAX_STATE;
    assert_null(fedge_metrics_wrong(&table));
    static const char *const longest[] = {"a234567890_234567890_2345678901"};
    table.names = longest;
    table.num_metrics = 1;
    assert_null(fedge_metrics_wrong(&table));
}

static void test_bad_tables(void **state)
{
    (void)state;
    fedge_metric_plugin table = good();
    table.num_metrics = 0;
    refused(table, "no metrics");
    table.num_metrics = FEDGE_METRIC_PLUGIN_MAX_METRICS + 1;
    refused(table, "over 16");
    table = good();
    table.names = NULL;
    refused(table, "no list");
    table = good();
    table.state_size = FEDGE_METRIC_PLUGIN_MAX_STATE + 1;
    refused(table, "1 GiB");
    table = good();
    table.add = NULL;
    refused(table, "no add");
    table = good();
    table.finish = NULL;
    refused(table, "no finish");
}

static void test_bad_names(void **state)
{
    (void)state;
    static const char *const bad[][2] = {{"f1", NULL},
                                         {"f1", ""},
                                         {"f1", "F1"},
                                         {"f1", "a\"b"},
                                         {"f1", "a234567890_234567890_23456789012"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        fedge_metric_plugin table = good();
        table.names = bad[i];
        refused(table, "name is missing, over 31 bytes");
    }
    static const char *const twice[] = {"f1", "f1"};
    fedge_metric_plugin table = good();
    table.names = twice;
    refused(table, "one name");
}

static void test_values_as_json(void **state)
{
    (void)state;
    fedge_error err;
    fedge_buffer line;
    fedge_buffer_init(&line, 1024);
    fedge_metric_values metrics = {0};
    assert_int_equal(fedge_metrics_write(&metrics, &line, &err), FEDGE_OK);
    assert_int_equal(line.size, 0);
    metrics = (fedge_metric_values){.num = 2, .names = NAMES, .values = {0.25, INFINITY}};
    assert_int_equal(fedge_metrics_write(&metrics, &line, &err), FEDGE_OK);
    assert_string_equal((const char *)line.data,
                        ",\"metrics\":{\"top5_accuracy\":0.25,\"f1\":null}");
    fedge_buffer_fini(&line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_table),
        cmocka_unit_test(test_bad_tables),
        cmocka_unit_test(test_bad_names),
        cmocka_unit_test(test_values_as_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

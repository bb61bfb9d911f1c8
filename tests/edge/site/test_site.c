/* The client's file: data sets, policy, and what a plan that it forbids is answered with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/site/client_memory.h"
#include "edge/site/site.h"
#include "tests/edge/core/codec/codecs.h"

static const char SITE[] =
    "{\"data\": {\"fashion-mnist\": {\"values\": \"train-images.gz\", \"labels\": \"/l.gz\",\n"
    "  \"validation-fraction\": 0.1, \"partition\": \"dirichlet:0.5\", \"partition-seed\": 3,\n"
    "  \"partition-id\": 2, \"num-partitions\": 5},\n"
    "  \"iris\": {\"values\": \"iris.csv\"}},\n"
    " \"policy\": {\"max-ram\": 268435456, \"codecs\": [\"int8\"], \"max-local-epochs\": 50,\n"
    "  \"jobs\": [\"cnn\", \"other\"]}}";

static fedge_site *parse(const char *text)
{
    fedge_site *site = NULL;
    fedge_error err = {0};
    if (fedge_site_parse(text, strlen(text), "/etc/fedge/client.json", &site, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return site;
}

static void every_key_is_read(void **state)
{
    (void)state;
    fedge_site *site = parse(SITE);
    assert_int_equal(site->num_data, 2);
    const fedge_site_data *data = fedge_site_find(site, "fashion-mnist");
    assert_string_equal(data->values, "/etc/fedge/train-images.gz");
    assert_string_equal(data->labels, "/l.gz");
    assert_true(data->validation_fraction == 0.1 && data->has_partition);
    assert_int_equal(data->partition.scheme, FEDGE_PARTITION_DIRICHLET);
    assert_true(data->partition.alpha == 0.5);
    assert_int_equal(data->partition.seed, 3);
    assert_true(data->partition_id == 2 && data->num_partitions == 5);
    data = fedge_site_find(site, "iris");
    assert_string_equal(data->values, "/etc/fedge/iris.csv");
    assert_string_equal(data->labels, "");
    assert_false(data->has_partition);
    assert_int_equal(data->num_partitions, 0);
    assert_null(fedge_site_find(site, "mnist"));
    assert_int_equal(site->max_ram_bytes, 268435456);
    assert_int_equal(site->max_local_epochs, 50);
    assert_int_equal(site->allowed_codecs, 1u << 1 /* int8 */);
    assert_int_equal(site->num_jobs, 2);
    assert_string_equal(site->jobs[1], "other");
    fedge_site_free(site);
}

static void a_partition_file_lies_beside(void **state)
{
    (void)state;
    fedge_site *site = parse("{\"data\": {\"a\": {\"values\": \"v\", \"partition-seed\": 3,"
                             "                 \"partition\": \"file:split.csv\"},"
                             " \"b\": {\"values\": \"v\", \"partition\": \"natural:user\"}}}");
    assert_int_equal(site->data[0].partition.scheme, FEDGE_PARTITION_FILE);
    assert_string_equal(site->data[0].partition.source, "/etc/fedge/split.csv");
    assert_int_equal(site->data[0].partition.seed, 3);
    assert_true(site->data[0].has_partition_seed);
    assert_string_equal(site->data[1].partition.source, "user");
    assert_false(site->data[1].has_partition_seed);
    fedge_site_free(site);
    site = parse("{\"data\": {\"a\": {\"values\": \"v\", \"partition_seed\": 0}}}");
    assert_true(site->data[0].has_partition_seed);
    fedge_site_free(site);
}

static void paths_may_be_lists(void **state)
{
    (void)state;
    fedge_site *site = parse("{\"data\": {\"a\": {\"values\": [\"b1.bin\", \"/b2.bin\", \"b*\"],"
                             "                 \"labels\": [\"l\"]}}}");
    assert_string_equal(site->data[0].values, "/etc/fedge/b1.bin\n/b2.bin\n/etc/fedge/b*");
    assert_string_equal(site->data[0].labels, "/etc/fedge/l");
    fedge_site_free(site);
    char text[2 * FEDGE_MAX_PATHS] = "{\"data\": {\"a\": {\"values\": [\"x\"";
    size_t used = strlen(text);
    for (int i = 0; i < 12; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, ",\"%0300d\"", i);
    (void)snprintf(text + used, sizeof(text) - used, "]}}}");
    char name[128];
    (void)snprintf(name, sizeof(name), "/%090d/client.json", 0);
    fedge_error err = {0};
    /* within the limit as they stand, over it with the folder before each, and over it at once; the
     * limit itself */
    assert_int_equal(fedge_site_parse(text, strlen(text), name, &site, &err),
                     FEDGE_INVALID_ARGUMENT);
    if (!strstr(err.message, "client.json:1: data.a") || !strstr(err.message, "4095"))
        fail_msg("%s", err.message);
    const int left = FEDGE_MAX_PATHS - 1 - 12 * 301 - 2;
    (void)snprintf(text + used, sizeof(text) - used, ",\"%0*d\"]}}}", left + 1, 0);
    assert_int_equal(fedge_site_parse(text, strlen(text), "client.json", &site, &err),
                     FEDGE_INVALID_ARGUMENT);
    if (!strstr(err.message, "data.a.values: has more than the limit of 4095 bytes"))
        fail_msg("%s", err.message);
    (void)snprintf(text + used, sizeof(text) - used, ",\"%0*d\"]}}}", left, 0);
    assert_int_equal(fedge_site_parse(text, strlen(text), "client.json", &site, &err), FEDGE_OK);
    assert_int_equal(strlen(site->data[0].values), FEDGE_MAX_PATHS - 1);
    fedge_site_free(site);
}

static void an_empty_file_allows_all_and_has_no_data(void **state)
{
    (void)state;
    fedge_site *site = parse("{}");
    assert_int_equal(site->num_data, 0);
    assert_int_equal(site->max_ram_bytes, 0);
    assert_int_equal(site->allowed_codecs, 0);
    assert_int_equal(site->num_jobs, 0);
    fedge_site_free(site);
    site = parse("{\"policy\": {\"codecs\": [\"int8\", \"f32\"]}}"); /* as a job may call none */
    assert_int_equal(site->allowed_codecs & 3u, 3u);
    fedge_site_free(site);
}

static void mistakes_name_key_and_line(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        fedge_status status;
        const char *part;
    } CASES[] = {
        {"\"data\"", "\"date\"", FEDGE_INVALID_ARGUMENT, "client.json:1: date: \"date\""},
        {"\"values\": \"iris.csv\"", "\"value\": \"iris.csv\"", FEDGE_INVALID_ARGUMENT,
         "client.json:4: data.iris.value: \"value\" is not known here; did you mean \"values\"?"},
        {"\"values\": \"iris.csv\"", "", FEDGE_INVALID_ARGUMENT, "data.iris.values: is missing"},
        {"\"iris.csv\"", "[]", FEDGE_INVALID_ARGUMENT, "data.iris.values: must have at least one"},
        {"\"iris.csv\"", "[\"a\", \"\"]", FEDGE_INVALID_ARGUMENT,
         "data.iris.values[1]: must have 1 to 511 bytes"},
        {"\"iris.csv\"", "[\"a\\nb\"]", FEDGE_INVALID_ARGUMENT,
         "data.iris.values[0]: has a control character"},
        {"\"iris.csv\"", "{}", FEDGE_INVALID_ARGUMENT, "data.iris.values: must be a text"},
        {"\"iris\": {", "\"iris\": [], \"x\": {", FEDGE_INVALID_ARGUMENT, "must be an object"},
        {"\"iris\"", "\"fashion-mnist\"", FEDGE_CORRUPT, "data.fashion-mnist: is given twice"},
        {"\"iris\"", "\"\"", FEDGE_INVALID_ARGUMENT, "name must have 1 to 63 bytes"},
        {"0.1,", "0.95,", FEDGE_INVALID_ARGUMENT, "0.95 is not in [0, 0.9]"},
        {"dirichlet:0.5", "dirichlet", FEDGE_INVALID_ARGUMENT,
         "client.json:2: data.fashion-mnist.partition: "},
        {"dirichlet:0.5", "dirichlet:-1", FEDGE_INVALID_ARGUMENT, "data.fashion-mnist.partition: "},
        {"dirichlet:0.5", "dirichlt:0.5", FEDGE_INVALID_ARGUMENT, "did you mean \"dirichlet\"?"},
        {"\"partition-id\": 2,", "", FEDGE_INVALID_ARGUMENT,
         "data.fashion-mnist: give partition, num-partitions"},
        {", \"num-partitions\": 5", "", FEDGE_INVALID_ARGUMENT, "or leave out both numbers"},
        {"\"num-partitions\": 5", "\"num-partitions\": 2", FEDGE_INVALID_ARGUMENT,
         "from 0 to num-partitions - 1"},
        {"\"partition\": \"dirichlet:0.5\",", "", FEDGE_INVALID_ARGUMENT, "give partition, num-"},
        {"\"dirichlet:0.5\"", "5", FEDGE_INVALID_ARGUMENT, "must be a text"},
        {"\"policy\": {", "\"policy\": {\"max-epochs\": 3, ", FEDGE_INVALID_ARGUMENT,
         "\"max-epochs\" is"},
        {"268435456", "\"256M\"", FEDGE_INVALID_ARGUMENT, "max-ram: must be an integer"},
        {"[\"int8\"]", "[\"int9\"]", FEDGE_INVALID_ARGUMENT, "policy.codecs[0]: \"int9\""},
        {"[\"int8\"]", "[]", FEDGE_INVALID_ARGUMENT, "policy.codecs: must be a list, […], with at"},
        {"[\"cnn\", \"other\"]", "[]", FEDGE_INVALID_ARGUMENT,
         "policy.jobs: must have 1 to 16 elements, not 0"},
        {"50", "0", FEDGE_INVALID_ARGUMENT, "max-local-epochs: 0 is not in"},
        {"\"other\"", "7", FEDGE_INVALID_ARGUMENT, "policy.jobs[1]: must be a text"},
        {"\"other\"]}}", "\"other\"]}", FEDGE_CORRUPT, "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char text[2048];
        const char *at = strstr(SITE, CASES[i].from);
        assert_non_null(at);
        (void)snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - SITE), SITE, CASES[i].to,
                       at + strlen(CASES[i].from));
        fedge_site *site = NULL;
        fedge_error err = {0};
        fedge_status st = fedge_site_parse(text, strlen(text), "client.json", &site, &err);
        if (st != CASES[i].status || !strstr(err.message, CASES[i].part)) {
            fail_msg("%s -> %s\n  gave %s: %s\n  expected: %s", CASES[i].from, CASES[i].to,
                     fedge_status_text(st), err.message, CASES[i].part);
        }
    }
}

static void too_many_data_sets_are_refused(void **state)
{
    (void)state;
    char text[2048] = "{\"data\":{";
    for (int i = 0; i <= FEDGE_SITE_MAX_DATA; i++) {
        size_t length = strlen(text);
        (void)snprintf(text + length, sizeof(text) - length, "%s\"d%d\":{\"values\":\"v\"}",
                       i > 0 ? "," : "", i);
    }
    (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "}}");
    fedge_site *site = NULL;
    fedge_error err;
    assert_int_equal(fedge_site_parse(text, strlen(text), "c", &site, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "data: must have at most 16 data sets, not 17"));
}

static fedge_plan *make_plan(void)
{
    static const char PLAN[] =
        "{\"fedge-plan\":1,\"name\":\"cnn\",\"model\":{\"input-shape\":[4],\"layers\":"
        "[{\"type\":\"Linear\",\"in_features\":4,\"out_features\":2}]},"
        "\"data\":{\"name\":\"iris\",\"shape\":[4],\"dtype\":\"f32\",\"labels\":2},"
        "\"training\":{\"learning-rate\":0.1}}";
    fedge_plan *plan = NULL;
    fedge_error err = {0};
    if (fedge_plan_parse(PLAN, strlen(PLAN), &plan, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return plan;
}

static void expect(const fedge_site *site, const fedge_plan *plan, fedge_status status,
                   const char *part)
{
    fedge_error err = {0};
    assert_int_equal(fedge_site_check(site, plan, &err), status);
    if (!strstr(err.message, part))
        fail_msg("\"%s\" has no \"%s\"", err.message, part);
}

static void the_policy_wins(void **state)
{
    (void)state;
    fedge_site *site = parse(SITE);
    fedge_plan *plan = make_plan();
    expect(site, plan, FEDGE_OK, "");
    plan->training.local_epochs = 51;
    expect(site, plan, FEDGE_DENIED,
           "wants 51 local epochs, this site's policy.max-local-epochs is 50");
    plan->training.local_epochs = 50;
    plan->update.codec = NONE;
    expect(site, plan, FEDGE_DENIED, "codec is none, which is not among this site's policy.codecs");
    plan->update.codec = INT8;
    plan->update.buffers = NONE;
    expect(site, plan, FEDGE_DENIED, "codec is none, which is not among this site's policy.codecs");
    plan->update.buffers = (fedge_codec){0};
    plan->update.control = NONE;
    expect(site, plan, FEDGE_DENIED, "codec is none, which is not among this site's policy.codecs");
    plan->update.control = INT8;
    plan->update.down = NONE;
    expect(site, plan, FEDGE_DENIED, "codec is none, which is not among this site's policy.codecs");
    plan->update.down = INT8;
    plan->update.num_layers = 1;
    plan->update.layers[0] = (fedge_layer_codec){.codec = INT8, .down = codec_named("topk:0.1")};
    expect(site, plan, FEDGE_DENIED,
           "codec is topk:0.1, which is not among this site's policy.codecs");
    plan->update.layers[0] = (fedge_layer_codec){.codec = INT8};
    expect(site, plan, FEDGE_OK, "");
    plan->update.num_layers = 0;
    plan->update.down = (fedge_codec){0};
    site->max_ram_bytes = 100;
    expect(site, plan, FEDGE_DENIED, "this site's policy.max-ram is 100; most of it for batch, ");
    const fedge_site_data *data;
    fedge_error err;
    fedge_client_memory memory;
    assert_int_equal(fedge_client_memory_of(plan, &memory, NULL), FEDGE_OK);
    site->max_ram_bytes = memory.total;
    expect(site, plan, FEDGE_OK, "");
    site->max_ram_bytes = memory.total - 1;
    expect(site, plan, FEDGE_DENIED, "bytes to train");
    plan->training.batch_size = 20000;
    expect(site, plan, FEDGE_DENIED, "lower batch-size");
    plan->training.batch_size = 32;
    plan->external = true; /* its trainer takes what it likes */
    site->max_ram_bytes = memory.total - memory.model - memory.rows[FEDGE_MEMORY_BATCH].bytes;
    expect(site, plan, FEDGE_OK, "");
    site->max_ram_bytes--;
    expect(site, plan, FEDGE_DENIED, "most of it for delta, ");
    plan->external = false;
    site->max_ram_bytes = 0;
    (void)snprintf(plan->name, sizeof(plan->name), "third");
    expect(site, plan, FEDGE_DENIED, "job \"third\" is not among this site's policy.jobs");
    site->num_jobs = 0;
    (void)snprintf(plan->data.name, sizeof(plan->data.name), "mnist");
    expect(site, plan, FEDGE_OK, "");
    assert_int_equal(fedge_site_find_data(site, plan, &data, &err), FEDGE_NOT_FOUND);
    assert_non_null(strstr(err.message, "data set \"mnist\" is not in this site's data"));
    assert_null(data);
    (void)snprintf(plan->data.name, sizeof(plan->data.name), "iris");
    assert_int_equal(fedge_site_find_data(site, plan, &data, &err), FEDGE_OK);
    assert_string_equal(data->name, "iris");
    fedge_plan_free(plan);
    fedge_site_free(site);
}

static void files_are_loaded(void **state)
{
    (void)state;
    fedge_error err;
    fedge_site *site = NULL;
    assert_int_equal(fedge_os_write_file("test_site.json", SITE, strlen(SITE), 0600, &err),
                     FEDGE_OK);
    assert_int_equal(fedge_site_load("test_site.json", &site, &err), FEDGE_OK);
    assert_string_equal(fedge_site_find(site, "iris")->values, "iris.csv");
    fedge_site_free(site);
    assert_int_equal(fedge_os_remove("test_site.json", &err), FEDGE_OK);
    assert_int_equal(fedge_site_load("no-such-site.json", &site, &err), FEDGE_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(a_partition_file_lies_beside),
        cmocka_unit_test(paths_may_be_lists),
        cmocka_unit_test(an_empty_file_allows_all_and_has_no_data),
        cmocka_unit_test(mistakes_name_key_and_line),
        cmocka_unit_test(too_many_data_sets_are_refused),
        cmocka_unit_test(the_policy_wins),
        cmocka_unit_test(files_are_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

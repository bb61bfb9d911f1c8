/* Models as runs leave them: metadata of texts, and the name of what is in them. */
#include "tests/aggregator/store/store_fixture.h"

#include <math.h>

#include "aggregator/store/model_file.h"
#include "edge/core/version.h"
#include "edge/data/formats/safetensors.h"
#include "secure/crypto/sha256.h"

static const char JOB[] =
    "{\"fedge-job\": 1, \"name\": \"a \\\"quoted\\\" job é\","
    " \"model\": {\"input-shape\": [3], \"layers\": [{\"type\": \"Linear\", \"in_features\": 3,"
    " \"out_features\": 2}]}, \"data\": {\"name\": \"d\", \"shape\": [3], \"dtype\": \"f32\","
    " \"labels\": 2, \"normalisation\": {\"divide-by\": 4, \"mean\": [0.5, 1, 2], \"std\": [1, 2,"
    " 0.1]}}, \"training\": {\"learning-rate\": 0.1}, \"rounds\": {\"num-server-rounds\": 3}}";

typedef struct fixture {
    fedge_job *job;
    float values[8];
    uint8_t *plain;
    size_t size;
    fedge_model_facts facts;
    char path[96];
} fixture;

static void make(fixture *f, const char *dir)
{
    *f = (fixture){.facts = {.run_id = TEST_RUN_ID,
                             .round = 12,
                             .loss = 0.1,
                             .accuracy = 2.0 / 3.0,
                             .validation_loss = NAN,
                             .validation_accuracy = NAN}};
    OK(fedge_job_parse(JOB, strlen(JOB), "job.json", &f->job, NULL));
    for (int i = 0; i < 8; i++)
        f->values[i] = (float)i / 3.0f;
    OK(fedge_safetensors_size(&f->job->plan.schema, &f->size, NULL));
    f->plain = malloc(f->size);
    assert_non_null(f->plain);
    OK(fedge_safetensors_write(&f->job->plan.schema, f->values, f->plain, f->size, NULL));
    fedge_sha256_text(f->plain, f->size, f->facts.model);
    (void)snprintf(f->path, sizeof(f->path), "%s/model.safetensors", dir);
}

static void drop(fixture *f)
{
    free(f->plain);
    fedge_job_free(f->job);
}

static void expect_text(const fedge_model_report *report, const char *key, const char *expected)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(report->metadata, key);
    if (expected) {
        assert_true(cJSON_IsString(item));
        assert_string_equal(item->valuestring, expected);
    } else {
        assert_null(item);
    }
}

static void says_where_it_comes_from(void **state)
{
    fixture f;
    fedge_model_report report;
    make(&f, *state);
    OK(fedge_model_file_write(f.path, &f.job->plan, &f.facts, f.plain, f.size, NULL));
    OK(fedge_model_file_read(f.path, &report, NULL));
    expect_text(&report, "format", "pt");
    expect_text(&report, "fedge", FEDGE_VERSION);
    expect_text(&report, "job", "a \"quoted\" job é");
    expect_text(&report, "run", TEST_RUN_ID);
    expect_text(&report, "round", "12");
    expect_text(&report, "model_sha256", f.facts.model);
    expect_text(&report, "loss", "0.1");
    expect_text(&report, "accuracy", "0.6666666666666666");
    expect_text(&report, "validation_loss", NULL);
    expect_text(&report, "normalisation", "{\"divide-by\":4,\"mean\":[0.5,1,2],\"std\":[1,2,0.1]}");
    assert_string_equal(report.model, f.facts.model);
    assert_int_equal(report.num_tensors, 2);
    assert_int_equal(report.num_values, 8);
    fedge_model_report_fini(&report);
    drop(&f);
}

/* As an initial-model is read, and with the data where others expect it. */
static void has_the_same_tensors(void **state)
{
    fixture f;
    float values[8];
    uint8_t *file = NULL;
    size_t size = 0;
    make(&f, *state);
    OK(fedge_model_file_write(f.path, &f.job->plan, &f.facts, f.plain, f.size, NULL));
    OK(fedge_os_read_file(f.path, 1 << 20, &file, &size, NULL));
    OK(fedge_safetensors_read(file, size, &f.job->plan.schema, values, NULL));
    assert_memory_equal(values, f.values, sizeof(values));
    assert_int_equal(size % 8, 0);
    assert_memory_equal(file + size - sizeof(values), f.values, sizeof(values));
    free(file);
    drop(&f);
}

static void leaves_out_what_is_not_known(void **state)
{
    fixture f;
    fedge_model_report report;
    make(&f, *state);
    f.facts.run_id = NULL;
    f.facts.loss = f.facts.accuracy = NAN;
    f.facts.validation_loss = 1.5;
    f.job->plan.has_data = false;
    OK(fedge_model_file_write(f.path, &f.job->plan, &f.facts, f.plain, f.size, NULL));
    OK(fedge_model_file_read(f.path, &report, NULL));
    static const char *const ABSENT[] = {"run", "loss", "accuracy", "validation_accuracy",
                                         "normalisation"};
    for (size_t i = 0; i < sizeof(ABSENT) / sizeof(ABSENT[0]); i++)
        expect_text(&report, ABSENT[i], NULL);
    expect_text(&report, "validation_loss", "1.5");
    fedge_model_report_fini(&report);
    drop(&f);
}

static void plain_files_have_the_same_name(void **state)
{
    fixture f;
    fedge_model_report report;
    make(&f, *state);
    OK(fedge_os_write_file(f.path, f.plain, f.size, 0600, NULL));
    OK(fedge_model_file_read(f.path, &report, NULL));
    assert_null(report.metadata);
    assert_string_equal(report.model, f.facts.model);
    fedge_model_report_fini(&report);
    f.plain[f.size - 1] ^= 1; /* another model */
    OK(fedge_os_write_file(f.path, f.plain, f.size, 0600, NULL));
    OK(fedge_model_file_read(f.path, &report, NULL));
    assert_string_not_equal(report.model, f.facts.model);
    fedge_model_report_fini(&report);
    drop(&f);
}

/* A bit that has changed since the model got its name. */
static void another_model_than_the_one_named_is_refused(void **state)
{
    fixture f;
    fedge_error err;
    make(&f, *state);
    f.plain[f.size - 1] ^= 1;
    assert_int_equal(fedge_model_file_write(f.path, &f.job->plan, &f.facts, f.plain, f.size, &err),
                     FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, f.facts.model));
    assert_false(fedge_os_exists(f.path));
    drop(&f);
}

static void what_is_no_model_is_refused(void **state)
{
    fixture f;
    fedge_model_report report;
    fedge_error err;
    make(&f, *state);
    OK(fedge_os_write_file(f.path, f.plain, f.size - 5, 0600, NULL));
    assert_int_equal(fedge_model_file_read(f.path, &report, &err), FEDGE_TRUNCATED);
    assert_non_null(strstr(err.message, f.path));
    assert_int_equal(fedge_model_file_write(f.path, &f.job->plan, &f.facts, f.plain, 9, &err),
                     FEDGE_CORRUPT);
    assert_int_equal(
        fedge_model_file_write(f.path, &f.job->plan, &f.facts, (const uint8_t *)JOB, 64, &err),
        FEDGE_CORRUPT);
    static const char HALVES[] = "\x48\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"F16\",\"shape\":[1],"
                                 "\"data_offsets\":[0,2]}}                              ab";
    char bytes[sizeof(HALVES)];
    memcpy(bytes, HALVES, sizeof(bytes));
    OK(fedge_os_write_file(f.path, bytes, 8 + 0x48 + 2, 0600, NULL));
    OK(fedge_model_file_read(f.path, &report, &err));
    assert_int_equal(report.num_values, 1);
    fedge_model_report_fini(&report);
    memcpy(strstr(bytes + 8, "F16"), "I16", 3);
    OK(fedge_os_write_file(f.path, bytes, 8 + 0x48 + 2, 0600, NULL));
    assert_int_equal(fedge_model_file_read(f.path, &report, &err), FEDGE_UNSUPPORTED);
    drop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(says_where_it_comes_from, test_dir_setup,
                                        test_dir_teardown),
        cmocka_unit_test_setup_teardown(has_the_same_tensors, test_dir_setup, test_dir_teardown),
        cmocka_unit_test_setup_teardown(leaves_out_what_is_not_known, test_dir_setup,
                                        test_dir_teardown),
        cmocka_unit_test_setup_teardown(plain_files_have_the_same_name, test_dir_setup,
                                        test_dir_teardown),
        cmocka_unit_test_setup_teardown(another_model_than_the_one_named_is_refused, test_dir_setup,
                                        test_dir_teardown),
        cmocka_unit_test_setup_teardown(what_is_no_model_is_refused, test_dir_setup,
                                        test_dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

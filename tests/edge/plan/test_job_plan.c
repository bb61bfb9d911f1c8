/* A job read for its plan alone: the plan that the whole reader makes, and what is passed over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/plan_fields.h"

#define PATH "test_job_plan.json"

static const char *const EXAMPLES[] = {
    "quickstart/job.json",       "own_trainer/job.json", "zoo/2nn.json",
    "zoo/char-lstm.json",        "zoo/gru-sensors.json", "zoo/resnet-8-groupnorm.json",
    "zoo/transformer-small.json"};

static void expect_same_plan(const fedge_plan *a, const fedge_plan *b)
{
    fedge_error err;
    char *texts[2] = {NULL};
    size_t sizes[2];
    assert_int_equal(fedge_plan_write(a, &texts[0], &sizes[0], &err), FEDGE_OK);
    assert_int_equal(fedge_plan_write(b, &texts[1], &sizes[1], &err), FEDGE_OK);
    assert_string_equal(texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
}

static void test_plans_are_those_of_whole_jobs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(EXAMPLES) / sizeof(*EXAMPLES); i++) {
        char path[512];
        fedge_error err = {0};
        fedge_job *job = NULL;
        fedge_plan *plan = NULL;
        (void)snprintf(path, sizeof(path), FEDGE_SOURCE_DIR "/examples/%s", EXAMPLES[i]);
        if (fedge_job_load(path, &job, &err) || fedge_job_load_plan(path, &plan, &err))
            fail_msg("%s", err.message);
        expect_same_plan(&job->plan, plan);
        fedge_job_free(job);
        fedge_plan_free(plan);
    }
}

/* The keys of a job and their older spellings, each but "" of the other table. */
static void test_keys_are_those_of_jobs(void **state)
{
    (void)state;
    const fedge_json_field *all = fedge_job_fields, *own = fedge_job_plan_fields;
    for (; all->key && own->key; all++, own++) {
        assert_string_equal(own->key, all->key);
        assert_string_equal(own->aliases ? own->aliases : "", all->aliases ? all->aliases : "");
    }
    assert_true(!all->key && !own->key);
}

/* JOB(model's width, the other keys) */
#define JOB(in, rest)                                                                              \
    "{\"fedge-job\": 1, \"name\": \"lr\", \"model\": {\"input-shape\": [4], \"layers\":\n"         \
    " [{\"type\": \"Linear\", \"in_features\": " in ", \"out_features\": 2}]},\n"                  \
    " \"data\": {\"name\": \"d\", \"shape\": [4], \"dtype\": \"f32\", \"labels\": 2},\n"           \
    " \"training\": {\"learning-rate\": 0.1}" rest "}"

static fedge_status load(const char *text, fedge_plan **plan, fedge_error *err)
{
    assert_int_equal(fedge_os_write_file(PATH, text, strlen(text), 0600, err), FEDGE_OK);
    const fedge_status status = fedge_job_load_plan(PATH, plan, err);
    fedge_error unwanted;
    assert_int_equal(fedge_os_remove(PATH, &unwanted), FEDGE_OK);
    return status;
}

static void test_what_the_server_reads_is_passed_over(void **state)
{
    (void)state;
    fedge_error err = {0};
    fedge_plan *plan = NULL;
    const char *text = JOB("4", ", \"rounds\": 3, \"test_set\": [], \"min-free-disk\": {},"
                                " \"strategy\": {\"type\": \"SCAFFOLD\", \"none\": 1}");
    if (load(text, &plan, &err))
        fail_msg("%s", err.message);
    assert_string_equal(plan->hooks->name, "SCAFFOLD");
    fedge_plan_free(plan);
    assert_int_equal(load(JOB("4", ""), &plan, &err), FEDGE_OK);
    assert_null(plan->hooks);
    fedge_plan_free(plan);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        fedge_status status;
        const char *part;
    } CASES[] = {
        {JOB("4", ", \"round\": {}"), FEDGE_INVALID_ARGUMENT, "did you mean \"rounds\""},
        {JOB("7", ""), FEDGE_INVALID_ARGUMENT, "in_features is 7"},
        {JOB("4", ", \"training\": {}"), FEDGE_CORRUPT, "training"},
        {JOB("4", ", \"update\": {\"codec\": \"int9\"}"), FEDGE_INVALID_ARGUMENT, "int9"},
        {JOB("4", ", \"strategy\": {\"type\": 1}"), FEDGE_INVALID_ARGUMENT, "strategy.type"},
        {JOB("4", ","), FEDGE_CORRUPT, "a comma too many"},
        {"{\"fedge-job\": 2}", FEDGE_INVALID_ARGUMENT, "must be 1"},
        {"{\"name\": \"lr\"}", FEDGE_INVALID_ARGUMENT, "begin the job with"},
        {"{\"fedge-job\": 1}", FEDGE_INVALID_ARGUMENT, "name"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        fedge_error err = {0};
        fedge_plan *plan = NULL;
        const fedge_status status = load(CASES[i].text, &plan, &err);
        if (status != CASES[i].status || !strstr(err.message, CASES[i].part))
            fail_msg("case %zu: %d, %s", i, status, err.message);
        assert_null(plan);
        assert_non_null(strstr(err.message, PATH));
    }
    fedge_error err;
    fedge_plan *plan = NULL;
    assert_int_equal(fedge_job_load_plan("no-such-job.json", &plan, &err), FEDGE_NOT_FOUND);
    assert_null(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_are_those_of_whole_jobs),
        cmocka_unit_test(test_keys_are_those_of_jobs),
        cmocka_unit_test(test_what_the_server_reads_is_passed_over),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

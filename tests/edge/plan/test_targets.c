/* "targets" of a job: what is accepted, what the plan says, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/plan/plan.h"

static fedge_error err;

static fedge_job *read_job(const char *answers, const char *loss)
{
    char text[4096];
    fedge_job *job = NULL;
    (void)snprintf(text, sizeof(text),
                   "{\"fedge-job\": 1, \"name\": \"t\", \"model\": {\"input-shape\": [2],"
                   " \"layers\": [{\"type\": \"Linear\", \"in_features\": 2,"
                   " \"out_features\": 2}], \"loss\": {\"type\": \"%s\"}},"
                   " \"data\": {\"name\": \"d\", \"shape\": [2], \"dtype\": \"f32\"%s},"
                   " \"training\": {\"learning-rate\": 0.1},"
                   " \"rounds\": {\"num-server-rounds\": 1}}",
                   loss, answers);
    err = (fedge_error){0};
    return fedge_job_parse(text, strlen(text), "job.json", &job, &err) == FEDGE_OK ? job : NULL;
}

/* The plan's text must have [part], and read back the same. */
static void expect_plan(const char *answers, const char *loss, const char *part)
{
    fedge_job *job = read_job(answers, loss);
    char *text = NULL, *again = NULL;
    size_t size = 0;
    fedge_plan *plan = NULL;
    if (!job)
        fail_msg("%s", err.message);
    assert_int_equal(fedge_plan_write(&job->plan, &text, &size, &err), FEDGE_OK);
    if (!strstr(text, part))
        fail_msg("%s is not in %s", part, text);
    assert_int_equal(fedge_plan_parse(text, size, &plan, &err), FEDGE_OK);
    assert_int_equal(plan->data.targets.is_fraction, job->plan.data.targets.is_fraction);
    assert_int_equal(fedge_data_num_targets(&plan->data), fedge_data_num_targets(&job->plan.data));
    assert_int_equal(fedge_plan_write(plan, &again, &size, &err), FEDGE_OK);
    assert_string_equal(text, again);
    free(text);
    free(again);
    fedge_plan_free(plan);
    fedge_job_free(job);
}

static void expect_refused(const char *answers, const char *loss, const char *part)
{
    fedge_job *job = read_job(answers, loss);
    if (job || !strstr(err.message, part))
        fail_msg("%s: %s", answers, job ? "accepted" : err.message);
}

static void plans_have_targets(void **state)
{
    (void)state;
    expect_plan(", \"targets\": {\"shape\": [2]}", "MSELoss",
                "\"targets\":{\"shape\":[2],\"dtype\":\"f32\"}");
    expect_plan(", \"targets\": [\"load\", \"price\"]", "L1Loss",
                "\"targets\":{\"shape\":[2],\"dtype\":\"f32\",\"columns\":[\"load\",\"price\"]}");
    expect_plan(", \"targets\": {\"columns\": [\"a\", \"b\"], \"mean\": [1, 2], \"std\": [3, 4]}",
                "SmoothL1Loss", "\"mean\":[1,2],\"std\":[3,4]}");
    expect_plan(", \"targets\": {\"shape\": [1, 2], \"dtype\": \"f32\"}", "BCEWithLogitsLoss",
                "\"optimizer:SGD\",\"targets\"]");
    expect_plan(", \"targets\": \"input\"", "HuberLoss", "\"targets\":\"input\"");
    expect_plan(", \"targets\": \"input\"", "HuberLoss", "\"targets:input\"]");
}

/* A plan of classes says nothing of targets: older clients take it. */
static void classes_are_the_default(void **state)
{
    (void)state;
    char *plain = NULL, *said = NULL;
    size_t size = 0;
    fedge_job *a = read_job(", \"labels\": 2", "CrossEntropyLoss");
    fedge_job *b = read_job(", \"labels\": 2, \"targets\": \"classes\"", "CrossEntropyLoss");
    assert_int_equal(fedge_plan_write(&a->plan, &plain, &size, &err), FEDGE_OK);
    assert_int_equal(fedge_plan_write(&b->plan, &said, &size, &err), FEDGE_OK);
    assert_null(strstr(plain, "targets"));
    assert_string_equal(plain, said);
    free(plain);
    free(said);
    fedge_job_free(a);
    fedge_job_free(b);
}

static void bad_targets_are_refused(void **state)
{
    (void)state;
    static const char *const CASES[][3] = {
        {"", "MSELoss", "data.labels: is missing"},
        {", \"targets\": \"classes\"", "CrossEntropyLoss", "data.labels: is missing"},
        {", \"targets\": \"inputs\"", "MSELoss", "did you mean \"input\"?"},
        {", \"targets\": {}", "MSELoss", "data.targets.shape: is missing"},
        {", \"targets\": []", "MSELoss", "must name at least one column"},
        {", \"targets\": {\"shape\": [3]}", "MSELoss",
         "data.targets: are 3 numbers, but the model's last layer has 2 outputs"},
        {", \"targets\": {\"shape\": [65536, 65536]}", "MSELoss", "has too many targets"},
        {", \"targets\": {\"shape\": [2], \"columns\": \"a\"}", "MSELoss",
         "data.targets.columns: are 1, but the shape has 2"},
        {", \"targets\": {\"shape\": [2], \"mean\": [1, 2, 3], \"std\": [1, 2, 3]}", "MSELoss",
         "data.targets.mean: has 3 elements"},
        {", \"targets\": {\"shape\": [2], \"mean\": [1]}", "MSELoss", "std: is missing"},
        {", \"targets\": {\"shape\": [2], \"dtype\": \"i32\"}", "MSELoss", "dtype"},
        {", \"targets\": {\"shape\": [2]}, \"labels\": 2", "MSELoss", "keep one of the two"},
        {", \"targets\": {\"shape\": [2]}", "CrossEntropyLoss",
         "model.loss: CrossEntropyLoss learns classes, and data.targets are numbers"},
        {", \"targets\": {\"shape\": [2], \"mean\": [1], \"std\": [2]}", "BCEWithLogitsLoss",
         "does not go with BCEWithLogitsLoss"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        expect_refused(CASES[i][0], CASES[i][1], CASES[i][2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_have_targets),
        cmocka_unit_test(classes_are_the_default),
        cmocka_unit_test(bad_targets_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

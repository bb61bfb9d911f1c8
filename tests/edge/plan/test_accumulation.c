/* accumulation-steps: N batches make one step, as one batch of their sum does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/rng.h"
#include "edge/plan/plan.h"

#define INPUTS 6
#define EXAMPLES 27 /* the last step has less than a whole batch */
#define PARAMETERS 500

/* [training] is filled in. */
static const char JOB[] =
    "{\"fedge-job\": 1, \"name\": \"j\", \"model\": {\"input-shape\": [6], \"layers\": ["
    "{\"type\": \"Linear\", \"in_features\": 6, \"out_features\": 9}, {\"type\": \"Tanh\"},"
    " {\"type\": \"Linear\", \"in_features\": 9, \"out_features\": 3}],"
    " \"loss\": {\"type\": \"CrossEntropyLoss\"}}, \"data\": {\"name\": \"d\", \"shape\": [6],"
    " \"dtype\": \"f32\", \"labels\": 3}, \"training\": {\"learning-rate\": 0.05, "
    "\"local-epochs\": 3,"
    " \"optimizer\": {\"type\": \"SGD\", \"momentum\": 0.9}%s},"
    " \"rounds\": {\"num-server-rounds\": 3}}";

static fedge_job *job_of(const char *training)
{
    char text[1024];
    fedge_error err = {0};
    fedge_job *job = NULL;
    (void)snprintf(text, sizeof(text), JOB, training);
    if (fedge_job_parse(text, strlen(text), "job.json", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return job;
}

/* The plan that clients get. */
static fedge_plan *plan_of(const char *training)
{
    fedge_error err = {0};
    fedge_job *job = job_of(training);
    fedge_plan *plan = NULL;
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(fedge_plan_write(&job->plan, &text, &size, &err), FEDGE_OK);
    assert_null(strstr(text, "accumulation"));
    if (fedge_plan_parse(text, size, &plan, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    free(text);
    fedge_job_free(job);
    return plan;
}

static fedge_status read_examples(void *user, const uint32_t *indices, uint32_t n,
                                  uint32_t num_next, float *x, int32_t *labels, fedge_error *err)
{
    const float(*values)[INPUTS] = user;
    (void)num_next;
    (void)err;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(x + (size_t)i * INPUTS, values[indices[i]], sizeof(values[0]));
        labels[i] = (int32_t)(indices[i] % 3);
    }
    return FEDGE_OK;
}

static void *aligned(size_t size)
{
    void *block = aligned_alloc(64, (size + 63) / 64 * 64);
    assert_non_null(block);
    return block;
}

/* Trains a round with the plan; returns the steps. values: (PARAMETERS) */
static uint64_t train(const char *training, float *values)
{
    static float examples[EXAMPLES][INPUTS];
    fedge_plan *plan = plan_of(training);
    const fedge_model_options options = fedge_plan_model_options(plan);
    const fedge_trainer_config config = fedge_plan_trainer_config(plan, 1, 0, 0.05);
    const fedge_examples source = {
        .user = examples, .num_examples = EXAMPLES, .read = read_examples};
    fedge_model_memory memory;
    fedge_model *model = NULL;
    fedge_trainer_result result;
    fedge_error err = {0};
    fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TEST, 1, 0, 0);
    for (int i = 0; i < EXAMPLES; i++) {
        for (int k = 0; k < INPUTS; k++)
            examples[i][k] = (float)fedge_rng_normal(&rng);
    }
    assert_int_equal(fedge_model_size(&plan->model, &options, &memory, &err), FEDGE_OK);
    fedge_trainer_workspace work = {
        .scratch_size = fedge_trainer_scratch_size(&plan->model, EXAMPLES, config.batch_size)};
    void *block = aligned(memory.total);
    work.scratch = aligned(work.scratch_size);
    assert_int_equal(fedge_model_new(&model, &plan->model, &options, block, memory.total, &err),
                     FEDGE_OK);
    assert_true(fedge_model_num_values(model) <= PARAMETERS);
    fedge_model_init_values(&plan->model, 7, values);
    fedge_model_load(model, values);
    fedge_model_reset_optimizer(model);
    if (fedge_trainer_run(model, &source, &config, &work, &result, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    fedge_model_store(model, values);
    free(work.scratch);
    free(block);
    fedge_plan_free(plan);
    return result.num_steps;
}

static double difference(const float *a, const float *b)
{
    double most = 0.0;
    for (int i = 0; i < PARAMETERS; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static void batches_make_one_step(void **state)
{
    (void)state;
    static float accumulated[PARAMETERS], whole[PARAMETERS], single[PARAMETERS];
    const uint64_t steps = train(", \"batch-size\": 4, \"accumulation-steps\": 3", accumulated);
    assert_int_equal(steps, 3 * 3); /* of 12, 12 and 3 examples, in each epoch */
    assert_int_equal(train(", \"batch-size\": 12", whole), steps);
    assert_int_equal(train(", \"batch-size\": 4", single), 3 * 7);
    assert_true(difference(accumulated, whole) < 1e-6);
    assert_true(difference(accumulated, single) > 1e-2);
}

static void plans_have_the_sum(void **state)
{
    (void)state;
    fedge_plan *plan = plan_of(", \"batch-size\": 4, \"accumulation-steps\": 3");
    assert_int_equal(plan->training.batch_size, 12);
    assert_int_equal(plan->training.micro_batch_size, 4);
    fedge_plan_free(plan);
    plan = plan_of(", \"batch-size\": 4, \"micro-batch-size\": 2, \"accumulation-steps\": 3");
    assert_int_equal(plan->training.batch_size, 12);
    assert_int_equal(plan->training.micro_batch_size, 2);
    fedge_plan_free(plan);
}

/* Clients of older releases know no OneCycleLR and need none: tasks have their rates. */
static void plans_have_no_new_schedules(void **state)
{
    (void)state;
    static const char *const SCHEDULES[] = {
        ", \"schedule\": {\"type\": \"OneCycleLR\", \"total_steps\": 9}",
        ", \"schedule\": {\"type\": \"CosineAnnealingLR\", \"T_max\": 9}"};
    for (int i = 0; i < 2; i++) {
        fedge_job *job = job_of(SCHEDULES[i]);
        char *text = NULL;
        size_t size = 0;
        fedge_error err = {0};
        assert_int_equal(fedge_plan_write(&job->plan, &text, &size, &err), FEDGE_OK);
        assert_int_equal(strstr(text, "schedule") != NULL, i);
        assert_true(fabs(fedge_plan_learning_rate(&job->plan, 1) - (i ? 0.05 : 0.002)) < 1e-8);
        free(text);
        fedge_job_free(job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_make_one_step),
        cmocka_unit_test(plans_have_the_sum),
        cmocka_unit_test(plans_have_no_new_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

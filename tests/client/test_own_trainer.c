/* What the library does around a trainer that is not fedge's: strategies that change training. The
 * trainer here takes steps of plain SGD on ‖w − target‖² / 2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/own_trainer.h"
#include "edge/plan/client_hooks.h"

#define COUNT 3 /* "body.w" has two values, "head.b" one */
#define RATE 0.25F

typedef struct trainer {
    fedge_plan *plan;
    fedge_client_plan view;
    fedge_own_trainer own;
    fedge_client_callbacks callbacks;
    float target[COUNT];
    bool corrects;       /* calls fedge_client_correct */
    bool is_wild;        /* changes tensors that it should leave */
    uint64_t steps;      /* that it reports; 0: those of the plan */
    unsigned calls;      /* of train */
    bool is_personal[4]; /* of each call: task->personal_model */
    fedge_client_report report;
    fedge_error err;
} trainer;

static fedge_status train(void *user, fedge_client *client, const fedge_client_task *task,
                          float *values, fedge_client_report *report, fedge_error *err)
{
    (void)client, (void)err;
    trainer *t = user;
    t->is_personal[t->calls++] = task->personal_model;
    for (uint32_t step = 0; step < task->plan->local_epochs; step++) {
        float gradient[COUNT];
        for (int i = 0; i < COUNT; i++)
            gradient[i] = values[i] - t->target[i];
        if (t->corrects)
            fedge_client_correct(task, values, gradient, report);
        for (int i = 0; i < COUNT; i++)
            values[i] -= RATE * gradient[i];
    }
    if (t->is_wild)
        values[task->trained && task->trained[0] ? COUNT - 1 : 0] = 77;
    report->num_examples = 5;
    report->num_steps = t->steps;
    return FEDGE_OK;
}

static fedge_status evaluate(void *user, fedge_client *client, const fedge_client_task *task,
                             const float *values, fedge_client_report *report, fedge_error *err)
{
    (void)user, (void)client, (void)task;
    report->num_examples = 5;
    return fedge_client_metric(report, "first", (double)values[0], err);
}

static fedge_status loss(void *user, fedge_client *client, const fedge_client_task *task,
                         const float *values, double *out, fedge_error *err)
{
    (void)client, (void)task, (void)err;
    const trainer *t = user;
    *out = 0;
    for (int i = 0; i < COUNT; i++)
        *out += (double)((values[i] - t->target[i]) * (values[i] - t->target[i])) / 2;
    return FEDGE_OK;
}

/* [more]: further keys of the job, or "". */
static void begin(trainer *t, const char *strategy, const char *training)
{
    char text[1024];
    fedge_job *job;
    char *plan;
    size_t size;
    (void)snprintf(text, sizeof(text),
                   "{\"fedge-job\": 1, \"name\": \"own\", \"model\": {\"type\": \"external\", "
                   "\"tensors\": [{\"name\": \"body.w\", \"shape\": [2]}, {\"name\": "
                   "\"head.b\", \"shape\": [1]}]}, \"training\": {\"learning-rate\": 0.25, "
                   "\"local-epochs\": 2%s}, \"rounds\": {\"num-server-rounds\": 1}, \"strategy\": "
                   "{\"type\": %s}}",
                   training, strategy);
    if (fedge_job_parse(text, strlen(text), "job.json", &job, &t->err) != FEDGE_OK)
        fail_msg("%s", t->err.message);
    assert_int_equal(fedge_plan_write(&job->plan, &plan, &size, NULL), FEDGE_OK);
    fedge_job_free(job);
    if (fedge_plan_parse(plan, size, &t->plan, &t->err) != FEDGE_OK)
        fail_msg("%s", t->err.message);
    free(plan);
    t->view = (fedge_client_plan){.external = true,
                                  .schema = &t->plan->schema,
                                  .local_epochs = t->plan->training.local_epochs,
                                  .full = t->plan,
                                  .num_parameters = t->plan->num_parameters};
    t->callbacks = (fedge_client_callbacks){
        .struct_size = sizeof(t->callbacks), .user = t, .train = train, .evaluate = evaluate};
    memcpy(t->target, (float[]){1, -1, 4}, sizeof(t->target));
    t->corrects = true;
    t->steps = 2;
    t->calls = 0;
}

static fedge_status run(trainer *t, fedge_client_task *task, float *values)
{
    task->plan = &t->view;
    t->err = (fedge_error){0};
    fedge_own_trainer_fini(&t->own);
    const fedge_status status =
        fedge_own_trainer_init(&t->own, t->plan, &t->callbacks, values, &t->err);
    return status != FEDGE_OK ? status
                              : fedge_own_trainer_call(&t->own, &t->callbacks, NULL, task, true,
                                                       values, &t->report, &t->err);
}

static void end(trainer *t)
{
    fedge_own_trainer_fini(&t->own);
    fedge_plan_free(t->plan);
    t->plan = NULL;
}

static void expect(const float *values, float a, float b, float c)
{
    const float wanted[COUNT] = {a, b, c};
    for (int i = 0; i < COUNT; i++) {
        if (values[i] != wanted[i])
            fail_msg("value %d is %.9g, not %.9g", i, (double)values[i], (double)wanted[i]);
    }
}

/* w of two steps from w0, where the gradient is w − target + correction + mu (w − anchor). */
static float two_steps(float w, float target, float correction, float mu, float anchor)
{
    for (int i = 0; i < 2; i++) {
        float g = w - target;
        g += correction;
        if (mu > 0)
            g += mu * (w - anchor);
        w -= RATE * g;
    }
    return w;
}

static void gradients_get_the_correction_and_the_proximal_term(void **state)
{
    (void)state;
    trainer t = {0};
    static const float CORRECTION[COUNT] = {0.5F, -0.25F, 1};
    begin(&t, "\"FedDyn\"", ", \"proximal-mu\": 0.5");
    fedge_client_task task = {.correction = CORRECTION};
    float values[COUNT] = {3, 2, 1};
    assert_int_equal(run(&t, &task, values), FEDGE_OK);
    expect(values, two_steps(3, 1, 0.5F, 0.5F, 3), two_steps(2, -1, -0.25F, 0.5F, 2),
           two_steps(1, 4, 1, 0.5F, 1));
    assert_true(t.report.corrected);
    end(&t);
}

static void a_trainer_that_ignores_them_is_refused(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"\"SCAFFOLD\"", ""},
        {"\"FedAvg\"", ", \"proximal-mu\": 0.5"},
        {"\"Ditto\"", ""},
        {"\"FedRep\", \"personal-tensors\": \"head.*\"", ""},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        trainer t = {0};
        static const float CORRECTION[COUNT] = {0};
        float values[COUNT] = {3, 2, 1}, personal[COUNT + 1] = {0};
        begin(&t, CASES[i][0], CASES[i][1]);
        fedge_client_task task = {.correction = i == 0 ? CORRECTION : NULL, .personal = personal};
        t.corrects = false;
        assert_int_equal(run(&t, &task, values), FEDGE_INVALID_ARGUMENT);
        assert_non_null(strstr(t.err.message, "call fedge_client_correct"));
        end(&t);
    }
}

static void plain_strategies_ask_for_nothing(void **state)
{
    (void)state;
    trainer t = {0};
    begin(&t, "\"FedAvg\"", "");
    fedge_client_task task = {0};
    float values[COUNT] = {3, 2, 1};
    t.corrects = false;
    assert_int_equal(run(&t, &task, values), FEDGE_OK);
    expect(values, two_steps(3, 1, 0, 0, 0), two_steps(2, -1, 0, 0, 0), two_steps(1, 4, 0, 0, 0));
    assert_null(t.own.anchor); /* no memory for what is not needed */
    end(&t);
}

static void fednova_needs_the_number_of_steps(void **state)
{
    (void)state;
    trainer t = {0};
    begin(&t, "\"FedNova\"", "");
    fedge_client_task task = {0};
    float values[COUNT] = {0};
    assert_int_equal(run(&t, &task, values), FEDGE_OK);
    t.steps = 0;
    assert_int_equal(run(&t, &task, values), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(t.err.message, "FedNova needs the number of steps"));
    end(&t);
}

static double metric(const fedge_client_report *report, const char *name)
{
    for (uint32_t i = 0; i < report->num_metrics; i++) {
        if (strcmp(report->metrics[i].name, name) == 0)
            return report->metrics[i].value;
    }
    return NAN;
}

static void qfedavg_measures_the_loss_before_training(void **state)
{
    (void)state;
    trainer t = {0};
    begin(&t, "\"QFedAvg\"", "");
    fedge_client_task task = {0};
    float values[COUNT] = {3, 2, 1};
    assert_int_equal(run(&t, &task, values), FEDGE_UNSUPPORTED);
    assert_non_null(strstr(t.err.message, "QFedAvg needs the loss"));
    t.callbacks.loss = loss;
    assert_int_equal(run(&t, &task, values), FEDGE_OK);
    assert_true(metric(&t.report, FEDGE_START_LOSS) == (4 + 9 + 9) / 2.0);
    end(&t);
}

static void ifca_trains_the_model_with_the_least_loss(void **state)
{
    (void)state;
    trainer t = {0};
    static const float OTHERS[2 * COUNT] = {1, -1, 3, 1, -1, 3};
    begin(&t, "\"IFCA\", \"num-clusters\": 3", "");
    t.callbacks.loss = loss;
    fedge_client_task task = {.others = OTHERS};
    float values[COUNT] = {3, 2, 1};
    assert_int_equal(run(&t, &task, values), FEDGE_OK);
    assert_int_equal(t.report.chosen, 1); /* the first of equal ones */
    expect(values, 1, -1, two_steps(3, 4, 0, 0, 0));
    float other[COUNT] = {3, 2, 1};
    assert_int_equal(
        fedge_own_trainer_call(&t.own, &t.callbacks, NULL, &task, false, other, &t.report, NULL),
        FEDGE_OK);
    assert_int_equal(t.report.chosen, 1);
    float near[COUNT] = {1, -1, 4};
    assert_int_equal(run(&t, &task, near), FEDGE_OK);
    assert_int_equal(t.report.chosen, 0);
    expect(near, 1, -1, 4);
    /* All have diverged: the task's own model it is. */
    memcpy(t.target, (float[]){NAN, 0, 0}, sizeof(t.target));
    memcpy(near, (float[]){5, 6, 7}, sizeof(near));
    assert_int_equal(
        fedge_own_trainer_call(&t.own, &t.callbacks, NULL, &task, false, near, &t.report, NULL),
        FEDGE_OK);
    expect(near, 5, 6, 7);
    end(&t);
}

static void fedrep_trains_the_head_and_then_the_body(void **state)
{
    (void)state;
    for (int is_wild = 0; is_wild < 2; is_wild++) {
        trainer t = {0};
        begin(&t, "\"FedRep\", \"personal-tensors\": [\"head.*\"], \"head-epochs\": 1", "");
        fedge_client_task task = {0};
        float values[COUNT] = {3, 2, 1};
        t.is_wild = is_wild != 0; /* what it does to the other part is undone */
        assert_int_equal(run(&t, &task, values), FEDGE_OK);
        assert_int_equal(t.calls, 2);
        expect(values, two_steps(3, 1, 0, 0, 0), two_steps(2, -1, 0, 0, 0), 1 + RATE * 3);
        assert_int_equal(t.plan->sent.schema.num_elements, 2); /* the head is not sent */
        end(&t);
    }
}

static void ditto_trains_a_model_beside_the_servers(void **state)
{
    (void)state;
    trainer t = {0};
    begin(&t, "\"Ditto\", \"lambda\": 0.5", "");
    float values[COUNT] = {3, 2, 1}, personal[COUNT + 1] = {0};
    fedge_client_task task = {.personal = personal};
    assert_int_equal(run(&t, &task, values), FEDGE_OK);
    expect(values, two_steps(3, 1, 0, 0, 0), two_steps(2, -1, 0, 0, 0), two_steps(1, 4, 0, 0, 0));
    expect(personal, two_steps(3, 1, 0, 0.5F, 3), two_steps(2, -1, 0, 0.5F, 2),
           two_steps(1, 4, 0, 0.5F, 1));
    assert_true(personal[COUNT] == 1);
    assert_true(t.is_personal[0] && !t.is_personal[1]);
    /* It goes on with its own model, near the new one of the server. */
    const float own = personal[0];
    values[0] = 7;
    assert_int_equal(run(&t, &task, values), FEDGE_OK);
    assert_true(personal[0] == two_steps(own, 1, 0, 0.5F, 7));
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_get_the_correction_and_the_proximal_term),
        cmocka_unit_test(a_trainer_that_ignores_them_is_refused),
        cmocka_unit_test(plain_strategies_ask_for_nothing),
        cmocka_unit_test(fednova_needs_the_number_of_steps),
        cmocka_unit_test(qfedavg_measures_the_loss_before_training),
        cmocka_unit_test(ifca_trains_the_model_with_the_least_loss),
        cmocka_unit_test(fedrep_trains_the_head_and_then_the_body),
        cmocka_unit_test(ditto_trains_a_model_beside_the_servers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

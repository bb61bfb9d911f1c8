#define _POSIX_C_SOURCE 200809L /* setenv */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/fedge_client.h"
#include "edge/core/os.h"
#include "edge/plan/plan.h"
#include "edge/plan/simulated.h"
#include "tests/edge/core/cmocka_all.h"

static const char JOB[] =
    "{\"fedge-job\": 1, \"name\": \"own\", \"model\": {\"type\": \"external\", \"tensors\": "
    "[{\"name\": \"w\", \"shape\": [3]}]}, \"training\": {\"learning-rate\": 0.5}, "
    "\"rounds\": {\"num-server-rounds\": 1}}";

/* The simulator's side of one client. */
typedef struct fixture {
    int channel, memory;
    pthread_t thread;
    fedge_client *client;
    fedge_exit code;
    float *values;
    fedge_simulated_layout layout;
    unsigned num_plans, order[2];
} fixture;

static fedge_status on_check(void *user, fedge_client *client, const fedge_client_plan *plan,
                             fedge_error *err)
{
    fixture *f = user;
    (void)client, (void)plan, (void)err;
    f->order[0] = ++f->num_plans;
    return FEDGE_OK;
}

static fedge_status on_plan(void *user, fedge_client *client, const fedge_client_plan *plan,
                            fedge_error *err)
{
    fixture *f = user;
    (void)client;
    f->order[1] = ++f->num_plans;
    return plan->schema->num_elements == 3 ? FEDGE_OK
                                           : fedge_fail(err, FEDGE_UNSUPPORTED, "another model");
}

/* Adds the client's index, and the number of its earlier tasks, which it stores. */
static fedge_status on_train(void *user, fedge_client *client, const fedge_client_task *task,
                             float *values, fedge_client_report *report, fedge_error *err)
{
    void *before = NULL;
    size_t size = 0;
    unsigned char tasks = 0;
    (void)user;
    if (task->round == 9)
        return fedge_fail(err, FEDGE_UNSUPPORTED, "not in round 9");
    const fedge_status status = fedge_client_get(client, "tasks", &before, &size, err);
    if (status != FEDGE_OK && status != FEDGE_NOT_FOUND)
        return status;
    tasks = status == FEDGE_OK ? *(unsigned char *)before : 0;
    free(before);
    for (int i = 0; i < 3; i++)
        values[i] += (float)task->client_index + (float)tasks;
    tasks++;
    FEDGE_TRY(fedge_client_put(client, "tasks", &tasks, 1, err));
    if (fedge_client_cancelled(client))
        return fedge_fail(err, FEDGE_CANCELLED, "cancelled");
    report->num_examples = task->num_clients;
    return fedge_client_metric(report, "loss", task->learning_rate, err);
}

static void *run(void *user)
{
    fixture *f = user;
    fedge_error err;
    f->code = fedge_client_run(f->client, &err);
    return NULL;
}

static void send_plan(fixture *f)
{
    fedge_error err;
    fedge_job *job = NULL;
    char *text = NULL;
    size_t size = 0;
    void *mapped = NULL;
    assert_int_equal(fedge_job_parse(JOB, strlen(JOB), "job", &job, &err), FEDGE_OK);
    assert_int_equal(fedge_plan_write(&job->plan, &text, &size, &err), FEDGE_OK);
    f->layout = fedge_simulated_layout_of(&job->plan);
    assert_int_equal(fedge_os_shared_new(f->layout.bytes, &f->memory, &err), FEDGE_OK);
    assert_int_equal(fedge_os_shared_map(f->memory, f->layout.bytes, &mapped, &err), FEDGE_OK);
    f->values = mapped;
    const fedge_simulated_message plan = {.kind = FEDGE_SIMULATED_PLAN, .size = size};
    assert_int_equal(fedge_simulated_send(f->channel, &plan, text, f->memory, &err), FEDGE_OK);
    free(text);
    fedge_job_free(job);
}

/* The next message; the caller frees *data. */
static fedge_simulated_message receive(fixture *f, void **data)
{
    fedge_error err;
    fedge_simulated_message message;
    assert_int_equal(fedge_simulated_receive(f->channel, &message, 10000, data, NULL, &err),
                     FEDGE_OK);
    return message;
}

static int set_up(void **state)
{
    static fixture f;
    fedge_error err;
    fedge_simulated_hello hello;
    char number[16];
    int ends[2];
    void *data = NULL;
    f = (fixture){0};
    assert_int_equal(fedge_os_channel_new(ends, &err), FEDGE_OK);
    f.channel = ends[0];
    (void)snprintf(number, sizeof(number), "%d", ends[1]);
    assert_int_equal(setenv(FEDGE_SIMULATED_CHANNEL, number, 1), 0);
    const fedge_client_config config = {.struct_size = sizeof(config)};
    const fedge_client_callbacks callbacks = {.struct_size = sizeof(callbacks),
                                              .user = &f,
                                              .plan = on_plan,
                                              .train = on_train,
                                              .check = on_check};
    assert_int_equal(fedge_client_new(&config, &callbacks, &f.client, &err), FEDGE_OK);
    assert_int_equal(pthread_create(&f.thread, NULL, run, &f), 0);
    assert_int_equal(fedge_os_channel_receive(f.channel, &hello, sizeof(hello), NULL, &err),
                     FEDGE_OK);
    assert_memory_equal(hello.magic, FEDGE_SIMULATED_MAGIC, sizeof(hello.magic));
    assert_string_equal(hello.release, FEDGE_VERSION);
    send_plan(&f);
    const fedge_simulated_message answer = receive(&f, &data);
    assert_int_equal(answer.kind, FEDGE_SIMULATED_RESULT);
    assert_int_equal(answer.status, FEDGE_OK);
    free(data);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    fedge_os_channel_close(f->channel);
    pthread_join(f->thread, NULL);
    assert_int_equal(f->code, FEDGE_EXIT_OK);
    fedge_client_free(f->client);
    fedge_os_shared_unmap(f->values, f->layout.bytes);
    fedge_os_channel_close(f->memory);
    return 0;
}

static void ask_for(fixture *f, uint32_t round)
{
    fedge_error err;
    const fedge_simulated_message task = {.kind = FEDGE_SIMULATED_TRAIN,
                                          .round = round,
                                          .client_index = 5,
                                          .num_clients = 8,
                                          .learning_rate = 0.25};
    assert_int_equal(fedge_simulated_send(f->channel, &task, NULL, -1, &err), FEDGE_OK);
}

/* Answers a get by [value], and takes the put that follows. */
static void serve_values(fixture *f, unsigned char value, unsigned char wanted)
{
    fedge_error err;
    void *data = NULL;
    fedge_simulated_message answer = {.kind = FEDGE_SIMULATED_VALUE, .size = 1};
    fedge_simulated_message asked = receive(f, &data);
    assert_int_equal(asked.kind, FEDGE_SIMULATED_GET);
    assert_string_equal(asked.key, "tasks");
    free(data);
    assert_int_equal(fedge_simulated_send(f->channel, &answer, &value, -1, &err), FEDGE_OK);
    asked = receive(f, &data);
    assert_int_equal(asked.kind, FEDGE_SIMULATED_PUT);
    assert_int_equal(asked.size, 1);
    assert_int_equal(*(unsigned char *)data, wanted);
    free(data);
    answer.size = 0;
    assert_int_equal(fedge_simulated_send(f->channel, &answer, NULL, -1, &err), FEDGE_OK);
}

static void a_client_trains_in_shared_memory(void **state)
{
    fixture *f = *state;
    void *data = NULL;
    assert_int_equal(f->order[0], 1);
    assert_int_equal(f->order[1], 2);
    for (int i = 0; i < 3; i++)
        f->values[i] = (float)i;
    ask_for(f, 1);
    serve_values(f, 3, 4);
    const fedge_simulated_message result = receive(f, &data);
    const fedge_simulated_metric *metric = data;
    assert_int_equal(result.status, FEDGE_OK);
    assert_int_equal(result.num_examples, 8);
    assert_int_equal(result.size, sizeof(*metric));
    assert_string_equal(metric->name, "loss");
    assert_true(metric->value == 0.25);
    free(data);
    assert_true(f->values[0] == 8.0f && f->values[2] == 10.0f);
}

static void a_failure_has_its_text(void **state)
{
    fixture *f = *state;
    void *data = NULL;
    ask_for(f, 9);
    const fedge_simulated_message result = receive(f, &data);
    assert_int_equal(result.status, FEDGE_UNSUPPORTED);
    assert_string_equal(data, "not in round 9");
    free(data);
}

static void an_end_of_sending_cancels(void **state)
{
    fixture *f = *state;
    void *data = NULL;
    assert_false(fedge_client_cancelled(f->client));
    ask_for(f, 1);
    serve_values(f, 0, 1);
    free((receive(f, &data), data));
    fedge_os_channel_end(f->channel, false);
    assert_true(fedge_client_cancelled(f->client));
}

static void stop_ends_the_run(void **state)
{
    fixture *f = *state;
    fedge_error err;
    char byte;
    assert_false(fedge_client_busy(f->client));
    fedge_client_stop(f->client);
    assert_int_equal(fedge_os_channel_receive(f->channel, &byte, 1, NULL, &err), FEDGE_CLOSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_client_trains_in_shared_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failure_has_its_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_end_of_sending_cancels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stop_ends_the_run, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

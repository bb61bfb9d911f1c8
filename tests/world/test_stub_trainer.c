/* Tests that the stub trainer depends only on seed, client and task, and that it checks the
 * client's promises. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/rounds/strategy.h"
#include "edge/plan/client_hooks.h"
#include "tests/world/scheduler.h"
#include "tests/world/stub_trainer.h"

#define MAX_VALUES 64
#define NUM_TASKS 2000

/* ---- a world of one fiber, and a client without a server ------------------------------------- */

static struct {
    uint64_t now_ns, cancel_at_ns;
    char failure[256];
    uint8_t stored[64];
    size_t stored_size; /* 0: nothing */
    fedge_status put_status;
    uint32_t num_puts;
} world;

uint64_t world_now_ns(void)
{
    return world.now_ns;
}

bool world_wait(const void *address, uint64_t ns)
{
    (void)address;
    const uint64_t until_ns = world.now_ns + ns;
    const bool is_cancelled = world.now_ns < world.cancel_at_ns && world.cancel_at_ns < until_ns;
    world.now_ns = is_cancelled ? world.cancel_at_ns : until_ns;
    return is_cancelled;
}

void world_wake_all(const void *address)
{
    (void)address;
}

void world_fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    (void)vsnprintf(world.failure, sizeof(world.failure), format, values);
    va_end(values);
}

bool __wrap_fedge_client_cancelled(fedge_client *client);
fedge_status __wrap_fedge_client_put(fedge_client *client, const char *key, const void *data,
                                     size_t size, fedge_error *err);
fedge_status __wrap_fedge_client_get(fedge_client *client, const char *key, void **data,
                                     size_t *size, fedge_error *err);

bool __wrap_fedge_client_cancelled(fedge_client *client)
{
    (void)client;
    return world.now_ns >= world.cancel_at_ns;
}

fedge_status __wrap_fedge_client_put(fedge_client *client, const char *key, const void *data,
                                     size_t size, fedge_error *err)
{
    (void)client;
    assert_true(strlen(key) > 0 && size <= sizeof(world.stored));
    world.num_puts++;
    if (world.put_status)
        return fedge_fail(err, world.put_status, "not stored");
    memcpy(world.stored, data, size);
    world.stored_size = size;
    return FEDGE_OK;
}

fedge_status __wrap_fedge_client_get(fedge_client *client, const char *key, void **data,
                                     size_t *size, fedge_error *err)
{
    (void)client;
    *data = NULL;
    *size = world.stored_size;
    if (world.stored_size == 0)
        return fedge_fail(err, FEDGE_NOT_FOUND, "no %s", key);
    *data = malloc(world.stored_size);
    assert_non_null(*data);
    memcpy(*data, world.stored, world.stored_size);
    return FEDGE_OK;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static fedge_job *parse(const char *strategy)
{
    char text[1024];
    (void)snprintf(text, sizeof(text),
                   "{\"fedge-job\":1,\"name\":\"stub\",\"model\":{\"input-shape\":[3],\"layers\":["
                   "{\"type\":\"Linear\",\"in_features\":3,\"out_features\":4}]},\"data\":{"
                   "\"name\":\"points\",\"shape\":[3],\"dtype\":\"f32\",\"labels\":4},"
                   "\"training\":{\"learning-rate\":0.1},\"rounds\":{\"num-server-rounds\":3},"
                   "\"strategy\":{\"type\":\"%s\"}}",
                   strategy);
    fedge_job *job = NULL;
    fedge_error err;
    if (fedge_strategy_job_parse(text, strlen(text), "job.json", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return job;
}

typedef struct done {
    fedge_status status;
    uint64_t took_ns;
    float changes[MAX_VALUES];
    fedge_client_report report;
} done;

static done perform(stub_trainer *trainer, const fedge_job *job, uint64_t task_id, bool trains)
{
    const fedge_plan *plan = &job->plan;
    const fedge_client_plan view = {.schema = &plan->schema, .full = plan};
    float others[MAX_VALUES] = {0}, personal[MAX_VALUES] = {0};
    const fedge_client_task task = {.task_id = task_id,
                                    .round = (uint32_t)task_id % 3 + 1,
                                    .deadline_ms = 5000,
                                    .plan = &view,
                                    .others = fedge_plan_is_clustered(plan) ? others : NULL,
                                    .personal = fedge_plan_is_personal(plan) ? personal : NULL};
    const fedge_client_callbacks call = stub_trainer_callbacks(trainer);
    fedge_error err = {0};
    done made = {0};
    assert_in_range(plan->schema.num_elements, 1, MAX_VALUES);
    const uint64_t start_ns = world.now_ns;
    made.status = trains ? call.train(call.user, NULL, &task, made.changes, &made.report, &err)
                         : call.evaluate(call.user, NULL, &task, made.changes, &made.report, &err);
    made.took_ns = world.now_ns - start_ns;
    return made;
}

static void begin(void)
{
    memset(&world, 0, sizeof(world));
    world.cancel_at_ns = UINT64_MAX;
}

static bool reports(const done *made, const char *name)
{
    for (uint32_t i = 0; i < made->report.num_metrics; i++) {
        if (strcmp(made->report.metrics[i].name, name) == 0)
            return true;
    }
    return false;
}

static void order_does_not_matter(void **state)
{
    (void)state;
    fedge_job *job = parse("FedAvg");
    stub_trainer one, two, other;
    begin();
    stub_trainer_init(&one, 5, 2);
    stub_trainer_init(&two, 5, 2);
    stub_trainer_init(&other, 5, 3);
    for (uint64_t task = 1; task < 50; task++) {
        (void)perform(&two, job, task + 1000, true);
        const done a = perform(&one, job, task, true), b = perform(&two, job, task, true);
        assert_memory_equal(&a, &b, sizeof(a));
    }
    const done a = perform(&one, job, 60, true), c = perform(&other, job, 60, true);
    assert_memory_not_equal(a.changes, c.changes, sizeof(a.changes));
    fedge_job_free(job);
}

static void all_kinds_of_results_occur(void **state)
{
    (void)state;
    fedge_job *job = parse("FedAvg");
    uint32_t failed = 0, late = 0, over = 0, zero = 0, whole = 0, not_finite = 0, calm = 0;
    begin();
    for (uint32_t seed = 1; seed <= NUM_TASKS; seed++) {
        stub_trainer trainer;
        stub_trainer_init(&trainer, seed, seed % 8);
        assert_in_range(trainer.num_examples, 1, 50);
        calm += trainer.chances.fails == 0;
        const done made = perform(&trainer, job, seed, true);
        failed += made.status != FEDGE_OK;
        late += made.took_ns > 5000ull * 1000000;
        uint32_t zeros = 0, overs = 0, nans = 0;
        for (uint32_t i = 0; i < job->plan.num_parameters; i++) {
            zeros += made.changes[i] == 0.0f;
            overs += fabsf(made.changes[i]) > 4.0f;
            nans += isnan(made.changes[i]) != 0;
        }
        if (made.status == FEDGE_OK) {
            over += overs > 0;
            zero += zeros > 2;
            whole += zeros == 0 && overs == 0 && nans == 0;
            not_finite += nans > 0;
            assert_int_equal(made.report.num_examples, trainer.num_examples);
            assert_true(made.report.num_steps > 0);
            assert_true(reports(&made, "loss") && reports(&made, "accuracy"));
        }
    }
    assert_in_range(calm, NUM_TASKS / 3, NUM_TASKS * 2 / 3);
    assert_in_range(failed, NUM_TASKS / 200, NUM_TASKS / 10);
    assert_in_range(late, NUM_TASKS / 200, NUM_TASKS / 10);
    assert_in_range(over, NUM_TASKS / 100, NUM_TASKS / 10);
    assert_in_range(zero, NUM_TASKS / 20, NUM_TASKS / 4);
    assert_in_range(not_finite, 1, NUM_TASKS / 50);
    assert_true(whole > NUM_TASKS / 2);
    fedge_job_free(job);
}

static void nothing_fails_once_calm(void **state)
{
    (void)state;
    fedge_job *job = parse("FedAvg");
    begin();
    for (uint32_t seed = 1; seed <= NUM_TASKS; seed++) {
        stub_trainer trainer;
        stub_trainer_init(&trainer, seed, 0);
        stub_trainer_calm(&trainer);
        const done made = perform(&trainer, job, seed, true);
        assert_int_equal(made.status, FEDGE_OK);
        assert_in_range(made.took_ns, 1, 3000ull * 1000000);
        for (uint32_t i = 0; i < job->plan.num_parameters; i++)
            assert_true(isfinite(made.changes[i]));
        assert_int_equal(perform(&trainer, job, seed, false).status, FEDGE_OK);
    }
    fedge_job_free(job);
}

/* Performs a task of one client with this strategy. */
static done of_strategy(const char *strategy, uint64_t task)
{
    fedge_job *job = parse(strategy);
    stub_trainer trainer;
    begin();
    stub_trainer_init(&trainer, 1, 0);
    stub_trainer_calm(&trainer);
    const done made = perform(&trainer, job, task, true);
    assert_int_equal(made.status, FEDGE_OK);
    fedge_job_free(job);
    return made;
}

static void strategies_get_what_they_ask_for(void **state)
{
    (void)state;
    uint32_t chosen[2] = {0};
    for (uint64_t task = 1; task <= 40; task++)
        chosen[of_strategy("IFCA", task).report.chosen]++;
    assert_true(chosen[0] > 0 && chosen[1] > 0);
    const done fair = of_strategy("QFedAvg", 1), plain = of_strategy("FedAvg", 1);
    assert_true(reports(&fair, FEDGE_START_LOSS) && !reports(&plain, FEDGE_START_LOSS));
    (void)of_strategy("Ditto", 1);
}

static void most_trainers_end_when_cancelled(void **state)
{
    (void)state;
    fedge_job *job = parse("FedAvg");
    uint32_t cancelled = 0, went_on = 0;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        stub_trainer trainer;
        begin();
        world.cancel_at_ns = 5000000; /* before any task's end */
        stub_trainer_init(&trainer, seed, 1);
        stub_trainer_calm(&trainer);
        const done made = perform(&trainer, job, seed, true);
        cancelled += made.status == FEDGE_CANCELLED && made.took_ns == 5000000;
        went_on += made.status == FEDGE_OK && made.took_ns > 5000000;
    }
    assert_int_equal(cancelled + went_on, 200);
    assert_true(cancelled > 100 && went_on > 10);
    fedge_job_free(job);
}

/* ---- the stored value ------------------------------------------------------------------------ */

/* A trainer that has stored two values; the second one was confirmed. */
static stub_trainer storing(const fedge_job *job, uint8_t first[64])
{
    stub_trainer trainer;
    begin();
    stub_trainer_init(&trainer, 1, 4);
    stub_trainer_calm(&trainer);
    trainer.chances.stores = 1000;
    (void)perform(&trainer, job, 1, true);
    memcpy(first, world.stored, sizeof(world.stored));
    (void)perform(&trainer, job, 2, true);
    assert_int_equal(world.num_puts, 2);
    assert_int_equal(trainer.confirmed, 2);
    assert_string_equal(world.failure, "");
    return trainer;
}

static void a_lost_value_is_found(void **state)
{
    (void)state;
    fedge_job *job = parse("FedAvg");
    uint8_t first[64];
    stub_trainer trainer = storing(job, first);
    memcpy(world.stored, first, sizeof(first));
    (void)perform(&trainer, job, 3, true);
    assert_string_equal(world.failure, "client 4 stored value 2, and has an older one, 1");

    trainer = storing(job, first);
    world.stored_size = 0;
    (void)perform(&trainer, job, 3, true);
    assert_string_equal(world.failure, "client 4 lost its value 2: no stub-value");

    trainer = storing(job, first);
    world.stored[20] ^= 1;
    (void)perform(&trainer, job, 3, true);
    assert_non_null(strstr(world.failure, "which it never had"));

    trainer = storing(job, first);
    trainer.may_lose = true;
    world.stored_size = 0;
    (void)perform(&trainer, job, 3, true);
    assert_string_equal(world.failure, "");
    fedge_job_free(job);
}

static void an_unconfirmed_value_may_be_either(void **state)
{
    (void)state;
    fedge_job *job = parse("FedAvg");
    uint8_t first[64], third[64];
    stub_trainer trainer = storing(job, first);
    world.put_status = FEDGE_IO;
    assert_int_equal(perform(&trainer, job, 3, true).status, FEDGE_IO);
    assert_int_equal(trainer.confirmed, 2);
    (void)perform(&trainer, job, 4, true);
    assert_string_equal(world.failure, "");

    stub_trainer again = storing(job, first);
    (void)perform(&again, job, 3, true);
    memcpy(third, world.stored, sizeof(third));
    trainer.confirmed = 2;
    trainer.tried = 3;
    memcpy(world.stored, third, sizeof(third));
    (void)perform(&trainer, job, 5, true);
    assert_string_equal(world.failure, "");
    fedge_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_does_not_matter),
        cmocka_unit_test(all_kinds_of_results_occur),
        cmocka_unit_test(nothing_fails_once_calm),
        cmocka_unit_test(strategies_get_what_they_ask_for),
        cmocka_unit_test(most_trainers_end_when_cancelled),
        cmocka_unit_test(a_lost_value_is_found),
        cmocka_unit_test(an_unconfirmed_value_may_be_either),
    };
    return cmocka_run_group_tests_name("world/stub_trainer", tests, NULL, NULL);
}

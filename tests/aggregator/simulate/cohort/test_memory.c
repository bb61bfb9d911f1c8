/* What a run takes is counted before it takes it. */
#include "aggregator/simulate/cohort/memory.h"

#include <stdlib.h>

#include "aggregator/simulate/cohort/training_backend.h"

#define POINTS_FILE "memory-points.csv"
#include "tests/aggregator/simulate/run/run.h"

#define MB 1000000u

static fedge_status check(const fedge_memory *memory, uint64_t usable, fedge_error *err)
{
    return fedge_memory_check(memory, usable, err);
}

/* Each part fits, and all together do not. */
static void the_parts_are_summed(void **state)
{
    (void)state;
    const fedge_memory memory = {.present = 59 * MB,
                                 .model = 6 * MB,
                                 .threads = 26 * MB,
                                 .states = 88 * MB,
                                 .tasks = 1000,
                                 .num_threads = 2};
    fedge_error err;
    const uint64_t all = 179 * MB + 1000;
    assert_int_equal(check(&memory, all, &err), FEDGE_OK);
    assert_int_equal(check(&memory, 0, &err), FEDGE_OK); /* unknown */
    assert_int_equal(check(&memory, all - 1, &err), FEDGE_TOO_BIG);
    assert_string_equal(
        err.message,
        "180 MB are needed: 88 MB for clients' states and an open round's copies, "
        "59 MB that the program and its data have, 26 MB for 2 threads of 13 MB each, 6 MB for the "
        "global model; and there are 179 MB for this program: use --client-state-memory BYTES, "
        "beyond which it lies in a file, fewer clients or rounds, a "
        "smaller cohort or another strategy; fewer or smaller examples");
}

/* What clients keep has half of what the rest leaves, where not all of it fits. */
static void what_clients_keep_has_what_is_left(void **state)
{
    (void)state;
    const fedge_memory memory = {
        .present = 10, .model = 20, .threads = 30, .states = 100, .tasks = 40, .num_threads = 1};
    const struct {
        uint64_t usable, budget;
    } CASES[] = {{0, 0},   {200, 0}, {UINT64_MAX, 0}, {199, 49},
                 {102, 1}, {101, 1}, {100, 1},        {1, 1}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        assert_int_equal(fedge_memory_state_budget(&memory, CASES[i].usable), CASES[i].budget);
    const fedge_memory much = {.present = UINT64_MAX, .model = 1, .states = 1};
    assert_int_equal(fedge_memory_state_budget(&much, UINT64_MAX), 1);
}

/* The longest message is whole. */
static void all_parts_have_room_in_the_message(void **state)
{
    (void)state;
    const uint64_t much = UINT64_MAX / 6;
    const fedge_memory memory = {much, much, much, much, much, 256};
    fedge_error err;
    assert_int_equal(check(&memory, MB, &err), FEDGE_TOO_BIG);
    assert_non_null(strstr(err.message, "; and there are 1 MB for this program: use "));
}

static const char *const MORES[] = {"", ",\"update\":{\"codec\":\"int8\",\"deflate\":true}",
                                    ",\"strategy\":{\"type\":\"SCAFFOLD\",\"num-clients\":9}"};

/* What a thread is said to take is what it takes. */
static void threads_take_what_was_counted(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(MORES) / sizeof(MORES[0]); i++) {
        run self;
        uint64_t bytes = 0;
        assert_int_equal(begin(&self, "\"num-server-rounds\":5", MORES[i], "iid", 9, 2), FEDGE_OK);
        const fedge_sim_backend_config backend = {.job = self.job,
                                                  .client_data = self.client_data,
                                                  .max_evaluated = FEDGE_EVALUATION_CHUNK};
        assert_int_equal(fedge_sim_backend_cpu.size(&backend, &bytes, &self.err), FEDGE_OK);
        assert_int_equal(bytes, fedge_simulation_bytes_per_thread(self.simulation));
        end(&self);
    }
}

static void a_run_has_all_its_parts(void **state)
{
    (void)state;
    run self;
    fedge_memory memory;
    fedge_memory_demand demand;
    assert_int_equal(
        begin(&self, "\"num-server-rounds\":5,\"fraction-train\":0.4", MORES[2], "iid", 9, 2),
        FEDGE_OK);
    const fedge_simulation_config config = {
        .job = self.job, .client_data = self.client_data, .num_threads = 2, .evaluate_every = 1};
    const uint64_t values = self.job->plan.schema.num_elements;
    assert_int_equal(fedge_simulation_demand(&config, &demand, &self.err), FEDGE_OK);
    assert_int_equal(fedge_memory_count(&memory, &demand, &self.err), FEDGE_OK);
    assert_true(memory.present > 0 && memory.tasks > 0);
    assert_int_equal(memory.states, fedge_client_states_size(9, 3, 5, values, 0));
    assert_true(memory.threads > 2 * fedge_simulation_bytes_per_thread(self.simulation));
    /* Values, two files and the server's variate, which is saved. */
    assert_true(memory.model > values * (4 + 2 * 4 + 3 * 4));
    const fedge_memory alone = memory;
    demand.is_distributed = true;
    assert_int_equal(fedge_memory_count(&memory, &demand, &self.err), FEDGE_OK);
    assert_int_equal(memory.model, alone.model + values * 2 * sizeof(int64_t)); /* and a variate */
    end(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_are_summed),
        cmocka_unit_test(what_clients_keep_has_what_is_left),
        cmocka_unit_test(all_parts_have_room_in_the_message),
        cmocka_unit_test(threads_take_what_was_counted),
        cmocka_unit_test(a_run_has_all_its_parts),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}

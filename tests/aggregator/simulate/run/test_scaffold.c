/* SCAFFOLD in the simulator: what becomes of the clients' variates. */
#include "aggregator/simulate/run/simulation.h"

#include <math.h>
#include <stdlib.h>

#define POINTS_FILE "scaffold-points.csv"
#include "tests/aggregator/simulate/run/run.h"

#define SCAFFOLD(clients) ",\"strategy\":{\"type\":\"SCAFFOLD\",\"num-clients\":" #clients "}"

/* Brings [self] to where [from] stands, by the files of a checkpoint but, unless [with_variates],
 * the clients' variates. */
static fedge_status restore(run *self, const run *from, bool with_variates)
{
    static const char path[] = "scaffold-variates.bin";
    const fedge_simulation_state at = fedge_simulation_get_state(from->simulation);
    const fedge_global_model *global = fedge_simulation_model(from->simulation);
    uint8_t *file = NULL;
    size_t size = 0, control = 0;
    fedge_buffer saved;
    fedge_buffer_init(&saved, FEDGE_STRATEGY_MAX_STATE);
    assert_int_equal(fedge_global_model_write(global, &file, &size, &control, &self->err),
                     FEDGE_OK);
    assert_int_equal(global->strategy->save(global->strategy_state, &saved, &self->err), FEDGE_OK);
    if (with_variates) {
        assert_int_equal(
            fedge_client_states_save(fedge_simulation_states(from->simulation), path, &self->err),
            FEDGE_OK);
        assert_int_equal(fedge_simulation_load_states(self->simulation, path, &self->err),
                         FEDGE_OK);
    }
    const fedge_status status = fedge_simulation_restore(self->simulation, &at, file, size,
                                                         saved.data, saved.size, &self->err);
    fedge_buffer_fini(&saved);
    free(file);
    return status;
}

/* Wherever it is stopped: what a dropped round did to variates is undone. */
static void scaffold_goes_on_with_its_variates(void **state)
{
    (void)state;
    static const char rounds[] = "\"num-server-rounds\":5,\"fraction-train\":0.6";
    run whole;
    assert_int_equal(begin(&whole, rounds, SCAFFOLD(7), "dirichlet:0.5", 7, 2), FEDGE_OK);
    go(&whole);
    uint32_t in_a_round = 0;
    bool finished = false;
    for (uint32_t stop = 3; !finished; stop += 5) {
        run first, second;
        assert_int_equal(begin(&first, rounds, SCAFFOLD(7), "dirichlet:0.5", 7, 1), FEDGE_OK);
        first.stop_asked = stop;
        finished = fedge_simulation_run(first.simulation, &first.err) == FEDGE_OK;
        in_a_round += !finished && first.num_lines > 0;
        assert_int_equal(begin(&second, rounds, SCAFFOLD(7), "dirichlet:0.5", 7, 2), FEDGE_OK);
        assert_int_equal(restore(&second, &first, true), FEDGE_OK);
        go(&second);
        assert_int_equal(first.num_lines + second.num_lines, 5);
        if (!finished)
            assert_string_equal(second.lines[second.num_lines - 1].model, whole.lines[4].model);
        end(&first);
        end(&second);
    }
    assert_true(in_a_round >= 3);
    end(&whole);
}

static void scaffold_does_not_go_on_without_its_variates(void **state)
{
    (void)state;
    for (uint32_t round = 0; round <= 3; round++) {
        run first, second;
        assert_int_equal(begin(&first, "\"num-server-rounds\":3", SCAFFOLD(4), "iid", 4, 1),
                         FEDGE_OK);
        first.stop_at = round;
        if (round > 0) {
            const fedge_status status = fedge_simulation_run(first.simulation, &first.err);
            assert_int_equal(status, round < 3 ? FEDGE_CANCELLED : FEDGE_OK);
        }
        assert_int_equal(begin(&second, "\"num-server-rounds\":3", SCAFFOLD(4), "iid", 4, 1),
                         FEDGE_OK);
        assert_int_equal(restore(&second, &first, false),
                         round == 0 || round == 3 ? FEDGE_OK : FEDGE_MISMATCH);
        end(&first);
        end(&second);
    }
}

/* Largest difference between c and the mean of the c_i; a client that never trained has 0. */
static double distance_from_mean(const run *self, uint32_t clients)
{
    const fedge_client_states *variates = fedge_simulation_states(self->simulation);
    const fedge_global_model *global = fedge_simulation_model(self->simulation);
    const float *control = global->strategy->broadcast(global->strategy_state);
    fedge_error err;
    double most = 0.0;
    float *of = malloc(variates->num_values * sizeof(*of));
    double *sums = calloc(variates->num_values, sizeof(*sums));
    assert_true(of && sums);
    for (uint32_t c = 0; c < clients; c++) {
        assert_int_equal(fedge_client_states_get(variates, c, of, &err), FEDGE_OK);
        for (size_t i = 0; i < variates->num_values; i++)
            sums[i] += (double)of[i];
    }
    for (size_t i = 0; i < variates->num_values; i++)
        most = fmax(most, fabs(sums[i] / clients - (double)control[i]));
    free(of);
    free(sums);
    return most;
}

/* Attempts that fail, after some have trained in them, among rounds that close. */
static void what_did_not_count_moves_nothing(void **state)
{
    (void)state;
    uint32_t repeated = 0;
    for (uint64_t seed = 0; seed < 8; seed++) {
        const fedge_client_profiles_settings settings = {.compute = "lognormal:20,1",
                                                         .failure = 0.3};
        fedge_client_profiles *profiles = NULL;
        run self;
        assert_int_equal(fedge_client_profiles_new(&settings, seed, 12, &profiles, &self.err),
                         FEDGE_OK);
        assert_int_equal(begin_with(&self, profiles,
                                    "\"num-server-rounds\":6,\"fraction-train\":0.5,"
                                    "\"round-deadline-s\":8,\"min-report-fraction\":0.8",
                                    SCAFFOLD(12), "dirichlet:0.5", 12, 2),
                         FEDGE_OK);
        go(&self);
        for (uint32_t i = 0; i < self.num_lines; i++)
            repeated += self.lines[i].attempt;
        /* c is the sum of 6 roundings to single precision. */
        assert_true(distance_from_mean(&self, 12) < 1e-6);
        end(&self);
    }
    assert_true(repeated > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scaffold_goes_on_with_its_variates),
        cmocka_unit_test(scaffold_does_not_go_on_without_its_variates),
        cmocka_unit_test(what_did_not_count_moves_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}

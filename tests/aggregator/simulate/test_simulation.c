#include "aggregator/simulate/simulation.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/aggregator/simulate/fixture.h"

#define MAX_LINES 64

/* A run and what it said. */
typedef struct run {
    fedge_job *job;
    fedge_population *population;
    fedge_simulation *simulation;
    fedge_round_summary lines[MAX_LINES];
    uint32_t num_lines;
    uint32_t stop_at;    /* ≠ 0: cancelled once so many lines were said */
    atomic_uint asked;   /* how often it was asked whether to stop */
    uint32_t stop_asked; /* ≠ 0: cancelled when asked so often */
    fedge_error err;
} run;

static fedge_status on_round(void *user, const fedge_round_summary *summary, fedge_error *err)
{
    run *self = user;
    (void)err;
    assert_true(self->num_lines < MAX_LINES);
    self->lines[self->num_lines++] = *summary;
    return FEDGE_OK;
}

static bool is_over(void *user)
{
    run *self = user;
    const uint32_t asked = atomic_fetch_add(&self->asked, 1) + 1;
    return (self->stop_at > 0 && self->num_lines >= self->stop_at) ||
           (self->stop_asked > 0 && asked >= self->stop_asked);
}

static fedge_status begin(run *self, const char *rounds, const char *more, const char *partition,
                          uint32_t clients, uint32_t threads)
{
    *self = (run){.job = make_job(rounds, more)};
    self->population = make_population(self->job, partition, clients,
                                       self->job->rounds.fraction_evaluate > 0 ? 0.2 : 0);
    const fedge_simulation_config config = {.job = self->job,
                                            .population = self->population,
                                            .test_set = self->population->dataset,
                                            .num_threads = threads,
                                            .evaluate_every = 1,
                                            .cancel = is_over,
                                            .on_round = on_round,
                                            .user = self};
    return fedge_simulation_new(&config, &self->simulation, &self->err);
}

static void end(run *self)
{
    fedge_simulation_free(self->simulation);
    fedge_population_free(self->population);
    fedge_job_free(self->job);
}

static void go(run *self)
{
    if (fedge_simulation_run(self->simulation, &self->err) != FEDGE_OK) {
        fail_msg("%s", self->err.message);
    }
}

/* All that a run says but times. */
static void assert_same(const run *a, const run *b)
{
    assert_int_equal(a->num_lines, b->num_lines);
    for (uint32_t i = 0; i < a->num_lines; i++) {
        const fedge_round_summary *x = &a->lines[i], *y = &b->lines[i];
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(x->asked, y->asked);
        assert_int_equal(x->reported, y->reported);
        assert_int_equal(x->examples, y->examples);
        assert_int_equal(x->bytes_up, y->bytes_up);
        assert_int_equal(x->clamped, y->clamped);
        assert_string_equal(x->model, y->model);
        assert_memory_equal(&x->loss, &y->loss, sizeof(x->loss));
        assert_memory_equal(&x->accuracy, &y->accuracy, sizeof(x->accuracy));
        assert_memory_equal(&x->train_loss, &y->train_loss, sizeof(x->train_loss));
    }
}

static void threads_change_nothing(void **state)
{
    (void)state;
    static const char *const mores[] = {"", ",\"update\":{\"codec\":\"int8\",\"deflate\":true}",
                                        ",\"strategy\":{\"type\":\"SCAFFOLD\",\"num-clients\":9}"};
    for (size_t m = 0; m < sizeof(mores) / sizeof(mores[0]); m++) {
        run runs[3];
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(begin(&runs[i],
                                   "\"num-server-rounds\":5,\"fraction-train\":0.6,"
                                   "\"fraction-evaluate\":0.5",
                                   mores[m], "dirichlet:0.5", 9, 1 + 2 * i),
                             FEDGE_OK);
            go(&runs[i]);
        }
        assert_int_equal(runs[0].num_lines, 10);
        assert_int_equal(runs[0].lines[0].reported, 5);
        assert_true(runs[0].lines[8].loss < runs[0].lines[0].loss);
        for (uint32_t i = 1; i < 3; i++) {
            assert_same(&runs[0], &runs[i]);
        }
        for (uint32_t i = 0; i < 3; i++) {
            end(&runs[i]);
        }
    }
}

static void a_run_goes_on_where_it_stopped(void **state)
{
    (void)state;
    static const char rounds[] = "\"num-server-rounds\":6,\"fraction-train\":0.5";
    run whole, first, second;
    uint8_t *file = NULL;
    size_t size = 0, control = 0;
    assert_int_equal(begin(&whole, rounds, "", "iid", 8, 2), FEDGE_OK);
    go(&whole);
    assert_int_equal(begin(&first, rounds, "", "iid", 8, 2), FEDGE_OK);
    first.stop_at = 2;
    assert_int_equal(fedge_simulation_run(first.simulation, &first.err), FEDGE_CANCELLED);
    assert_non_null(strstr(first.err.message, "interrupted in round 3"));
    const fedge_simulation_state at = fedge_simulation_get_state(first.simulation);
    assert_int_equal(at.rounds_closed, 2);
    assert_int_equal(fedge_global_model_write(fedge_simulation_model(first.simulation), &file,
                                              &size, &control, &first.err),
                     FEDGE_OK);
    assert_int_equal(begin(&second, rounds, "", "iid", 8, 2), FEDGE_OK);
    assert_int_equal(
        fedge_simulation_restore(second.simulation, &at, file, size, NULL, 0, &second.err),
        FEDGE_OK);
    go(&second);
    assert_int_equal(second.num_lines, 4);
    assert_int_equal(second.lines[0].round, 3);
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(second.lines[i].model, whole.lines[2 + i].model);
    }
    free(file);
    end(&whole);
    end(&first);
    end(&second);
}

/* Wherever a run is stopped, its model is the one that was said last. */
static void an_interrupted_run_says_all_that_it_did(void **state)
{
    (void)state;
    static const char rounds[] = "\"num-server-rounds\":3,\"fraction-evaluate\":1";
    bool finished = false;
    for (uint32_t stop = 1; !finished; stop++) {
        run self;
        assert_int_equal(begin(&self, rounds, "", "iid", 4, 1), FEDGE_OK);
        self.stop_asked = stop;
        finished = fedge_simulation_run(self.simulation, &self.err) == FEDGE_OK;
        assert_int_equal(2 * fedge_simulation_get_state(self.simulation).rounds_closed,
                         self.num_lines);
        end(&self);
    }
}

static void scaffold_does_not_go_on_without_its_variates(void **state)
{
    (void)state;
    for (uint32_t round = 0; round <= 3; round++) {
        run self;
        uint8_t *file = NULL;
        size_t size = 0, control = 0;
        fedge_buffer saved;
        assert_int_equal(begin(&self, "\"num-server-rounds\":3",
                               ",\"strategy\":{\"type\":\"SCAFFOLD\"}", "iid", 4, 1),
                         FEDGE_OK);
        const fedge_global_model *global = fedge_simulation_model(self.simulation);
        const fedge_simulation_state at = {.rounds_closed = round, .next_task_id = 100};
        fedge_buffer_init(&saved, FEDGE_STRATEGY_MAX_STATE);
        assert_int_equal(fedge_global_model_write(global, &file, &size, &control, &self.err),
                         FEDGE_OK);
        assert_int_equal(global->strategy->save(global->strategy_state, &saved, &self.err),
                         FEDGE_OK);
        assert_int_equal(fedge_simulation_restore(self.simulation, &at, file, size, saved.data,
                                                  saved.size, &self.err),
                         round == 0 || round == 3 ? FEDGE_OK : FEDGE_UNSUPPORTED);
        fedge_buffer_fini(&saved);
        free(file);
        end(&self);
    }
}

/* The last client's rows are beyond what training survives: it fails and another takes its place.
 */
static void a_client_that_fails_is_replaced(void **state)
{
    (void)state;
    run self;
    uint32_t owner[POINTS], asked = 0;
    for (uint32_t i = 0; i < POINTS; i++) {
        owner[i] = i / 30;
    }
    write_points(POINTS_FILE, 210);
    assert_int_equal(fedge_partition_write_csv("simulate-division.csv", owner, POINTS, NULL),
                     FEDGE_OK);
    assert_int_equal(begin(&self, "\"num-server-rounds\":8,\"fraction-train\":0.5", "",
                           "file:simulate-division.csv", 8, 2),
                     FEDGE_OK);
    go(&self);
    assert_int_equal(self.num_lines, 8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(self.lines[i].reported, 4);
        assert_int_equal(self.lines[i].examples, 120);
        assert_true(isfinite(self.lines[i].train_loss));
        asked += self.lines[i].asked;
    }
    assert_int_equal(asked, 32);
    end(&self);
    /* Alone it is asked, fails, and nobody can take its place. */
    assert_int_equal(begin(&self, "\"num-server-rounds\":1,\"min-report-fraction\":1", "",
                           "file:simulate-division.csv", 8, 2),
                     FEDGE_OK);
    assert_int_equal(fedge_simulation_run(self.simulation, &self.err), FEDGE_UNSUPPORTED);
    assert_non_null(strstr(self.err.message, "the last to fail: client 7: "));
    end(&self);
    write_points(POINTS_FILE, POINTS);
}

static void nobody_left_ends_the_run(void **state)
{
    (void)state;
    run self;
    write_points(POINTS_FILE, 0);
    assert_int_equal(begin(&self, "\"num-server-rounds\":2", "", "iid", 4, 2), FEDGE_OK);
    assert_int_equal(fedge_simulation_run(self.simulation, &self.err), FEDGE_UNSUPPORTED);
    assert_non_null(strstr(self.err.message, "round 1: too few of 4 clients reported"));
    assert_non_null(strstr(self.err.message, "client "));
    end(&self);
    write_points(POINTS_FILE, POINTS);
}

/* Of the five that are asked, four are waited for; who comes too late is not made to work. */
static void over_selection_closes_with_the_wanted(void **state)
{
    (void)state;
    run self;
    assert_int_equal(begin(&self,
                           "\"num-server-rounds\":3,\"fraction-train\":0.5,\"over-selection\":1.25",
                           "", "iid", 8, 3),
                     FEDGE_OK);
    go(&self);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(self.lines[i].asked, 5);
        assert_int_equal(self.lines[i].reported, 4);
    }
    end(&self);
}

static void what_cannot_be_simulated_is_said(void **state)
{
    (void)state;
    run self;
    assert_int_equal(begin(&self, "\"num-server-rounds\":1", "", "iid", 2, 300),
                     FEDGE_OUT_OF_RANGE);
    assert_non_null(strstr(self.err.message, "300"));
    end(&self);
}

static int set_up(void **state)
{
    (void)state;
    write_points(POINTS_FILE, POINTS);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(a_run_goes_on_where_it_stopped),
        cmocka_unit_test(an_interrupted_run_says_all_that_it_did),
        cmocka_unit_test(scaffold_does_not_go_on_without_its_variates),
        cmocka_unit_test(a_client_that_fails_is_replaced),
        cmocka_unit_test(nobody_left_ends_the_run),
        cmocka_unit_test(over_selection_closes_with_the_wanted),
        cmocka_unit_test(what_cannot_be_simulated_is_said),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}

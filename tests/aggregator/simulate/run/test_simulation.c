#include "aggregator/simulate/run/simulation.h"

#include <math.h>
#include <stdlib.h>

#define POINTS_FILE "simulation-points.csv"
#include "edge/data/formats/safetensors.h"
#include "tests/aggregator/simulate/run/run.h"

#define DIVISION "simulate-division.csv"

static void assert_same_time(const fedge_virtual_phase *a, const fedge_virtual_phase *b)
{
    assert_int_equal(a->present, b->present);
    assert_true(a->seconds == b->seconds && a->time == b->time);
    assert_memory_equal(a->asked, b->asked, sizeof(a->asked));
    assert_memory_equal(a->reported, b->reported, sizeof(a->reported));
}

/* All that a run says but times of the machine. */
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
        assert_same_time(&x->virtual_phase, &y->virtual_phase);
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
        for (uint32_t i = 1; i < 3; i++)
            assert_same(&runs[0], &runs[i]);
        for (uint32_t i = 0; i < 3; i++)
            end(&runs[i]);
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
    for (uint32_t i = 0; i < 4; i++)
        assert_string_equal(second.lines[i].model, whole.lines[2 + i].model);
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

/* Each of 8 clients has 30 examples; the last one's rows are beyond what training survives. */
static void write_division(void)
{
    uint32_t owner[POINTS];
    for (uint32_t i = 0; i < POINTS; i++)
        owner[i] = i / 30;
    write_points(POINTS_FILE, 210);
    assert_int_equal(fedge_partition_write_csv(DIVISION, owner, POINTS, NULL), FEDGE_OK);
}

/* The last client fails and another takes its place. */
static void a_client_that_fails_is_replaced(void **state)
{
    (void)state;
    run self;
    uint32_t asked = 0;
    write_division();
    assert_int_equal(
        begin(&self, "\"num-server-rounds\":8,\"fraction-train\":0.5", "", "file:" DIVISION, 8, 2),
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
                           "file:" DIVISION, 8, 2),
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

static uint64_t model_size(const run *self)
{
    size_t size = 0;
    assert_int_equal(fedge_safetensors_size(&self->job->plan.schema, &size, NULL), FEDGE_OK);
    return size;
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
        /* All that are asked have it; the first they make. */
        assert_int_equal(self.lines[i].bytes_down, i > 0 ? 5 * model_size(&self) : 0);
    }
    end(&self);
}

/* Who has evaluated a model trains on it next, and has it. */
static void what_is_evaluated_is_not_fetched_again(void **state)
{
    (void)state;
    run self;
    assert_int_equal(
        begin(&self, "\"num-server-rounds\":3,\"fraction-evaluate\":1", "", "iid", 4, 2), FEDGE_OK);
    go(&self);
    assert_int_equal(self.num_lines, 6);
    for (uint32_t i = 0; i < 6; i++) {
        const bool evaluates = self.lines[i].kind == FEDGE_TASK_EVALUATE;
        assert_int_equal(self.lines[i].bytes_down, evaluates ? 4 * model_size(&self) : 0);
    }
    end(&self);
}

/* The first model of all is made; later ones are fetched for each task. */
static void an_asynchronous_run_counts_no_first_model(void **state)
{
    (void)state;
    run self;
    assert_int_equal(begin(&self, "\"num-server-rounds\":4",
                           ",\"strategy\":{\"type\":\"FedBuff\",\"buffer-size\":2}", "iid", 6, 2),
                     FEDGE_OK);
    go(&self);
    assert_int_equal(self.num_lines, 4);
    assert_int_equal(self.lines[0].bytes_down, 0);
    for (uint32_t i = 1; i < 4; i++) {
        assert_in_range(self.lines[i].bytes_down, 2 * model_size(&self), 6 * model_size(&self));
        assert_int_equal(self.lines[i].bytes_down % model_size(&self), 0);
    }
    end(&self);
}

/* Without virtual time it is the same for all who comes too late: client c has 10 c examples or,
 * the first, 6. */
static void over_selection_favours_no_number(void **state)
{
    (void)state;
    run self;
    uint32_t owner[POINTS];
    uint64_t examples = 0;
    for (uint32_t i = 0, c = 0; i < POINTS; i++) {
        c += i == 6 + 5 * c * (c + 1);
        owner[i] = c < 7 ? c : FEDGE_PARTITION_UNUSED;
    }
    assert_int_equal(fedge_partition_write_csv(DIVISION, owner, POINTS, NULL), FEDGE_OK);
    assert_int_equal(begin(&self,
                           "\"num-server-rounds\":60,\"fraction-train\":0.5,"
                           "\"over-selection\":2",
                           "", "file:" DIVISION, 7, 2),
                     FEDGE_OK);
    go(&self);
    for (uint32_t i = 0; i < 60; i++) {
        assert_int_equal(self.lines[i].reported, 3);
        examples += self.lines[i].examples;
    }
    /* 216 examples of 7 clients: 180 reports have 5,554 on average, with a deviation of 206. */
    assert_in_range(examples, 4800, 6300);
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

/* ---- virtual time ---------------------------------------------------------------------------- */

static fedge_client_profiles *make_profiles(const fedge_client_profiles_settings *settings,
                                            uint32_t clients)
{
    fedge_client_profiles *profiles = NULL;
    fedge_error err;
    if (fedge_client_profiles_new(settings, 4, clients, &profiles, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return profiles;
}

/* Three clients of 80 examples, which two epochs make 160: 1, 2 and 4 seconds. */
static fedge_client_profiles *make_three(void)
{
    fedge_client_profiles *profiles =
        make_profiles(&(fedge_client_profiles_settings){.compute = "uniform:1,2"}, 3);
    static const float speeds[] = {160.0f, 80.0f, 40.0f};
    for (uint32_t c = 0; c < 3; c++) {
        profiles->clients[c].compute = speeds[c];
        profiles->quantile[c] = (uint8_t)(2 - c);
    }
    return profiles;
}

static void assert_counts(const uint32_t counts[FEDGE_SPEED_QUANTILES], uint32_t a, uint32_t b,
                          uint32_t c)
{
    assert_int_equal(counts[0], a);
    assert_int_equal(counts[1], b);
    assert_int_equal(counts[2], c);
    assert_int_equal(counts[3], 0);
}

/* Three are asked, two are wanted: each round ends when the second has finished. With a deadline
 * of three seconds the same two are in time, and it is waited for. */
static void rounds_end_when_they_would(void **state)
{
    (void)state;
    run over, late, wide;
    assert_int_equal(begin_with(&over, make_three(),
                                "\"num-server-rounds\":3,\"fraction-train\":0.67,"
                                "\"over-selection\":1.5",
                                "", "iid", 3, 2),
                     FEDGE_OK);
    go(&over);
    assert_int_equal(begin_with(&late, make_three(),
                                "\"num-server-rounds\":3,\"round-deadline-s\":3,"
                                "\"min-report-fraction\":0.5",
                                "", "iid", 3, 2),
                     FEDGE_OK);
    go(&late);
    assert_int_equal(over.num_lines, 3);
    assert_int_equal(late.num_lines, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const fedge_virtual_phase *fast = &over.lines[i].virtual_phase;
        const fedge_virtual_phase *slow = &late.lines[i].virtual_phase;
        assert_true(fast->present && fast->seconds == 2.0 && fast->time == 2.0 * (i + 1));
        assert_true(slow->seconds == 3.0 && slow->time == 3.0 * (i + 1));
        assert_counts(fast->asked, 1, 1, 1);
        assert_counts(fast->reported, 0, 1, 1);
        assert_counts(slow->asked, 1, 1, 1);
        assert_counts(slow->reported, 0, 1, 1);
        assert_string_equal(over.lines[i].model, late.lines[i].model);
    }
    end(&over);
    end(&late);
    /* Without either the slowest is waited for: the model is that of a run without client profiles.
     */
    assert_int_equal(begin_with(&wide, make_three(), "\"num-server-rounds\":2", "", "iid", 3, 2),
                     FEDGE_OK);
    go(&wide);
    assert_int_equal(begin(&late, "\"num-server-rounds\":2", "", "iid", 3, 2), FEDGE_OK);
    go(&late);
    assert_true(wide.lines[1].virtual_phase.time == 8.0);
    assert_false(late.lines[1].virtual_phase.present);
    assert_string_equal(wide.lines[1].model, late.lines[1].model);
    end(&wide);
    end(&late);
}

/* The sizes of model and update are what travels. */
static void bytes_take_time(void **state)
{
    (void)state;
    run self;
    assert_int_equal(
        begin_with(&self,
                   make_profiles(
                       &(fedge_client_profiles_settings){.bandwidth = "fixed:1000/fixed:100"}, 2),
                   "\"num-server-rounds\":2", "", "iid", 2, 2),
        FEDGE_OK);
    go(&self);
    const fedge_round_summary *line = &self.lines[1]; /* the model of the first round is not sent */
    assert_int_equal(self.lines[0].bytes_down, 0);
    const double wanted =
        (double)line->bytes_down / 2.0 / 1000.0 + (double)line->bytes_up / 2.0 / 100.0;
    assert_true(fabs(line->virtual_phase.seconds - wanted) < 1e-6);
    assert_true(line->bytes_down > 0 && line->bytes_up > 0);
    end(&self);
}

static void a_deadline_that_nobody_meets_ends_the_run(void **state)
{
    (void)state;
    run self;
    assert_int_equal(begin_with(&self, make_three(),
                                "\"num-server-rounds\":3,\"round-deadline-s\":0.5", "", "iid", 3,
                                1),
                     FEDGE_OK);
    assert_int_equal(fedge_simulation_run(self.simulation, &self.err), FEDGE_UNSUPPORTED);
    assert_non_null(strstr(self.err.message, "10 attempts in a row; the deadline came with"));
    assert_non_null(strstr(self.err.message, "0 of 3 reported, 3 at work: raise round-deadline-s"));
    end(&self);
}

/* One of three is asked; the slowest is never in time. Who was asked in vain has been asked, and
 * that time was the round's. */
static void attempts_in_vain_count(void **state)
{
    (void)state;
    run self;
    double seconds = 0.0;
    uint32_t asked[3] = {0}, reported[3] = {0}, attempts = 0;
    assert_int_equal(begin_with(&self, make_three(),
                                "\"num-server-rounds\":30,\"fraction-train\":0.34,"
                                "\"round-deadline-s\":3",
                                "", "iid", 3, 2),
                     FEDGE_OK);
    go(&self);
    for (uint32_t i = 0; i < self.num_lines; i++) {
        const fedge_virtual_phase *phase = &self.lines[i].virtual_phase;
        seconds += phase->seconds;
        attempts += self.lines[i].attempt + 1;
        for (int q = 0; q < 3; q++) {
            asked[q] += phase->asked[q];
            reported[q] += phase->reported[q];
        }
        assert_true(phase->asked[0] == self.lines[i].attempt);
    }
    assert_int_equal(self.num_lines, 30);
    assert_true(attempts > 36 && asked[0] == attempts - 30 && reported[0] == 0);
    assert_int_equal(asked[1] + asked[2], 30);
    assert_int_equal(reported[1] + reported[2], 30);
    assert_true(seconds == self.lines[29].virtual_phase.time);
    end(&self);
}

/* An evaluation in which somebody gives up is not tried again; the next round knows nothing of it.
 */
static void failed_evaluations_are_no_attempts(void **state)
{
    (void)state;
    run self;
    uint32_t rounds = 0, evaluations = 0;
    fedge_client_profiles *profiles = make_three();
    for (uint32_t c = 0; c < 3; c++)
        profiles->clients[c].failure = 0.4f;
    assert_int_equal(begin_with(&self, profiles,
                                "\"num-server-rounds\":20,\"fraction-train\":0.34,"
                                "\"fraction-evaluate\":1,\"round-deadline-s\":30",
                                "", "iid", 3, 2),
                     FEDGE_OK);
    go(&self);
    for (uint32_t i = 0; i < self.num_lines; i++) {
        const fedge_virtual_phase *phase = &self.lines[i].virtual_phase;
        const uint32_t asked = phase->asked[0] + phase->asked[1] + phase->asked[2];
        const bool train = self.lines[i].kind == FEDGE_TASK_TRAIN;
        rounds += train;
        evaluations += !train;
        /* Each client once in an attempt; the three one after another take at most 6.4 s. */
        assert_true(asked <= 3 * (self.lines[i].attempt + 1));
        assert_true(!train || self.lines[i].attempt > 0 || phase->seconds < 6.5);
    }
    assert_int_equal(rounds, 20);
    assert_true(evaluations > 0 && evaluations < 12);
    end(&self);
}

/* Each fetches a round's model once, in whichever attempt. */
static void a_round_that_is_tried_again_counts_its_models(void **state)
{
    (void)state;
    run self;
    uint32_t again = 0;
    fedge_client_profiles *profiles = make_three();
    for (uint32_t c = 0; c < 3; c++)
        profiles->clients[c].failure = 0.15f;
    assert_int_equal(begin_with(&self, profiles,
                                "\"num-server-rounds\":20,\"min-report-fraction\":1", "", "iid", 3,
                                2),
                     FEDGE_OK);
    go(&self);
    for (uint32_t i = 0; i < 20; i++) {
        again += self.lines[i].attempt > 0;
        assert_int_equal(self.lines[i].bytes_down, i > 0 ? 3 * model_size(&self) : 0);
    }
    assert_true(again > 2 && again < 20);
    end(&self);
}

/* Client 0 always gives up: that is seen, so it is asked less and less. */
static void who_gives_up_is_asked_less(void **state)
{
    (void)state;
    run self;
    fedge_client_profiles *profiles = make_three();
    profiles->clients[0].failure = 1.0f;
    assert_int_equal(begin_with(&self, profiles,
                                "\"num-server-rounds\":40,\"fraction-train\":0.34,"
                                "\"sampler\":{\"type\":\"available\"}",
                                "", "iid", 3, 2),
                     FEDGE_OK);
    go(&self);
    const fedge_client_history *seen = &fedge_simulation_model(self.simulation)->clients;
    const fedge_client_record never = fedge_client_history_get(seen, 0);
    assert_int_equal(never.reported, 0);
    assert_in_range(never.missed, 1, 9); /* of 40, by chance 13 and more */
    assert_int_equal(fedge_client_history_get(seen, 1).reported +
                         fedge_client_history_get(seen, 2).reported,
                     40);
    assert_int_equal(fedge_client_history_get(seen, 1).missed, 0);
    end(&self);
}

static void make_three_with(run *self, const char *rows, const char *rounds)
{
    fedge_error err;
    FILE *file = fopen("simulate-there.csv", "w");
    assert_non_null(file);
    fputs(rows, file);
    fclose(file);
    fedge_client_profiles *profiles = make_three();
    assert_int_equal(
        fedge_availability_new("file:simulate-there.csv", 1, 3, &profiles->availability, &err),
        FEDGE_OK);
    assert_int_equal(begin_with(self, profiles, rounds, "", "iid", 3, 2), FEDGE_OK);
}

/* Client 1 needs two seconds, goes after one and begins again when it is back at 3. At 5 all are
 * there, and the second round takes the slowest's four seconds. */
static void who_goes_begins_again(void **state)
{
    (void)state;
    run self, cut;
    make_three_with(&self, "client,from,to\n0,0,99\n1,0,1\n1,3,99\n2,0,99\n",
                    "\"num-server-rounds\":2");
    go(&self);
    assert_int_equal(self.num_lines, 2);
    assert_true(self.lines[0].virtual_phase.time == 5.0);
    assert_true(self.lines[1].virtual_phase.time == 9.0);
    assert_int_equal(self.lines[0].reported, 3);
    assert_counts(self.lines[0].virtual_phase.asked, 1, 1, 1);
    end(&self);
    /* A deadline before that goes on without it. */
    make_three_with(&cut, "client,from,to\n0,0,99\n1,0,1\n1,3,99\n2,0,99\n",
                    "\"num-server-rounds\":2,\"round-deadline-s\":4.5,\"min-report-fraction\":0.6");
    go(&cut);
    assert_true(cut.lines[0].virtual_phase.time == 4.5);
    assert_int_equal(cut.lines[0].reported, 2);
    assert_true(cut.lines[1].virtual_phase.time == 8.5);
    end(&cut);
}

/* One of two that are needed comes at 6; of those that are there each round asks all. */
static void rounds_wait_for_enough_clients(void **state)
{
    (void)state;
    run self;
    make_three_with(&self, "client,from,to\n0,0,50\n1,6,40\n2,30,99\n", "\"num-server-rounds\":2");
    go(&self);
    assert_true(self.lines[0].virtual_phase.time == 8.0);
    assert_true(self.lines[0].virtual_phase.seconds == 2.0);
    assert_counts(self.lines[0].virtual_phase.asked, 0, 1, 1);
    assert_true(self.lines[1].virtual_phase.time == 10.0);
    end(&self);
    /* Never two at a time: the trace repeats, and so the wait has a limit. */
    make_three_with(&self, "client,from,to\n0,0,5\n1,5,10\n2,10,20\n", "\"num-server-rounds\":2");
    assert_int_equal(fedge_simulation_run(self.simulation, &self.err), FEDGE_UNSUPPORTED);
    assert_non_null(strstr(self.err.message, "of 2 connected after 30 days: lower min-available"));
    end(&self);
}

/* Client profiles with which everything happens: failures, training that diverges, who comes and
 * goes, deadlines. A client whose work was done ahead and then not waited for would be
 * FEDGE_INTERNAL. */
static void only_what_is_reported_is_summed(void **state)
{
    (void)state;
    uint32_t owner[POINTS], late = 0;
    for (uint32_t i = 0; i < POINTS; i++)
        owner[i] = i / 15;
    write_points(POINTS_FILE, 210); /* clients 14 and 15 diverge */
    assert_int_equal(fedge_partition_write_csv(DIVISION, owner, POINTS, NULL), FEDGE_OK);
    for (uint64_t seed = 0; seed < 60; seed++) {
        const fedge_client_profiles_settings settings = {
            .compute = "lognormal:20,1", .failure = 0.2, .availability = seed % 2 ? "0.6,3" : NULL};
        fedge_client_profiles *profiles = NULL;
        run self;
        assert_int_equal(fedge_client_profiles_new(&settings, seed, 16, &profiles, &self.err),
                         FEDGE_OK);
        assert_int_equal(begin_with(&self, profiles,
                                    "\"num-server-rounds\":6,\"fraction-train\":0.5,"
                                    "\"over-selection\":1.4,\"round-deadline-s\":6,"
                                    "\"min-report-fraction\":0.2",
                                    "", "file:" DIVISION, 16, 2),
                         FEDGE_OK);
        go(&self);
        for (uint32_t i = 0; i < self.num_lines; i++)
            late += self.lines[i].virtual_phase.seconds == 6.0;
        end(&self);
    }
    assert_true(late > 10 && late < 350); /* of 360 rounds some end at the deadline */
    write_points(POINTS_FILE, POINTS);
}

/* Of all rounds, by the clients' speed. */
static void add_quarters(const run *self, uint32_t asked[FEDGE_SPEED_QUANTILES],
                         uint32_t reported[FEDGE_SPEED_QUANTILES])
{
    for (uint32_t i = 0; i < self->num_lines; i++) {
        for (uint32_t q = 0; q < FEDGE_SPEED_QUANTILES; q++) {
            asked[q] += self->lines[i].virtual_phase.asked[q];
            reported[q] += self->lines[i].virtual_phase.reported[q];
        }
    }
}

static void over_selection_favours_the_fast(void **state)
{
    (void)state;
    run self;
    uint32_t asked[FEDGE_SPEED_QUANTILES] = {0}, reported[FEDGE_SPEED_QUANTILES] = {0};
    assert_int_equal(
        begin_with(
            &self,
            make_profiles(&(fedge_client_profiles_settings){.compute = "lognormal:100,1"}, 40),
            "\"num-server-rounds\":30,\"fraction-train\":0.25,\"over-selection\":2", "", "iid", 40,
            2),
        FEDGE_OK);
    go(&self);
    add_quarters(&self, asked, reported);
    /* 20 of 40 are asked and the fastest 10 of them taken: nearly all that are asked of the
     * fastest quarter, nearly none of the slowest. */
    assert_int_equal(asked[0] + asked[1] + asked[2] + asked[3], 600);
    assert_int_equal(reported[0] + reported[1] + reported[2] + reported[3], 300);
    assert_true(reported[3] * 10 >= asked[3] * 9);
    assert_true(reported[0] * 10 <= asked[0]);
    assert_true(reported[1] < reported[2]);
    end(&self);
}

/* Of clients that are equally fast as many of each quarter are in time. */
static void over_selection_favours_none_of_equals(void **state)
{
    (void)state;
    run self;
    uint32_t asked[FEDGE_SPEED_QUANTILES] = {0}, reported[FEDGE_SPEED_QUANTILES] = {0};
    assert_int_equal(
        begin_with(&self,
                   make_profiles(&(fedge_client_profiles_settings){.compute = "fixed:100"}, 40),
                   "\"num-server-rounds\":60,\"fraction-train\":0.25,\"over-selection\":2", "",
                   "iid", 40, 2),
        FEDGE_OK);
    go(&self);
    add_quarters(&self, asked, reported);
    for (uint32_t q = 0; q < FEDGE_SPEED_QUANTILES; q++)
        assert_in_range(reported[q], 110, 190); /* 150 on average, with a deviation of 9.3 */
    end(&self);
}

/* Who fails is replaced; the clock and who is in it are the same whatever the threads. */
static void threads_change_no_time(void **state)
{
    (void)state;
    static const fedge_client_profiles_settings settings = {.compute = "lognormal:100,0.7",
                                                            .bandwidth =
                                                                "uniform:1000,9000/fixed:500",
                                                            .failure = 0.25,
                                                            .availability = "0.7,8"};
    run runs[3];
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(begin_with(&runs[i], make_profiles(&settings, 12),
                                    "\"num-server-rounds\":8,\"fraction-train\":0.5,"
                                    "\"over-selection\":1.3,\"fraction-evaluate\":0.5,"
                                    "\"round-deadline-s\":9,\"min-report-fraction\":0.3",
                                    ",\"update\":{\"codec\":\"int8\",\"deflate\":true}",
                                    "dirichlet:1", 12, 1 + 3 * i),
                         FEDGE_OK);
        go(&runs[i]);
    }
    uint32_t asked = 0, sent = 0;
    for (uint32_t i = 0; i < runs[0].num_lines; i++) {
        asked += runs[0].lines[i].asked;
        for (uint32_t q = 0; q < FEDGE_SPEED_QUANTILES; q++)
            sent += runs[0].lines[i].virtual_phase.asked[q];
    }
    assert_true(sent > asked); /* replaced */
    assert_same(&runs[0], &runs[1]);
    assert_same(&runs[0], &runs[2]);
    for (uint32_t i = 0; i < 3; i++)
        end(&runs[i]);
}

/* Client 7's training fails when it would have ended, and another begins then. */
static void training_that_fails_takes_its_time(void **state)
{
    (void)state;
    run self;
    uint32_t failed = 0;
    write_division();
    assert_int_equal(
        begin_with(&self,
                   make_profiles(&(fedge_client_profiles_settings){.compute = "fixed:60"}, 8),
                   "\"num-server-rounds\":8,\"fraction-train\":0.5", "", "file:" DIVISION, 8, 2),
        FEDGE_OK);
    go(&self);
    for (uint32_t i = 0; i < 8; i++) {
        const double seconds = self.lines[i].virtual_phase.seconds;
        assert_int_equal(self.lines[i].reported, 4);
        assert_true(seconds == 1.0 || seconds == 2.0);
        failed += seconds == 2.0;
    }
    assert_true(failed > 0 && failed < 8);
    end(&self);
    write_points(POINTS_FILE, POINTS);
}

/* Stopped after [lines] phases, also between training and the evaluation that follows. */
static void stop_and_go_on(uint32_t lines)
{
    static const char rounds[] = "\"num-server-rounds\":6,\"fraction-train\":0.5,"
                                 "\"fraction-evaluate\":0.3";
    static const fedge_client_profiles_settings settings = {
        .compute = "lognormal:100,1", .failure = 0.2, .availability = "0.6,10"};
    run whole, first, second;
    uint8_t *file = NULL;
    size_t size = 0, control = 0;
    assert_int_equal(begin_with(&whole, make_profiles(&settings, 8), rounds, "", "iid", 8, 2),
                     FEDGE_OK);
    go(&whole);
    assert_int_equal(begin_with(&first, make_profiles(&settings, 8), rounds, "", "iid", 8, 2),
                     FEDGE_OK);
    first.stop_at = lines;
    assert_int_equal(fedge_simulation_run(first.simulation, &first.err), FEDGE_CANCELLED);
    const fedge_simulation_state at = fedge_simulation_get_state(first.simulation);
    assert_int_equal(fedge_global_model_write(fedge_simulation_model(first.simulation), &file,
                                              &size, &control, &first.err),
                     FEDGE_OK);
    assert_int_equal(begin_with(&second, make_profiles(&settings, 8), rounds, "", "iid", 8, 2),
                     FEDGE_OK);
    assert_int_equal(
        fedge_simulation_restore(second.simulation, &at, file, size, NULL, 0, &second.err),
        FEDGE_OK);
    go(&second);
    assert_int_equal(second.num_lines, whole.num_lines - lines);
    for (uint32_t i = 0; i < second.num_lines; i++) {
        assert_string_equal(second.lines[i].model, whole.lines[lines + i].model);
        assert_same_time(&second.lines[i].virtual_phase, &whole.lines[lines + i].virtual_phase);
    }
    free(file);
    end(&whole);
    end(&first);
    end(&second);
}

static void the_clock_goes_on_where_it_stopped(void **state)
{
    (void)state;
    for (uint32_t lines = 2; lines <= 5; lines++)
        stop_and_go_on(lines);
}

static uint64_t bytes_of_thread(const fedge_job *job, const fedge_client_data *client_data,
                                const fedge_dataset *test_set, bool rounds_only)
{
    const fedge_simulation_config config = {.job = job,
                                            .client_data = client_data,
                                            .test_set = test_set,
                                            .num_threads = 1,
                                            .evaluate_every = 1,
                                            .rounds_only = rounds_only};
    fedge_simulation *simulation = NULL;
    fedge_error err;
    assert_int_equal(fedge_simulation_new(&config, &simulation, &err), FEDGE_OK);
    const uint64_t bytes = fedge_simulation_bytes_per_thread(simulation);
    fedge_simulation_free(simulation);
    return bytes;
}

static void evaluation_takes_memory_where_there_is_one(void **state)
{
    (void)state;
    fedge_job *job = make_job("\"num-server-rounds\": 1", "");
    fedge_client_data *client_data = make_client_data(job, "iid", 4, 0);
    const uint64_t all = bytes_of_thread(job, client_data, client_data->dataset, false);
    assert_int_equal(bytes_of_thread(job, client_data, client_data->dataset, true), all);
    assert_int_equal(bytes_of_thread(job, client_data, NULL, false), all);
    assert_true(bytes_of_thread(job, client_data, NULL, true) < all);
    fedge_client_data_free(client_data);
    fedge_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(a_run_goes_on_where_it_stopped),
        cmocka_unit_test(an_interrupted_run_says_all_that_it_did),
        cmocka_unit_test(a_client_that_fails_is_replaced),
        cmocka_unit_test(who_gives_up_is_asked_less),
        cmocka_unit_test(nobody_left_ends_the_run),
        cmocka_unit_test(over_selection_closes_with_the_wanted),
        cmocka_unit_test(over_selection_favours_no_number),
        cmocka_unit_test(what_is_evaluated_is_not_fetched_again),
        cmocka_unit_test(an_asynchronous_run_counts_no_first_model),
        cmocka_unit_test(a_round_that_is_tried_again_counts_its_models),
        cmocka_unit_test(what_cannot_be_simulated_is_said),
        cmocka_unit_test(rounds_end_when_they_would),
        cmocka_unit_test(bytes_take_time),
        cmocka_unit_test(a_deadline_that_nobody_meets_ends_the_run),
        cmocka_unit_test(attempts_in_vain_count),
        cmocka_unit_test(failed_evaluations_are_no_attempts),
        cmocka_unit_test(who_goes_begins_again),
        cmocka_unit_test(rounds_wait_for_enough_clients),
        cmocka_unit_test(only_what_is_reported_is_summed),
        cmocka_unit_test(over_selection_favours_the_fast),
        cmocka_unit_test(over_selection_favours_none_of_equals),
        cmocka_unit_test(threads_change_no_time),
        cmocka_unit_test(training_that_fails_takes_its_time),
        cmocka_unit_test(the_clock_goes_on_where_it_stopped),
        cmocka_unit_test(evaluation_takes_memory_where_there_is_one),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}

#include "aggregator/simulate/run/final_evaluation.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#define POINTS_FILE "final-evaluation-points.csv"
#include "tests/aggregator/simulate/run/fixture.h"

#define CLIENTS 12u

typedef struct run {
    fedge_job *job;
    fedge_client_data *client_data;
    fedge_simulation *simulation;
    fedge_round_summary last;
    atomic_bool stop;
    fedge_error err;
} run;

static fedge_status on_round(void *user, const fedge_round_summary *summary, fedge_error *err)
{
    run *self = user;
    (void)err;
    self->last = *summary;
    return FEDGE_OK;
}

static bool is_over(void *user)
{
    run *self = user;
    return atomic_load(&self->stop);
}

/* [split] for validation, [held_out] by each client; the test set is all there is, or none. */
static void begin(run *self, double split, double held_out, bool tested, uint32_t threads)
{
    *self = (run){.job = make_job("\"num-server-rounds\":4", "")};
    self->client_data = make_split_client_data(self->job, "dirichlet:5", CLIENTS, held_out, split);
    const fedge_simulation_config config = {.job = self->job,
                                            .client_data = self->client_data,
                                            .test_set = tested ? self->client_data->dataset : NULL,
                                            .num_threads = threads,
                                            .evaluate_every = 3,
                                            .cancel = is_over,
                                            .on_round = on_round,
                                            .user = self};
    if (fedge_simulation_new(&config, &self->simulation, &self->err) != FEDGE_OK ||
        fedge_simulation_run(self->simulation, &self->err) != FEDGE_OK)
        fail_msg("%s", self->err.message);
}

static void end(run *self)
{
    fedge_simulation_free(self->simulation);
    fedge_client_data_free(self->client_data);
    fedge_job_free(self->job);
}

static fedge_final_evaluation evaluate_finally(run *self, uint32_t max_clients)
{
    fedge_final_evaluation of;
    if (fedge_final_evaluation_init(&of, self->simulation, &self->job->plan, self->client_data,
                                    max_clients, &self->err) != FEDGE_OK)
        fail_msg("%s", self->err.message);
    return of;
}

static uint64_t sum_of(const uint64_t *counts, uint32_t step, uint32_t num)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < num; i++)
        sum += counts[(size_t)i * step];
    return sum;
}

static void assert_classes(const fedge_classification *of, uint32_t examples, double accuracy)
{
    assert_int_equal(of->num_classes, 3);
    assert_int_equal(sum_of(of->support, 1, 3), examples);
    assert_int_equal(sum_of(of->predicted, 1, 3), examples);
    assert_int_equal(sum_of(of->confusion, 1, 9), examples);
    for (uint32_t c = 0; c < 3; c++) {
        assert_int_equal(sum_of(of->confusion + 3 * (size_t)c, 1, 3), of->support[c]);
        assert_int_equal(sum_of(of->confusion + c, 3, 3), of->predicted[c]);
    }
    assert_true(sum_of(of->confusion, 4, 3) == sum_of(of->correct, 1, 3));
    assert_true((double)sum_of(of->correct, 1, 3) / examples == accuracy);
}

/* What the classes say is what the last round said. */
static void classes_agree_with_accuracy(void **state)
{
    (void)state;
    run self;
    begin(&self, 0.25, 0.0, true, 2);
    fedge_final_evaluation of = evaluate_finally(&self, 100);
    assert_int_equal(self.last.round, 4);
    assert_true(self.last.accuracy > 0.5);
    assert_classes(&of.test, POINTS, self.last.accuracy);
    assert_classes(&of.validation, POINTS / 4, self.last.validation.accuracy);
    /* All examples are for validation or somebody's. */
    assert_int_equal(of.clients.num_examples, POINTS - POINTS / 4);
    assert_int_equal(of.clients.num_clients, CLIENTS);
    assert_false(of.clients.held_out);
    const double correct =
        (double)sum_of(of.test.correct, 1, 3) - (double)sum_of(of.validation.correct, 1, 3);
    assert_true(fabs(of.clients.weighted_mean - correct / (double)of.clients.num_examples) < 1e-12);
    fedge_final_evaluation_fini(&of);
    end(&self);
}

static void validation_needs_no_test_set(void **state)
{
    (void)state;
    run self;
    begin(&self, 0.25, 0.0, false, 1);
    assert_true(isnan(self.last.accuracy) && isnan(self.last.loss));
    assert_true(self.last.validation.present && self.last.validation.accuracy > 0.5);
    assert_true(self.last.validation.loss > 0.0);
    fedge_final_evaluation of = evaluate_finally(&self, 0);
    assert_classes(&of.validation, POINTS / 4, self.last.validation.accuracy);
    assert_int_equal(of.test.num_classes, 0);
    assert_int_equal(of.clients.num_clients, 0);
    fedge_final_evaluation_fini(&of);
    end(&self);
}

static double mean_of_first(run *self, uint32_t count)
{
    fedge_evaluation_set sets[CLIENTS];
    double sum = 0.0;
    for (uint32_t c = 0; c < count; c++)
        sets[c] = (fedge_evaluation_set){.view = fedge_client_data_held_out(self->client_data, c)};
    assert_int_equal(fedge_simulation_evaluate(self->simulation, sets, count, false, &self->err),
                     FEDGE_OK);
    for (uint32_t c = 0; c < count; c++)
        sum += sets[c].accuracy;
    return sum / count;
}

/* Whom of more clients than wanted does not depend on threads. */
static void a_choice_of_clients_is_the_same_on_all_threads(void **state)
{
    (void)state;
    double means[2][2], first[2];
    for (uint32_t i = 0; i < 2; i++) {
        run self;
        begin(&self, 0.0, 0.5, false, 1 + 2 * i);
        assert_false(self.last.validation.present);
        for (uint32_t k = 0; k < 2; k++) {
            fedge_final_evaluation of = evaluate_finally(&self, k == 0 ? 5 : CLIENTS);
            assert_true(of.clients.held_out);
            assert_int_equal(of.clients.num_clients, k == 0 ? 5 : CLIENTS);
            assert_int_equal(of.clients.num_eligible, CLIENTS);
            means[i][k] = of.clients.mean;
            fedge_final_evaluation_fini(&of);
        }
        first[i] = mean_of_first(&self, 5);
        end(&self);
    }
    assert_true(means[0][0] == means[1][0] && means[0][1] == means[1][1]);
    assert_true(means[0][0] != means[0][1]);
    assert_true(first[0] == first[1] && means[0][0] != first[0]); /* drawn, not the first */
}

static void an_interruption_leaves_nothing(void **state)
{
    (void)state;
    run self;
    begin(&self, 0.25, 0.0, true, 2);
    atomic_store(&self.stop, true);
    fedge_final_evaluation of = evaluate_finally(&self, 100);
    assert_int_equal(of.test.num_classes + of.validation.num_classes + of.clients.num_clients, 0);
    fedge_final_evaluation_fini(&of);
    end(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_agree_with_accuracy),
        cmocka_unit_test(validation_needs_no_test_set),
        cmocka_unit_test(a_choice_of_clients_is_the_same_on_all_threads),
        cmocka_unit_test(an_interruption_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}

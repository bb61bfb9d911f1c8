/* Which round is the best, and when a run has waited long enough. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/selection.h"

enum { TEST_SET = 1, CLIENTS = 2, REAL = 4 };

/* A job with [keys] for what is looked at, evaluated by whom [has] says. */
static fedge_status try_job(unsigned has, const char *keys, fedge_job **job, fedge_error *err)
{
    char text[1024];
    (void)snprintf(
        text, sizeof(text),
        "{\"fedge-job\": 1, \"name\": \"j\", \"model\": {\"input-shape\": [2], \"layers\": ["
        "{\"type\": \"Linear\", \"in_features\": 2, \"out_features\": 2}], \"loss\": {\"type\":"
        "\"%s\"}}, \"data\": {\"name\": \"d\", \"shape\": [2], \"dtype\": \"f32\", \"labels\": 2},"
        "\"training\": {\"learning-rate\": 0.1}, %s %s \"rounds\": {\"fraction-evaluate\": %d,"
        "\"num-server-rounds\": 9}}",
        has & REAL ? "MSELoss" : "CrossEntropyLoss",
        has & TEST_SET ? "\"test-set\": {\"values\": \"v\"}," : "", keys, has & CLIENTS ? 1 : 0);
    return fedge_job_parse(text, strlen(text), "job.json", job, err);
}

static void init(fedge_selection *selection, unsigned has, const char *keys, bool set_apart)
{
    fedge_job *job = NULL;
    fedge_error err;
    if (try_job(has, keys, &job, &err) != FEDGE_OK ||
        fedge_selection_init(selection, job, set_apart, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    fedge_job_free(job);
}

static fedge_round_summary trained(uint32_t round, double loss, double accuracy)
{
    fedge_round_summary summary = {.round = round,
                                   .kind = FEDGE_TASK_TRAIN,
                                   .examples = 5,
                                   .loss = loss,
                                   .accuracy = accuracy,
                                   .seconds_evaluate = 0.01};
    (void)snprintf(summary.model, sizeof(summary.model), "model-%u", round);
    return summary;
}

static fedge_round_summary evaluated(uint32_t round, double loss, double accuracy)
{
    return (fedge_round_summary){.round = round,
                                 .kind = FEDGE_TASK_EVALUATE,
                                 .examples = 7,
                                 .loss = loss,
                                 .accuracy = accuracy};
}

/* Adds it; is it the best so far, and did it count, so that the state is another? */
static void add(fedge_selection *selection, fedge_round_summary summary, bool best, bool counts)
{
    fedge_selection_state before;
    memcpy(&before, &selection->state, sizeof(before));
    assert_int_equal(fedge_selection_add(selection, &summary), best);
    assert_int_equal(memcmp(&before, &selection->state, sizeof(before)) != 0, counts);
}

static void metrics_are_chosen_and_checked(void **state)
{
    (void)state;
    static const struct {
        unsigned has;
        bool set_apart;
        fedge_criterion chosen;
    } CASES[] = {{TEST_SET, false, FEDGE_CRITERION_TEST_ACCURACY},
                 {TEST_SET | REAL, false, FEDGE_CRITERION_TEST_LOSS},
                 {TEST_SET | CLIENTS, false, FEDGE_CRITERION_VALIDATION_ACCURACY},
                 {CLIENTS | REAL, false, FEDGE_CRITERION_VALIDATION_LOSS},
                 {TEST_SET, true, FEDGE_CRITERION_VALIDATION_ACCURACY},
                 {0, true, FEDGE_CRITERION_VALIDATION_ACCURACY}};
    fedge_selection selection;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        init(&selection, CASES[i].has,
             "\"keep-best\": {}, \"early_stopping\": {\"metric\": \"auto\", \"patience\": 3},",
             CASES[i].set_apart);
        assert_int_equal(selection.keep.metric, CASES[i].chosen);
        assert_int_equal(selection.stop.metric, CASES[i].chosen);
        assert_int_equal(selection.stop.patience, 3);
        assert_true(selection.stop.min_delta == 0.0);
    }
    static const struct {
        unsigned has;
        const char *keys, *part;
    } MISTAKES[] = {
        {0, "\"keep-best\": {},", "keep-best: nothing is evaluated"},
        {CLIENTS, "\"keep-best\": {\"metric\": \"test-loss\"},",
         "keep-best.metric: test-loss needs a test-set"},
        {TEST_SET, "\"early-stopping\": {\"patience\": 1, \"metric\": \"validation-loss\"},",
         "early-stopping.metric: validation-loss needs rounds.fraction-evaluate above 0"},
        {0, "\"keep-best\": {},", "or a test-set, or in a simulation --validation-split"},
        {TEST_SET, "\"keep-best\": {\"metric\": \"validation-loss\"},",
         "a validation-fraction, or in a simulation --validation-split"},
        {TEST_SET | REAL, "\"keep-best\": {\"metric\": \"test-accuracy\"},", "take test-loss"},
        {CLIENTS | REAL, "\"keep-best\": {\"metric\": \"validation-accuracy\"},",
         "take validation-loss"},
        {TEST_SET | REAL, "\"keep-best\": {\"metric\": \"test-mae\"},",
         "test-mae needs numbers as data.targets: take test-loss"},
    };
    for (size_t i = 0; i < sizeof(MISTAKES) / sizeof(MISTAKES[0]); i++) {
        fedge_job *job = NULL;
        fedge_error err = {0};
        assert_int_equal(try_job(MISTAKES[i].has, MISTAKES[i].keys, &job, &err), FEDGE_OK);
        assert_int_equal(fedge_selection_init(&selection, job, false, &err),
                         FEDGE_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, MISTAKES[i].part));
        fedge_job_free(job);
    }
    static const char *const REFUSED[][2] = {
        {"\"early-stopping\": {},", "early-stopping.patience: is missing"},
        {"\"early-stopping\": {\"patience\": 0},", "0 is not in [1, 1000000]"},
        {"\"early-stopping\": {\"patience\": 1, \"min-delta\": -1},", "-1 is not in"},
        {"\"keep-best\": true,", "must be an object"},
        {"\"keep-best\": {\"metric\": \"accuracy\"},", "\"accuracy\" is not known here"}};
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(REFUSED[0]); i++) {
        fedge_job *job = NULL;
        fedge_error err = {0};
        assert_int_equal(try_job(TEST_SET, REFUSED[i][0], &job, &err), FEDGE_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, REFUSED[i][1]));
    }
}

/* Of errors the least is best, of r2 the largest. */
static void models_are_chosen_by_errors(void **state)
{
    (void)state;
    static const double VALUES[3][FEDGE_ERROR_METRICS] = {
        {2, 5, 0.5, 0.1}, {3, 4, 0.7, 0.2}, {2.5, 4.5, 0.6, 0.05}};
    static const struct {
        fedge_criterion metric;
        uint32_t best;
    } CASES[] = {{FEDGE_CRITERION_TEST_MAE, 1},       {FEDGE_CRITERION_TEST_RMSE, 2},
                 {FEDGE_CRITERION_TEST_R2, 2},        {FEDGE_CRITERION_TEST_MAPE, 3},
                 {FEDGE_CRITERION_VALIDATION_MAE, 1}, {FEDGE_CRITERION_VALIDATION_R2, 2}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        fedge_selection selection = {.keep = {.present = true, .metric = CASES[i].metric}};
        const bool test = fedge_criterion_is_of_test_set(CASES[i].metric);
        for (uint32_t round = 1; round <= 3; round++) {
            fedge_round_summary summary = test ? trained(round, 1, NAN) : evaluated(round, 1, NAN);
            fedge_metrics_set_errors(&summary.metrics, VALUES[round - 1]);
            if (!test) {
                fedge_round_summary before = trained(round, 1, NAN);
                assert_false(fedge_selection_add(&selection, &before));
            }
            (void)fedge_selection_add(&selection, &summary);
        }
        assert_int_equal(selection.state.keep.best_round, CASES[i].best);
    }
}

/* What keep-best and early-stopping go by, as long as nothing has measured it. */
static void what_no_evaluation_measures_is_known(void **state)
{
    (void)state;
    static const char both[] =
        "\"keep-best\": {\"metric\": \"validation-accuracy\"}, \"early-stopping\": {\"metric\": "
        "\"test-loss\", \"patience\": 9},";
    fedge_selection selection;
    init(&selection, TEST_SET | CLIENTS, both, false);
    assert_true(fedge_selection_asks_clients(&selection));
    assert_int_equal(fedge_selection_lacks(&selection), FEDGE_CRITERION_VALIDATION_ACCURACY);
    add(&selection, trained(1, NAN, 0.5), false, true);
    assert_int_equal(fedge_selection_lacks(&selection), FEDGE_CRITERION_VALIDATION_ACCURACY);
    add(&selection, evaluated(1, 1.0, 0.5), true, true);
    assert_int_equal(fedge_selection_lacks(&selection), FEDGE_CRITERION_TEST_LOSS);
    add(&selection, trained(2, 1.0, 0.5), false, true);
    assert_int_equal(fedge_selection_lacks(&selection), FEDGE_CRITERION_AUTO);
    init(&selection, TEST_SET | CLIENTS, both, true);
    assert_false(fedge_selection_asks_clients(&selection));
    init(&selection, TEST_SET | CLIENTS, "\"keep-best\": {\"metric\": \"test-loss\"},", false);
    assert_false(fedge_selection_asks_clients(&selection));
    init(&selection, TEST_SET, "", false);
    assert_false(fedge_selection_asks_clients(&selection));
    assert_int_equal(fedge_selection_lacks(&selection), FEDGE_CRITERION_AUTO);
}

static void nothing_is_chosen_unasked(void **state)
{
    (void)state;
    fedge_selection selection;
    init(&selection, TEST_SET, "", false);
    for (uint32_t round = 1; round < 9; round++)
        add(&selection, trained(round, 1.0, 0.5), false, false);
    assert_false(fedge_selection_is_over(&selection));
    assert_int_equal(selection.state.best.round, 0);
}

static void the_first_of_the_best_is_kept(void **state)
{
    (void)state;
    fedge_selection selection;
    init(&selection, TEST_SET, "\"keep-best\": {},", false);
    add(&selection, trained(1, 2.0, 0.1), true, true);
    add(&selection, trained(2, 1.0, 0.878), true, true);
    add(&selection, trained(3, 0.5, 0.878), false, true);
    add(&selection, trained(4, 3.0, 0.81), false, true);
    assert_int_equal(selection.state.best.round, 2);
    assert_string_equal(selection.state.best.model, "model-2");
    assert_true(selection.state.best.accuracy == 0.878 && selection.state.best.loss == 1.0);
    assert_true(isnan(selection.state.best.validation_loss));
    assert_int_equal(selection.last.round, 4);
}

/* A model that has diverged is no better, whatever comes; rounds without evaluation do not count.
 */
static void losses_fall(void **state)
{
    (void)state;
    fedge_selection selection;
    init(&selection, TEST_SET,
         "\"keep-best\": {\"metric\": \"test-loss\"},"
         "\"early-stopping\": {\"metric\": \"test-loss\", \"patience\": 2, \"min-delta\": 0.1},",
         false);
    add(&selection, trained(1, NAN, 0.0), false, true);
    assert_int_equal(selection.state.stop.waited, 1);
    add(&selection, trained(2, 1.0, 0.0), true, true);
    fedge_round_summary passed_over = trained(3, NAN, NAN);
    passed_over.seconds_evaluate = 0.0;
    add(&selection, passed_over, false, false);
    assert_int_equal(selection.state.stop.waited, 0);
    add(&selection, trained(4, 0.95, 0.0), true, true); /* not by min-delta */
    assert_false(fedge_selection_is_over(&selection));
    add(&selection, trained(5, 0.91, 0.0), true, true);
    assert_true(fedge_selection_is_over(&selection));
    assert_int_equal(selection.state.stop.best_round, 2);
    assert_int_equal(selection.state.best.round, 5);
}

static void clients_validate(void **state)
{
    (void)state;
    fedge_selection selection;
    init(&selection, TEST_SET | CLIENTS,
         "\"keep-best\": {}, \"early-stopping\": {\"patience\": 1},", false);
    add(&selection, trained(1, 1.0, 0.9), false, false);
    add(&selection, evaluated(1, 1.0, 0.5), true, true);
    add(&selection, evaluated(1, 1.0, 0.6), false, false); /* repeated after a crash: as at first */
    assert_true(selection.state.keep.best == 0.5);
    assert_true(selection.state.best.validation_accuracy == 0.5);
    add(&selection, trained(2, 1.0, 0.1), false, false);
    fedge_round_summary nobody = evaluated(2, NAN, NAN);
    nobody.examples = 0;
    add(&selection, nobody, false, false);
    add(&selection, trained(3, 1.0, 0.95), false, false);
    assert_false(fedge_selection_is_over(&selection));
    add(&selection, evaluated(3, 1.0, 0.4), false, true);
    assert_true(fedge_selection_is_over(&selection));
    assert_int_equal(selection.state.best.round, 1);
    assert_true(selection.state.best.accuracy == 0.9);
}

/* By the test set, and what clients say later of the same model is kept with it. */
static void what_is_known_of_the_best_grows(void **state)
{
    (void)state;
    fedge_selection selection;
    init(&selection, TEST_SET | CLIENTS, "\"keep-best\": {\"metric\": \"test-accuracy\"},", false);
    add(&selection, trained(1, 1.0, 0.9), true, true);
    add(&selection, evaluated(1, 0.7, 0.5), false, true);
    assert_true(selection.state.best.validation_accuracy == 0.5);
    add(&selection, trained(2, 1.0, 0.8), false, true);
    add(&selection, evaluated(2, 0.7, 0.6), false, false);
    assert_true(selection.state.best.validation_accuracy == 0.5);
    assert_true(selection.state.best.accuracy == 0.9 && selection.state.best.round == 1);
}

static void examples_set_apart_validate(void **state)
{
    (void)state;
    fedge_selection selection;
    init(&selection, TEST_SET | CLIENTS, "\"keep-best\": {},", true);
    fedge_round_summary one = trained(1, 1.0, 0.9), two = trained(2, 1.0, 0.1);
    one.validation = (fedge_validation){.present = true, .loss = 1.0, .accuracy = 0.2};
    two.validation = (fedge_validation){.present = true, .loss = 1.0, .accuracy = 0.3};
    add(&selection, one, true, true);
    add(&selection, evaluated(1, 1.0, 0.99), false, false); /* of no weight */
    add(&selection, two, true, true);
    assert_int_equal(selection.state.best.round, 2);
    assert_true(selection.state.best.validation_accuracy == 0.3);
}

/* From any point on, a restored one says what one does that has seen all. */
static void a_restored_one_goes_on(void **state)
{
    (void)state;
    static const double ACCURACIES[] = {0.1, 0.4, 0.3, 0.4, 0.5, 0.2, 0.45, 0.5, 0.1, 0.3};
    enum { ROUNDS = sizeof(ACCURACIES) / sizeof(ACCURACIES[0]) };
    const char *keys = "\"keep-best\": {}, \"early-stopping\": {\"patience\": 4},";
    fedge_selection whole;
    init(&whole, CLIENTS, keys, false);
    for (uint32_t cut = 0; cut < 2 * ROUNDS; cut++) {
        fedge_selection a, b;
        init(&a, CLIENTS, keys, false);
        init(&b, CLIENTS, keys, false);
        for (uint32_t i = 0; i < 2 * ROUNDS; i++) {
            const uint32_t round = i / 2 + 1;
            const fedge_round_summary phase =
                i % 2 ? evaluated(round, 1.0, ACCURACIES[i / 2]) : trained(round, 1.0, 0.5);
            (void)fedge_selection_add(&a, &phase);
            (void)fedge_selection_add(&b, &phase);
            assert_int_equal(fedge_selection_is_over(&a), round == 9 ? i % 2 : round > 9);
            if (i == cut) {
                fedge_selection fresh;
                init(&fresh, CLIENTS, keys, false);
                fedge_selection_restore(&fresh, &b.state, &b.last);
                b = fresh;
            }
        }
        assert_memory_equal(&a.state, &b.state, sizeof(a.state));
        assert_int_equal(a.state.best.round, 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_are_chosen_and_checked),
        cmocka_unit_test(models_are_chosen_by_errors),
        cmocka_unit_test(what_no_evaluation_measures_is_known),
        cmocka_unit_test(nothing_is_chosen_unasked),
        cmocka_unit_test(the_first_of_the_best_is_kept),
        cmocka_unit_test(losses_fall),
        cmocka_unit_test(clients_validate),
        cmocka_unit_test(what_is_known_of_the_best_grows),
        cmocka_unit_test(examples_set_apart_validate),
        cmocka_unit_test(a_restored_one_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

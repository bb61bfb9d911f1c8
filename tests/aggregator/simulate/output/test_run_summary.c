#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/output/run_summary.h"

static const fedge_final_evaluation nothing;

static void add(fedge_run_summary *run_summary, uint32_t round, double accuracy)
{
    const fedge_round_summary summary = {.round = round,
                                         .kind = FEDGE_TASK_TRAIN,
                                         .reported = 4,
                                         .examples = 100,
                                         .bytes_up = 10,
                                         .bytes_down = 30,
                                         .clamped = 2,
                                         .seconds = 0.5,
                                         .accuracy = accuracy,
                                         .loss = 1.0 - accuracy,
                                         .model = "ab12"};
    fedge_run_summary_add(run_summary, &summary);
}

static void sums_go_over_rounds(void **state)
{
    (void)state;
    fedge_run_summary run_summary;
    fedge_run_summary_init(&run_summary, NULL, 0);
    assert_true(isnan(run_summary.test.accuracy) &&
                isnan(fedge_run_summary_last_mean(&run_summary.test)));
    for (uint32_t round = 1; round <= 12; round++)
        add(&run_summary, round, 0.05 * round);
    assert_int_equal(run_summary.rounds, 12);
    assert_int_equal(run_summary.clients, 48);
    assert_int_equal(run_summary.examples, 1200);
    assert_int_equal(run_summary.bytes_up, 120);
    assert_int_equal(run_summary.bytes_down, 360);
    assert_int_equal(run_summary.clamped, 24);
    assert_true(run_summary.seconds == 6.0);
    /* Rounds 3 to 12. */
    assert_true(fabs(fedge_run_summary_last_mean(&run_summary.test) - 0.375) < 1e-12);
    add(&run_summary, 13, NAN); /* not evaluated: changes no accuracy */
    assert_true(run_summary.test.accuracy == 0.05 * 12 && run_summary.test.num_accuracies == 12);
    add(&run_summary, 14, 0.1);
    assert_true(run_summary.test.accuracy == 0.1 && run_summary.test.best == 0.05 * 12);
}

static void evaluations_on_clients_are_apart(void **state)
{
    (void)state;
    fedge_run_summary run_summary;
    fedge_run_summary_init(&run_summary, NULL, 0);
    add(&run_summary, 1, 0.5);
    const fedge_round_summary summary = {
        .round = 1, .kind = FEDGE_TASK_EVALUATE, .reported = 7, .accuracy = 0.9, .loss = 0.2};
    fedge_run_summary_add(&run_summary, &summary);
    assert_true(run_summary.test.accuracy == 0.5 && run_summary.client_accuracy == 0.9);
    assert_int_equal(run_summary.clients, 4);
}

/* A loss of real numbers comes without an accuracy, and is not "never evaluated". */
static void losses_come_alone(void **state)
{
    (void)state;
    const double targets[] = {0.5};
    fedge_run_summary run_summary;
    fedge_run_summary_init(&run_summary, targets, 1);
    for (uint32_t round = 1; round <= 3; round++) {
        const fedge_round_summary summary = {.round = round,
                                             .kind = FEDGE_TASK_TRAIN,
                                             .accuracy = NAN,
                                             .loss = 1.0 / round,
                                             .validation = {true, 2.0 / round, NAN}};
        fedge_run_summary_add(&run_summary, &summary);
    }
    assert_true(run_summary.test.loss == 1.0 / 3 && run_summary.validation.loss == 2.0 / 3);
    assert_true(isnan(run_summary.test.accuracy) && isnan(run_summary.test.best));
    assert_true(isnan(fedge_run_summary_last_mean(&run_summary.test)) &&
                isnan(run_summary.test_at_best));
    assert_int_equal(run_summary.test.num_accuracies, 0);
    assert_true(run_summary.evaluated == 3 && isnan(run_summary.reached[0]));
}

/* A loss that is not finite any more is the last one, unless nothing was evaluated. */
static void a_lost_loss_is_not_kept(void **state)
{
    (void)state;
    fedge_run_summary run_summary;
    fedge_run_summary_init(&run_summary, NULL, 0);
    const double losses[] = {0.5, NAN, NAN}, seconds[] = {0.1, 0, 0.1};
    for (uint32_t round = 1; round <= 3; round++) {
        const fedge_round_summary summary = {.round = round,
                                             .kind = FEDGE_TASK_TRAIN,
                                             .accuracy = NAN,
                                             .loss = losses[round - 1],
                                             .seconds_evaluate = seconds[round - 1]};
        fedge_run_summary_add(&run_summary, &summary);
        assert_true(round == 3 ? isnan(run_summary.test.loss) : run_summary.test.loss == 0.5);
        assert_int_equal(run_summary.evaluated, round == 2 ? 1 : round);
    }
}

/* The monotone curve: a later dip changes nothing, and the crossing lies between two evaluations,
 * of which the first is where the curve begins. */
static void targets_are_reached_once(void **state)
{
    (void)state;
    const double targets[] = {0.5, 0.8, 0.99, 0.2};
    fedge_run_summary run_summary;
    fedge_run_summary_init(&run_summary, targets, 4);
    add(&run_summary, 1, 0.4);
    assert_true(isnan(run_summary.reached[0]) && run_summary.reached[3] == 1.0);
    add(&run_summary, 2, 0.3);
    add(&run_summary, 4, 0.6); /* from 0.4, the highest so far, at round 2 */
    assert_true(fabs(run_summary.reached[0] - 3.0) < 1e-12);
    add(&run_summary, 5, 0.1);
    add(&run_summary, 6, 0.8);
    assert_true(fabs(run_summary.reached[0] - 3.0) < 1e-12);
    assert_true(run_summary.reached[1] == 6.0);
    assert_true(isnan(run_summary.reached[2]));
}

static fedge_round_summary validated(uint32_t round, double accuracy, double validation)
{
    return (fedge_round_summary){.round = round,
                                 .kind = FEDGE_TASK_TRAIN,
                                 .accuracy = accuracy,
                                 .loss = 1.0 - accuracy,
                                 .validation = {true, isnan(validation) ? NAN : 0.5, validation}};
}

/* The round is chosen by the examples for validation: the first of the best. */
static void validation_chooses_a_round(void **state)
{
    (void)state;
    static fedge_job job;
    const double targets[] = {0.7};
    const fedge_simulation_settings settings = {.num_clients = 9, .num_validation = 50};
    const fedge_round_summary rounds[] = {validated(1, 0.5, 0.4), validated(2, 0.6, 0.8),
                                          validated(3, NAN, NAN), validated(4, 0.9, 0.8),
                                          validated(5, 0.95, 0.6)};
    fedge_run_summary run_summary;
    fedge_error err;
    char *text = NULL;
    fedge_run_summary_init(&run_summary, targets, 1);
    for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++)
        fedge_run_summary_add(&run_summary, &rounds[i]);
    /* Targets are those of the test set: from 0.6 in round 2 to 0.9 in round 4. */
    assert_true(fabs(run_summary.reached[0] - (2.0 + 2.0 / 3.0)) < 1e-12);
    assert_int_equal(
        fedge_run_summary_json(&run_summary, &nothing, &job, &settings, "complete", &text, &err),
        FEDGE_OK);
    if (!strstr(text, "\"validation\":{\"examples\":50,\"accuracy\":0.6,\"loss\":0.5,"
                      "\"accuracy_last_10\":0.65,\"accuracy_best\":0.8,\"round_best\":2,"
                      "\"test_accuracy_at_best\":0.6,"))
        fail_msg("%s", text);
    free(text);
}

/* Without a test set targets are reached on the examples for validation. */
static void validation_stands_in_for_a_test_set(void **state)
{
    (void)state;
    const double targets[] = {0.5};
    fedge_run_summary run_summary;
    fedge_run_summary_init(&run_summary, targets, 1);
    for (uint32_t round = 1; round <= 3; round++) {
        const fedge_round_summary summary = validated(round, NAN, 0.2 * round);
        fedge_run_summary_add(&run_summary, &summary);
    }
    assert_true(fabs(run_summary.reached[0] - 2.5) < 1e-12);
    assert_true(isnan(run_summary.test.accuracy) && isnan(run_summary.test_at_best));
    assert_int_equal(run_summary.validation.best_round, 3);
}

static void inclusion_is_in_the_summary_when_time_is_virtual(void **state)
{
    (void)state;
    static fedge_job job;
    const fedge_simulation_settings settings = {.num_clients = 9, .num_rounds = 2};
    const fedge_round_summary round = {
        .round = 1, .virtual_phase = {true, 2.5, 2.5, {1, 1, 1, 1}, {0, 0, 1, 1}}};
    fedge_round_summary evaluation = round;
    fedge_run_summary run_summary;
    fedge_error err;
    char *text = NULL;
    evaluation.kind = FEDGE_TASK_EVALUATE;
    evaluation.virtual_phase.time = 3.0;
    fedge_run_summary_init(&run_summary, NULL, 0);
    fedge_run_summary_add(&run_summary, &round);
    fedge_run_summary_add(&run_summary, &evaluation);
    assert_int_equal(
        fedge_run_summary_json(&run_summary, &nothing, &job, &settings, "complete", &text, &err),
        FEDGE_OK);
    assert_non_null(strstr(text, "\"virtual_seconds\":3,\"inclusion\":[{\"asked\":0.25,"
                                 "\"reported\":0},{\"asked\":0.25,\"reported\":0},"
                                 "{\"asked\":0.25,\"reported\":0.5},"));
    free(text);
}

static void a_summary_is_json(void **state)
{
    (void)state;
    static fedge_job job;
    const double targets[] = {0.25, 0.75};
    const fedge_simulation_settings settings = {.seed = 9007199254740991,
                                                .num_clients = 9,
                                                .partition = "file:a\"b",
                                                .partition_seed = 4,
                                                .num_rounds = 2};
    fedge_run_summary run_summary;
    fedge_error err;
    char *text = NULL;
    strcpy(job.plan.name, "job");
    fedge_run_summary_init(&run_summary, targets, 2);
    add(&run_summary, 1, 0.5);
    assert_int_equal(
        fedge_run_summary_json(&run_summary, &nothing, &job, &settings, "complete", &text, &err),
        FEDGE_OK);
    static const char *const parts[] = {
        "{\"job\":\"job\",\"ending\":\"complete\",\"partition\":\"file:a\\\"b\",\"seed\":"
        "9007199254740991,"
        "\"clients\":9,\"partition_seed\":4,\"num_server_rounds\":2,",
        "\"rounds\":1,\"accuracy\":0.5,\"loss\":0.5,\"accuracy_last_10\":0.5,\"accuracy_best\":0.5,"
        "\"client_accuracy\":null,\"client_loss\":null,\"clients_trained\":4,",
        "\"seconds\":0.5,\"clients_per_second\":8,\"targets\":[{\"accuracy\":0.25,\"rounds\":1},"
        "{\"accuracy\":0.75,\"rounds\":null}],\"model_sha256\":\"ab12\",\"per_client_accuracy\":"
        "null,"
        "\"macro_f1\":null,"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!strstr(text, parts[i]))
            fail_msg("%s has no %s", text, parts[i]);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_go_over_rounds),
        cmocka_unit_test(evaluations_on_clients_are_apart),
        cmocka_unit_test(losses_come_alone),
        cmocka_unit_test(a_lost_loss_is_not_kept),
        cmocka_unit_test(targets_are_reached_once),
        cmocka_unit_test(validation_chooses_a_round),
        cmocka_unit_test(validation_stands_in_for_a_test_set),
        cmocka_unit_test(a_summary_is_json),
        cmocka_unit_test(inclusion_is_in_the_summary_when_time_is_virtual),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a job says of its strategy: defaults, and what is refused. */
#include "tests/aggregator/rounds/strategy_fixture.h"

#include <stdlib.h>

#include "edge/plan/client_hooks.h"

static const fedge_strategy_common *common_of(const fedge_job *job)
{
    return job->strategy_settings;
}

static void defaults_are_those_of_fedavg(void **state)
{
    (void)state;
    fedge_job *job = strategy_job("{}");
    assert_string_equal(job->strategy, "FedAvg");
    assert_true(common_of(job)->server_learning_rate == 1);
    assert_true(fedge_strategy_rate(common_of(job), 9) == 1);
    assert_null(job->plan.hooks);
    fedge_job_free(job);
    job = strategy_job("{\"type\": \"FedAvg\", \"server_learning_rate\": 0.7}");
    assert_true(common_of(job)->server_learning_rate == 0.7);
    fedge_job_free(job);
}

static void the_rate_has_a_schedule(void **state)
{
    (void)state;
    fedge_job *job = strategy_job("{\"server-learning-rate\": 2, \"server-schedule\": "
                                  "{\"type\": \"StepLR\", \"step_size\": 2, \"gamma\": 0.5}}");
    const double expected[] = {2, 2, 1, 1, 0.5};
    for (uint32_t round = 1; round <= 5; round++)
        assert_true(fedge_strategy_rate(common_of(job), round) == expected[round - 1]);
    fedge_job_free(job);
    refuse_strategy("{\"server-schedule\": {\"T_max\": 3}}", "",
                    "strategy.server-schedule.T_max: is not an argument of ConstantLR");
    refuse_strategy("{\"server-schedule\": {\"type\": \"ExponentialLR\", \"gamma\": 100}}", "",
                    "strategy.server-schedule.gamma: makes the server learning rate of round 5 "
                    "1e+08, and 1e+06 is the most");
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"{\"type\": \"FedAvgg\"}",
         "strategy.type: \"FedAvgg\" is not known here; did you mean \"FedAvg\"?"},
        {"{\"type\": \"none-of-these\"}",
         "strategy.type: \"none-of-these\" is not known here; valid: FedAvg, FedProx, FedAvgM, "},
        {"{\"type\": 7}", "strategy.type: must be a text in quotes"},
        {"[]", "strategy: must be an object"},
        {"{\"server-learning-rat\": 1}", "did you mean \"server-learning-rate\"?"},
        {"{\"num-clients\": 9}", "strategy.num-clients: is not an argument of FedAvg, but of "
                                 "SCAFFOLD"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        refuse_strategy(CASES[i][0], "", CASES[i][1]);
}

static void who_does_not_wait_says_so_to_the_rounds(void **state)
{
    (void)state;
    fedge_job *job = strategy_job("{\"type\": \"FedAsync\"}");
    assert_int_equal(job->rounds.buffer_size, 1);
    assert_int_equal(job->rounds.max_staleness, 20);
    fedge_job_free(job);
    refuse_strategy("{\"type\": \"FedAsync\", \"buffer-size\": 2}", "",
                    "strategy.buffer-size: is not an argument of FedAsync, but of FedBuff");
}

static void clients_take_part_in_scaffold(void **state)
{
    (void)state;
    fedge_error err;
    fedge_job *job = strategy_job("{\"type\": \"SCAFFOLD\"}");
    assert_string_equal(job->plan.hooks->name, "SCAFFOLD");
    fedge_job_free(job);
    /* A simulation knows how many clients there are. */
    job = strategy_job("{\"type\": \"SCAFFOLD\", \"num-clients\": 7}");
    assert_int_equal(fedge_strategy_scaffold.count_clients(job->strategy_settings, 7, &err),
                     FEDGE_OK);
    assert_int_equal(fedge_strategy_scaffold.count_clients(job->strategy_settings, 8, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "is 7, and there are 8 clients"));
    fedge_job_free(job);
}

static void fedprox_is_the_trainers(void **state)
{
    (void)state;
    fedge_error err;
    char *texts[2] = {NULL, NULL};
    size_t size = 0;
    fedge_job *prox = strategy_job("{\"type\": \"FedProx\", \"proximal-mu\": 0.25}"), *avg = NULL;
    assert_true(prox->plan.training.optimizer.proximal_mu == 0.25f);
    assert_int_equal(parse_strategy("{}", "\"proximal-mu\": 0.25", &avg, &err), FEDGE_OK);
    assert_int_equal(fedge_plan_write(&prox->plan, &texts[0], &size, &err), FEDGE_OK);
    assert_int_equal(fedge_plan_write(&avg->plan, &texts[1], &size, &err), FEDGE_OK);
    assert_string_equal(texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
    fedge_job_free(prox);
    fedge_job_free(avg);
    refuse_strategy("{\"type\": \"FedProx\", \"proximal-mu\": 0.25}", "\"proximal-mu\": 0.25",
                    "training.proximal-mu: is in strategy.proximal-mu already");
}

/* Where strategies are not known, any may be named, and what it asks of clients is known. */
static void without_strategies_the_plan_is_the_same(void **state)
{
    (void)state;
    static const char TEXT[] =
        "{\"fedge-job\": 1, \"name\": \"s\", \"model\": {\"input-shape\": [2], \"layers\": ["
        "{\"type\": \"Linear\", \"in_features\": 2, \"out_features\": 2}]},"
        "\"data\": {\"name\": \"d\", \"shape\": [2], \"dtype\": \"f32\", \"labels\": 2},"
        "\"training\": {\"learning-rate\": 0.1}, \"rounds\": {\"num-server-rounds\": 3},"
        "\"strategy\": {\"type\": \"SCAFFOLD\", \"anything\": 1}}";
    fedge_job *job = NULL;
    fedge_error err;
    if (fedge_job_parse(TEXT, sizeof(TEXT) - 1, "job.json", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_string_equal(job->strategy, "SCAFFOLD");
    assert_ptr_equal(job->plan.hooks, fedge_client_hooks_find("SCAFFOLD"));
    assert_null(job->strategy_settings);
    fedge_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_fedavg),
        cmocka_unit_test(the_rate_has_a_schedule),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(who_does_not_wait_says_so_to_the_rounds),
        cmocka_unit_test(clients_take_part_in_scaffold),
        cmocka_unit_test(fedprox_is_the_trainers),
        cmocka_unit_test(without_strategies_the_plan_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

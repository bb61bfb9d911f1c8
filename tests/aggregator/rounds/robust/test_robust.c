/* Robust rules: what is refused, and that memory and threads change nothing.
 * tests/golden/strategies has what they make (test_strategy_golden.c). */
#include "tests/aggregator/rounds/strategy_fixture.h"

#include "aggregator/rounds/tiles.h"
#include "aggregator/rounds/updates.h"
#include "edge/core/rng.h"

#define VALUES 70000
#define UPDATES 11

static void too_few_updates_are_refused(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"{\"type\": \"Krum\", \"num-malicious-nodes\": 1}",
         "Krum with 1 malicious nodes needs 5 updates, and a round of this job may close with 4: "
         "raise rounds.min-train-nodes"},
        {"{\"type\": \"MultiKrum\", \"num-malicious-nodes\": 1}", "needs 5 updates"},
        {"{\"type\": \"Bulyan\", \"num-malicious-nodes\": 1}", "needs 7 updates"},
        {"{\"type\": \"RFA\", \"num-malicious-nodes\": 2, \"mixing\": true}",
         "RFA with 2 malicious nodes and mixing needs 5 updates"},
        {"{\"type\": \"FedMedian\", \"mixing\": true}", "set num-malicious-nodes"},
        {"{\"type\": \"MultiKrum\", \"num-malicious-nodes\": 0, \"num-nodes-to-keep\": 5}",
         "strategy.num-nodes-to-keep: a round may close with 4 updates, 0 of them malicious: keep "
         "at most 4"},
        {"{\"type\": \"Krum\"}", "num-malicious-nodes: is missing"},
        {"{\"type\": \"FLTrust\", \"root-set\": {\"labels\": \"l\"}}",
         "strategy.root-set.values: is missing"},
        {"{\"type\": \"FedTrimmedAvg\", \"beta\": 0.5}", "strategy.beta: 0.5 is not in [0, 0.499]"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        refuse_strategy(CASES[i][0], "", CASES[i][1]);
    fedge_job_free(strategy_job("{\"type\": \"Krum\", \"num-malicious-nodes\": 0}"));
}

/* The job may leave it out for a plugin that trains, and there is none. */
static void a_server_that_cannot_train_is_refused(void **state)
{
    (void)state;
    const fedge_strategy_ops *ops = NULL;
    fedge_error err;
    fedge_job *job = strategy_job("{\"type\": \"FLTrust\"}");
    assert_int_equal(fedge_strategy_of(job, &ops, &err), FEDGE_OK);
    const fedge_strategy_config config = {.schema = &job->plan.sent.sections[0].schema, .job = job};
    void *trust = NULL;
    assert_int_equal(ops->init(&config, &trust, &err), FEDGE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "give the strategy a \"root-set\", or give the server"));
    assert_null(trust);
    fedge_job_free(job);
}

static void a_root_set_that_cannot_be_read_is_refused(void **state)
{
    (void)state;
    const fedge_strategy_ops *ops = NULL;
    fedge_error err;
    fedge_job *job =
        strategy_job("{\"type\": \"FLTrust\", \"root-set\": {\"values\": \"/no/such.csv\"}}");
    const fedge_strategy_config config = {.schema = &job->plan.sent.sections[0].schema, .job = job};
    void *made = NULL;
    assert_int_equal(fedge_strategy_find(job->strategy, &ops, &err), FEDGE_OK);
    assert_int_equal(ops->init(&config, &made, &err), FEDGE_NOT_FOUND);
    assert_non_null(strstr(err.message, "the server's root set"));
    assert_null(made);
    fedge_job_free(job);
}

/* ---- one step of many updates ---------------------------------------------------------------- */

static fedge_tensor_spec tensors[2] = {
    {.name = "a", .offset = 0, .count = VALUES - 5},
    {.name = "b", .offset = VALUES - 5, .count = 5},
};
static const fedge_schema SCHEMA = {.num_tensors = 2, .tensors = tensors, .num_elements = VALUES};

static void fill(fedge_stored_updates *kept, fedge_updates *updates)
{
    static int32_t v[VALUES];
    uint32_t order[UPDATES], first = 0;
    fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TIE_BREAK, 0, 0, 0);
    assert_int_equal(fedge_stored_updates_reserve(kept, UPDATES, &first, NULL), FEDGE_OK);
    for (uint32_t i = 0; i < UPDATES; i++) {
        for (size_t k = 0; k < VALUES; k++)
            v[k] = (int32_t)fedge_rng_below(&rng, 1u << 28) - (1 << 27) + (i == 4 ? 1 << 29 : 0);
        assert_int_equal(fedge_stored_updates_put(kept, i, v, NULL), FEDGE_OK);
        order[i] = UPDATES - 1 - i;
    }
    assert_int_equal(fedge_stored_updates_list(kept, order, UPDATES, updates, NULL), FEDGE_OK);
}

static void take_step(const char *strategy, uint64_t memory, uint64_t kept_memory,
                      uint32_t num_threads, float *model)
{
    fedge_job *job = NULL;
    fedge_error err;
    fedge_stored_updates kept;
    fedge_updates updates;
    const fedge_strategy_ops *ops = NULL;
    const int8_t bounds[2] = {2, 1};
    const fedge_update_facts facts[UPDATES] = {{0}};
    assert_int_equal(parse_strategy_of(strategy, "", "\"min-available-nodes\": 11", &job, &err),
                     FEDGE_OK);
    assert_int_equal(fedge_strategy_find(job->strategy, &ops, &err), FEDGE_OK);
    fedge_stored_updates_init(&kept, &SCHEMA, kept_memory);
    fill(&kept, &updates);
    const fedge_strategy_sum sum = {.job = job,
                                    .round = 1,
                                    .num_updates = UPDATES,
                                    .total_weight = UPDATES,
                                    .delta = {&SCHEMA, bounds},
                                    .facts = facts,
                                    .updates = &updates,
                                    .memory = memory,
                                    .num_threads = num_threads};
    for (size_t k = 0; k < VALUES; k++)
        model[k] = 0;
    if (ops->step(job->strategy_settings, &sum, model, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    fedge_stored_updates_fini(&kept);
    fedge_job_free(job);
}

static void memory_and_threads_change_nothing(void **state)
{
    (void)state;
    static const char *const CASES[] = {
        "{\"type\": \"FedMedian\"}",
        "{\"type\": \"FedTrimmedAvg\", \"mixing\": true, \"num-malicious-nodes\": 2}",
        "{\"type\": \"MultiKrum\", \"num-malicious-nodes\": 3}",
        "{\"type\": \"Bulyan\", \"num-malicious-nodes\": 2, \"mixing\": true}",
        "{\"type\": \"RFA\"}",
        "{\"type\": \"NormClipping\", \"norm\": 3}",
    };
    static float large[VALUES], small[VALUES];
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        take_step(CASES[i], (uint64_t)1 << 30, (uint64_t)1 << 30, 1, large);
        take_step(CASES[i], (uint64_t)1 << 30, VALUES * 4 * 3, 7, small); /* most are in a file */
        assert_memory_equal(large, small, sizeof(large));
        take_step(CASES[i], fedge_tiles_least_bytes(UPDATES), 0, 2, small);
        assert_memory_equal(large, small, sizeof(large));
        assert_true(large[0] != 0.0f && large[VALUES - 1] != 0.0f);
    }
}

/* What a job is told to need is what the rows and a row of sums take, and little more. */
static void memory_is_that_of_the_rows(void **state)
{
    (void)state;
    for (uint32_t num = 3; num < 200; num++) {
        const uint64_t rows = (uint64_t)num * 2 * sizeof(int32_t) + sizeof(int64_t);
        const uint64_t least = rows * FEDGE_CODEC_BLOCK;
        const uint64_t usual = rows * FEDGE_UPDATES_CHUNK;
        assert_in_range(fedge_tiles_least_bytes(num), least, 16 * least);
        assert_in_range(fedge_tiles_bytes(num, 5), 5 * usual, 6 * usual);
    }
}

/* The fifth is far off, and none of these follow it as the mean would. */
static void one_that_is_far_off_is_left_out(void **state)
{
    (void)state;
    static const char *const CASES[] = {
        "{\"type\": \"Krum\", \"num-malicious-nodes\": 1}",
        "{\"type\": \"MultiKrum\", \"num-malicious-nodes\": 1}",
        "{\"type\": \"Bulyan\", \"num-malicious-nodes\": 1}",
        "{\"type\": \"FedTrimmedAvg\", \"beta\": 0.1}",
        "{\"type\": \"RFA\", \"num-iterations\": 30}",
    };
    static float model[VALUES];
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        double mean = 0.0;
        take_step(CASES[i], (uint64_t)1 << 30, (uint64_t)1 << 30, 2, model);
        for (size_t k = 0; k + 5 < VALUES; k++)
            mean += (double)model[k] / (VALUES - 5);
        /* 2^29 is 2 here, and 2 / 11 would be the mean. */
        if (!(mean > -0.12 && mean < 0.12))
            fail_msg("%s moves the model by %g", CASES[i], mean);
    }
}

static void memory_that_is_too_small_is_refused(void **state)
{
    (void)state;
    fedge_tiles tiles;
    fedge_error err;
    const fedge_updates updates = {.num = 1000};
    const int8_t bounds[2] = {2, 2};
    const fedge_strategy_sum sum = {
        .delta = {&SCHEMA, bounds}, .updates = &updates, .memory = 1 << 20, .num_threads = 4};
    assert_int_equal(fedge_tiles_init(&tiles, &sum, false, &err), FEDGE_NO_MEMORY);
    assert_non_null(strstr(err.message, "raise --robust-memory, or lower rounds.max-cohort"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_few_updates_are_refused),
        cmocka_unit_test(a_server_that_cannot_train_is_refused),
        cmocka_unit_test(a_root_set_that_cannot_be_read_is_refused),
        cmocka_unit_test(memory_and_threads_change_nothing),
        cmocka_unit_test(memory_is_that_of_the_rows),
        cmocka_unit_test(one_that_is_far_off_is_left_out),
        cmocka_unit_test(memory_that_is_too_small_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Tests that random jobs are valid, that their fields are right, and that all kinds occur. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "aggregator/rounds/selection.h"
#include "aggregator/rounds/strategy.h"
#include "edge/data/dataset.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/personal.h"
#include "tests/world/job_draw.h"

#define NUM_SEEDS 3000

static world_job draw(uint64_t seed)
{
    world_job job;
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 0, 0, 0);
    world_job_draw(&rng, &job);
    return job;
}

static fedge_job *parse(const world_job *drawn)
{
    fedge_job *job = NULL;
    fedge_error err;
    if (fedge_strategy_job_parse(drawn->text, strlen(drawn->text), "/disk/job.json", &job, &err))
        fail_msg("%s\n%s", err.message, drawn->text);
    return job;
}

/* Compares the fields of a job with what the reader finds in its text. */
static void compare(const world_job *drawn, const fedge_job *job)
{
    const fedge_plan *plan = &job->plan;
    const fedge_rounds_spec *rounds = &job->rounds;
    const fedge_strategy_ops *ops = NULL;
    fedge_error err;
    assert_string_equal(drawn->strategy, job->strategy);
    assert_int_equal(fedge_strategy_of(job, &ops, &err), FEDGE_OK);
    assert_int_equal(drawn->collects, ops->collects);
    assert_int_equal(drawn->num_rounds, rounds->num_server_rounds);
    assert_int_equal(drawn->deadline_ms, rounds->round_deadline_ms);
    assert_int_equal(drawn->min_available_nodes, rounds->min_available_nodes);
    assert_in_range(drawn->num_clients, rounds->min_available_nodes, WORLD_JOB_MAX_CLIENTS);
    assert_int_equal(drawn->buffer_size, rounds->buffer_size);
    assert_int_equal(drawn->asynchronous, rounds->buffer_size > 0);
    assert_int_equal(drawn->evaluates, rounds->fraction_evaluate > 0);
    assert_int_equal(drawn->stops_early, job->early_stopping.present);
    assert_int_equal(drawn->num_parameters, plan->num_parameters);
    assert_in_range(plan->num_parameters, 1, WORLD_JOB_MAX_PARAMETERS);
    assert_int_equal(drawn->external, plan->external);
    assert_int_equal(drawn->personal, fedge_plan_is_personal(plan));
    assert_int_equal(drawn->clustered, fedge_plan_is_clustered(plan));
    assert_int_equal(drawn->corrects, plan->hooks && plan->hooks->corrects);
    assert_int_equal(drawn->down[0] != '\0', plan->update.down.values != NULL);
    assert_int_equal(strstr(drawn->up, "+deflate") != NULL, plan->update.deflate);
    assert_non_null(strstr(drawn->text, "\"min-free-disk\":"));
}

/* Codecs that occurred, in the order of their table. */
typedef struct seen {
    uint32_t strategies[64], up[FEDGE_CODEC_COUNT], down[FEDGE_CODEC_COUNT];
    uint32_t samplers[FEDGE_SAMPLER_COUNT], models[3]; /* external, with statistics, others */
    uint32_t plain;                                    /* FedAvg */
    uint32_t keeps_best, stops_early, has_test_set, retains;
} seen;

static void count(seen *all, const fedge_job *job)
{
    const fedge_plan *plan = &job->plan;
    for (size_t i = 0; fedge_strategy_readers[i]; i++)
        all->strategies[i] += strcmp(fedge_strategy_readers[i]->name, job->strategy) == 0;
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++) {
        all->up[i] += fedge_codec_has(&plan->update.codec, fedge_codec_name(i));
        all->down[i] += fedge_codec_has(&plan->update.down, fedge_codec_name(i));
    }
    all->samplers[job->rounds.sampler.type]++;
    all->models[plan->external ? 0 : plan->num_parameters < plan->schema.num_elements ? 1 : 2]++;
    all->plain += strcmp(job->strategy, "FedAvg") == 0;
    all->keeps_best += job->keep_best.present;
    all->stops_early += job->early_stopping.present;
    all->has_test_set += job->test_set.present;
    all->retains += fedge_plan_retains_residual(plan);
}

static void require_all(const seen *all)
{
    for (size_t i = 0; fedge_strategy_readers[i]; i++) {
        if (all->strategies[i] < 10)
            fail_msg("%s: in %u jobs", fedge_strategy_readers[i]->name, all->strategies[i]);
    }
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++) {
        if (all->up[i] < 10 || all->down[i] < 10) {
            fail_msg("%s: in %u jobs up and %u down", fedge_codec_name(i), all->up[i],
                     all->down[i]);
        }
    }
    for (unsigned i = 0; i < FEDGE_SAMPLER_COUNT; i++)
        assert_true(all->samplers[i] >= 10);
    for (int i = 0; i < 3; i++)
        assert_true(all->models[i] >= 10);
    assert_true(all->keeps_best >= 10 && all->stops_early >= 10 && all->has_test_set >= 10);
    assert_true(all->retains >= 10);
    assert_in_range(all->plain, NUM_SEEDS / 3, NUM_SEEDS * 2 / 3);
}

/* Clients can read the plan that the server makes of the job. */
static void send_plan(const world_job *drawn, const fedge_job *job)
{
    fedge_error err;
    char *text = NULL;
    size_t size = 0;
    fedge_plan *plan = NULL;
    if (fedge_plan_write(&job->plan, &text, &size, &err) != FEDGE_OK ||
        fedge_plan_parse(text, size, &plan, &err) != FEDGE_OK)
        fail_msg("%s\n%s", err.message, drawn->text);
    assert_int_equal(plan->sent.schema.num_elements, job->plan.sent.schema.num_elements);
    fedge_plan_free(plan);
    free(text);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void all_jobs_are_valid(void **state)
{
    (void)state;
    seen all = {0};
    double drawing = 0, parsing = 0;
    size_t longest = 0;
    for (uint64_t seed = 1; seed <= NUM_SEEDS; seed++) {
        const double start = seconds();
        const world_job drawn = draw(seed);
        const double half = seconds();
        fedge_job *job = parse(&drawn);
        drawing += half - start;
        parsing += seconds() - half;
        fedge_selection selection;
        fedge_error err;
        compare(&drawn, job);
        if (fedge_selection_init(&selection, job, false, &err) != FEDGE_OK)
            fail_msg("%s\n%s", err.message, drawn.text);
        send_plan(&drawn, job);
        count(&all, job);
        longest = strlen(drawn.text) > longest ? strlen(drawn.text) : longest;
        fedge_job_free(job);
    }
    print_message("a job is drawn in %.1f us and read in %.1f us; the longest has %zu bytes\n",
                  drawing / NUM_SEEDS * 1e6, parsing / NUM_SEEDS * 1e6, longest);
    require_all(&all);
}

static void equal_seeds_give_equal_jobs(void **state)
{
    (void)state;
    const world_job a = draw(7), b = draw(7), c = draw(8);
    assert_memory_equal(&a, &b, sizeof(a));
    assert_string_not_equal(a.text, c.text);
}

static void examples_can_be_loaded(void **state)
{
    (void)state;
    static const char PATH[] = "test_job_draw.csv";
    uint32_t num_loaded = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        const world_job drawn = draw(seed);
        if (!drawn.needs_examples)
            continue;
        char csv[WORLD_JOB_EXAMPLES_TEXT];
        const size_t size = world_job_examples(&drawn, csv);
        FILE *file = fopen(PATH, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(csv, 1, size, file), size);
        assert_int_equal(fclose(file), 0);
        fedge_job *job = parse(&drawn);
        fedge_dataset *dataset = NULL;
        fedge_error err;
        if (fedge_dataset_load(&job->plan.data, PATH, "", &dataset, &err) != FEDGE_OK)
            fail_msg("%s\n%s", err.message, drawn.text);
        assert_in_range(fedge_dataset_size(dataset), 5, 12);
        fedge_dataset_free(dataset);
        fedge_job_free(job);
        num_loaded++;
    }
    assert_true(num_loaded >= 5);
    assert_int_equal(remove(PATH), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_jobs_are_valid),
        cmocka_unit_test(equal_seeds_give_equal_jobs),
        cmocka_unit_test(examples_can_be_loaded),
    };
    return cmocka_run_group_tests_name("world/job_draw", tests, NULL, NULL);
}

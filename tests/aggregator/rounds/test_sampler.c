#include "aggregator/rounds/sampler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static fedge_rounds_spec base_spec(void)
{
    return (fedge_rounds_spec){
        .num_server_rounds = 10,
        .fraction_train = 0.1,
        .fraction_evaluate = 0.5,
        .min_train_nodes = 2,
        .min_evaluate_nodes = 3,
        .min_available_nodes = 4,
        .over_selection = 1.0,
        .max_cohort = 1000,
        .min_report_fraction = 0.8,
    };
}

static void assert_size(const fedge_rounds_spec *spec, uint32_t available, uint32_t wanted,
                        uint32_t asked)
{
    fedge_cohort_size size = fedge_cohort_size_of(spec, FEDGE_TASK_TRAIN, available);
    assert_int_equal(size.wanted, wanted);
    assert_int_equal(size.asked, asked);
}

static void sizes_follow_the_job(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    assert_size(&spec, 100, 10, 10);
    assert_size(&spec, 109, 10, 10);
    assert_size(&spec, 5, 2, 2); /* min-train-nodes */
    assert_size(&spec, 1, 1, 1); /* never more than there are */
    spec.max_cohort = 7;
    assert_size(&spec, 100, 7, 7);
    spec.max_cohort = 12;
    spec.over_selection = 1.15;
    assert_size(&spec, 100, 10, 12); /* ceil(11.5), at most max-cohort */
    spec.max_cohort = 11;
    assert_size(&spec, 100, 10, 11);
    spec.over_selection = 1e9;
    spec.max_cohort = 1000;
    assert_size(&spec, 100, 10, 100);
    spec.over_selection = 1.0;
    spec.fraction_train = 0.55; /* 0.55 · 100 is 55.000000000000007 */
    assert_size(&spec, 100, 55, 55);
    spec.fraction_train = 0.29; /* 0.29 · 100 is 28.999999999999996 */
    assert_size(&spec, 100, 29, 29);
    spec.over_selection = 1.1; /* 1.1 · 10 is 11.000000000000002 */
    spec.fraction_train = 0.1;
    assert_size(&spec, 100, 10, 11);
}

static void evaluation_has_its_own_sizes(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.over_selection = 2.0;
    fedge_cohort_size size = fedge_cohort_size_of(&spec, FEDGE_TASK_EVALUATE, 20);
    assert_int_equal(size.wanted, 10);
    assert_int_equal(size.asked, 10);
    assert_int_equal(fedge_cohort_size_of(&spec, FEDGE_TASK_EVALUATE, 4).asked, 3);
    assert_int_equal(fedge_cohort_needed(&spec, FEDGE_TASK_TRAIN), 4);
    spec.min_available_nodes = 0;
    assert_int_equal(fedge_cohort_needed(&spec, FEDGE_TASK_TRAIN), 2);
    assert_int_equal(fedge_cohort_needed(&spec, FEDGE_TASK_EVALUATE), 3);
    spec.min_train_nodes = 0;
    assert_int_equal(fedge_cohort_needed(&spec, FEDGE_TASK_TRAIN), 1);
}

static void min_reports_round_up(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    assert_int_equal(fedge_cohort_min_reports(&spec, 10), 8);
    assert_int_equal(fedge_cohort_min_reports(&spec, 9), 8); /* 7.2 */
    assert_int_equal(fedge_cohort_min_reports(&spec, 1), 1);
    spec.min_report_fraction = 1.0;
    assert_int_equal(fedge_cohort_min_reports(&spec, 10), 10);
    spec.min_report_fraction = 1e-6;
    assert_int_equal(fedge_cohort_min_reports(&spec, 10), 1);
}

/* Each of the 10 subsets of 2 in 5 within 5 standard deviations of its share. */
static void subsets_are_equally_likely(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    uint32_t counts[5][5] = {0};
    for (uint32_t draw = 0; draw < DRAWS; draw++) {
        fedge_rng rng = fedge_rng_stream(7, FEDGE_PURPOSE_SAMPLE, draw, 0, 0);
        uint32_t items[5] = {0, 1, 2, 3, 4};
        fedge_sample(&rng, items, 5, 2);
        uint32_t low = items[0] < items[1] ? items[0] : items[1];
        uint32_t high = items[0] < items[1] ? items[1] : items[0];
        assert_true(low < high && high < 5);
        counts[low][high]++;
    }
    for (uint32_t low = 0; low < 5; low++) {
        for (uint32_t high = low + 1; high < 5; high++)
            assert_in_range(counts[low][high], 2000 - 212, 2000 + 212);
    }
}

static void a_sample_is_a_permutation(void **state)
{
    (void)state;
    uint32_t items[100], again[100];
    bool seen[100] = {0};
    for (uint32_t i = 0; i < 100; i++)
        items[i] = again[i] = i;
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_SAMPLE, 3, 0, 0), copy = rng;
    fedge_sample(&rng, items, 100, 100);
    fedge_sample(&copy, again, 100, 100);
    assert_memory_equal(items, again, sizeof(items));
    for (uint32_t i = 0; i < 100; i++) {
        assert_false(seen[items[i]]);
        seen[items[i]] = true;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_follow_the_job),      cmocka_unit_test(evaluation_has_its_own_sizes),
        cmocka_unit_test(min_reports_round_up),      cmocka_unit_test(subsets_are_equally_likely),
        cmocka_unit_test(a_sample_is_a_permutation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

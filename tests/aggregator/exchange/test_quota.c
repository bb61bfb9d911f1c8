#include "tests/edge/core/cmocka_all.h"

#include "aggregator/exchange/exchange.h"

static uint32_t taken(fedge_quota *quota, uint32_t wanted, uint64_t now_ms)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < wanted; i++)
        count += fedge_quota_take(quota, 10, 5, now_ms);
    return count;
}

static void a_burst_then_a_rate(void **state)
{
    (void)state;
    fedge_quota quota = {0};
    assert_int_equal(taken(&quota, 100, 1000), 10);
    assert_int_equal(taken(&quota, 100, 1000), 0);
    assert_int_equal(taken(&quota, 100, 1199), 0);
    assert_int_equal(taken(&quota, 100, 1200), 1);
    assert_int_equal(taken(&quota, 100, 2200), 5);
    assert_int_equal(taken(&quota, 100, 100000), 10); /* never more than the burst */
}

static void the_rate_holds_whatever_the_steps(void **state)
{
    (void)state;
    for (uint64_t step_ms = 1; step_ms < 900; step_ms += 7) {
        fedge_quota quota = {0};
        uint32_t count = 0;
        uint64_t now_ms = 50;
        for (; now_ms < 20050; now_ms += step_ms)
            count += taken(&quota, 8, now_ms);
        assert_in_range(count, 5 * 19 + 8, 5 * 20 + 10);
    }
}

static void what_is_never_used_up_is_never_refused(void **state)
{
    (void)state;
    fedge_quota quota = {0};
    for (uint64_t now_ms = 0; now_ms < 60000; now_ms += 200)
        assert_true(fedge_quota_take(&quota, 10, 5, now_ms));
    assert_true(quota.used <= 1);
}

/* Of two threads one reads the clock first and comes second. */
static void time_that_is_behind_gives_nothing_back(void **state)
{
    (void)state;
    fedge_quota quota = {0};
    assert_int_equal(taken(&quota, 100, 1000), 10);
    assert_int_equal(taken(&quota, 100, 999), 0);
    assert_int_equal(taken(&quota, 100, 1199), 0);
    assert_int_equal(taken(&quota, 100, 1200), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_then_a_rate),
        cmocka_unit_test(the_rate_holds_whatever_the_steps),
        cmocka_unit_test(what_is_never_used_up_is_never_refused),
        cmocka_unit_test(time_that_is_behind_gives_nothing_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

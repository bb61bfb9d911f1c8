/* How long threads look before they sleep. */
#include "tests/edge/core/cmocka_all.h"

#include "aggregator/simulate/patience.h"

#define MOST_NS 100000

static void a_wait_in_vain_halves_it_down_to_none(void **state)
{
    (void)state;
    fedge_patience patience;
    fedge_patience_init(&patience, MOST_NS);
    for (uint64_t expected = MOST_NS; expected >= 1000; expected /= 2) {
        assert_int_equal(fedge_patience_begin(&patience), expected);
        fedge_patience_end(&patience, false);
    }
    assert_int_equal(fedge_patience_begin(&patience), 0);
}

static void a_reward_gives_all_of_it_back(void **state)
{
    (void)state;
    fedge_patience patience;
    fedge_patience_init(&patience, MOST_NS);
    fedge_patience_end(&patience, false);
    fedge_patience_end(&patience, false);
    assert_int_equal(fedge_patience_begin(&patience), MOST_NS / 4);
    fedge_patience_end(&patience, true);
    assert_int_equal(fedge_patience_begin(&patience), MOST_NS);
}

/* Seldom enough to cost little. */
static void now_and_then_it_is_tried_again(void **state)
{
    (void)state;
    fedge_patience patience;
    uint32_t trials = 0;
    fedge_patience_init(&patience, MOST_NS);
    for (uint32_t i = 0; i < 10 * FEDGE_PATIENCE_TRIAL; i++) {
        trials += i > 0 && fedge_patience_begin(&patience) == MOST_NS;
        fedge_patience_end(&patience, false);
    }
    assert_int_equal(trials, 10);
}

static void none_stays_none(void **state)
{
    (void)state;
    fedge_patience patience;
    fedge_patience_init(&patience, 0);
    for (uint32_t i = 0; i < 2 * FEDGE_PATIENCE_TRIAL; i++) {
        assert_int_equal(fedge_patience_begin(&patience), 0);
        fedge_patience_end(&patience, i == FEDGE_PATIENCE_TRIAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_in_vain_halves_it_down_to_none),
        cmocka_unit_test(a_reward_gives_all_of_it_back),
        cmocka_unit_test(now_and_then_it_is_tried_again),
        cmocka_unit_test(none_stays_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

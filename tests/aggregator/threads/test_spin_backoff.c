/* How long threads look before they sleep. */
#include "tests/edge/core/cmocka_all.h"

#include "aggregator/threads/waiting.h"

#define MOST_NS 100000

static void a_wait_in_vain_halves_it_down_to_none(void **state)
{
    (void)state;
    fedge_spin_backoff backoff;
    fedge_spin_backoff_init(&backoff, MOST_NS);
    for (uint64_t expected = MOST_NS; expected >= 1000; expected /= 2) {
        assert_int_equal(fedge_spin_backoff_begin(&backoff), expected);
        fedge_spin_backoff_end(&backoff, false);
    }
    assert_int_equal(fedge_spin_backoff_begin(&backoff), 0);
}

static void a_reward_gives_all_of_it_back(void **state)
{
    (void)state;
    fedge_spin_backoff backoff;
    fedge_spin_backoff_init(&backoff, MOST_NS);
    fedge_spin_backoff_end(&backoff, false);
    fedge_spin_backoff_end(&backoff, false);
    assert_int_equal(fedge_spin_backoff_begin(&backoff), MOST_NS / 4);
    fedge_spin_backoff_end(&backoff, true);
    assert_int_equal(fedge_spin_backoff_begin(&backoff), MOST_NS);
}

/* Seldom enough to cost little. */
static void now_and_then_it_is_tried_again(void **state)
{
    (void)state;
    fedge_spin_backoff backoff;
    uint32_t trials = 0;
    fedge_spin_backoff_init(&backoff, MOST_NS);
    for (uint32_t i = 0; i < 10 * FEDGE_SPIN_BACKOFF_TRIAL; i++) {
        trials += i > 0 && fedge_spin_backoff_begin(&backoff) == MOST_NS;
        fedge_spin_backoff_end(&backoff, false);
    }
    assert_int_equal(trials, 10);
}

static void none_stays_none(void **state)
{
    (void)state;
    fedge_spin_backoff backoff;
    fedge_spin_backoff_init(&backoff, 0);
    for (uint32_t i = 0; i < 2 * FEDGE_SPIN_BACKOFF_TRIAL; i++) {
        assert_int_equal(fedge_spin_backoff_begin(&backoff), 0);
        fedge_spin_backoff_end(&backoff, i == FEDGE_SPIN_BACKOFF_TRIAL);
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

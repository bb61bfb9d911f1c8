#include "aggregator/server/supervisor.h"

#include <signal.h>

#include "aggregator/server/exit_codes.h"
#include "tests/edge/core/cmocka_all.h"

/* What passes, or a new start goes round: a crash, a want of memory, a lost GPU. */
static void only_what_a_new_start_mends_is_started_again(void **state)
{
    (void)state;
    assert_true(fedge_supervisor_restarts(0, SIGKILL));
    assert_true(fedge_supervisor_restarts(0, SIGSEGV));
    assert_true(fedge_supervisor_restarts(FEDGE_EXIT_FAILURE, 0));
    assert_true(fedge_supervisor_restarts(FEDGE_EXIT_GPU, 0));
    const int others[] = {FEDGE_EXIT_OK,    FEDGE_EXIT_USAGE, FEDGE_EXIT_CONFIG,
                          FEDGE_EXIT_STATE, FEDGE_EXIT_PORT,  FEDGE_EXIT_DISK};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_false(fedge_supervisor_restarts(others[i], 0));
    }
}

static void pauses_grow_until_it_is_given_up(void **state)
{
    (void)state;
    int64_t last = 0;
    for (uint32_t i = 0; i < FEDGE_SUPERVISOR_MAX_QUICK; i++) {
        const int64_t pause = fedge_supervisor_pause_ms(i);
        assert_true(pause > last && pause <= FEDGE_SUPERVISOR_MAX_PAUSE_MS);
        last = pause;
    }
    assert_int_equal(fedge_supervisor_pause_ms(0), 1000);
    assert_true(fedge_supervisor_pause_ms(FEDGE_SUPERVISOR_MAX_QUICK) < 0);
    assert_true(fedge_supervisor_pause_ms(UINT32_MAX) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_a_new_start_mends_is_started_again),
        cmocka_unit_test(pauses_grow_until_it_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#define _GNU_SOURCE

#include <signal.h>
#include <string.h>

#include "tests/edge/core/cmocka_all.h"

#include "aggregator/threads/thread.h"

static void *read_mask(void *mask)
{
    pthread_sigmask(SIG_SETMASK, NULL, mask);
    return NULL;
}

/* A signal to the process thus reaches the thread that waits for signals. */
static void a_thread_takes_no_signals(void **state)
{
    static const int NUMBERS[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    pthread_t thread;
    sigset_t its, mine, before;
    (void)state;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(fedge_thread_create(&thread, NULL, read_mask, &its), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    for (size_t i = 0; i < sizeof(NUMBERS) / sizeof(NUMBERS[0]); i++) {
        assert_int_equal(sigismember(&its, NUMBERS[i]), 1);
        assert_int_equal(sigismember(&mine, NUMBERS[i]), sigismember(&before, NUMBERS[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_thread_takes_no_signals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

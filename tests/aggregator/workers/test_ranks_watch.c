#define _POSIX_C_SOURCE 200809L /* setenv */
#include "tests/edge/core/cmocka_all.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/workers/ranks_watch.h"
#include "edge/core/os.h"

#define LIMIT_MS 400u
#define PATIENCE_MS 30000u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fedge_error told; /* the first; status FEDGE_OK: none yet */

static void on_stuck(void *user, const fedge_error *err)
{
    (void)user;
    pthread_mutex_lock(&lock);
    if (told.status == FEDGE_OK)
        told = *err;
    pthread_mutex_unlock(&lock);
}

static fedge_error what_was_told(void)
{
    pthread_mutex_lock(&lock);
    const fedge_error now = told;
    pthread_mutex_unlock(&lock);
    return now;
}

static void begin(fedge_ranks_watch *watch)
{
    told = (fedge_error){.status = FEDGE_OK};
    assert_int_equal(fedge_ranks_watch_init(watch, LIMIT_MS, on_stuck, NULL, NULL), FEDGE_OK);
}

static void await(fedge_ranks_watch *watch, const char *words)
{
    const uint64_t end = fedge_os_monotonic_ms() + PATIENCE_MS;
    while (what_was_told().status == FEDGE_OK && fedge_os_monotonic_ms() < end)
        (void)sched_yield();
    assert_int_equal(told.status, FEDGE_TIMEOUT);
    assert_non_null(strstr(told.message, words));
    fedge_ranks_watch_fini(watch);
}

static void a_call_that_does_not_end_is_told(void **state)
{
    (void)state;
    fedge_ranks_watch watch;
    begin(&watch);
    fedge_ranks_watch_begin(&watch, "joining sums");
    await(&watch, "joining sums has not ended in 0.4 s");
}

/* And not one that has said its last word. */
static void a_rank_that_says_nothing_is_told(void **state)
{
    (void)state;
    fedge_ranks_watch watch;
    begin(&watch);
    fedge_ranks_watch_heard(&watch, 1);
    fedge_ranks_watch_forget(&watch, 1);
    fedge_ranks_watch_heard(&watch, 3);
    fedge_ranks_watch_begin(&watch, "joining sums");
    fedge_ranks_watch_end(&watch);
    await(&watch, "rank 3 has said nothing for 0.4 s");
}

static void the_first_rank_is_watched_too(void **state)
{
    (void)state;
    fedge_ranks_watch watch;
    begin(&watch);
    fedge_ranks_watch_heard(&watch, 0);
    await(&watch, "rank 0 has said nothing for 0.4 s");
}

static void many_bytes_may_take_longer(void **state)
{
    (void)state;
    assert_int_equal(fedge_ranks_silence_ms(0), FEDGE_RANKS_SILENCE_MS);
    assert_int_equal(fedge_ranks_silence_ms(100000000), FEDGE_RANKS_SILENCE_MS + 10000);
    setenv(FEDGE_RANKS_SILENCE_VARIABLE, "7", true);
    assert_int_equal(fedge_ranks_silence_ms(0), 7000);
    unsetenv(FEDGE_RANKS_SILENCE_VARIABLE);
}

static void nothing_is_watched_without_a_start(void **state)
{
    (void)state;
    fedge_ranks_watch none = {0};
    fedge_ranks_watch_fini(&none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_that_does_not_end_is_told),
        cmocka_unit_test(a_rank_that_says_nothing_is_told),
        cmocka_unit_test(the_first_rank_is_watched_too),
        cmocka_unit_test(many_bytes_may_take_longer),
        cmocka_unit_test(nothing_is_watched_without_a_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

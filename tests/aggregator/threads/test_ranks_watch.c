/* A watch with a clock of the test's own, which looks when the test lets it. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/threads/ranks_watch.h"
#include "edge/core/os.h"

#define LIMIT_MS 1000u
#define STEP_MS 350u /* between two looks; after more it was the process that stood still */

uint64_t __wrap_fedge_os_monotonic_ms(void);
void __wrap_fedge_condition_wait_us(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t us);

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t now_ms;
    unsigned waits;   /* begun: the thread has looked before each but the first */
    unsigned permits; /* to look */
    bool open;        /* it looks as often as it likes, and ends */
    unsigned num_told;
    fedge_error told; /* the last */
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

uint64_t __wrap_fedge_os_monotonic_ms(void)
{
    pthread_mutex_lock(&gate.mutex);
    const uint64_t now_ms = gate.now_ms;
    pthread_mutex_unlock(&gate.mutex);
    return now_ms;
}

void __wrap_fedge_condition_wait_us(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t us)
{
    (void)condition, (void)us;
    pthread_mutex_unlock(mutex);
    pthread_mutex_lock(&gate.mutex);
    gate.waits++;
    pthread_cond_broadcast(&gate.changed);
    while (gate.permits == 0 && !gate.open)
        pthread_cond_wait(&gate.changed, &gate.mutex);
    gate.permits -= gate.permits > 0;
    pthread_mutex_unlock(&gate.mutex);
    pthread_mutex_lock(mutex);
}

static void on_stuck(void *user, const fedge_error *err)
{
    pthread_mutex_lock(&gate.mutex);
    gate.num_told += user == &gate;
    gate.told = *err;
    pthread_mutex_unlock(&gate.mutex);
}

/* With the lock of the gate. */
static void await_waits(unsigned waits)
{
    while (gate.waits < waits)
        pthread_cond_wait(&gate.changed, &gate.mutex);
}

/* The clock goes on, and the watch looks once. */
static void step(uint64_t ms)
{
    pthread_mutex_lock(&gate.mutex);
    gate.now_ms += ms;
    gate.permits++;
    pthread_cond_broadcast(&gate.changed);
    await_waits(gate.waits + 1);
    pthread_mutex_unlock(&gate.mutex);
}

static void pass(uint64_t ms)
{
    for (; ms > STEP_MS; ms -= STEP_MS)
        step(STEP_MS);
    step(ms);
}

static void begin(fedge_ranks_watch *watch)
{
    gate.now_ms = 5000;
    gate.waits = gate.num_told = 0;
    gate.open = false;
    assert_int_equal(fedge_ranks_watch_init(watch, LIMIT_MS, on_stuck, &gate, NULL), FEDGE_OK);
    pthread_mutex_lock(&gate.mutex);
    await_waits(1);
    pthread_mutex_unlock(&gate.mutex);
}

static void end(fedge_ranks_watch *watch)
{
    pthread_mutex_lock(&gate.mutex);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
    fedge_ranks_watch_fini(watch);
}

/* Within the next [ms] nothing is told, and with one more this is. */
static void told_after(uint64_t ms, const char *words)
{
    pass(ms);
    assert_int_equal(gate.num_told, 0);
    step(1);
    assert_int_equal(gate.num_told, 1);
    assert_int_equal(gate.told.status, FEDGE_TIMEOUT);
    assert_non_null(strstr(gate.told.message, words));
}

static void a_call_that_does_not_end_is_told(void **state)
{
    (void)state;
    fedge_ranks_watch watch;
    begin(&watch);
    fedge_ranks_watch_begin(&watch, "joining sums");
    pass(900);
    fedge_ranks_watch_end(&watch);
    pass(900);
    fedge_ranks_watch_begin(&watch, "joining sums");
    told_after(LIMIT_MS, "joining sums has not ended in 1 s");
    end(&watch);
}

/* The first and the last of those that are watched; none that is further. */
static void a_rank_that_says_nothing_is_told(void **state)
{
    (void)state;
    const uint32_t ranks[] = {0, 3, FEDGE_RANKS_WATCH_MAX - 1};
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        struct {
            fedge_ranks_watch watch;
            uint64_t behind;
        } at = {.behind = 7};
        char words[64];
        begin(&at.watch);
        fedge_ranks_watch_heard(&at.watch, ranks[i]);
        fedge_ranks_watch_heard(&at.watch, FEDGE_RANKS_WATCH_MAX);
        pass(900);
        fedge_ranks_watch_heard(&at.watch, ranks[i]);
        fedge_ranks_watch_forget(&at.watch, FEDGE_RANKS_WATCH_MAX);
        assert_int_equal(at.behind, 7);
        snprintf(words, sizeof(words), "rank %u has said nothing for 1 s", (unsigned)ranks[i]);
        told_after(LIMIT_MS, words);
        end(&at.watch);
    }
}

/* What the others say cannot be read then, nor while this rank does not read. */
static void silence_does_not_count_during_a_call(void **state)
{
    (void)state;
    fedge_ranks_watch watch;
    begin(&watch);
    fedge_ranks_watch_heard(&watch, 2);
    pass(900);
    fedge_ranks_watch_begin(&watch, "joining sums");
    pass(900);
    fedge_ranks_watch_end(&watch);
    pass(900);
    fedge_ranks_watch_pause(&watch);
    told_after(LIMIT_MS, "rank 2 has said nothing for 1 s");
    end(&watch);
}

/* Neither a call nor silence is too long because this process did not run. */
static void a_stop_of_this_process_does_not_count(void **state)
{
    (void)state;
    for (int calls = 0; calls < 2; calls++) {
        fedge_ranks_watch watch;
        begin(&watch);
        fedge_ranks_watch_heard(&watch, 1);
        if (calls)
            fedge_ranks_watch_begin(&watch, "joining sums");
        pass(900);
        step(STEP_MS + 1);
        told_after(LIMIT_MS, calls ? "joining sums" : "rank 1");
        end(&watch);
    }
}

static void after_its_last_word_nothing_is_expected(void **state)
{
    (void)state;
    fedge_ranks_watch watch;
    begin(&watch);
    fedge_ranks_watch_heard(&watch, 1);
    fedge_ranks_watch_forget(&watch, 1);
    fedge_ranks_watch_begin(&watch, "joining sums");
    fedge_ranks_watch_end(&watch);
    fedge_ranks_watch_pause(&watch);
    step(STEP_MS + 1);
    pass(3 * LIMIT_MS);
    assert_int_equal(gate.num_told, 0);
    end(&watch);
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
        cmocka_unit_test(silence_does_not_count_during_a_call),
        cmocka_unit_test(a_stop_of_this_process_does_not_count),
        cmocka_unit_test(after_its_last_word_nothing_is_expected),
        cmocka_unit_test(many_bytes_may_take_longer),
        cmocka_unit_test(nothing_is_watched_without_a_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Tests the scheduler of simulated worlds, and the threads, heaps and files of a node's process. */
#define _GNU_SOURCE

#include "tests/edge/core/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "tests/world/disk.h"
#include "tests/world/heap.h"
#include "tests/world/scheduler.h"
#include "tests/world/threads.h"

enum { SEEDS = 30, NODE = WORLD_SERVER, OTHER = WORLD_FIRST_CLIENT };
#define MS ((uint64_t)1000000)
#define SECOND (1000 * MS)

/* State of a test's fibers. Assertions are only for the host's stack: a failing one leaves the test
 * by a jump, which must not begin on a fiber. */
static struct {
    pthread_mutex_t mutex;
    pthread_rwlock_t rwlock;
    pthread_cond_t condition;
    pthread_once_t once;
    bool signalled, wrong, was_busy;
    int inside, result;
    uint32_t count;
    uint64_t from_ns, to_ns;
    void *block;
    char story[4000];
} shared;

static void begin(uint64_t seed)
{
    memset(&shared, 0, sizeof(shared));
    world_scheduler_begin(seed);
    world_disk_begin(seed);
}

static void end(void)
{
    world_scheduler_end();
    world_disk_end();
    assert_null(world_failure());
}

/* Runs all fibers until none can continue. */
static void run(void)
{
    while (world_step(WORLD_NEVER))
        continue;
}

static void tell(char what)
{
    const size_t length = strlen(shared.story);
    if (length + 1 < sizeof(shared.story))
        shared.story[length] = what;
}

static void drop(uint32_t node)
{
    world_heap_drop(node);
    world_disk_drop(node);
}

/* ---- order ----------------------------------------------------------------------------------- */

static void tell_often(void *name)
{
    for (int i = 0; i < 40; i++) {
        uint8_t random;
        tell(*(const char *)name);
        if (getrandom(&random, 1, 0) != 1)
            shared.wrong = true;
        tell((char)('0' + random % 10));
        sched_yield();
    }
}

static void tell_story(uint64_t seed, char story[sizeof(shared.story)])
{
    begin(seed);
    for (int i = 0; i < 4; i++)
        world_spawn(NODE + (uint32_t)i % 2, tell_often, &"abcd"[i], "teller");
    run();
    assert_false(shared.wrong);
    memcpy(story, shared.story, sizeof(shared.story));
    end();
}

static void one_seed_is_one_order(void **state)
{
    (void)state;
    char first[sizeof(shared.story)], again[sizeof(shared.story)], other[sizeof(shared.story)];
    uint32_t num_different = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        tell_story(seed, first);
        tell_story(seed, again);
        assert_string_equal(first, again);
        assert_int_equal(strlen(first), 4 * 40 * 2);
        tell_story(seed + SEEDS, other);
        num_different += strcmp(first, other) != 0;
    }
    assert_int_equal(num_different, SEEDS);
}

static void set_errno(void *value)
{
    for (int i = 0; i < 30; i++) {
        errno = *(int *)value;
        sched_yield();
        shared.wrong = shared.wrong || errno != *(int *)value;
    }
}

static void each_fiber_has_its_errno(void **state)
{
    (void)state;
    static int values[] = {EIO, ENOSPC};
    begin(2);
    world_spawn(NODE, set_errno, &values[0], "first");
    world_spawn(NODE, set_errno, &values[1], "second");
    run();
    assert_false(shared.wrong);
    end();
}

/* ---- time ------------------------------------------------------------------------------------ */

static void sleep_and_tell(void *ms)
{
    const long span_ms = *(const long *)ms;
    const struct timespec span = {.tv_sec = span_ms / 1000, .tv_nsec = span_ms % 1000 * 1000000};
    const uint64_t from_ns = world_now_ns();
    nanosleep(&span, NULL);
    const uint64_t slept_ns = world_now_ns() - from_ns;
    shared.wrong =
        shared.wrong || slept_ns < (uint64_t)span_ms * MS || slept_ns > (uint64_t)span_ms * MS + MS;
    tell((char)('0' + span_ms / 1000));
}

static void sleepers_wake_in_their_order(void **state)
{
    (void)state;
    static long spans_ms[] = {3000, 1000, 9000, 2000};
    begin(1);
    for (int i = 0; i < 4; i++)
        world_spawn(NODE, sleep_and_tell, &spans_ms[i], "sleeper");
    while (world_step(5 * SECOND))
        continue;
    assert_string_equal(shared.story, "123");
    assert_int_equal(world_now_ns(), 5 * SECOND); /* time jumps when no fiber can run */
    assert_int_equal(world_num_fibers(NODE), 1);
    run();
    assert_string_equal(shared.story, "1239");
    assert_false(shared.wrong);
    assert_int_equal(world_num_fibers(NODE), 0);
    end();
}

static void read_clocks(void *unused)
{
    (void)unused;
    struct timespec real, monotonic;
    clock_gettime(CLOCK_REALTIME, &real);
    clock_gettime(CLOCK_MONOTONIC, &monotonic);
    tell(real.tv_sec == 5000 ? 'r' : '-');
    tell(monotonic.tv_sec == 70 ? 'm' : '-');
    while (monotonic.tv_sec < 71 && shared.count++ < 20000000)
        clock_gettime(CLOCK_MONOTONIC, &monotonic); /* each reading of the clock takes time */
    tell(monotonic.tv_sec == 71 ? 'e' : '-');
}

static void each_node_has_its_clocks(void **state)
{
    (void)state;
    begin(1);
    world_set_clocks(NODE, 70 * SECOND, 5000 * SECOND);
    world_set_clocks(OTHER, 0, 0);
    world_spawn(NODE, read_clocks, NULL, "reader");
    run();
    assert_string_equal(shared.story, "rme");
    end();
}

/* ---- locks ----------------------------------------------------------------------------------- */

static void be_alone(void)
{
    shared.wrong = shared.wrong || shared.inside++ != 0;
    sched_yield();
    shared.wrong = shared.wrong || --shared.inside != 0;
    shared.count++;
}

static bool lock(bool tries)
{
    if (!tries)
        return pthread_mutex_lock(&shared.mutex) == 0;
    const bool locked = pthread_mutex_trylock(&shared.mutex) == 0;
    shared.was_busy = shared.was_busy || !locked;
    return locked;
}

static void lock_often(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20; i++) {
        if (!lock(i % 4 == 0))
            continue;
        be_alone();
        pthread_mutex_unlock(&shared.mutex);
    }
}

static void write_often(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20; i++) {
        if (i % 2 == 0)
            pthread_rwlock_wrlock(&shared.rwlock);
        else
            pthread_rwlock_rdlock(&shared.rwlock);
        be_alone();
        pthread_rwlock_unlock(&shared.rwlock);
    }
}

static void one_thread_holds_a_lock(void **state)
{
    (void)state;
    bool was_busy = false;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        for (int i = 0; i < 3; i++)
            world_spawn(NODE, lock_often, NULL, "locker");
        run();
        assert_false(shared.wrong);
        assert_in_range(shared.count, 45, 60);
        was_busy = was_busy || shared.was_busy;
        shared.count = 0;
        for (int i = 0; i < 3; i++)
            world_spawn(NODE, write_often, NULL, "writer");
        run();
        assert_false(shared.wrong);
        assert_int_equal(shared.count, 60);
        end();
    }
    assert_true(was_busy);
}

/* ---- conditions ------------------------------------------------------------------------------ */

static void init_condition(clockid_t clock)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, clock);
    pthread_cond_init(&shared.condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void wait_without_limit(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&shared.mutex);
    while (!shared.signalled)
        pthread_cond_wait(&shared.condition, &shared.mutex);
    shared.wrong = shared.wrong || shared.inside != 0; /* it has the lock again */
    shared.count++;
    pthread_mutex_unlock(&shared.mutex);
}

static void signal_later(void *all)
{
    world_sleep(SECOND);
    pthread_mutex_lock(&shared.mutex);
    shared.signalled = true;
    shared.inside = 1;
    if (all)
        pthread_cond_broadcast(&shared.condition);
    else
        pthread_cond_signal(&shared.condition);
    sched_yield();
    shared.inside = 0;
    pthread_mutex_unlock(&shared.mutex);
}

static void a_condition_is_waited_for(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        for (int all = 0; all < 2; all++) {
            begin(seed);
            for (int i = 0; i < 3; i++)
                world_spawn(NODE, wait_without_limit, NULL, "waiter");
            world_spawn(NODE, signal_later, all ? &shared : NULL, "signaller");
            run();
            assert_false(shared.wrong);
            assert_int_equal(shared.count, all ? 3 : 1);
            end();
        }
    }
}

/* Waits for two seconds of the condition's clock. */
static void wait_two_seconds(void *clock)
{
    struct timespec until;
    init_condition(*(const clockid_t *)clock);
    shared.from_ns = world_now_ns();
    clock_gettime(*(const clockid_t *)clock, &until);
    until.tv_sec += 2;
    pthread_mutex_lock(&shared.mutex);
    while (!shared.signalled && shared.result == 0)
        shared.result = pthread_cond_timedwait(&shared.condition, &shared.mutex, &until);
    shared.to_ns = world_now_ns();
    if (shared.result == ETIMEDOUT) {
        shared.wrong = /* again, after the time has passed */
            pthread_cond_timedwait(&shared.condition, &shared.mutex, &until) != ETIMEDOUT ||
            world_now_ns() > shared.to_ns + MS;
    }
    pthread_mutex_unlock(&shared.mutex);
}

static void a_wait_ends_at_its_time(void **state)
{
    (void)state;
    static clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        for (int i = 0; i < 4; i++) {
            begin(seed);
            world_set_clocks(NODE, 30 * SECOND, 7000 * SECOND);
            world_spawn(NODE, wait_two_seconds, &clocks[i % 2], "waiter");
            if (i / 2 == 1)
                world_spawn(NODE, signal_later, NULL, "signaller");
            run();
            const uint64_t expected_ns = i / 2 == 1 ? SECOND : 2 * SECOND;
            assert_int_equal(shared.result, i / 2 == 1 ? 0 : ETIMEDOUT);
            assert_in_range(shared.to_ns - shared.from_ns, expected_ns - MS, expected_ns + MS);
            assert_false(shared.wrong);
            end();
        }
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *pass_on(void *argument)
{
    world_sleep(SECOND);
    return (uint8_t *)argument + 1;
}

static void create_and_join(void *unused)
{
    (void)unused;
    uint8_t *const argument = (uint8_t *)&shared;
    for (int i = 0; i < 2 * WORLD_MAX_FIBERS; i++) {
        pthread_t thread;
        void *result = NULL;
        const uint64_t from_ns = world_now_ns();
        if (pthread_create(&thread, NULL, pass_on, argument) != 0)
            shared.wrong = true;
        if (i % 2 == 1)
            world_sleep(2 * SECOND); /* it ends before */
        pthread_join(thread, &result);
        shared.wrong = shared.wrong || result != argument + 1 || world_now_ns() < from_ns + SECOND;
    }
}

static void *count(void *unused)
{
    shared.count++;
    return unused;
}

static void create_and_detach(void *unused)
{
    (void)unused;
    for (int i = 0; i < 6 * WORLD_MAX_FIBERS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, i % 2 == 0 ? pass_on : count, &shared) != 0)
            shared.wrong = true;
        if (i % 4 > 1)
            world_sleep(2 * SECOND); /* it ends before */
        pthread_detach(thread);
        world_sleep(2 * SECOND);
    }
}

static void threads_are_joined_or_detached(void **state)
{
    (void)state;
    begin(1);
    world_spawn(NODE, create_and_join, NULL, "main");
    run();
    assert_false(shared.wrong);
    world_spawn(NODE, create_and_detach, NULL, "main");
    run();
    assert_false(shared.wrong);
    assert_int_equal(shared.count, 3 * WORLD_MAX_FIBERS);
    end();
}

static void do_once(void)
{
    shared.block = malloc(100);
    sched_yield(); /* no other fiber sees it half done */
    shared.count++;
}

static void call_once(void *unused)
{
    (void)unused;
    pthread_once(&shared.once, do_once);
    shared.wrong = shared.wrong || shared.count != 1;
}

/* What a process makes once belongs to the world, so the next process of the node has it, too. */
static void once_is_once(void **state)
{
    (void)state;
    begin(1);
    for (int i = 0; i < 3; i++)
        world_spawn(NODE, call_once, NULL, "caller");
    run();
    world_kill(NODE);
    world_spawn(NODE, call_once, NULL, "caller");
    run();
    assert_false(shared.wrong);
    memset(shared.block, 1, 100);
    free(shared.block);
    end();
}

/* ---- kills ----------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t mutex;
    pthread_rwlock_t rwlock;
    void *block;
} owned[2];

static void hold_all(void *which)
{
    const int i = *(const int *)which;
    pthread_mutex_lock(&owned[i].mutex);
    pthread_rwlock_wrlock(&owned[i].rwlock);
    for (int k = 0; k < 50; k++)
        owned[i].block = malloc(10 + (size_t)k);
    owned[i].block = realloc(owned[i].block, 2000);
    if (open("/disk/file", O_RDWR | O_CREAT, 0600) < 0)
        shared.wrong = true;
    world_sleep(WORLD_NEVER);
}

static void *sleep_for_ever(void *unused)
{
    world_sleep(WORLD_NEVER);
    return unused;
}

static void have_a_thread(void *which)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, sleep_for_ever, NULL) != 0)
        shared.wrong = true;
    hold_all(which);
}

static void take_locks(void *which)
{
    const int i = *(const int *)which;
    pthread_mutex_lock(&owned[i].mutex);
    pthread_rwlock_rdlock(&owned[i].rwlock);
    tell((char)('0' + i));
    pthread_rwlock_unlock(&owned[i].rwlock);
    pthread_mutex_unlock(&owned[i].mutex);
}

static void a_kill_takes_what_is_the_node_s(void **state)
{
    (void)state;
    static int numbers[] = {0, 1};
    memset(owned, 0, sizeof(owned));
    begin(1);
    world_spawn(NODE, have_a_thread, &numbers[0], "main");
    world_spawn(OTHER, hold_all, &numbers[1], "main");
    run();
    assert_false(shared.wrong);
    const uint64_t bytes = 10 + 58, blocks = 50;
    assert_int_equal(world_heap_blocks(NODE), blocks);
    assert_int_equal(world_heap_bytes(NODE), 49 * bytes / 2 + 2000);
    assert_int_equal(world_num_fibers(NODE), 2);
    assert_int_equal(world_disk_num_open(NODE), 1);

    world_kill(NODE);
    assert_int_equal(world_num_fibers(NODE), 0);
    assert_int_equal(world_heap_blocks(NODE), 0);
    assert_int_equal(world_heap_bytes(NODE), 0);
    assert_int_equal(world_disk_num_open(NODE), 0);
    assert_int_equal(world_num_fibers(OTHER), 1);
    assert_int_equal(world_heap_blocks(OTHER), blocks);
    assert_int_equal(world_disk_num_open(OTHER), 1);
    memset(owned[1].block, 1, 2000);

    world_spawn(NODE, take_locks, &numbers[0], "main");
    world_spawn(OTHER, take_locks, &numbers[1], "second");
    run();
    assert_string_equal(shared.story, "0");
    end();
    assert_int_equal(world_heap_blocks(OTHER), 0);
}

static void die(void *unused)
{
    (void)unused;
    shared.block = malloc(10);
    world_die();
}

static void a_thread_may_kill_its_node(void **state)
{
    (void)state;
    static int number = 0;
    memset(owned, 0, sizeof(owned));
    begin(3);
    for (int i = 0; i < 2 * WORLD_MAX_FIBERS; i++) {
        world_spawn(NODE, have_a_thread, &number, "main");
        run();
        assert_int_equal(world_num_fibers(NODE), 2);
        world_spawn(NODE, die, NULL, "dying");
        run();
        assert_int_equal(world_num_fibers(NODE), 0);
        assert_int_equal(world_heap_blocks(NODE), 0);
        assert_int_equal(world_disk_num_open(NODE), 0);
    }
    assert_false(shared.wrong);
    end();
}

static void fill_heap(void *unused)
{
    (void)unused;
    enum { BLOCKS = 2000 };
    void **blocks = calloc(BLOCKS, sizeof(*blocks));
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = i % 3 == 0 ? aligned_alloc(64, 64) : malloc(i);
    for (size_t i = 0; i < BLOCKS; i += 2)
        free(blocks[i]);
    shared.count = (uint32_t)world_heap_blocks(NODE);
    for (size_t i = 1; i < BLOCKS; i += 2) {
        char *text = strdup("text");
        free(blocks[i]);
        free(text);
    }
    free(blocks);
}

static void a_heap_is_counted(void **state)
{
    (void)state;
    begin(1);
    world_spawn(NODE, fill_heap, NULL, "main");
    run();
    assert_int_equal(shared.count, 1001);
    assert_int_equal(world_heap_blocks(NODE), 0);
    assert_int_equal(world_heap_bytes(NODE), 0);
    assert_true(world_heap_peak(NODE) > 1000000);
    end();
}

static void count_steps(void *argument)
{
    (void)argument;
    for (;;) {
        shared.count++;
        world_sleep(10 * MS);
    }
}

/* A node that stands still goes on later, and what is killed begins anew. */
static void a_node_may_stand_still(void **state)
{
    (void)state;
    begin(1);
    world_spawn(NODE, count_steps, NULL, "main");
    while (world_step(100 * MS))
        continue;
    const uint32_t before = shared.count;
    assert_true(before >= 9);
    world_hold(NODE, 200 * MS);
    while (world_step(199 * MS))
        continue;
    assert_int_equal(shared.count, before);
    while (world_step(300 * MS))
        continue;
    assert_true(shared.count >= before + 9);
    world_hold(NODE, WORLD_NEVER - 1);
    world_kill(NODE);
    world_spawn(NODE, count_steps, NULL, "main");
    const uint32_t killed = shared.count;
    while (world_step(400 * MS))
        continue;
    assert_true(shared.count >= killed + 9);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_seed_is_one_order),
        cmocka_unit_test(each_fiber_has_its_errno),
        cmocka_unit_test(sleepers_wake_in_their_order),
        cmocka_unit_test(each_node_has_its_clocks),
        cmocka_unit_test(one_thread_holds_a_lock),
        cmocka_unit_test(a_condition_is_waited_for),
        cmocka_unit_test(a_wait_ends_at_its_time),
        cmocka_unit_test(threads_are_joined_or_detached),
        cmocka_unit_test(once_is_once),
        cmocka_unit_test(a_kill_takes_what_is_the_node_s),
        cmocka_unit_test(a_thread_may_kill_its_node),
        cmocka_unit_test(a_heap_is_counted),
        cmocka_unit_test(a_node_may_stand_still),
    };
    world_at_kill(drop);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

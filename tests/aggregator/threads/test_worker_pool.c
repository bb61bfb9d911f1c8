/* Worker pools: every task is carried out, in its worker's order, and those who wait wait long
 * enough. */
#include "tests/edge/core/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/threads/worker_pool.h"
#include "tests/aggregator/misuse.h"

#define WORKERS 3
#define TASKS 2000

typedef struct note {
    fedge_work work;
    uint32_t number;
} note;

typedef struct journal {
    uint32_t last[WORKERS]; /* number of the last task, from 1; each worker's own */
    uint32_t num_done[WORKERS];
    atomic_bool in_order;
    atomic_uint num_calls, num_between;
    pthread_mutex_t gate; /* held by a test while tasks shall not go on */
} journal;

static fedge_worker_pool *new_pool(uint32_t num_workers, uint64_t spin_ns, journal *to)
{
    fedge_worker_pool *pool = NULL;
    fedge_error err;
    const fedge_worker_pool_config config = {.name = "worker",
                                             .thread = "worker",
                                             .num_workers = num_workers,
                                             .spin_ns = spin_ns,
                                             .user = to};
    assert_int_equal(fedge_worker_pool_new(&pool, &config, &err), FEDGE_OK);
    assert_int_equal(fedge_worker_pool_size(pool), num_workers);
    return pool;
}

static void take_note(void *user, uint32_t worker, fedge_work *work)
{
    journal *to = user;
    const note *present = (const note *)work;
    if (present->number <= to->last[worker])
        to->in_order = false;
    to->last[worker] = present->number;
    to->num_done[worker]++;
}

static void post_all(fedge_worker_pool *pool, note *notes, uint32_t num_workers)
{
    for (uint32_t i = 0; i < TASKS; i++) {
        notes[i] = (note){.work = {.run = take_note}, .number = i + 1};
        fedge_worker_pool_post(pool, i % num_workers, &notes[i].work);
    }
}

static void tasks_are_done_in_order(void **state)
{
    (void)state;
    const uint64_t spins_ns[] = {0, 100000};
    note *notes = calloc(TASKS, sizeof(*notes));
    assert_non_null(notes);
    for (size_t i = 0; i < 2; i++) {
        journal to = {.in_order = true};
        fedge_worker_pool *pool = new_pool(1, spins_ns[i], &to);
        for (uint32_t again = 0; again < 3; again++) {
            to.last[0] = 0;
            post_all(pool, notes, 1);
            fedge_worker_pool_wait(pool);
            assert_int_equal(to.num_done[0], (again + 1) * TASKS);
            assert_true(to.in_order);
        }
        fedge_worker_pool_free(pool);
    }
    free(notes);
}

static void what_is_queued_is_done_before_the_end(void **state)
{
    (void)state;
    note *notes = calloc(TASKS, sizeof(*notes));
    assert_non_null(notes);
    journal to = {.in_order = true};
    fedge_worker_pool *pool = new_pool(1, 0, &to);
    post_all(pool, notes, 1);
    fedge_worker_pool_free(pool);
    assert_int_equal(to.num_done[0], TASKS);
    assert_true(to.in_order);
    free(notes);
}

static void held(void *user, uint32_t worker, fedge_work *work)
{
    journal *to = user;
    pthread_mutex_lock(&to->gate);
    pthread_mutex_unlock(&to->gate);
    take_note(user, worker, work);
}

/* A call to all comes behind what each was given before. */
static void check_done(void *user, uint32_t worker)
{
    journal *to = user;
    if (to->num_done[worker] != 1)
        to->in_order = false;
    atomic_fetch_add(&to->num_calls, 1);
}

static void a_call_to_all_is_a_barrier(void **state)
{
    (void)state;
    const uint64_t spins_ns[] = {0, 100000};
    for (size_t i = 0; i < 2; i++) {
        journal to = {.in_order = true};
        note notes[WORKERS];
        pthread_mutex_init(&to.gate, NULL);
        pthread_mutex_lock(&to.gate);
        fedge_worker_pool *pool = new_pool(WORKERS, spins_ns[i], &to);
        for (uint32_t w = 0; w < WORKERS; w++) {
            notes[w] = (note){.work = {.run = held}, .number = 1};
            fedge_worker_pool_post(pool, w, &notes[w].work);
        }
        fedge_worker_pool_begin(pool, check_done, &to);
        assert_int_equal(atomic_load(&to.num_calls), 0); /* the caller goes on meanwhile */
        pthread_mutex_unlock(&to.gate);
        fedge_worker_pool_end(pool);
        assert_int_equal(atomic_load(&to.num_calls), WORKERS);
        assert_true(to.in_order);
        fedge_worker_pool_free(pool);
        pthread_mutex_destroy(&to.gate);
    }
}

static void count_call(void *user, uint32_t worker)
{
    (void)worker;
    atomic_fetch_add(&((journal *)user)->num_calls, 1);
}

/* As a simulator's rounds: each begins as soon as the last has ended. */
static void calls_follow_one_another(void **state)
{
    (void)state;
    const uint64_t spins_ns[] = {0, 100000};
    for (size_t i = 0; i < 2; i++) {
        journal to = {0};
        fedge_worker_pool *pool = new_pool(WORKERS, spins_ns[i], &to);
        for (uint32_t call = 1; call <= TASKS; call++) {
            fedge_worker_pool_begin(pool, count_call, &to);
            fedge_worker_pool_end(pool);
            assert_int_equal(atomic_load(&to.num_calls), call * WORKERS);
        }
        fedge_worker_pool_free(pool);
    }
}

/* Nothing to do: nothing is waited for. */
static void a_pool_may_have_no_workers(void **state)
{
    (void)state;
    journal to = {0};
    fedge_worker_pool *pool = new_pool(0, 100000, &to);
    fedge_worker_pool_begin(pool, count_call, &to);
    fedge_worker_pool_end(pool);
    fedge_worker_pool_wait(pool);
    fedge_worker_pool_free(pool);
    fedge_worker_pool_free(NULL);
    assert_int_equal(atomic_load(&to.num_calls), 0);
}

/* Does something once for each task, and once more when none is left. */
static bool sweep_up(void *user, uint32_t worker, bool more)
{
    journal *to = user;
    const bool due = !more && to->num_done[worker] > atomic_load(&to->num_between);
    if (due)
        atomic_store(&to->num_between, to->num_done[worker]);
    return due;
}

static void between_tasks_it_is_asked(void **state)
{
    (void)state;
    journal to = {.in_order = true};
    note *notes = calloc(TASKS, sizeof(*notes));
    fedge_worker_pool *pool = NULL;
    const fedge_worker_pool_config config = {
        .name = "worker", .thread = "worker", .num_workers = 1, .user = &to, .between = sweep_up};
    assert_non_null(notes);
    assert_int_equal(fedge_worker_pool_new(&pool, &config, NULL), FEDGE_OK);
    post_all(pool, notes, 1);
    fedge_worker_pool_wait(pool);
    assert_int_equal(to.num_done[0], TASKS);
    assert_int_equal(atomic_load(&to.num_between), TASKS); /* before it rests */
    fedge_worker_pool_free(pool);
    free(notes);
}

static void a_thread_that_cannot_start_is_told(void **state)
{
    (void)state;
    fedge_worker_pool *pool = NULL;
    fedge_error err;
    fedge_worker_pool_config config = {.name = "worker",
                                       .thread = "worker",
                                       .advice = "use fewer",
                                       .num_workers = 2,
                                       .stack_size = (size_t)1 << 62};
    assert_int_not_equal(fedge_worker_pool_new(&pool, &config, &err), FEDGE_OK);
    assert_null(pool);
    assert_non_null(strstr(err.message, "cannot start worker 1 of 2: use fewer"));
    config.allow_fewer = true;
    assert_int_equal(fedge_worker_pool_new(&pool, &config, &err), FEDGE_OK);
    assert_int_equal(fedge_worker_pool_size(pool), 0);
    fedge_worker_pool_free(pool);
}

static fedge_worker_pool *waited_for;

static void wait_on_worker(void *user, uint32_t worker, fedge_work *work)
{
    (void)user, (void)worker, (void)work;
    fedge_worker_pool_wait(waited_for);
}

static void wait_for_oneself(void *user)
{
    fedge_work work = {.run = wait_on_worker};
    waited_for = new_pool(WORKERS, 0, user);
    fedge_worker_pool_post(waited_for, 0, &work);
    fedge_worker_pool_free(waited_for);
}

static void a_worker_must_not_wait_for_its_pool(void **state)
{
    (void)state;
    journal done = {0};
    assert_misuse(wait_for_oneself, &done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_are_done_in_order),
        cmocka_unit_test(what_is_queued_is_done_before_the_end),
        cmocka_unit_test(a_call_to_all_is_a_barrier),
        cmocka_unit_test(calls_follow_one_another),
        cmocka_unit_test(a_pool_may_have_no_workers),
        cmocka_unit_test(between_tasks_it_is_asked),
        cmocka_unit_test(a_thread_that_cannot_start_is_told),
        cmocka_unit_test(a_worker_must_not_wait_for_its_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

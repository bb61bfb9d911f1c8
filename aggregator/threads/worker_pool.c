#define _POSIX_C_SOURCE 200809L /* pthread_attr_setstacksize */

#include "aggregator/threads/worker_pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "aggregator/threads/thread.h"
#include "aggregator/threads/waiting.h"
#include "edge/core/os.h"

typedef struct pool_worker {
    fedge_worker_pool *pool;
    uint32_t index;
    pthread_t thread;
    fedge_spin_backoff backoff;
    /* Posted tasks, which a spinning worker reads without the mutex; and taken ones. */
    _Atomic uint32_t num_posted;
    uint32_t num_taken;
    fedge_work each; /* argument of begin */
    pthread_mutex_t mutex;
    pthread_cond_t filled, idle;
    fedge_work *head, **tail;
    bool busy, stop;
} pool_worker;

struct fedge_worker_pool {
    fedge_worker_pool_config config;
    /* The present call on all workers. */
    void (*run)(void *user, uint32_t worker);
    void *run_user;
    _Atomic uint32_t num_running; /* workers that have not returned from it */
    fedge_spin_backoff backoff;   /* signals the thread that waits for them */
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    uint32_t num_workers; /* started workers */
    pool_worker workers[];
};

/* ---- a worker -------------------------------------------------------------------------------- */

/* Spins for the backoff's time. An event seen only after it, since the worker was descheduled,
 * counts as a failure. */
static void spin(fedge_spin_backoff *backoff, bool (*is_over)(const void *what), const void *what)
{
    const uint64_t backoff_ns = fedge_spin_backoff_begin(backoff);
    if (backoff_ns == 0 || is_over(what))
        return;
    uint64_t now_ns = fedge_os_monotonic_ns();
    const uint64_t until_ns = now_ns + backoff_ns;
    bool over = false;
    while (!over && now_ns < until_ns) {
        over = is_over(what);
        now_ns = fedge_os_monotonic_ns();
    }
    fedge_spin_backoff_end(backoff, over && now_ns <= until_ns);
}

/* A task may be taken before it is counted as posted. */
static bool has_task(const void *what)
{
    const pool_worker *self = what;
    return (int32_t)(atomic_load(&self->num_posted) - self->num_taken) > 0;
}

/* Calls config->between before the next task, or before sleeping. */
static void ask_between(pool_worker *self)
{
    const fedge_worker_pool_config *config = &self->pool->config;
    bool more = false;
    do {
        pthread_mutex_lock(&self->mutex);
        more = self->head != NULL;
        pthread_mutex_unlock(&self->mutex);
    } while (config->between(config->user, self->index, more));
}

static void mark_idle(pool_worker *self)
{
    pthread_mutex_lock(&self->mutex);
    if (!self->head) {
        self->busy = false;
        pthread_cond_broadcast(&self->idle);
    }
    pthread_mutex_unlock(&self->mutex);
}

/* Waits for the next task; NULL: the pool is ending. */
static fedge_work *take(pool_worker *self)
{
    pthread_mutex_lock(&self->mutex);
    while (!self->head && !self->stop)
        pthread_cond_wait(&self->filled, &self->mutex);
    fedge_work *work = self->head;
    if (work) {
        self->busy = true;
        self->head = work->next;
        if (!self->head)
            self->tail = &self->head;
    }
    pthread_mutex_unlock(&self->mutex);
    return work;
}

static void *work_loop(void *arg)
{
    pool_worker *self = arg;
    fedge_os_name_thread(self->pool->config.thread);
    void *user = self->pool->config.user;
    for (;;) {
        if (self->pool->config.between)
            ask_between(self);
        /* Before spinning, so that a thread that waits for the pool does not wait for that, too. */
        if (!has_task(self)) {
            mark_idle(self);
            spin(&self->backoff, has_task, self);
        }
        fedge_work *work = take(self);
        if (!work)
            return NULL;
        /* Do not touch [task] afterwards: run may free it. */
        self->num_taken++;
        work->run(user, self->index, work);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static int start_worker(pool_worker *self, const pthread_attr_t *attributes)
{
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->filled, NULL);
    pthread_cond_init(&self->idle, NULL);
    self->tail = &self->head;
    fedge_spin_backoff_init(&self->backoff, self->pool->config.spin_ns);
    const int failed = fedge_thread_create(&self->thread, attributes, work_loop, self);
    if (failed) {
        pthread_cond_destroy(&self->idle);
        pthread_cond_destroy(&self->filled);
        pthread_mutex_destroy(&self->mutex);
    }
    return failed;
}

static fedge_status start(fedge_worker_pool *pool, fedge_error *err)
{
    const fedge_worker_pool_config *config = &pool->config;
    pthread_attr_t attributes;
    int failed = pthread_attr_init(&attributes);
    if (failed)
        return fedge_fail_errno(err, failed, "cannot start a %s", config->name);
    if (config->stack_size > 0)
        (void)pthread_attr_setstacksize(&attributes, config->stack_size);
    while (!failed && pool->num_workers < config->num_workers) {
        pool_worker *next = &pool->workers[pool->num_workers];
        next->pool = pool;
        next->index = pool->num_workers;
        failed = start_worker(next, &attributes);
        pool->num_workers += failed == 0;
    }
    (void)pthread_attr_destroy(&attributes);
    return !failed || config->allow_fewer
               ? FEDGE_OK
               : fedge_fail_errno(err, failed, "cannot start %s %u of %u%s%s", config->name,
                                  pool->num_workers + 1, config->num_workers,
                                  config->advice ? ": " : "", config->advice ? config->advice : "");
}

fedge_status fedge_worker_pool_new(fedge_worker_pool **pool, const fedge_worker_pool_config *config,
                                   fedge_error *err)
{
    *pool = NULL;
    fedge_worker_pool *fresh =
        calloc(1, sizeof(*fresh) + config->num_workers * sizeof(pool_worker));
    if (!fresh) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u times a %s", config->num_workers,
                          config->name);
    }
    fresh->config = *config;
    fedge_spin_backoff_init(&fresh->backoff, config->spin_ns);
    pthread_mutex_init(&fresh->mutex, NULL);
    pthread_cond_init(&fresh->ended, NULL);
    const fedge_status status = start(fresh, err);
    if (status != FEDGE_OK) {
        fedge_worker_pool_free(fresh);
        return status;
    }
    *pool = fresh;
    return FEDGE_OK;
}

void fedge_worker_pool_free(fedge_worker_pool *pool)
{
    if (!pool)
        return;
    for (uint32_t i = 0; i < pool->num_workers; i++) {
        pool_worker *self = &pool->workers[i];
        pthread_mutex_lock(&self->mutex);
        /* Tasks already posted still run: take() returns NULL only for an empty queue, since only
         * tasks free their memory. */
        self->stop = true;
        pthread_cond_signal(&self->filled);
        pthread_mutex_unlock(&self->mutex);
    }
    for (uint32_t i = 0; i < pool->num_workers; i++) {
        pool_worker *self = &pool->workers[i];
        pthread_join(self->thread, NULL);
        assert(!self->head);
        pthread_cond_destroy(&self->idle);
        pthread_cond_destroy(&self->filled);
        pthread_mutex_destroy(&self->mutex);
    }
    assert(atomic_load(&pool->num_running) == 0);
    pthread_cond_destroy(&pool->ended);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

uint32_t fedge_worker_pool_size(const fedge_worker_pool *pool)
{
    return pool->num_workers;
}

/* ---- from other threads ---------------------------------------------------------------------- */

/* A worker that waits for the pool would wait for itself. */
static bool is_on_worker(const fedge_worker_pool *pool)
{
    const pthread_t self = pthread_self();
    uint32_t i = 0;
    while (i < pool->num_workers && !pthread_equal(pool->workers[i].thread, self))
        i++;
    return i < pool->num_workers;
}

/* Counted after unlocking; otherwise a spinning worker would block on the mutex. */
void fedge_worker_pool_post(fedge_worker_pool *pool, uint32_t worker, fedge_work *work)
{
    assert(worker < pool->num_workers && work->run);
    pool_worker *to = &pool->workers[worker];
    work->next = NULL;
    pthread_mutex_lock(&to->mutex);
    *to->tail = work;
    to->tail = &work->next;
    pthread_cond_signal(&to->filled);
    pthread_mutex_unlock(&to->mutex);
    atomic_fetch_add(&to->num_posted, 1);
}

void fedge_worker_pool_wait(fedge_worker_pool *pool)
{
    assert(!is_on_worker(pool));
    for (uint32_t i = 0; i < pool->num_workers; i++) {
        pool_worker *self = &pool->workers[i];
        pthread_mutex_lock(&self->mutex);
        while (self->head || self->busy)
            pthread_cond_wait(&self->idle, &self->mutex);
        pthread_mutex_unlock(&self->mutex);
    }
}

/* ---- all workers together -------------------------------------------------------------------- */

static void run_each(void *user, uint32_t worker, fedge_work *work)
{
    (void)user;
    fedge_worker_pool *pool = ((pool_worker *)((char *)work - offsetof(pool_worker, each)))->pool;
    pool->run(pool->run_user, worker);
    /* Only the last one wakes the waiter, with the mutex locked: otherwise the waiter could see the
     * count above 0 and then miss the signal. */
    if (atomic_fetch_sub(&pool->num_running, 1) == 1) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_signal(&pool->ended);
        pthread_mutex_unlock(&pool->mutex);
    }
}

void fedge_worker_pool_begin(fedge_worker_pool *pool, void (*run)(void *user, uint32_t worker),
                             void *user)
{
    assert(atomic_load(&pool->num_running) == 0 && !is_on_worker(pool));
    pool->run = run;
    pool->run_user = user;
    atomic_store(&pool->num_running, pool->num_workers);
    for (uint32_t i = 0; i < pool->num_workers; i++) {
        pool->workers[i].each.run = run_each;
        fedge_worker_pool_post(pool, i, &pool->workers[i].each);
    }
}

static bool has_ended(const void *what)
{
    const fedge_worker_pool *pool = what;
    return atomic_load(&pool->num_running) == 0;
}

void fedge_worker_pool_end(fedge_worker_pool *pool)
{
    assert(!is_on_worker(pool));
    spin(&pool->backoff, has_ended, pool);
    if (has_ended(pool))
        return;
    pthread_mutex_lock(&pool->mutex);
    while (!has_ended(pool))
        pthread_cond_wait(&pool->ended, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

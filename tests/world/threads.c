/* The product's own pthread objects hold the state of the locks, all zero when free. A lock is also
 * free once its holder was killed, as a process's locks end with it. */
#define _GNU_SOURCE

#include "tests/world/threads.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/world/scheduler.h"

enum { READ_CLOCK_NS = 100, SPURIOUS = 64 /* one of this number of waits ends without a reason */ };

/* A thread that pthread_create made and nobody has joined. */
typedef struct record {
    uint64_t id; /* 0: free */
    uint32_t node;
    void *(*start)(void *argument);
    void *argument, *result;
    bool ended, detached;
} record;

static record records[WORLD_MAX_FIBERS];

void world_threads_drop(uint32_t node)
{
    for (uint32_t i = 0; i < WORLD_MAX_FIBERS; i++) {
        if (records[i].id != 0 && records[i].node == node)
            records[i].id = 0;
    }
}

static record *find_record(uint64_t id)
{
    for (uint32_t i = 0; i < WORLD_MAX_FIBERS; i++) {
        if (records[i].id == id)
            return &records[i];
    }
    return NULL;
}

static void must(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "world: %s (thread %s)\n", what, world_thread_name());
        abort();
    }
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
#define REPLACED(type, name, ...)                                                                  \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

/* ---- threads --------------------------------------------------------------------------------- */

static void run_thread(void *argument)
{
    record *self = argument;
    self->result = self->start(self->argument);
    self->ended = true;
    world_wake_all(self);
    if (self->detached)
        self->id = 0;
}

REPLACED(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes,
         void *(*start)(void *argument), void *argument)
{
    if (world_node() == WORLD_ITSELF)
        return __real_pthread_create(thread, attributes, start, argument);
    record *made = find_record(0);
    if (!made)
        return EAGAIN;
    *made = (record){.node = world_node(), .start = start, .argument = argument};
    made->id = world_spawn_thread(made->node, run_thread, made, "thread");
    *thread = (pthread_t)made->id;
    world_yield();
    return made->id == 0 ? EAGAIN : 0;
}

REPLACED(int, pthread_join, pthread_t thread, void **result)
{
    if (world_node() == WORLD_ITSELF)
        return __real_pthread_join(thread, result);
    record *of = find_record((uint64_t)thread);
    must(of != NULL, "joins a thread that does not exist");
    while (!of->ended)
        (void)world_wait(of, WORLD_NEVER);
    if (result)
        *result = of->result;
    of->id = 0;
    return 0;
}

REPLACED(int, pthread_detach, pthread_t thread)
{
    record *of = find_record((uint64_t)thread);
    must(of != NULL, "detaches a thread that does not exist");
    of->detached = true;
    if (of->ended)
        of->id = 0;
    return 0;
}

REPLACED(pthread_t, pthread_self, void)
{
    return world_thread() != 0 ? (pthread_t)world_thread() : __real_pthread_self();
}

REPLACED(int, prctl, int option, const char *name)
{
    (void)option;
    world_name_thread(name);
    return 0;
}

REPLACED(int, sched_yield, void)
{
    world_yield();
    return 0;
}

REPLACED(int, pthread_once, pthread_once_t *once, void (*routine)(void))
{
    if (*once == PTHREAD_ONCE_INIT) {
        world_atomic(true);
        routine();
        world_atomic(false);
        *once = PTHREAD_ONCE_INIT + 2; /* as glibc does, for code outside the world */
    }
    return 0;
}

/* ---- mutexes --------------------------------------------------------------------------------- */

typedef struct lock_state {
    uint64_t owner; /* world_thread(); 0: none */
} lock_state;
static_assert(sizeof(lock_state) <= sizeof(pthread_mutex_t), "a mutex holds its state");
static_assert(sizeof(lock_state) <= sizeof(pthread_rwlock_t), "a lock holds its state");

static bool is_held(const lock_state *lock)
{
    return lock->owner != 0 && world_is_alive(lock->owner);
}

static void acquire(lock_state *lock)
{
    if (world_thread() == 0)
        return; /* the world runs alone */
    must(!is_held(lock) || lock->owner != world_thread(), "locks what it has locked");
    while (is_held(lock))
        (void)world_wait(lock, WORLD_NEVER);
    lock->owner = world_thread();
}

static void release(lock_state *lock)
{
    if (world_thread() == 0)
        return;
    must(lock->owner == world_thread(), "unlocks what it has not locked");
    lock->owner = 0;
    world_wake_one(lock);
}

REPLACED(int, pthread_mutex_init, pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    (void)attributes;
    memset(mutex, 0, sizeof(*mutex));
    return 0;
}

REPLACED(int, pthread_mutex_destroy, pthread_mutex_t *mutex)
{
    must(!is_held((lock_state *)mutex), "destroys a locked mutex");
    return 0;
}

REPLACED(int, pthread_mutex_lock, pthread_mutex_t *mutex)
{
    world_yield();
    acquire((lock_state *)mutex);
    return 0;
}

REPLACED(int, pthread_mutex_trylock, pthread_mutex_t *mutex)
{
    world_yield();
    if (is_held((lock_state *)mutex))
        return EBUSY;
    acquire((lock_state *)mutex);
    return 0;
}

REPLACED(int, pthread_mutex_unlock, pthread_mutex_t *mutex)
{
    release((lock_state *)mutex);
    world_yield();
    return 0;
}

/* Readers exclude each other here, which is a valid order of real threads. */
REPLACED(int, pthread_rwlock_init, pthread_rwlock_t *lock, const pthread_rwlockattr_t *attributes)
{
    (void)attributes;
    memset(lock, 0, sizeof(*lock));
    return 0;
}

REPLACED(int, pthread_rwlock_destroy, pthread_rwlock_t *lock)
{
    must(!is_held((lock_state *)lock), "destroys a locked lock");
    return 0;
}

#define DEFINE_ACQUIRE(name)                                                                       \
    REPLACED(int, name, pthread_rwlock_t *lock)                                                    \
    {                                                                                              \
        world_yield();                                                                             \
        acquire((lock_state *)lock);                                                               \
        return 0;                                                                                  \
    }
DEFINE_ACQUIRE(pthread_rwlock_rdlock)
DEFINE_ACQUIRE(pthread_rwlock_wrlock)

REPLACED(int, pthread_rwlock_unlock, pthread_rwlock_t *lock)
{
    release((lock_state *)lock);
    world_yield();
    return 0;
}

/* ---- conditions ------------------------------------------------------------------------------ */

typedef struct condition_state {
    int32_t clock; /* clockid_t: CLOCK_REALTIME, which is 0, or CLOCK_MONOTONIC */
} condition_state;
static_assert(sizeof(condition_state) <= sizeof(pthread_cond_t), "a condition holds its state");

REPLACED(int, pthread_cond_init, pthread_cond_t *condition, const pthread_condattr_t *attributes)
{
    clockid_t clock = CLOCK_REALTIME;
    if (attributes)
        (void)pthread_condattr_getclock(attributes, &clock);
    memset(condition, 0, sizeof(*condition));
    ((condition_state *)condition)->clock = clock;
    return 0;
}

REPLACED(int, pthread_cond_destroy, pthread_cond_t *condition)
{
    (void)condition;
    return 0;
}

REPLACED(int, pthread_cond_signal, pthread_cond_t *condition)
{
    world_wake_one(condition);
    world_yield();
    return 0;
}

REPLACED(int, pthread_cond_broadcast, pthread_cond_t *condition)
{
    world_wake_all(condition);
    world_yield();
    return 0;
}

static bool wait_for(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t ns)
{
    bool woken = true;
    release((lock_state *)mutex);
    if (fedge_rng_below(world_draw(), SPURIOUS) > 0)
        woken = world_wait(condition, ns);
    else
        world_yield();
    acquire((lock_state *)mutex);
    return woken;
}

REPLACED(int, pthread_cond_wait, pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    (void)wait_for(condition, mutex, WORLD_NEVER);
    return 0;
}

REPLACED(int, pthread_cond_timedwait, pthread_cond_t *condition, pthread_mutex_t *mutex,
         const struct timespec *until)
{
    const uint64_t until_ns = (uint64_t)until->tv_sec * 1000000000u + (uint64_t)until->tv_nsec;
    const bool monotonic = ((condition_state *)condition)->clock == CLOCK_MONOTONIC;
    const uint64_t now_ns = monotonic ? world_monotonic_ns() : world_unix_ns();
    if (until_ns <= now_ns) {
        world_yield();
        return ETIMEDOUT;
    }
    return wait_for(condition, mutex, until_ns - now_ns) ? 0 : ETIMEDOUT;
}

/* ---- time and chance ------------------------------------------------------------------------- */

REPLACED(int, clock_gettime, clockid_t clock, struct timespec *out)
{
    if (world_node() == WORLD_ITSELF)
        return __real_clock_gettime(clock, out);
    /* Log lines read the wall clock, which must not change what follows. */
    if (clock != CLOCK_REALTIME) {
        world_pass(READ_CLOCK_NS); /* otherwise a loop that polls the clock would never end */
        world_yield();
    }
    const uint64_t ns = clock == CLOCK_REALTIME ? world_unix_ns() : world_monotonic_ns();
    out->tv_sec = (time_t)(ns / 1000000000u);
    out->tv_nsec = (long)(ns % 1000000000u);
    return 0;
}

REPLACED(int, nanosleep, const struct timespec *span, struct timespec *left)
{
    if (world_node() == WORLD_ITSELF)
        return __real_nanosleep(span, left);
    world_sleep((uint64_t)span->tv_sec * 1000000000u + (uint64_t)span->tv_nsec);
    return 0;
}

REPLACED(ssize_t, getrandom, void *out, size_t size, unsigned flags)
{
    if (world_node() == WORLD_ITSELF)
        return __real_getrandom(out, size, flags);
    uint8_t *to = out;
    for (size_t i = 0; i < size; i++)
        to[i] = (uint8_t)fedge_rng_u32(world_draw());
    return (ssize_t)size;
}

REPLACED(pid_t, getpid, void)
{
    return world_node() == WORLD_ITSELF ? __real_getpid() : (pid_t)(1000 + world_node());
}
/* NOLINTEND(bugprone-reserved-identifier) */

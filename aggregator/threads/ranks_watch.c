#include "aggregator/threads/ranks_watch.h"

#include <stdlib.h>

#include "aggregator/threads/thread.h"
#include "aggregator/threads/waiting.h"
#include "edge/core/os.h"

#define LOOK_MS 100u

uint64_t fedge_ranks_silence_ms(uint64_t bytes)
{
    const char *text = getenv(FEDGE_RANKS_SILENCE_VARIABLE);
    const unsigned long seconds = text ? strtoul(text, NULL, 10) : 0;
    return (seconds > 0 ? 1000 * (uint64_t)seconds : FEDGE_RANKS_SILENCE_MS) +
           bytes / FEDGE_RANKS_LEAST_BYTES_PER_MS;
}

static void set_heard(fedge_ranks_watch *self, uint64_t now_ms)
{
    for (uint32_t rank = 0; rank < FEDGE_RANKS_WATCH_MAX; rank++)
        self->heard_ms[rank] = self->heard_ms[rank] > 0 ? now_ms : 0;
}

static bool is_stuck(const fedge_ranks_watch *self, uint64_t now_ms, fedge_error *err)
{
    const double limit_s = (double)self->limit_ms * 1e-3;
    if (self->doing && now_ms - self->since_ms > self->limit_ms) {
        (void)fedge_fail(err, FEDGE_TIMEOUT,
                         "%s has not ended in %g s: a rank hangs, or two machines do not reach "
                         "each other",
                         self->doing, limit_s);
        return true;
    }
    for (uint32_t rank = 0; rank < FEDGE_RANKS_WATCH_MAX && !self->doing; rank++) {
        if (self->heard_ms[rank] > 0 && now_ms - self->heard_ms[rank] > self->limit_ms) {
            (void)fedge_fail(err, FEDGE_TIMEOUT,
                             "rank %u has said nothing for %g s: it hangs, or "
                             "its machine is not reached",
                             (unsigned)rank, limit_s);
            return true;
        }
    }
    return false;
}

/* The process itself was suspended, e.g. by a terminal, so messages wait unread. */
static void allow_for_stop(fedge_ranks_watch *self, uint64_t before_ms, uint64_t now_ms)
{
    if (now_ms - before_ms > LOOK_MS + self->limit_ms / 4) {
        set_heard(self, now_ms);
        self->since_ms = now_ms;
    }
}

static void *look(void *arg)
{
    fedge_ranks_watch *self = arg;
    uint64_t before_ms = fedge_os_monotonic_ms();
    fedge_os_name_thread("ranks-watch");
    (void)pthread_mutex_lock(&self->mutex);
    while (!self->ends) {
        fedge_error err;
        fedge_condition_wait_us(&self->changed, &self->mutex, LOOK_MS * 1000u);
        const uint64_t now_ms = fedge_os_monotonic_ms();
        allow_for_stop(self, before_ms, now_ms);
        before_ms = now_ms;
        if (is_stuck(self, now_ms, &err)) {
            (void)pthread_mutex_unlock(&self->mutex);
            self->stuck(self->user, &err);
            (void)pthread_mutex_lock(&self->mutex);
        }
    }
    (void)pthread_mutex_unlock(&self->mutex);
    return NULL;
}

fedge_status fedge_ranks_watch_init(fedge_ranks_watch *watch, uint64_t limit_ms,
                                    fedge_ranks_stuck_fn stuck, void *user, fedge_error *err)
{
    *watch = (fedge_ranks_watch){.stuck = stuck, .user = user, .limit_ms = limit_ms};
    fedge_condition_init(&watch->changed);
    pthread_mutex_init(&watch->mutex, NULL);
    const int failed = fedge_thread_create(&watch->thread, NULL, look, watch);
    watch->runs = failed == 0;
    if (watch->runs)
        return FEDGE_OK;
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->mutex);
    return fedge_fail_errno(err, failed, "cannot start a thread that watches other ranks");
}

void fedge_ranks_watch_fini(fedge_ranks_watch *watch)
{
    if (watch->runs) {
        (void)pthread_mutex_lock(&watch->mutex);
        watch->ends = true;
        (void)pthread_cond_signal(&watch->changed);
        (void)pthread_mutex_unlock(&watch->mutex);
        (void)pthread_join(watch->thread, NULL);
        (void)pthread_cond_destroy(&watch->changed);
        (void)pthread_mutex_destroy(&watch->mutex);
    }
    *watch = (fedge_ranks_watch){0};
}

void fedge_ranks_watch_begin(fedge_ranks_watch *watch, const char *doing)
{
    (void)pthread_mutex_lock(&watch->mutex);
    watch->since_ms = fedge_os_monotonic_ms();
    watch->doing = doing;
    (void)pthread_mutex_unlock(&watch->mutex);
}

void fedge_ranks_watch_end(fedge_ranks_watch *watch)
{
    (void)pthread_mutex_lock(&watch->mutex);
    watch->doing = NULL;
    set_heard(watch, fedge_os_monotonic_ms());
    (void)pthread_mutex_unlock(&watch->mutex);
}

void fedge_ranks_watch_heard(fedge_ranks_watch *watch, uint32_t rank)
{
    if (rank >= FEDGE_RANKS_WATCH_MAX)
        return;
    (void)pthread_mutex_lock(&watch->mutex);
    watch->heard_ms[rank] = fedge_os_monotonic_ms();
    (void)pthread_mutex_unlock(&watch->mutex);
}

void fedge_ranks_watch_forget(fedge_ranks_watch *watch, uint32_t rank)
{
    if (rank >= FEDGE_RANKS_WATCH_MAX)
        return;
    (void)pthread_mutex_lock(&watch->mutex);
    watch->heard_ms[rank] = 0;
    (void)pthread_mutex_unlock(&watch->mutex);
}

void fedge_ranks_watch_pause(fedge_ranks_watch *watch)
{
    (void)pthread_mutex_lock(&watch->mutex);
    set_heard(watch, fedge_os_monotonic_ms());
    (void)pthread_mutex_unlock(&watch->mutex);
}

#define _POSIX_C_SOURCE 200809L /* pthread_condattr_setclock */

#include "aggregator/threads/waiting.h"

#include <time.h>

#define LEAST_NS 1000 /* shorter waits are not worth it: reading the clock takes much of them */

void fedge_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

void fedge_condition_wait_us(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t us)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(us / 1000000);
    until.tv_nsec += (long)(us % 1000000) * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(condition, mutex, &until);
}

void fedge_spin_backoff_init(fedge_spin_backoff *backoff, uint64_t most_ns)
{
    *backoff = (fedge_spin_backoff){.most_ns = most_ns, .ns = most_ns};
}

uint64_t fedge_spin_backoff_begin(const fedge_spin_backoff *backoff)
{
    const bool tries =
        backoff->num_failed % FEDGE_SPIN_BACKOFF_TRIAL == FEDGE_SPIN_BACKOFF_TRIAL - 1;
    return tries ? backoff->most_ns : backoff->ns;
}

void fedge_spin_backoff_end(fedge_spin_backoff *backoff, bool rewarded)
{
    if (rewarded) {
        fedge_spin_backoff_init(backoff, backoff->most_ns);
        return;
    }
    backoff->num_failed++;
    backoff->ns = backoff->ns / 2 < LEAST_NS ? 0 : backoff->ns / 2;
}

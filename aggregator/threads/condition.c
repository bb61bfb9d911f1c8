#define _POSIX_C_SOURCE 200809L /* pthread_condattr_setclock */

#include "aggregator/threads/condition.h"

#include <time.h>

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

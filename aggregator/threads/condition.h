/* Condition variables that are waited for with a limit. By a clock that nobody sets: the wall clock
 * may jump while somebody waits. */
#ifndef FEDGE_AGGREGATOR_THREADS_CONDITION_H
#define FEDGE_AGGREGATOR_THREADS_CONDITION_H

#include <pthread.h>
#include <stdint.h>

void fedge_condition_init(pthread_cond_t *condition);

/* As pthread_cond_wait of one that was initialized so, for so many microseconds at most. */
void fedge_condition_wait_us(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t us);

#endif

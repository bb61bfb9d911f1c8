/* Waiting for other threads: with a time limit, and by spinning before sleeping. */
#ifndef FEDGE_AGGREGATOR_THREADS_WAITING_H
#define FEDGE_AGGREGATOR_THREADS_WAITING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- condition variables with a limit of time ------------------------------------------------ */

/* Waits use the monotonic clock, since the wall clock may jump. */
void fedge_condition_init(pthread_cond_t *condition);

/* pthread_cond_wait on such a condition, for at most [us] microseconds. */
void fedge_condition_wait_us(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t us);

/* ---- spinning -------------------------------------------------------------------------------- */

/* How long a thread spins before it sleeps: about one wake-up.
 *
 * If an event comes soon, spinning sees it before a sleeping thread would wake up, as at the end
 * and start of rounds of small models. If other work shares the CPUs, spinning delays the very
 * threads it waits for. Recent waits decide: a failed one halves the spin time, a successful one
 * restores it, and each FEDGE_SPIN_BACKOFF_TRIAL-th failed one tries the full time, since the other
 * work may have ended.
 */
#define FEDGE_SPIN_BACKOFF_TRIAL 64u /* failed waits between trials of most_ns */

typedef struct fedge_spin_backoff {
    uint64_t most_ns;    /* maximum; 0: never spins, as with more threads than CPUs */
    uint64_t ns;         /* present spin time */
    uint32_t num_failed; /* consecutive failed waits */
} fedge_spin_backoff;

/* Starts with [most_ns]. */
void fedge_spin_backoff_init(fedge_spin_backoff *backoff, uint64_t most_ns);

/* Spin time of the next wait; 0: sleep at once. */
uint64_t fedge_spin_backoff_begin(const fedge_spin_backoff *backoff);

/* [rewarded]: the event came during spinning. */
void fedge_spin_backoff_end(fedge_spin_backoff *backoff, bool rewarded);

#endif

/* How threads wait for each other: with a limit of time, and by spinning before they sleep. */
#ifndef FEDGE_AGGREGATOR_THREADS_WAITING_H
#define FEDGE_AGGREGATOR_THREADS_WAITING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- condition variables with a limit of time ------------------------------------------------ */

/* Waits use the monotonic clock, since the wall clock may jump. */
void fedge_condition_init(pthread_cond_t *condition);

/* As pthread_cond_wait on such a condition, for [us] microseconds at most. */
void fedge_condition_wait_us(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t us);

/* ---- spinning -------------------------------------------------------------------------------- */

/* How long a thread spins before it sleeps: about one wake-up.
 *
 * If an event comes soon, spinning finds it before a sleeping thread would be woken; rounds of
 * small models end and follow one another like this. If other work shares the CPUs, spinning takes
 * time from the very threads that it waits for. The last waits tell one case from the other: a
 * failed one halves the time to spin, a successful one restores all of it, and each
 * FEDGE_SPIN_BACKOFF_TRIAL-th failed one tries all of it, since the other work may have ended. */
#define FEDGE_SPIN_BACKOFF_TRIAL 64u /* failed waits, of which one spins for most_ns */

typedef struct fedge_spin_backoff {
    uint64_t most_ns;    /* 0: never spins, as with more threads than CPUs */
    uint64_t ns;         /* present spin time */
    uint32_t num_failed; /* waits in a row */
} fedge_spin_backoff;

/* All of [most_ns] at first. */
void fedge_spin_backoff_init(fedge_spin_backoff *backoff, uint64_t most_ns);

/* How long to spin in the wait that begins; 0: sleep at once. */
uint64_t fedge_spin_backoff_begin(const fedge_spin_backoff *backoff);

/* [rewarded]: the event came while the thread was spinning. */
void fedge_spin_backoff_end(fedge_spin_backoff *backoff, bool rewarded);

#endif

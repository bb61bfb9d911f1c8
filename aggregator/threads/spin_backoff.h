/* How long a thread that waits looks whether it must, before it sleeps.
 *
 * To look (to spin) is sooner done with than to be woken, when what is waited for comes soon: small
 * models' rounds end and follow one another so. It is a loss where something else shares the CPUs:
 * the thread keeps them from those that it waits for, and is put off itself. What the last waits
 * brought tells one from the other: one in vain halves the backoff, one that was rewarded gives
 * all of it back, and now and then a wait tries with all of it, for the others may have gone.
 */
#ifndef FEDGE_AGGREGATOR_THREADS_SPIN_BACKOFF_H
#define FEDGE_AGGREGATOR_THREADS_SPIN_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

#define FEDGE_SPIN_BACKOFF_TRIAL 64u /* waits, of which one tries anew */

typedef struct fedge_spin_backoff {
    uint64_t most_ns;  /* 0: never any, as with more threads than CPUs */
    uint64_t ns;       /* at present */
    uint32_t num_vain; /* waits in vain, one after the other */
} fedge_spin_backoff;

/* All of [most_ns] at first. */
void fedge_spin_backoff_init(fedge_spin_backoff *backoff, uint64_t most_ns);

/* How long to look in the wait that begins; 0: sleep at once. */
uint64_t fedge_spin_backoff_begin(const fedge_spin_backoff *backoff);

/* [rewarded]: what was waited for came in that time. */
void fedge_spin_backoff_end(fedge_spin_backoff *backoff, bool rewarded);

#endif

/* Certificate time: the time at which a node judges certificates, its own and its peers'. */
#ifndef FEDGE_SECURE_IDENTITY_CLOCK_H
#define FEDGE_SECURE_IDENTITY_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

/* All 0: nothing was set. */
typedef struct fedge_clock {
    _Atomic uint64_t min_ms; /* Unix time */
} fedge_clock;

/* Sets the earliest time, e.g. the last server time that a client stored, in place of the one set
 * before. Any thread. */
void fedge_clock_set_min(fedge_clock *clock, uint64_t unix_ms);

/* The latest of the system clock, the build's date and the time set, so that boards without a clock
 * battery work. Any thread. */
uint64_t fedge_clock_now_ms(const fedge_clock *clock);

#endif

/* The virtual clock: which of a phase's tasks ends when, and which results are sure to be wanted.
 *
 * Pure, as the round machine is: it knows no training and no clock but its own. Times are virtual
 * microseconds since the start of the run.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_TIME_VIRTUAL_CLOCK_H
#define FEDGE_AGGREGATOR_SIMULATE_TIME_VIRTUAL_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"

/* What will happen, and when: a binary heap. */

/* In the order in which they happen at the same time: who finishes then has finished before it
 * goes, and nobody meets who takes turns. */
typedef enum fedge_event_kind {
    FEDGE_EVENT_FINISH, /* its result is there */
    FEDGE_EVENT_FAIL,   /* it gives its task up */
    FEDGE_EVENT_LEAVE,
    FEDGE_EVENT_JOIN
} fedge_event_kind;

typedef struct fedge_event {
    uint64_t time_us;
    uint32_t tie_break; /* the order of FINISH, and of FAIL, at one time; 0 for others */
    uint32_t client;
    uint32_t task; /* FINISH, FAIL: the caller's number */
    fedge_event_kind kind;
} fedge_event;

/* items[0] is the first. One that is all 0 is empty. */
typedef struct fedge_event_queue {
    fedge_event *items;
    uint32_t count, capacity;
} fedge_event_queue;

void fedge_event_queue_fini(fedge_event_queue *events);

/* The order: (time, kind, tie-break, client). < 0: a comes before b. */
int fedge_event_compare(const fedge_event *a, const fedge_event *b);

/* FEDGE_NO_MEMORY leaves the heap as it is. */
FEDGE_MUST_USE fedge_status fedge_event_queue_push(fedge_event_queue *events, fedge_event event,
                                                   fedge_error *err);

/* Takes the first one; count ≥ 1. */
fedge_event fedge_event_queue_pop(fedge_event_queue *events);

#define FEDGE_TIME_NEVER UINT64_MAX
#define FEDGE_TIME_NO_TASK UINT32_MAX /* the task of an event that is of a client alone */

/* One that is all 0 stands at time 0. */
typedef struct fedge_virtual_clock {
    uint64_t now_us;
    uint64_t opened_us;        /* the phase */
    uint64_t deadline_us;      /* of the phase, or NEVER; without a phase too */
    fedge_event_queue due;     /* what becomes of the phase's tasks */
    fedge_event_queue changes; /* who comes and goes: LEAVE and JOIN without a task */
    fedge_event *sure;         /* room for fedge_virtual_clock_sure */
    uint32_t sure_capacity;
} fedge_virtual_clock;

void fedge_virtual_clock_fini(fedge_virtual_clock *virtual_clock);

/* A phase opens now; 0: it has no deadline. Forgets the tasks of the one before. */
void fedge_virtual_clock_open(fedge_virtual_clock *virtual_clock, uint64_t deadline_ms);

/* The phase is over: nothing is due. */
void fedge_virtual_clock_close(fedge_virtual_clock *virtual_clock);

/* A client comes or goes at [time_us]; NEVER: it does not. */
FEDGE_MUST_USE fedge_status fedge_virtual_clock_change(fedge_virtual_clock *virtual_clock,
                                                       uint32_t client, fedge_event_kind kind,
                                                       uint64_t time_us, fedge_error *err);

/* What happens next, without going there; NULL: nothing before the deadline. */
const fedge_event *fedge_virtual_clock_first(const fedge_virtual_clock *virtual_clock);

/* A client begins a task now. [duration_us] later, as [event]'s kind says, it has done it (FINISH),
 * gives it up (FAIL) or goes with it half done (LEAVE); or, being away, comes back to begin it
 * again (JOIN). */
FEDGE_MUST_USE fedge_status fedge_virtual_clock_begin(fedge_virtual_clock *virtual_clock,
                                                      fedge_event event, uint64_t duration_us,
                                                      fedge_error *err);

/* Goes to the next event and takes it. At the deadline, which comes after all else at that time:
 * false, and the clock stands there; when nothing will ever happen too, and then deadline_us is
 * NEVER. */
bool fedge_virtual_clock_next(fedge_virtual_clock *virtual_clock, fedge_event *event);

/* The first tasks to finish, at most [most], that will be among the phase's results whatever
 * becomes of any work: *num of them in *events, in the order of time, valid until the next call.
 *
 * Only a client that begins a task can overtake one that is on its way, so nothing behind the first
 * task that fails, is left or begun again is sure; nor, when a slot [is_empty] for whoever joins,
 * anything behind the next change. When the work of a sure one turns out to fail, another client
 * takes its slot and no one else's, so the others stay sure. */
FEDGE_MUST_USE fedge_status fedge_virtual_clock_sure(fedge_virtual_clock *virtual_clock,
                                                     uint32_t most, bool is_empty,
                                                     const fedge_event **events, uint32_t *num,
                                                     fedge_error *err);

#endif

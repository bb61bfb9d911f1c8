/* The virtual clock: when each of a phase's tasks ends, and which results are sure to be used.
 *
 * Pure, as the round machine: it does no training and reads no real clock. Times are virtual
 * microseconds since the start of the run.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_TIME_VIRTUAL_CLOCK_H
#define FEDGE_AGGREGATOR_SIMULATE_TIME_VIRTUAL_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"

/* The kinds of events, in their order at the same time: a client finishes before it leaves, and
 * leaves before another joins. */
typedef enum fedge_event_kind {
    FEDGE_EVENT_FINISH, /* its result arrives */
    FEDGE_EVENT_FAIL,   /* it gives up its task */
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

/* A binary heap: items[0] is the first event. All 0: empty. */
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

/* Takes the first event; count ≥ 1. */
fedge_event fedge_event_queue_pop(fedge_event_queue *events);

#define FEDGE_TIME_NEVER UINT64_MAX
#define FEDGE_TIME_NO_TASK UINT32_MAX /* [task] of an event that has only a client */

/* All 0: at time 0. */
typedef struct fedge_virtual_clock {
    uint64_t now_us;
    uint64_t opened_us;    /* start of the phase */
    uint64_t deadline_us;  /* end of the phase at the latest; FEDGE_TIME_NEVER: none, or no phase */
    fedge_event_queue due; /* the ends of the phase's tasks */
    fedge_event_queue changes; /* LEAVE and JOIN without a task */
    fedge_event *sure;         /* (sure_capacity): results of fedge_virtual_clock_sure */
    uint32_t sure_capacity;
} fedge_virtual_clock;

void fedge_virtual_clock_fini(fedge_virtual_clock *virtual_clock);

/* Opens a phase now and forgets the tasks of the last one. deadline_ms 0: none. */
void fedge_virtual_clock_open(fedge_virtual_clock *virtual_clock, uint64_t deadline_ms);

/* Ends the phase: nothing is due. */
void fedge_virtual_clock_close(fedge_virtual_clock *virtual_clock);

/* A client joins or leaves at [time_us]; FEDGE_TIME_NEVER: it does not. */
FEDGE_MUST_USE fedge_status fedge_virtual_clock_change(fedge_virtual_clock *virtual_clock,
                                                       uint32_t client, fedge_event_kind kind,
                                                       uint64_t time_us, fedge_error *err);

/* The next event, without moving to it; NULL: none before the deadline. */
const fedge_event *fedge_virtual_clock_first(const fedge_virtual_clock *virtual_clock);

/* A client begins a task now. After [duration_us] it finishes (FINISH), gives up (FAIL) or leaves
 * during the task (LEAVE), or, if it is away, returns to begin the task again (JOIN). */
FEDGE_MUST_USE fedge_status fedge_virtual_clock_begin(fedge_virtual_clock *virtual_clock,
                                                      fedge_event event, uint64_t duration_us,
                                                      fedge_error *err);

/* Moves to the next event and takes it. False at the deadline, which comes after all events of its
 * time, with the clock there; also where no event will ever come, and deadline_us is then
 * FEDGE_TIME_NEVER. */
bool fedge_virtual_clock_next(fedge_virtual_clock *virtual_clock, fedge_event *event);

/* The first tasks to finish, at most [max_events], that will be among the phase's results whatever
 * their work gives: *num of them in *events, in the order of time, valid until the next call.
 *
 * Only a client that begins a task can overtake one that is under way. So nothing is sure after the
 * first task that fails, is left or is begun again, nor, when a slot [is_empty] for a client that
 * joins, after the next change. When the work of a sure task fails, another client takes its slot
 * only, so the others stay sure. */
FEDGE_MUST_USE fedge_status fedge_virtual_clock_sure(fedge_virtual_clock *virtual_clock,
                                                     uint32_t max_events, bool is_empty,
                                                     const fedge_event **events, uint32_t *num,
                                                     fedge_error *err);

#endif

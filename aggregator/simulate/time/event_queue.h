/* What will happen, and when: a binary heap. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_TIME_EVENT_QUEUE_H
#define FEDGE_AGGREGATOR_SIMULATE_TIME_EVENT_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"

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

#endif

#include "aggregator/simulate/time/virtual_clock.h"

#include <assert.h>
#include <stdlib.h>

void fedge_virtual_clock_fini(fedge_virtual_clock *virtual_clock)
{
    fedge_event_queue_fini(&virtual_clock->due);
    fedge_event_queue_fini(&virtual_clock->changes);
    free(virtual_clock->sure);
    *virtual_clock = (fedge_virtual_clock){0};
}

/* FEDGE_TIME_NEVER where the sum would overflow. */
static uint64_t later(uint64_t time_us, uint64_t by_us)
{
    return by_us < FEDGE_TIME_NEVER - time_us ? time_us + by_us : FEDGE_TIME_NEVER;
}

void fedge_virtual_clock_open(fedge_virtual_clock *virtual_clock, uint64_t deadline_ms)
{
    const bool endless = deadline_ms == 0 || deadline_ms > FEDGE_TIME_NEVER / 1000;
    /* Arrivals and departures are of no task: [changes] outlives phases, [due] does not. */
    virtual_clock->opened_us = virtual_clock->now_us;
    virtual_clock->deadline_us =
        endless ? FEDGE_TIME_NEVER : later(virtual_clock->now_us, deadline_ms * 1000);
    virtual_clock->due.count = 0;
}

fedge_status fedge_virtual_clock_begin(fedge_virtual_clock *virtual_clock, fedge_event event,
                                       uint64_t duration_us, fedge_error *err)
{
    event.time_us = later(virtual_clock->now_us, duration_us);
    return fedge_event_queue_push(&virtual_clock->due, event, err);
}

void fedge_virtual_clock_close(fedge_virtual_clock *virtual_clock)
{
    virtual_clock->due.count = 0;
    virtual_clock->deadline_us = FEDGE_TIME_NEVER;
}

fedge_status fedge_virtual_clock_change(fedge_virtual_clock *virtual_clock, uint32_t client,
                                        fedge_event_kind kind, uint64_t time_us, fedge_error *err)
{
    const fedge_event event = {
        .time_us = time_us, .client = client, .task = FEDGE_TIME_NO_TASK, .kind = kind};
    return time_us == FEDGE_TIME_NEVER
               ? FEDGE_OK
               : fedge_event_queue_push(&virtual_clock->changes, event, err);
}

static bool change_is_first(const fedge_virtual_clock *virtual_clock)
{
    const fedge_event_queue *due = &virtual_clock->due, *changes = &virtual_clock->changes;
    return changes->count > 0 &&
           (due->count == 0 || fedge_event_compare(&changes->items[0], &due->items[0]) < 0);
}

const fedge_event *fedge_virtual_clock_first(const fedge_virtual_clock *virtual_clock)
{
    const fedge_event_queue *first =
        change_is_first(virtual_clock) ? &virtual_clock->changes : &virtual_clock->due;
    const bool in_time = first->count > 0 && first->items[0].time_us <= virtual_clock->deadline_us;
    return in_time ? &first->items[0] : NULL;
}

bool fedge_virtual_clock_next(fedge_virtual_clock *virtual_clock, fedge_event *event)
{
    if (!fedge_virtual_clock_first(virtual_clock)) {
        if (virtual_clock->deadline_us != FEDGE_TIME_NEVER)
            virtual_clock->now_us = virtual_clock->deadline_us;
        return false;
    }
    *event = fedge_event_queue_pop(change_is_first(virtual_clock) ? &virtual_clock->changes
                                                                  : &virtual_clock->due);
    virtual_clock->now_us = event->time_us;
    return true;
}

/* Is [event] sure, when those before it are? [change]: the next arrival or departure, or NULL. */
static bool is_sure(const fedge_virtual_clock *virtual_clock, const fedge_event *event,
                    const fedge_event *change)
{
    return event->kind == FEDGE_EVENT_FINISH && event->time_us <= virtual_clock->deadline_us &&
           (!change || fedge_event_compare(event, change) < 0);
}

fedge_status fedge_virtual_clock_sure(fedge_virtual_clock *virtual_clock, uint32_t max_events,
                                      bool is_empty, const fedge_event **events, uint32_t *num,
                                      fedge_error *err)
{
    fedge_event_queue *due = &virtual_clock->due;
    *num = 0;
    if (virtual_clock->sure_capacity < due->count) {
        fedge_event *sure = realloc(virtual_clock->sure, due->capacity * sizeof(*sure));
        if (!sure)
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u events", due->capacity);
        virtual_clock->sure = sure;
        virtual_clock->sure_capacity = due->capacity;
    }
    /* A client that joins would take an empty slot, and its task may end before later ones. */
    const fedge_event *change =
        is_empty && virtual_clock->changes.count > 0 ? &virtual_clock->changes.items[0] : NULL;
    /* Takes the sure events out and puts them back: the cost depends on these, not on all. */
    while (*num < max_events && due->count > 0 && is_sure(virtual_clock, &due->items[0], change))
        virtual_clock->sure[(*num)++] = fedge_event_queue_pop(due);
    for (uint32_t i = 0; i < *num; i++)
        FEDGE_TRY(fedge_event_queue_push(due, virtual_clock->sure[i], err)); /* capacity suffices */
    *events = virtual_clock->sure;
    return FEDGE_OK;
}

/* ---- events ---------------------------------------------------------------------------------- */

#define FIRST_CAPACITY 64u

void fedge_event_queue_fini(fedge_event_queue *events)
{
    free(events->items);
    *events = (fedge_event_queue){0};
}

/* A total order, so that events of the same time have the same order in every run; a heap alone
 * does not ensure that. */
int fedge_event_compare(const fedge_event *a, const fedge_event *b)
{
    if (a->time_us != b->time_us)
        return a->time_us < b->time_us ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->tie_break != b->tie_break)
        return a->tie_break < b->tie_break ? -1 : 1;
    return (a->client > b->client) - (a->client < b->client);
}

fedge_status fedge_event_queue_push(fedge_event_queue *events, fedge_event event, fedge_error *err)
{
    if (events->count == events->capacity) {
        const uint32_t more = events->capacity > 0 ? events->capacity * 2 : FIRST_CAPACITY;
        fedge_event *items = realloc(events->items, more * sizeof(*items));
        if (!items)
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u events", more);
        events->items = items;
        events->capacity = more;
    }
    uint32_t at = events->count++;
    while (at > 0 && fedge_event_compare(&event, &events->items[(at - 1) / 2]) < 0) {
        events->items[at] = events->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    events->items[at] = event;
    return FEDGE_OK;
}

fedge_event fedge_event_queue_pop(fedge_event_queue *events)
{
    assert(events->count > 0);
    const fedge_event first = events->items[0], last = events->items[--events->count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= events->count)
            break;
        child += child + 1 < events->count &&
                 fedge_event_compare(&events->items[child + 1], &events->items[child]) < 0;
        if (fedge_event_compare(&last, &events->items[child]) <= 0)
            break;
        events->items[at] = events->items[child];
        at = child;
    }
    events->items[at] = last;
    return first;
}

#include "aggregator/simulate/time/event_queue.h"

#include <assert.h>
#include <stdlib.h>

#define FIRST_CAPACITY 64u

void fedge_event_queue_fini(fedge_event_queue *events)
{
    free(events->items);
    *events = (fedge_event_queue){0};
}

/* A total order: two events of one time are taken in the same order in every run, whatever the
 * order in which they were put in. A heap alone would not promise that. */
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

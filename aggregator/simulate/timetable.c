#include "aggregator/simulate/timetable.h"

#include <stdlib.h>

void fedge_timetable_fini(fedge_timetable *timetable)
{
    fedge_events_fini(&timetable->due);
    fedge_events_fini(&timetable->changes);
    free(timetable->sure);
    *timetable = (fedge_timetable){0};
}

/* NEVER when it would be later than can be told. */
static uint64_t later(uint64_t time_us, uint64_t by_us)
{
    return by_us < FEDGE_TIME_NEVER - time_us ? time_us + by_us : FEDGE_TIME_NEVER;
}

void fedge_timetable_open(fedge_timetable *timetable, uint64_t deadline_ms)
{
    const bool endless = deadline_ms == 0 || deadline_ms > FEDGE_TIME_NEVER / 1000;
    timetable->opened_us = timetable->now_us;
    timetable->deadline_us =
        endless ? FEDGE_TIME_NEVER : later(timetable->now_us, deadline_ms * 1000);
    timetable->due.count = 0;
}

fedge_status fedge_timetable_begin(fedge_timetable *timetable, fedge_event event,
                                   uint64_t duration_us, fedge_error *err)
{
    event.time_us = later(timetable->now_us, duration_us);
    return fedge_events_push(&timetable->due, event, err);
}

void fedge_timetable_close(fedge_timetable *timetable)
{
    timetable->due.count = 0;
    timetable->deadline_us = FEDGE_TIME_NEVER;
}

fedge_status fedge_timetable_change(fedge_timetable *timetable, uint32_t client,
                                    fedge_event_kind kind, uint64_t time_us, fedge_error *err)
{
    const fedge_event event = {
        .time_us = time_us, .client = client, .task = FEDGE_TIME_NO_TASK, .kind = kind};
    return time_us == FEDGE_TIME_NEVER ? FEDGE_OK
                                       : fedge_events_push(&timetable->changes, event, err);
}

static bool change_is_first(const fedge_timetable *timetable)
{
    const fedge_events *due = &timetable->due, *changes = &timetable->changes;
    return changes->count > 0 &&
           (due->count == 0 || fedge_event_compare(&changes->items[0], &due->items[0]) < 0);
}

const fedge_event *fedge_timetable_first(const fedge_timetable *timetable)
{
    const fedge_events *first = change_is_first(timetable) ? &timetable->changes : &timetable->due;
    const bool in_time = first->count > 0 && first->items[0].time_us <= timetable->deadline_us;
    return in_time ? &first->items[0] : NULL;
}

bool fedge_timetable_next(fedge_timetable *timetable, fedge_event *event)
{
    if (!fedge_timetable_first(timetable)) {
        if (timetable->deadline_us != FEDGE_TIME_NEVER) {
            timetable->now_us = timetable->deadline_us;
        }
        return false;
    }
    *event = fedge_events_pop(change_is_first(timetable) ? &timetable->changes : &timetable->due);
    timetable->now_us = event->time_us;
    return true;
}

/* Is [event] sure, when those before it are? [change]: the next that lets another client in, or
 * NULL. */
static bool is_sure(const fedge_timetable *timetable, const fedge_event *event,
                    const fedge_event *change)
{
    return event->kind == FEDGE_EVENT_FINISH && event->time_us <= timetable->deadline_us &&
           (!change || fedge_event_compare(event, change) < 0);
}

fedge_status fedge_timetable_sure(fedge_timetable *timetable, uint32_t most, bool is_empty,
                                  const fedge_event **events, uint32_t *num, fedge_error *err)
{
    fedge_events *due = &timetable->due;
    *num = 0;
    if (timetable->sure_capacity < due->count) {
        fedge_event *sure = realloc(timetable->sure, due->capacity * sizeof(*sure));
        if (!sure) {
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u events", due->capacity);
        }
        timetable->sure = sure;
        timetable->sure_capacity = due->capacity;
    }
    const fedge_event *change =
        is_empty && timetable->changes.count > 0 ? &timetable->changes.items[0] : NULL;
    /* Taken out and put back: that costs what the sure ones are, not what is due. */
    while (*num < most && due->count > 0 && is_sure(timetable, &due->items[0], change)) {
        timetable->sure[(*num)++] = fedge_events_pop(due);
    }
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < *num && status == FEDGE_OK; i++) {
        status = fedge_events_push(due, timetable->sure[i], err); /* there is room */
    }
    *events = timetable->sure;
    return status;
}

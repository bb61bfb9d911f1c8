#include "aggregator/exchange/exchange.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define TAG_SHIFT 20

void fedge_request_free(fedge_request *request)
{
    if (request) {
        if (request->type == FEDGE_REQUEST_MESSAGE)
            free(request->message.upload);
        free(request->frame);
        free(request);
    }
}

void fedge_reply_free(fedge_reply *reply)
{
    if (reply) {
        fedge_blob_release(reply->blob);
        free(reply);
    }
}

fedge_notice fedge_stale_blob_notice(const char *hash)
{
    fedge_notice notice = {.reason = FEDGE_REASON_STALE_TASK};
    snprintf(notice.text, sizeof(notice.text), "no blob %.16s… is served any more", hash);
    return notice;
}

/* ---- numbers of connections ------------------------------------------------------------------ */

/* A number is (generation << 32) | (tag << TAG_SHIFT) | slot. */
struct fedge_slot {
    void *item; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
};

fedge_status fedge_slots_init(fedge_slots *slots, uint32_t capacity, uint32_t tag, fedge_error *err)
{
    assert(capacity <= FEDGE_SLOTS_MAX_CAPACITY && tag <= FEDGE_SLOTS_MAX_TAG);
    *slots = (fedge_slots){.capacity = capacity, .tag = tag};
    slots->slots = calloc(capacity, sizeof(*slots->slots));
    if (!slots->slots)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u connections", capacity);
    for (uint32_t i = 0; i < capacity; i++)
        slots->slots[i].next_free = i + 1;
    return FEDGE_OK;
}

void fedge_slots_fini(fedge_slots *slots)
{
    free(slots->slots);
    *slots = (fedge_slots){0};
}

uint64_t fedge_slots_take(fedge_slots *slots, void *item)
{
    assert(item && slots->first_free < slots->capacity);
    const uint32_t at = slots->first_free;
    struct fedge_slot *slot = &slots->slots[at];
    slots->first_free = slot->next_free;
    slot->item = item;
    slot->generation++;
    return (uint64_t)slot->generation << 32 | slots->tag << TAG_SHIFT | at;
}

uint32_t fedge_slots_tag(uint64_t id)
{
    return (uint32_t)id >> TAG_SHIFT;
}

static uint32_t index_of(uint64_t id)
{
    return (uint32_t)id & (FEDGE_SLOTS_MAX_CAPACITY - 1);
}

static struct fedge_slot *slot_of(const fedge_slots *slots, uint64_t id)
{
    if (fedge_slots_tag(id) != slots->tag || index_of(id) >= slots->capacity)
        return NULL;
    struct fedge_slot *slot = &slots->slots[index_of(id)];
    /* [generation] tells a slot's present item from earlier ones: a late answer finds nothing. */
    return slot->item && slot->generation == id >> 32 ? slot : NULL;
}

void fedge_slots_give_back(fedge_slots *slots, uint64_t id)
{
    struct fedge_slot *slot = slot_of(slots, id);
    assert(slot);
    slot->item = NULL;
    slot->next_free = slots->first_free;
    slots->first_free = index_of(id);
}

void *fedge_slots_find(const fedge_slots *slots, uint64_t id)
{
    const struct fedge_slot *slot = slot_of(slots, id);
    return slot ? slot->item : NULL;
}

/* ---- how often something may happen ---------------------------------------------------------- */

bool fedge_quota_take(fedge_quota *quota, uint32_t burst, uint32_t per_second, uint64_t now_ms)
{
    /* The clock may have been read on another thread, later. */
    const uint64_t passed_ms = now_ms > quota->counted_ms ? now_ms - quota->counted_ms : 0;
    const uint64_t restored = passed_ms * per_second / 1000;
    if (restored >= quota->used) {
        quota->used = 0;
        quota->counted_ms += passed_ms;
    } else {
        quota->used -= (uint32_t)restored;
        /* Counting only the time of whole units loses no remainder in frequent calls. */
        quota->counted_ms += restored * 1000 / per_second;
    }
    if (quota->used >= burst)
        return false;
    quota->used++;
    return true;
}

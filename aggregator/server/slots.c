#include "aggregator/server/slots.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

/* A number is (times that the slot was taken << 32) | slot. */
struct fedge_slot {
    void *thing; /* NULL: free */
    uint32_t times;
    uint32_t next_free;
};

fedge_status fedge_slots_init(fedge_slots *slots, uint32_t capacity, fedge_error *err)
{
    *slots = (fedge_slots){.capacity = capacity};
    slots->slots = calloc(capacity, sizeof(*slots->slots));
    if (!slots->slots) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u connections", capacity);
    }
    for (uint32_t i = 0; i < capacity; i++) {
        slots->slots[i].next_free = i + 1;
    }
    return FEDGE_OK;
}

void fedge_slots_fini(fedge_slots *slots)
{
    free(slots->slots);
    *slots = (fedge_slots){0};
}

uint64_t fedge_slots_take(fedge_slots *slots, void *thing)
{
    assert(thing && slots->first_free < slots->capacity);
    const uint32_t at = slots->first_free;
    struct fedge_slot *slot = &slots->slots[at];
    slots->first_free = slot->next_free;
    slot->thing = thing;
    slot->times++;
    return (uint64_t)slot->times << 32 | at;
}

static struct fedge_slot *slot_of(const fedge_slots *slots, uint64_t id)
{
    if ((uint32_t)id >= slots->capacity) {
        return NULL;
    }
    struct fedge_slot *slot = &slots->slots[(uint32_t)id];
    return slot->thing && slot->times == id >> 32 ? slot : NULL;
}

void fedge_slots_give_back(fedge_slots *slots, uint64_t id)
{
    struct fedge_slot *slot = slot_of(slots, id);
    assert(slot);
    slot->thing = NULL;
    slot->next_free = slots->first_free;
    slots->first_free = (uint32_t)id;
}

void *fedge_slots_find(const fedge_slots *slots, uint64_t id)
{
    const struct fedge_slot *slot = slot_of(slots, id);
    return slot ? slot->thing : NULL;
}

/* Numbers for things that come and go: each names one thing for ever, and is found in one step.
 * Several tables, each with a tag of its own, never give the same number. */
#ifndef FEDGE_AGGREGATOR_EXCHANGE_SLOTS_H
#define FEDGE_AGGREGATOR_EXCHANGE_SLOTS_H

#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_SLOTS_MAX_CAPACITY (1u << 20)
#define FEDGE_SLOTS_MAX_TAG ((1u << 12) - 1)

struct fedge_slot;

typedef struct fedge_slots {
    struct fedge_slot *slots; /* (capacity) */
    uint32_t capacity, first_free, tag;
} fedge_slots;

/* [capacity] ≤ FEDGE_SLOTS_MAX_CAPACITY, [tag] ≤ FEDGE_SLOTS_MAX_TAG. */
FEDGE_MUST_USE fedge_status fedge_slots_init(fedge_slots *slots, uint32_t capacity, uint32_t tag,
                                             fedge_error *err);
void fedge_slots_fini(fedge_slots *slots); /* all zero is fine */

/* A number ≥ 1 for [thing], which is not NULL. There is room: at most [capacity] have one. */
uint64_t fedge_slots_take(fedge_slots *slots, void *thing);
/* The number names nothing any more. */
void fedge_slots_give_back(fedge_slots *slots, uint64_t id);
/* NULL: the number was given back, or is of another tag. */
void *fedge_slots_find(const fedge_slots *slots, uint64_t id);
/* The tag of the table that gave this number. */
uint32_t fedge_slots_tag(uint64_t id);

#endif

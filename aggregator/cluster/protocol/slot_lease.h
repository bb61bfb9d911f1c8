/* Slot leases: that an update counts once, whichever ranks its client sends it to.
 *
 * Rank 0 keeps a lease for each slot of the phase. A client announces its update through some rank,
 * which is given the slot by rank 0 before it takes a byte, and holds it until the update counts,
 * is refused, or rank 0 wants the slot back because the client has gone to another rank. So at most
 * one rank at a time can make an update of the slot durable. Pure: no I/O, no clock.
 *
 *     rank 0          ask, released, validated  →  what to do (fedge_slot_lease_action)
 *     another rank    grant, finish, recall, validated  →  what to say
 *
 * What two ranks say to each other comes in the order in which it was said; to each recall there is
 * one answer: that the slot is released, or that its update is valid. What clients say may come
 * twice or not at all.
 */
#ifndef FEDGE_AGGREGATOR_CLUSTER_PROTOCOL_SLOT_LEASE_H
#define FEDGE_AGGREGATOR_CLUSTER_PROTOCOL_SLOT_LEASE_H

#include <stdbool.h>
#include <stdint.h>

/* ---- rank 0 ---------------------------------------------------------------------------------- */

typedef enum fedge_slot_lease_state {
    FEDGE_LEASE_FREE,     /* nobody has the slot */
    FEDGE_LEASE_HELD,     /* [rank] has it, for [task_id] */
    FEDGE_LEASE_RECALLED, /* likewise, and is to give it back: another has asked */
    FEDGE_LEASE_COUNTED   /* an update of the slot is durable and counts */
} fedge_slot_lease_state;

typedef enum fedge_slot_lease_action {
    FEDGE_LEASE_WAIT,      /* nothing now */
    FEDGE_LEASE_GRANT,     /* give the slot to lease->rank, for lease->task_id, by lease->number */
    FEDGE_LEASE_RECALL,    /* tell lease->rank to give it back */
    FEDGE_LEASE_SAY_FILLED /* who has asked hears that the slot is filled */
} fedge_slot_lease_action;

/* All zero: free. */
typedef struct fedge_slot_lease {
    fedge_slot_lease_state state;
    uint32_t rank;
    uint64_t task_id;
    uint32_t number;     /* of the last grant */
    uint32_t asked_rank; /* RECALLED: for whom; the last that has asked */
    uint64_t asked_task;
} fedge_slot_lease;

/* A client announces the update of a task that the slot works for, at [rank]. */
fedge_slot_lease_action fedge_slot_lease_request(fedge_slot_lease *lease, uint32_t rank,
                                                 uint64_t task_id);
/* The rank that was told to has given the slot back. */
fedge_slot_lease_action fedge_slot_lease_released(fedge_slot_lease *lease, uint32_t rank);
/* What [rank] held was found valid and is durable, or was refused. [number]: of the last grant that
 * it had had by then; a newer one may have crossed the result. */
fedge_slot_lease_action fedge_slot_lease_validated(fedge_slot_lease *lease, uint32_t rank,
                                                   uint32_t number, bool valid);

/* ---- the rank that has the slot -------------------------------------------------------------- */

/* All zero: it has not. */
typedef struct fedge_slot_holder {
    uint64_t task_id;
    uint32_t number; /* of the last grant */
    bool uploading;  /* bytes may come */
    bool finishing;  /* all are there; they are looked at */
    bool recalled;   /* likewise, and rank 0 waits for it */
    bool accepted;   /* it has one that is valid and durable: it takes no other */
} fedge_slot_holder;

typedef enum fedge_slot_holder_answer {
    FEDGE_HOLDER_IGNORE, /* the result is under way */
    FEDGE_HOLDER_RESUME, /* go on with the bytes of this task that are there, if it is the same
                          * update
                          */
    FEDGE_HOLDER_BEGIN   /* from the first byte */
} fedge_slot_holder_answer;

fedge_slot_holder_answer fedge_slot_holder_grant(fedge_slot_holder *holder, uint64_t task_id,
                                                 uint32_t number);
void fedge_slot_holder_finish(fedge_slot_holder *holder);
/* True: released, which is to be said now. False: the result will be the answer. */
bool fedge_slot_holder_recall(fedge_slot_holder *holder);
/* True: after the result it is to be said that the slot is released. */
bool fedge_slot_holder_validated(fedge_slot_holder *holder, bool valid);

#endif

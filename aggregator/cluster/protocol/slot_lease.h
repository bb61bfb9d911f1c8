/* Slot leases: an update counts once, whichever ranks its client sends it to.
 *
 * Rank 0 has a lease for each slot of the phase. A client announces its update through some rank.
 * Rank 0 leases the slot to that rank before it takes a byte. The rank is the slot's holder until
 * the update counts, is refused, or rank 0 recalls the slot because the client has moved to another
 * rank. So at most one rank at a time can make an update of the slot durable. Pure: no I/O, no
 * clock.
 *
 *   rank 0      request, give up, released,       → what to do (fedge_slot_lease_action)
 *               validated
 *   the holder  grant, finish, recall, validated  → what to answer
 *
 * Messages between two ranks arrive in order. Each recall has one answer: the slot is released, or
 * its update is valid. Messages of clients may arrive twice or not at all.
 */
#ifndef FEDGE_AGGREGATOR_CLUSTER_PROTOCOL_SLOT_LEASE_H
#define FEDGE_AGGREGATOR_CLUSTER_PROTOCOL_SLOT_LEASE_H

#include <stdbool.h>
#include <stdint.h>

/* ---- rank 0 ---------------------------------------------------------------------------------- */

typedef enum fedge_slot_lease_state {
    FEDGE_LEASE_FREE,     /* no rank has the slot */
    FEDGE_LEASE_HELD,     /* [rank] has the slot, for [task_id] */
    FEDGE_LEASE_RECALLED, /* rank 0 has recalled it from [rank], for [asked_rank] or to give up
                             [task_id] */
    FEDGE_LEASE_COUNTED   /* an update of the slot is durable and counts */
} fedge_slot_lease_state;

typedef enum fedge_slot_lease_action {
    FEDGE_LEASE_WAIT,   /* do nothing now */
    FEDGE_LEASE_GRANT,  /* give the slot to lease->rank, for lease->task_id, by lease->number */
    FEDGE_LEASE_RECALL, /* ask lease->rank to release it */
    FEDGE_LEASE_ANSWER_FILLED, /* answer the last announcement: the slot is filled, by task_id */
    FEDGE_LEASE_GIVE_UP        /* give up lease->task_id: no rank can have its update any more */
} fedge_slot_lease_action;

/* All zero: free. */
typedef struct fedge_slot_lease {
    fedge_slot_lease_state state;
    uint32_t rank;
    uint64_t task_id;
    uint32_t number;     /* number of the last grant */
    uint32_t asked_rank; /* RECALLED: the rank that asked last, which gets the slot next */
    uint64_t asked_task; /* 0: none, [task_id] is given up */
} fedge_slot_lease;

/* A client announces the update of the slot's task through [rank]. */
fedge_slot_lease_action fedge_slot_lease_request(fedge_slot_lease *lease, uint32_t rank,
                                                 uint64_t task_id);
/* [task_id] is to be given up. The holder might still have its update: the slot comes back first,
 * and goes to the rank that asks for it meanwhile. */
fedge_slot_lease_action fedge_slot_lease_give_up(fedge_slot_lease *lease, uint64_t task_id);
/* [rank] has released the slot after a recall. */
fedge_slot_lease_action fedge_slot_lease_released(fedge_slot_lease *lease, uint32_t rank);
/* The update at [rank] is valid and durable, or was refused. [number]: the last grant that the rank
 * had received by then; a newer one may have crossed the result. */
fedge_slot_lease_action fedge_slot_lease_validated(fedge_slot_lease *lease, uint32_t rank,
                                                   uint32_t number, bool valid);

/* ---- the holder ------------------------------------------------------------------------------ */

/* All zero: this rank does not hold the slot. */
typedef struct fedge_slot_holder {
    uint64_t task_id;
    uint32_t number; /* number of the last grant */
    bool uploading;  /* bytes may come */
    bool finishing;  /* all bytes are received and being validated */
    bool recalled;   /* [finishing], and rank 0 waits for the slot */
    bool accepted;   /* it has a valid, durable update and takes no other */
} fedge_slot_holder;

typedef enum fedge_slot_holder_answer {
    FEDGE_HOLDER_IGNORE, /* the result is on its way */
    FEDGE_HOLDER_RESUME, /* continue after the bytes received, if it is the same update */
    FEDGE_HOLDER_BEGIN   /* start again with the first byte */
} fedge_slot_holder_answer;

fedge_slot_holder_answer fedge_slot_holder_grant(fedge_slot_holder *holder, uint64_t task_id,
                                                 uint32_t number);
void fedge_slot_holder_finish(fedge_slot_holder *holder);
/* True: report the slot as released now. False: the result will be the answer. */
bool fedge_slot_holder_recall(fedge_slot_holder *holder);
/* True: after the result, report the slot as released. */
bool fedge_slot_holder_validated(fedge_slot_holder *holder, bool valid);

#endif

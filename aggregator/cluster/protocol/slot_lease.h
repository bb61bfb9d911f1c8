/* Claims: that an update counts once, whichever ranks its client sends it to.
 *
 * Rank 0 keeps a claim for each slot of the phase. A client announces its update through some rank,
 * which is given the slot by rank 0 before it takes a byte, and holds it until the update counts,
 * is refused, or rank 0 wants the slot back because the client has gone to another rank. So at most
 * one rank at a time can make an update of the slot durable. Pure: no I/O, no clock.
 *
 *     rank 0          ask, released, validated  →  what to do (fedge_claim_action)
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

typedef enum fedge_claim_state {
    FEDGE_CLAIM_FREE,     /* nobody has the slot */
    FEDGE_CLAIM_HELD,     /* [rank] has it, for [task_id] */
    FEDGE_CLAIM_RECALLED, /* likewise, and is to give it back: another has asked */
    FEDGE_CLAIM_COUNTED   /* an update of the slot is durable and counts */
} fedge_claim_state;

typedef enum fedge_claim_action {
    FEDGE_CLAIM_WAIT,   /* nothing now */
    FEDGE_CLAIM_GRANT,  /* give the slot to claim->rank, for claim->task_id, by claim->number */
    FEDGE_CLAIM_RECALL, /* tell claim->rank to give it back */
    FEDGE_CLAIM_TELL    /* who has asked hears that the slot is filled */
} fedge_claim_action;

/* All zero: free. */
typedef struct fedge_claim {
    fedge_claim_state state;
    uint32_t rank;
    uint64_t task_id;
    uint32_t number;     /* of the last grant */
    uint32_t asked_rank; /* RECALLED: for whom; the last that has asked */
    uint64_t asked_task;
} fedge_claim;

/* A client announces the update of a task that the slot works for, at [rank]. */
fedge_claim_action fedge_claim_ask(fedge_claim *claim, uint32_t rank, uint64_t task_id);
/* The rank that was told to has given the slot back. */
fedge_claim_action fedge_claim_released(fedge_claim *claim, uint32_t rank);
/* What [rank] held was found valid and is durable, or was refused. [number]: of the last grant that
 * it had had by then; a newer one may have crossed the result. */
fedge_claim_action fedge_claim_validated(fedge_claim *claim, uint32_t rank, uint32_t number,
                                         bool valid);

/* ---- the rank that has the slot -------------------------------------------------------------- */

/* All zero: it has not. */
typedef struct fedge_hold {
    uint64_t task_id;
    uint32_t number; /* of the last grant */
    bool uploading;  /* bytes may come */
    bool finishing;  /* all are there; they are looked at */
    bool recalled;   /* likewise, and rank 0 waits for it */
    bool accepted;   /* it has one that is valid and durable: it takes no other */
} fedge_hold;

typedef enum fedge_hold_answer {
    FEDGE_HOLD_IGNORE, /* the result is under way */
    FEDGE_HOLD_RESUME, /* go on with the bytes of this task that are there, if it is the same update
                        */
    FEDGE_HOLD_BEGIN   /* from the first byte */
} fedge_hold_answer;

fedge_hold_answer fedge_hold_grant(fedge_hold *hold, uint64_t task_id, uint32_t number);
void fedge_hold_finish(fedge_hold *hold);
/* True: released, which is to be said now. False: the result will be the answer. */
bool fedge_hold_recall(fedge_hold *hold);
/* True: after the result it is to be said that the slot is released. */
bool fedge_hold_validated(fedge_hold *hold, bool valid);

#endif

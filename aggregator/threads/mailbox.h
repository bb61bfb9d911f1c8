/* Mailboxes: the only way to send data from one thread to another, in order. Items are structs of
 * the sender that begin with a fedge_mailbox_item; the receiver owns them. */
#ifndef FEDGE_AGGREGATOR_THREADS_MAILBOX_H
#define FEDGE_AGGREGATOR_THREADS_MAILBOX_H

#include <stdint.h>

#include "edge/core/status.h"

typedef struct fedge_mailbox_item {
    struct fedge_mailbox_item *next;
} fedge_mailbox_item;

typedef struct fedge_mailbox fedge_mailbox;

/* [wake] is called after every post on the sender's thread; it must be thread-safe. May be NULL. */
FEDGE_MUST_USE fedge_status fedge_mailbox_new(fedge_mailbox **mailbox, void (*wake)(void *user),
                                              void *user, fedge_error *err);
/* It must be empty, since only the receiver can free items. NULL is allowed. */
void fedge_mailbox_free(fedge_mailbox *mailbox);

/* Takes ownership of [item]. The sender allocates it before its work, so that a result is never
 * lost for lack of memory. */
void fedge_mailbox_post(fedge_mailbox *mailbox, fedge_mailbox_item *item);

/* All items, oldest first, as a list that the caller frees one by one; NULL if there is none. */
fedge_mailbox_item *fedge_mailbox_take(fedge_mailbox *mailbox);

/* ---- completions: results of the run's other threads
 * ----------------------------------------------- */

typedef enum fedge_completion_type {
    FEDGE_COMPLETION_VALIDATED, /* an upload was decoded, journalled, synced and summed, or refused
                                 */
    FEDGE_COMPLETION_RESUME,    /* a full ingest queue has drained to half */
    FEDGE_COMPLETION_OPENED, /* a phase is journalled and its disk space reserved, or this failed */
    FEDGE_COMPLETION_CLOSED, /* a phase is summed, stepped and checkpointed */
    FEDGE_COMPLETION_FATAL   /* the disk failed: the process must stop */
} fedge_completion_type;

typedef struct fedge_completion {
    fedge_mailbox_item item;
    fedge_completion_type type;
    uint64_t task_id; /* VALIDATED */
    uint32_t slot;    /* VALIDATED */
    fedge_status status;
    char message[FEDGE_ERROR_MESSAGE_SIZE]; /* set when status is not FEDGE_OK */
    void *result; /* OPENED, CLOSED: fedge_round_finalizer_result *, owned by the receiver */
} fedge_completion;

#endif

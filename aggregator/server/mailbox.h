/* The way back from worker threads to the service thread: completions, in order of arrival. */
#ifndef FEDGE_AGGREGATOR_SERVER_MAILBOX_H
#define FEDGE_AGGREGATOR_SERVER_MAILBOX_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

typedef enum fedge_mail_type {
    FEDGE_MAIL_VALIDATED, /* an upload was decoded, journalled, synced and summed, or refused */
    FEDGE_MAIL_RELIEVED,  /* a full ingest queue has room again */
    FEDGE_MAIL_OPENED,    /* a phase is journalled and its room reserved, or not */
    FEDGE_MAIL_CLOSED,    /* a phase is summed, stepped and checkpointed */
    FEDGE_MAIL_FATAL      /* the disk failed: the process must stop */
} fedge_mail_type;

typedef struct fedge_mail {
    struct fedge_mail *next;
    fedge_mail_type type;
    uint64_t task_id; /* VALIDATED */
    fedge_status status;
    char message[FEDGE_ERROR_MESSAGE_SIZE]; /* when status is not FEDGE_OK */
    void *result; /* CLOSED: fedge_closed_round *, owned by the receiver */
} fedge_mail;

typedef struct fedge_mailbox fedge_mailbox;

/* [wake] is called after every post, on the poster's thread; it must be thread-safe. */
FEDGE_MUST_USE fedge_status fedge_mailbox_new(fedge_mailbox **mailbox, void (*wake)(void *user),
                                              void *user, fedge_error *err);
void fedge_mailbox_free(fedge_mailbox *mailbox); /* and what is in it; NULL is fine */

/* Takes ownership of [mail], which the poster allocated before its work began, so that a result is
 * never lost for want of memory. */
void fedge_mailbox_post(fedge_mailbox *mailbox, fedge_mail *mail);

/* All mail, oldest first, as a list that the caller frees one by one; NULL when there is none. */
fedge_mail *fedge_mailbox_take(fedge_mailbox *mailbox);

#endif

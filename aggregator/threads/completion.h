/* What threads that work for the engine tell it when they are done. */
#ifndef FEDGE_AGGREGATOR_THREADS_COMPLETION_H
#define FEDGE_AGGREGATOR_THREADS_COMPLETION_H

#include <stdint.h>

#include "aggregator/threads/mailbox.h"
#include "edge/core/status.h"

typedef enum fedge_completion_type {
    FEDGE_COMPLETION_VALIDATED, /* an upload was decoded, journalled, synced and summed, or refused
                                 */
    FEDGE_COMPLETION_ROOM,      /* a full ingest queue has room again */
    FEDGE_COMPLETION_OPENED,    /* a phase is journalled and its room reserved, or not */
    FEDGE_COMPLETION_CLOSED,    /* a phase is summed, stepped and checkpointed */
    FEDGE_COMPLETION_FATAL      /* the disk failed: the process must stop */
} fedge_completion_type;

typedef struct fedge_completion {
    fedge_mailbox_item item;
    fedge_completion_type type;
    uint64_t task_id; /* VALIDATED */
    uint32_t slot;    /* VALIDATED */
    fedge_status status;
    char message[FEDGE_ERROR_MESSAGE_SIZE]; /* when status is not FEDGE_OK */
    void *result; /* OPENED, CLOSED: fedge_round_finalizer_result *, owned by the receiver */
} fedge_completion;

#endif

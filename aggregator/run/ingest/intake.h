/* Intake: the uploads of a phase whose bytes come to this rank, each from the grant of its slot
 * (ranks/lease.h) to the end of its bytes, which the ingest's workers then look at.
 *
 * One thread's: the engine's on rank 0 and alone, the share's on the other ranks.
 */
#ifndef FEDGE_AGGREGATOR_RUN_INGEST_INTAKE_H
#define FEDGE_AGGREGATOR_RUN_INGEST_INTAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/cluster/protocol/slot_lease.h"
#include "aggregator/exchange/exchange.h"
#include "aggregator/run/ingest/ingest.h"
#include "aggregator/store/journal.h"
#include "edge/core/status.h"

/* A slot's update may come over this connection. */
typedef struct fedge_grant {
    uint32_t slot;
    uint32_t number; /* of the lease */
    fedge_journal_task task;
    uint64_t conn_id;
    fedge_ingest_upload *incoming; /* malloc'ed */
} fedge_grant;
void fedge_grant_free(fedge_grant *grant); /* malloc'ed; NULL is fine */

typedef struct fedge_intake_slot {
    fedge_slot_holder holder;
    uint64_t assigned; /* the task that the journal's slot works for, once what is queued is done */
    uint64_t conn_id;
    uint64_t next;                 /* bytes received */
    uint64_t started_ms;           /* of the upload */
    double seconds_upload;         /* once all bytes have come */
    bool carried;                  /* the journal has bytes of the phase before; not granted yet */
    bool again;                    /* announced more than once on its connection */
    fedge_ingest_upload *incoming; /* malloc'ed; NULL when none. With [skips] it stays when all
                                      bytes have come: the phase may close before it counts */
} fedge_intake_slot;

/* Plain data. [ingest] and [reply] are set by its owner. */
typedef struct fedge_intake {
    fedge_ingest *ingest;
    /* Takes an answer to a connection, which is its own from then on. */
    void (*reply)(void *user, fedge_reply *reply);
    void *user;
    bool skips; /* uploads go on from one phase into the next: parts that were under way when one
                   closed are left out, and come again */
    fedge_journal *journal; /* not its own; NULL between phases */
    fedge_intake_slot *slots;
    uint32_t num_slots;
} fedge_intake;

/* A phase begins, or ends: then nothing more is taken, and what is with the workers is theirs. */
FEDGE_MUST_USE fedge_status fedge_intake_begin(fedge_intake *intake, fedge_journal *journal,
                                               fedge_error *err);
void fedge_intake_end(fedge_intake *intake);

/* The slot works for [task] from now on. */
FEDGE_MUST_USE fedge_status fedge_intake_assign(fedge_intake *intake, uint32_t slot,
                                                const fedge_journal_task *task, fedge_error *err);
/* Tells the client from which byte on to send. Takes grant->incoming. Failures, here and below,
 * are for the whole program; a client that there is no memory for is told so. */
FEDGE_MUST_USE fedge_status fedge_intake_grant(fedge_intake *intake, fedge_grant *grant,
                                               uint64_t now_ms, fedge_error *err);
/* The slot that is granted to this task; false: none. */
bool fedge_intake_find(const fedge_intake *intake, uint64_t task_id, uint32_t *slot);
/* Bytes of the slot's upload; may take the request's frame. A part that does not go on where the
 * last one ended costs its sender the connection, unless it has announced its update more than once
 * on it. */
FEDGE_MUST_USE fedge_status fedge_intake_part(fedge_intake *intake, uint32_t slot,
                                              fedge_request *from, uint64_t now_ms,
                                              fedge_error *err);
/* As fedge_slot_holder_recall and fedge_slot_holder_validated. */
bool fedge_intake_recall(fedge_intake *intake, uint32_t slot);
bool fedge_intake_validated(fedge_intake *intake, uint32_t slot, bool valid);

#endif

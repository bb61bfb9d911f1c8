/* Intake: the uploads of a phase that come to this rank, each from the grant of its slot
 * (aggregator/cluster/protocol/slot_lease.h) to its last byte, with which the ingest workers
 * validate it. An upload that resumes gets its first byte here: fedge_intake_grant.
 *
 * One thread uses it: the engine's on rank 0, the rank worker's on the other ranks.
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

/* Permission to send the update of a slot over a connection. */
typedef struct fedge_grant {
    uint32_t slot;
    uint32_t number; /* number of the lease's grant */
    fedge_journal_task task;
    uint64_t conn_id;
    fedge_ingest_upload *incoming; /* malloc'ed */
} fedge_grant;
void fedge_grant_free(fedge_grant *grant); /* malloc'ed; NULL is fine */

typedef struct fedge_intake_slot {
    fedge_slot_holder holder;
    uint64_t assigned; /* task that the journal's slot is for, once the queued work is done */
    uint64_t conn_id;
    uint64_t next;         /* bytes received */
    uint64_t started_ms;   /* time when the upload began */
    double seconds_upload; /* known once all bytes are received */
    bool carried;          /* the journal has bytes of the phase before, and no grant came yet */
    bool reannounced;      /* the update was announced more than once on this connection */
    fedge_ingest_upload *incoming; /* malloc'ed; NULL: none. With [skips] it stays after the last
                                      byte: the phase may close before the update counts */
} fedge_intake_slot;

/* Plain data. The owner sets [ingest], [reply], [user] and [skips]. */
typedef struct fedge_intake {
    fedge_ingest *ingest;
    /* Takes over a reply to a connection. */
    void (*reply)(void *user, fedge_reply *reply);
    void *user;
    bool skips; /* uploads continue from one phase into the next: parts on their way when a phase
                   closes are skipped, and sent again */
    fedge_journal *journal; /* borrowed; NULL between phases */
    fedge_intake_slot *slots;
    uint32_t num_slots;
} fedge_intake;

/* Begins a phase, or ends it: then no bytes are taken, and uploads handed to the workers are
 * theirs. */
FEDGE_MUST_USE fedge_status fedge_intake_begin(fedge_intake *intake, fedge_journal *journal,
                                               fedge_error *err);
void fedge_intake_end(fedge_intake *intake);

/* The slot is for [task] from now on. */
FEDGE_MUST_USE fedge_status fedge_intake_assign(fedge_intake *intake, uint32_t slot,
                                                const fedge_journal_task *task, fedge_error *err);
/* Answers RESUME with the byte to send from: where the same upload stopped on this rank, or 0.
 * Takes over grant->incoming. A failure, here and below, is fatal for the program; a client without
 * memory for its upload gets an answer instead. */
FEDGE_MUST_USE fedge_status fedge_intake_grant(fedge_intake *intake, fedge_grant *grant,
                                               uint64_t now_ms, fedge_error *err);
/* Finds the slot granted to this task; false: none. */
bool fedge_intake_find(const fedge_intake *intake, uint64_t task_id, uint32_t *slot);
/* Takes bytes of the slot's upload, and perhaps the request's frame. A part that does not continue
 * at the next byte closes its connection, unless the update was announced more than once on it. */
FEDGE_MUST_USE fedge_status fedge_intake_part(fedge_intake *intake, uint32_t slot,
                                              fedge_request *from, uint64_t now_ms,
                                              fedge_error *err);
/* Apply fedge_slot_holder_recall and fedge_slot_holder_validated to the slot's holder. */
bool fedge_intake_recall(fedge_intake *intake, uint32_t slot);
bool fedge_intake_validated(fedge_intake *intake, uint32_t slot, bool valid);

#endif

/* Ingest workers: from the bytes of an upload to a validated, durable, summed update.
 *
 *   write   the bytes go to the task's slot in the journal as they arrive
 *   finish  the update is read back, inflated, checked against every bound, and appended to the
 *           journal's log; after the next sync, which covers all waiting updates (group commit), it
 *           is added to the sums and FEDGE_COMPLETION_VALIDATED is posted: the ACK may go out
 *
 * Intake (intake.h) calls write, finish, assign and rewind on its own thread: the engine's, or a
 * rank worker's. Each queues work for the worker of its slot; completions go to the mailbox of that
 * thread.
 *
 * An update goes to the accumulator when all of its bytes are there, not as they arrive. An upload
 * may take minutes and resume after a break, and nothing of it may count before its checksum is
 * right. A GPU holds some tens of updates: a slow upload would occupy one of these places for
 * minutes, and a deflated one the state of its inflation, too. Waiting costs little: bytes that
 * came at 250 MB/s go from the page cache to a GPU two hundred times as fast.
 *
 * All work of one slot runs on one worker, in order. A worker has at most one inflated update at a
 * time, and all workers together as many as there are buffers (upload.h); a worker without a buffer
 * waits. Hence a CPU adds an inflated update at once and alone: a queue of 16 would take 16 buffers
 * a worker, each as large as the model. A GPU has copied the update, so it is added with its group.
 * Each queue has a limit in bytes; above it the caller stops reading from the peer.
 */
#ifndef FEDGE_AGGREGATOR_RUN_INGEST_INGEST_H
#define FEDGE_AGGREGATOR_RUN_INGEST_INGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/run/ingest/upload.h"
#include "aggregator/store/journal.h"
#include "aggregator/threads/mailbox.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

#define FEDGE_INGEST_MAX_WORKERS FEDGE_UPLOAD_BUFFERS_MAX
#define FEDGE_INGEST_QUEUE_BYTES ((uint64_t)8 << 20) /* limit of one worker's queue */
#define FEDGE_INGEST_MAX_GROUP 64                    /* updates per sync */
#define FEDGE_INGEST_GROUP_NS ((uint64_t)200000000)  /* longest wait for more updates */

typedef struct fedge_ingest fedge_ingest;

/* [plan], [accumulator] and [mailbox] outlive the workers. */
FEDGE_MUST_USE fedge_status fedge_ingest_new(fedge_ingest **ingest, const fedge_plan *plan,
                                             fedge_accumulator *accumulator, fedge_mailbox *mailbox,
                                             uint32_t num_workers, fedge_error *err);
/* Waits for the queues to empty, then ends the threads. NULL is fine. */
void fedge_ingest_free(fedge_ingest *ingest);

/* Bytes of an upload. */
typedef struct fedge_ingest_part {
    uint64_t task_id, offset;
    const uint8_t *data; /* (size) */
    uint32_t size;
} fedge_ingest_part;

/* Queues bytes for a slot. part->data lies in the malloc'ed *block, which is taken over and set to
 * NULL (not on failure); where [block] is NULL, it is copied. *full is set when the worker's queue
 * is over its limit: stop reading from this peer until FEDGE_COMPLETION_RESUME. [journal] stays
 * open until a flush. */
FEDGE_MUST_USE fedge_status fedge_ingest_write(fedge_ingest *ingest, fedge_journal *journal,
                                               uint32_t slot, const fedge_ingest_part *part,
                                               uint8_t **block, bool *full, fedge_error *err);

/* An announced upload, as its client describes it. */
typedef struct fedge_ingest_upload {
    fedge_upload upload;
    uint32_t weight; /* weight in the sum, 1 to the job's maximum */
    uint32_t meta_size;
    char meta[FEDGE_MESSAGE_MAX_META]; /* the UPLOAD's JSON, as received */
} fedge_ingest_upload;

/* Queues the end of an upload; FEDGE_COMPLETION_VALIDATED follows. Takes ownership of [upload]
 * (malloc'ed), also on failure. */
FEDGE_MUST_USE fedge_status fedge_ingest_finish(fedge_ingest *ingest, fedge_journal *journal,
                                                uint32_t slot, fedge_ingest_upload *upload,
                                                fedge_error *err);

/* Queues the record of a slot's new task, behind all work of the old one. When the journal has no
 * room for it, FEDGE_COMPLETION_VALIDATED with FEDGE_STALE reports the task as lost. */
FEDGE_MUST_USE fedge_status fedge_ingest_assign(fedge_ingest *ingest, fedge_journal *journal,
                                                uint32_t slot, const fedge_journal_task *task,
                                                fedge_error *err);

/* Queues that the slot's upload begins again at byte 0. */
FEDGE_MUST_USE fedge_status fedge_ingest_rewind(fedge_ingest *ingest, fedge_journal *journal,
                                                uint32_t slot, uint64_t task_id, fedge_error *err);

/* Waits until all queued work is done, synced, summed and answered. Not on a worker. If a worker
 * has failed, now or before, returns that failure: the sums may lack updates that the journal has,
 * and must not be used. */
FEDGE_MUST_USE fedge_status fedge_ingest_flush(fedge_ingest *ingest, fedge_error *err);

/* Reads an accepted update of [journal] back and adds it to [accumulator], for recovery. */
FEDGE_MUST_USE fedge_status fedge_ingest_replay(const fedge_plan *plan,
                                                fedge_accumulator *accumulator,
                                                fedge_journal *journal, uint32_t slot,
                                                const fedge_upload *upload, uint32_t weight,
                                                fedge_error *err);

typedef struct fedge_ingest_stats {
    uint64_t queued_bytes;
    uint64_t validate_ns, journal_ns, sum_ns; /* sums over all workers since the start */
} fedge_ingest_stats;
void fedge_ingest_get_stats(const fedge_ingest *ingest, fedge_ingest_stats *stats);

#endif

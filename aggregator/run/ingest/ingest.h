/* Ingest workers: from the bytes of an upload to a validated, durable, summed update.
 *
 *   write  bytes go to the task's slot in the journal as they arrive
 *   finish read back, inflated, checked against every bound, appended to the journal's log; added
 * to the sums and acknowledged after the next sync, which covers all updates that were waiting
 *          (group commit)
 *
 * An update goes to the accumulator when all of it has come, not as its bytes arrive. An upload may
 * take minutes and go on after a break, and nothing of it may count before its checksum is right:
 * on a GPU, which holds some tens of updates, one of thousands of slow uploads would keep a place
 * all that time, and a deflated one the state of its inflation. Little is lost: what came at a
 * quarter of a gigabyte a second goes on to a GPU two hundred times as fast, from the page cache.
 *
 * All work of one slot run on one worker, in order. A worker holds at most one inflated update at a
 * time, whatever the number of clients, and all of them as many as upload.h
 * has room for: a worker waits for another's buffer. So a CPU adds an update that had to be
 * unpacked at once and alone: a queue of 16 would take 16 buffers of each worker, 16 times the
 * model's bytes. On a GPU, which has copied it, it is added with its group. Each queue has a limit
 * in bytes; who exceeds it is told, and stops reading from the peer.
 */
#ifndef FEDGE_AGGREGATOR_RUN_INGEST_INGEST_H
#define FEDGE_AGGREGATOR_RUN_INGEST_INGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/run/ingest/upload.h"
#include "aggregator/store/journal.h"
#include "aggregator/threads/completion.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

#define FEDGE_INGEST_MAX_WORKERS FEDGE_UPLOAD_BUFFERS_MAX
#define FEDGE_INGEST_QUEUE_BYTES ((uint64_t)8 << 20) /* per worker */
#define FEDGE_INGEST_MAX_GROUP 64                    /* updates per sync */
#define FEDGE_INGEST_GROUP_NS ((uint64_t)200000000)  /* the longest that one waits for others */

typedef struct fedge_ingest fedge_ingest;

/* [plan], [accumulator] and [mailbox] outlive the workers. */
FEDGE_MUST_USE fedge_status fedge_ingest_new(fedge_ingest **ingest, const fedge_plan *plan,
                                             fedge_accumulator *accumulator, fedge_mailbox *mailbox,
                                             uint32_t num_workers, fedge_error *err);
/* Waits for the queues to empty, then ends the threads. NULL is fine. */
void fedge_ingest_free(fedge_ingest *ingest);

/* Queues bytes for a slot. [data] lies in the malloc'ed *block, which is taken over and set to NULL
 * (not on failure), or is copied where [block] is NULL. *full is set when the worker's queue is
 * over its limit: stop reading from this peer until FEDGE_COMPLETION_ROOM. [journal] stays open
 * until a flush.
 */
FEDGE_MUST_USE fedge_status fedge_ingest_write(fedge_ingest *ingest, fedge_journal *journal,
                                               uint32_t slot, uint64_t task_id, uint64_t offset,
                                               uint8_t **block, const uint8_t *data, uint32_t size,
                                               bool *full, fedge_error *err);

/* An upload, as described by its client. */
typedef struct fedge_ingest_upload {
    fedge_upload upload;
    uint32_t weight; /* FedAvg weight, 1 to the job's maximum */
    uint32_t meta_size;
    char meta[FEDGE_MESSAGE_MAX_META]; /* the UPLOAD's JSON, as received */
} fedge_ingest_upload;

/* Queues the end of an upload; FEDGE_COMPLETION_VALIDATED follows. Takes ownership of [upload]
 * (malloc'ed), also on failure. [bounds_log2] (one per tensor) stays valid until a flush. */
FEDGE_MUST_USE fedge_status fedge_ingest_finish(fedge_ingest *ingest, fedge_journal *journal,
                                                uint32_t slot, fedge_ingest_upload *upload,
                                                const int8_t *bounds_log2, fedge_error *err);

/* Queues the record that a slot has a new task, behind all that was queued for the old one. When
 * the journal has no room for it, FEDGE_COMPLETION_VALIDATED with FEDGE_STALE says that the task is
 * lost.
 */
FEDGE_MUST_USE fedge_status fedge_ingest_assign(fedge_ingest *ingest, fedge_journal *journal,
                                                uint32_t slot, const fedge_journal_task *task,
                                                fedge_error *err);

/* Queues that the slot's upload begins anew. */
FEDGE_MUST_USE fedge_status fedge_ingest_rewind(fedge_ingest *ingest, fedge_journal *journal,
                                                uint32_t slot, uint64_t task_id, fedge_error *err);

/* Waits until everything queued before has been carried out, synced, summed and answered. Not on a
 * worker. Once a worker has failed, then or before, it returns that failure: the sums may lack what
 * the journal has, and are not to be used. */
FEDGE_MUST_USE fedge_status fedge_ingest_flush(fedge_ingest *ingest, fedge_error *err);

/* Reads an accepted update of [journal] back and adds it to [accumulator]: recovery's half of
 * finish. */
FEDGE_MUST_USE fedge_status fedge_ingest_replay(
    const fedge_plan *plan, fedge_accumulator *accumulator, fedge_journal *journal, uint32_t slot,
    const fedge_upload *upload, const int8_t *bounds_log2, uint32_t weight, fedge_error *err);

typedef struct fedge_ingest_stats {
    uint64_t queued_bytes;
    uint64_t validate_ns, journal_ns, sum_ns; /* summed over workers since the start */
} fedge_ingest_stats;
void fedge_ingest_get_stats(const fedge_ingest *ingest, fedge_ingest_stats *stats);

#endif

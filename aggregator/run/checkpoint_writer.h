/* The checkpoint writer: one thread that writes checkpoints while the next phase runs.
 *
 * A round is durable without its checkpoint: its closed journal and the checkpoint before it give
 * the same model, bit for bit (aggregator/store/recovery.h), so tasks and ACKs of the next round
 * need not wait. Older journals and checkpoints are removed once the checkpoint is written. No
 * phase ends before that, so the disk is never more than one checkpoint behind.
 */
#ifndef FEDGE_AGGREGATOR_RUN_CHECKPOINT_WRITER_H
#define FEDGE_AGGREGATOR_RUN_CHECKPOINT_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/exchange/blob.h"
#include "aggregator/store/checkpoint.h"
#include "aggregator/store/run.h"
#include "aggregator/threads/mailbox.h"
#include "edge/core/log.h"
#include "edge/core/status.h"

/* A checkpoint to be written. Owns everything but [run], which outlives it. */
typedef struct fedge_save {
    fedge_checkpoint checkpoint; /* fedge_save_write fills in its hashes */
    fedge_blob *model;           /* its first model_size bytes are the file */
    size_t model_size;
    char model_hash[FEDGE_HASH_TEXT];        /* SHA-256 of the file */
    uint8_t *strategy_state, *last_accepted; /* malloc'ed */
    size_t strategy_state_size, last_accepted_size;
    const fedge_run *run;
    uint32_t keep_checkpoints, best_round; /* arguments of fedge_retention_apply */
} fedge_save;

/* Writes the checkpoint, then applies retention to older ones. */
FEDGE_MUST_USE fedge_status fedge_save_write(fedge_save *save, fedge_error *err);
void fedge_save_free(fedge_save *save); /* NULL is fine */

typedef struct fedge_checkpoint_writer fedge_checkpoint_writer;

/* [mailbox] and [log] outlive the thread. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_writer_new(fedge_checkpoint_writer **writer,
                                                        fedge_mailbox *mailbox,
                                                        const fedge_log *log, fedge_error *err);
/* Waits for the checkpoint in progress. NULL is fine. */
void fedge_checkpoint_writer_free(fedge_checkpoint_writer *writer);

/* Takes over [save]; none may be in progress. A failure is posted as FEDGE_COMPLETION_FATAL, too.
 */
void fedge_checkpoint_writer_start(fedge_checkpoint_writer *writer, fedge_save *save);
/* Waits until the checkpoint is written and returns its status. *save: the checkpoint, which the
 * caller frees; NULL: none was started. After a failure every call returns it. */
FEDGE_MUST_USE fedge_status fedge_checkpoint_writer_wait(fedge_checkpoint_writer *writer,
                                                         fedge_save **save, fedge_error *err);

#endif

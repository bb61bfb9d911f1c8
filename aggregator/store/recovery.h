/* Recovery: reads a run's state at every start; a new run simply has none yet.
 *
 *     for (;;) {
 *         fedge_recover(&run, &recovery, err);
 *         no checkpoint (a new run)?  make the initial model, fedge_checkpoint_save it as round 0
 *         recovery.reclose?           sum the accepted updates of recovery.journal, step,
 *                                     append to the round log, fedge_checkpoint_save as
 *                                     round last_closed + 1: the same bits as the first time
 *         else break
 *         fedge_recovery_fini(&recovery);
 *     }
 *     fedge_rounds_restore(rounds, recovery.last_closed, recovery.attempt, recovery.next_task_id,
 *                          recovery.wanted, recovery.tasks, recovery.num_tasks, now, err);
 *
 * A crash between the end of a phase and its checkpoint and a checkpoint damaged by the disk are
 * the same case: the journal records the end of the phase, so its round is closed again. If updates
 * in that journal are damaged too, the round is reopened, provided that it is the last.
 */
#ifndef FEDGE_AGGREGATOR_STORE_RECOVERY_H
#define FEDGE_AGGREGATOR_STORE_RECOVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/rounds.h"
#include "aggregator/store/checkpoint.h"
#include "aggregator/store/journal.h"
#include "aggregator/store/run.h"
#include "edge/core/status.h"

/* Task ids of evaluations are not journalled. A start therefore skips this many: more than can have
 * been issued since the last checkpoint, the open phase's journal and the previous start
 * (fedge_run_begin_task_ids), so no id is used twice. */
#define FEDGE_RECOVERY_TASK_ID_GAP ((uint64_t)1 << 20)

typedef struct fedge_recovery {
    bool has_checkpoint;
    fedge_checkpoint_data checkpoint; /* valid if has_checkpoint */
    uint32_t last_closed;             /* round of the checkpoint */
    uint32_t attempt;         /* attempt at round last_closed + 1: the open one, or the next */
    uint64_t next_task_id;    /* ≥ 1; a resumed run skips FEDGE_RECOVERY_TASK_ID_GAP */
    fedge_journal *journal;   /* journal of round last_closed + 1, open or closed; NULL: none */
    bool reclose;             /* true: the journal is closed, but not its round */
    uint32_t wanted;          /* reports that close the journal's phase */
    fedge_rounds_task *tasks; /* one per slot: OPEN, REPORTED, or LOST when its client has a newer
                                 task; NULL without a journal */
    uint32_t num_tasks;
    char note[1024]; /* repairs, in words for the log; "": none */
} fedge_recovery;

/* Errors as of fedge_checkpoint_load_newest and fedge_journal_recover. FEDGE_CORRUPT also when a
 * run has journals but no checkpoint, or a journal of another run or base model. */
FEDGE_MUST_USE fedge_status fedge_recover(const fedge_run *run, fedge_recovery *recovery,
                                          fedge_error *err);
/* Rebuilds recovery->tasks from the journal after its updates have changed. */
FEDGE_MUST_USE fedge_status fedge_recovery_take_tasks(fedge_recovery *recovery, fedge_error *err);
/* Reopens the round of a journal that was to be closed again but has lost updates. First removes
 * later checkpoints, all of which are damaged, and later journals: the next start would take these
 * for a loss and their rounds for open. */
FEDGE_MUST_USE fedge_status fedge_recovery_reopen(const fedge_run *run, fedge_recovery *recovery,
                                                  fedge_error *err);
/* The caller sets to NULL what it has taken over: the journal or bytes of the checkpoint. */
void fedge_recovery_fini(fedge_recovery *recovery);

/* Removes all checkpoints but the newest [keep] ≥ 1 and that of round [best] (0: none), and the
 * journals of rounds before the oldest of the newest. Call it after saving a checkpoint. It never
 * touches an open phase. */
FEDGE_MUST_USE fedge_status fedge_retention_apply(const fedge_run *run, uint32_t keep,
                                                  uint32_t best, fedge_error *err);

#endif

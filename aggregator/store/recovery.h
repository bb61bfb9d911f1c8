/* Recovery: where a run stands. Every start goes through it; a new run just has nothing yet.
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
 * A crash between the end of a phase and its checkpoint, and a checkpoint that the disk has
 * damaged, are the same case: the journal has the end of the phase, so its round is closed again.
 * Where updates of that journal are damaged as well, the round is open again, if it is the last.
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

/* Task ids of evaluations are not journalled; a start skips as many as can have been issued since
 * the last checkpoint, the open phase's journal and the start before it (fedge_run_begin_task_ids),
 * so that no id is ever used twice. */
#define FEDGE_RECOVERY_TASK_ID_GAP ((uint64_t)1 << 20)

typedef struct fedge_recovery {
    bool has_checkpoint;
    fedge_checkpoint_data checkpoint; /* when has_checkpoint */
    uint32_t last_closed;             /* round of the checkpoint */
    uint32_t attempt;                 /* of round last_closed + 1: the open or the next one */
    uint64_t next_task_id;    /* from 1; FEDGE_RECOVERY_TASK_ID_GAP skipped in a resumed run */
    fedge_journal *journal;   /* of round last_closed + 1, open or closed; NULL when none */
    bool reclose;             /* the journal is closed: see above */
    uint32_t wanted;          /* of the journal's phase */
    fedge_rounds_task *tasks; /* one per slot, OPEN or REPORTED, or LOST: its client has
                                 another since; NULL without a journal */
    uint32_t num_tasks;
    char note[1024]; /* what had to be repaired, for the log; "" when nothing */
} fedge_recovery;

/* Errors as fedge_checkpoint_load_newest and fedge_journal_recover; FEDGE_CORRUPT too when a run
 * has journals but no checkpoint, or a journal of another run or base model. */
FEDGE_MUST_USE fedge_status fedge_recover(const fedge_run *run, fedge_recovery *recovery,
                                          fedge_error *err);
/* [recovery]->tasks as its journal has them now, after updates of it were found or lost. */
FEDGE_MUST_USE fedge_status fedge_recovery_take_tasks(fedge_recovery *recovery, fedge_error *err);
/* Updates of the journal that was to be closed again are gone: its round is open again. What is
 * left of later checkpoints goes first, all of them damaged, and so do later journals: the next
 * start would take them for a loss, and the rounds after it for open already. */
FEDGE_MUST_USE fedge_status fedge_recovery_reopen(const fedge_run *run, fedge_recovery *recovery,
                                                  fedge_error *err);
/* Frees what it holds; a journal (or checkpoint bytes) that the caller took over must be NULL. */
void fedge_recovery_fini(fedge_recovery *recovery);

/* Removes all but the newest [keep] ≥ 1 checkpoints and that of round [best] (0: none is kept for
 * being the best), and journals of rounds before the oldest of the newest. To be called after a
 * checkpoint was saved; never touches an open phase. */
FEDGE_MUST_USE fedge_status fedge_retention_apply(const fedge_run *run, uint32_t keep,
                                                  uint32_t best, fedge_error *err);

#endif

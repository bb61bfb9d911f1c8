/* The closer: one thread that opens and ends phases, so that the service thread never waits for the
 * disk, the sum or the evaluation. One job at a time; each is answered by mail. The checkpoint of a
 * training phase is written behind its answer (saver.h), and waited for where the next phase ends.
 */
#ifndef FEDGE_AGGREGATOR_SERVER_CLOSER_H
#define FEDGE_AGGREGATOR_SERVER_CLOSER_H

#include "aggregator/server/completion.h"
#include "aggregator/server/global.h"
#include "aggregator/server/ingest.h"
#include "aggregator/server/saver.h"
#include "edge/core/status.h"

/* What FEDGE_COMPLETION_OPENED and FEDGE_COMPLETION_CLOSED carry; its receiver frees it with
 * fedge_closer_result_free, after taking what it keeps. */
typedef struct fedge_closer_result {
    fedge_journal *journal;      /* OPENED */
    fedge_round_summary summary; /* CLOSED */
    bool failed;                 /* CLOSED: the phase was dropped */
    bool over;                   /* CLOSED: early-stopping ends the run with this round */
    fedge_blob *model; /* CLOSED after a training phase: the new one, whose file is summary.model */
} fedge_closer_result;
void fedge_closer_result_free(fedge_closer_result *result);

typedef struct fedge_closer fedge_closer;

/* [global], [ingest] and [mailbox] outlive the thread. */
FEDGE_MUST_USE fedge_status fedge_closer_new(fedge_closer **closer, fedge_global *global,
                                             fedge_ingest *ingest, fedge_mailbox *mailbox,
                                             fedge_error *err);
/* Waits for the job in hand. NULL is fine. */
void fedge_closer_free(fedge_closer *closer);

/* Each starts one job; no other may be under way. [phase] and [tasks] (phase->num_tasks) are
 * copied, and so is [sums]: what GPUs are to sum from now on (fedge_global_change_gpus); NULL:
 * those that do. FEDGE_COMPLETION_OPENED: the status is fedge_journal_create's, or of the GPUs. */
FEDGE_MUST_USE fedge_status fedge_closer_open(fedge_closer *closer,
                                              const fedge_journal_phase *phase,
                                              const fedge_journal_task *tasks,
                                              const fedge_accumulator_config *sums,
                                              fedge_error *err);
/* Waits until no job is under way and the last checkpoint is written; its failure is returned. */
FEDGE_MUST_USE fedge_status fedge_closer_settle(fedge_closer *closer, fedge_error *err);
/* Flushes the ingest, then fedge_global_step; takes ownership of [journal].
 * FEDGE_COMPLETION_CLOSED. */
FEDGE_MUST_USE fedge_status fedge_closer_step(fedge_closer *closer, fedge_journal *journal,
                                              const fedge_round_summary *summary, fedge_error *err);
/* Flushes the ingest, then fedge_global_drop; takes ownership of [journal].
 * FEDGE_COMPLETION_CLOSED. */
FEDGE_MUST_USE fedge_status fedge_closer_drop(fedge_closer *closer, fedge_journal *journal,
                                              const fedge_round_summary *summary, fedge_error *err);
/* The line of an evaluation phase. FEDGE_COMPLETION_CLOSED. */
FEDGE_MUST_USE fedge_status fedge_closer_log(fedge_closer *closer,
                                             const fedge_round_summary *summary, fedge_error *err);

#endif

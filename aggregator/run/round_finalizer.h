/* The round finalizer: one thread that opens and ends phases, so that the engine's thread never
 * waits for the disk, the sum or the evaluation. One task at a time; each is answered by a
 * completion. The checkpoint of a training phase is written behind its answer
 * (checkpoint_writer.h), and waited for where the next phase ends.
 */
#ifndef FEDGE_AGGREGATOR_RUN_ROUND_FINALIZER_H
#define FEDGE_AGGREGATOR_RUN_ROUND_FINALIZER_H

#include "aggregator/run/checkpoint_writer.h"
#include "aggregator/run/ingest/ingest.h"
#include "aggregator/run/server_run.h"
#include "aggregator/threads/completion.h"
#include "edge/core/status.h"

/* What FEDGE_COMPLETION_OPENED and FEDGE_COMPLETION_CLOSED carry; its receiver frees it with
 * fedge_round_finalizer_result_free, after taking what it keeps. */
typedef struct fedge_round_finalizer_result {
    fedge_journal *journal; /* OPENED; CLOSED: it is open again (fedge_server_run_step), and nothing
                               of what follows is there */
    fedge_round_summary summary; /* CLOSED */
    bool failed;                 /* CLOSED: the phase was dropped */
    bool over;                   /* CLOSED: early-stopping ends the run with this round */
    fedge_blob *model; /* CLOSED after a training phase: the new one, whose file is summary.model */
    fedge_blob *deltas[FEDGE_DOWNLINK_STEPS]; /* likewise (fedge_server_run_make_deltas) */
    uint32_t num_deltas;
} fedge_round_finalizer_result;
void fedge_round_finalizer_result_free(fedge_round_finalizer_result *result);

typedef struct fedge_round_finalizer fedge_round_finalizer;

/* [server], [ingest] and [mailbox] outlive the thread. */
FEDGE_MUST_USE fedge_status fedge_round_finalizer_new(fedge_round_finalizer **finalizer,
                                                      fedge_server_run *server,
                                                      fedge_ingest *ingest, fedge_mailbox *mailbox,
                                                      fedge_error *err);
/* Waits for the task in hand. NULL is fine. */
void fedge_round_finalizer_free(fedge_round_finalizer *finalizer);

/* Each starts one task; no other may be under way. [phase] and [tasks] (phase->num_tasks) are
 * copied, and so is [sums]: what GPUs are to sum from now on (fedge_server_run_change_gpus); NULL:
 * those that do. FEDGE_COMPLETION_OPENED: the status is fedge_journal_create's, or of the GPUs. */
FEDGE_MUST_USE fedge_status fedge_round_finalizer_open(fedge_round_finalizer *finalizer,
                                                       const fedge_journal_phase *phase,
                                                       const fedge_journal_task *tasks,
                                                       const fedge_accumulator_config *sums,
                                                       fedge_error *err);
/* Waits until no task is under way and the last checkpoint is written; its failure is returned. */
FEDGE_MUST_USE fedge_status fedge_round_finalizer_wait(fedge_round_finalizer *finalizer,
                                                       fedge_error *err);
/* Flushes the ingest, then fedge_server_run_step; takes ownership of [journal].
 * FEDGE_COMPLETION_CLOSED. */
FEDGE_MUST_USE fedge_status fedge_round_finalizer_step(fedge_round_finalizer *finalizer,
                                                       fedge_journal *journal,
                                                       const fedge_round_summary *summary,
                                                       fedge_error *err);
/* Flushes the ingest, then fedge_server_run_drop; takes ownership of [journal].
 * FEDGE_COMPLETION_CLOSED. */
FEDGE_MUST_USE fedge_status fedge_round_finalizer_drop(fedge_round_finalizer *finalizer,
                                                       fedge_journal *journal,
                                                       const fedge_round_summary *summary,
                                                       fedge_error *err);
/* The line of an evaluation phase. FEDGE_COMPLETION_CLOSED. */
FEDGE_MUST_USE fedge_status fedge_round_finalizer_log(fedge_round_finalizer *finalizer,
                                                      const fedge_round_summary *summary,
                                                      fedge_error *err);

#endif

/* The round finalizer: one thread that opens and ends phases, so that the engine's thread never
 * waits for the disk, the sums or the evaluation. It has one task at a time and answers each with a
 * completion. The checkpoint of a training phase is written after that answer
 * (checkpoint_writer.h); the end of the next phase waits for it.
 */
#ifndef FEDGE_AGGREGATOR_RUN_ROUND_FINALIZER_H
#define FEDGE_AGGREGATOR_RUN_ROUND_FINALIZER_H

#include "aggregator/run/checkpoint_writer.h"
#include "aggregator/run/ingest/ingest.h"
#include "aggregator/run/server_run.h"
#include "aggregator/threads/mailbox.h"
#include "edge/core/status.h"

/* The result of FEDGE_COMPLETION_OPENED and FEDGE_COMPLETION_CLOSED. The receiver takes what it
 * keeps and frees the rest with fedge_round_finalizer_result_free. */
typedef struct fedge_round_finalizer_result {
    fedge_journal *journal;      /* OPENED: the new journal. CLOSED: not NULL when the phase is open
                                    again (fedge_server_run_step); then no other field is set */
    fedge_round_summary summary; /* CLOSED */
    bool failed;                 /* CLOSED: the phase was dropped */
    bool over;                   /* CLOSED: early-stopping ends the run with this round */
    fedge_blob *model;           /* CLOSED, training: the new model, whose file is summary.model */
    fedge_blob *deltas[FEDGE_DOWNLINK_STEPS]; /* CLOSED, training: deltas to [model] */
    uint32_t num_deltas;
} fedge_round_finalizer_result;
void fedge_round_finalizer_result_free(fedge_round_finalizer_result *result);

typedef struct fedge_round_finalizer fedge_round_finalizer;

/* [server], [ingest] and [mailbox] outlive the thread. */
FEDGE_MUST_USE fedge_status fedge_round_finalizer_new(fedge_round_finalizer **finalizer,
                                                      fedge_server_run *server,
                                                      fedge_ingest *ingest, fedge_mailbox *mailbox,
                                                      fedge_error *err);
/* Waits for the task in progress. NULL is fine. */
void fedge_round_finalizer_free(fedge_round_finalizer *finalizer);

/* Each of the calls below but _wait starts one task; none may be in progress. */

/* Opens a phase. Copies [phase], [tasks] (phase->num_tasks) and [sums], the GPUs to use from now on
 * (fedge_server_run_change_gpus); NULL: the present ones. FEDGE_COMPLETION_OPENED has the status of
 * fedge_journal_create or of opening the GPUs. */
FEDGE_MUST_USE fedge_status fedge_round_finalizer_open(fedge_round_finalizer *finalizer,
                                                       const fedge_journal_phase *phase,
                                                       const fedge_journal_task *tasks,
                                                       const fedge_accumulator_config *sums,
                                                       fedge_error *err);
/* Waits until no task is in progress and the last checkpoint is written, and returns its status. */
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
/* Logs an evaluation phase (fedge_server_run_log_evaluation). FEDGE_COMPLETION_CLOSED. */
FEDGE_MUST_USE fedge_status fedge_round_finalizer_log(fedge_round_finalizer *finalizer,
                                                      const fedge_round_summary *summary,
                                                      fedge_error *err);

#endif

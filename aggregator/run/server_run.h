/* The global model and everything that moves it: run directory, sums, strategy, checkpoints.
 *
 * fedge_server_run_open finds out where a run stands and brings the model there; after that the
 * round finalizer's thread alone calls the functions that say so.
 */
#ifndef FEDGE_AGGREGATOR_RUN_SERVER_RUN_H
#define FEDGE_AGGREGATOR_RUN_SERVER_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/cluster/protocol/order.h"
#include "aggregator/exchange/blob.h"
#include "aggregator/rounds/evaluator.h"
#include "aggregator/rounds/global_model.h"
#include "aggregator/rounds/round_summary.h"
#include "aggregator/rounds/selection.h"
#include "aggregator/run/checkpoint_writer.h"
#include "aggregator/run/ingest/upload_facts.h"
#include "aggregator/run/last_accepted.h"
#include "aggregator/run/recovery/rendezvous.h"
#include "aggregator/store/checkpoint.h"
#include "aggregator/store/journal.h"
#include "aggregator/store/recovery.h"
#include "aggregator/store/round_log.h"
#include "aggregator/store/run.h"
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

typedef struct fedge_server_run {
    const fedge_job *job;
    const fedge_plan *plan; /* &job->plan */
    const fedge_log *log;
    fedge_state state;
    fedge_run run;
    const fedge_rank_link *ranks; /* NULL: none that take updates */
    const char *state_dir;
    fedge_rank_disks disks; /* of all ranks; one when alone */
    bool starting;          /* until it is open */
    fedge_global_model model;
    const char *accumulator;                          /* as asked for: a kind or "auto" */
    fedge_gpu_stats told[FEDGE_ACCUMULATOR_MAX_GPUS]; /* of its GPUs, in lines that were written */
    fedge_accumulator_config sums; /* what model.accumulator was opened with, but for the layout */
    fedge_evaluator *evaluator;    /* not its own; NULL: no test set */
    fedge_round_log round_log;
    fedge_checkpoint checkpoint; /* the last one; its bytes go on counting */
    fedge_selection selection;   /* the best round, and whether to stop */
    uint64_t opened_ms;          /* monotonic */
    uint64_t elapsed_before_ms;  /* of the run, when it was opened */
    fedge_blob *model_file;      /* its safetensors file, and what the strategy tells, until
                                    fedge_server_run_take_model */
    fedge_blob *last_parts; /* of the last model that was written, offered or not; NULL: none */
    size_t model_size;      /* of the file alone, and its name: */
    char model_hash[FEDGE_HASH_TEXT];
    size_t control_size; /* of what the strategy tells, which lies behind it; 0: nothing */
    fedge_last_accepted
        last_accepted; /* where clients keep something; moved by fedge_server_run_step alone */
} fedge_server_run;

/* Locks [state_dir], opens or creates the run, recovers: closed rounds without a checkpoint are
 * closed again; the accepted updates of an open phase are in the sums. *recovery has what the
 * round machine needs (and the open journal); its owner calls fedge_recovery_fini. [restored]: the
 * run is of a backup; its incarnation is raised first. [request]: as for fedge_run_open.
 * [evaluator] outlives [server]; NULL: the job has no test set. [ranks]: the others, which attend
 * (fedge_rank_worker_open) until this returns; NULL: none. Outlives [server]. [accumulator],
 * [sums]: as for fedge_global_model_init. */
FEDGE_MUST_USE fedge_status fedge_server_run_open(
    fedge_server_run *server, const fedge_job *job, const fedge_run_request *request,
    fedge_evaluator *evaluator, const char *state_dir, bool restored, const char *accumulator,
    const fedge_accumulator_config *sums, const fedge_rank_link *ranks, const fedge_log *log,
    fedge_recovery *recovery, fedge_error *err);
/* Also after a failed open. */
void fedge_server_run_close(fedge_server_run *server);

/* The model file of the last closed round, and behind it server->control_size bytes: what clients
 * fetch. The reference passes to the caller. */
fedge_blob *fedge_server_run_take_model(fedge_server_run *server);

/* The deltas from the models of the rounds before to the last closed round's, those that are
 * smaller than its file, the one from the newest first. deltas: FEDGE_DOWNLINK_STEPS; *count of
 * them are set, and their references pass to the caller. */
FEDGE_MUST_USE fedge_status fedge_server_run_make_deltas(const fedge_server_run *server,
                                                         fedge_blob **deltas, uint32_t *count,
                                                         fedge_error *err);

/* Round finalizer's thread, between phases: opens the GPUs of [sums] in place of the present ones;
 * nothing when they are the same. When they cannot be opened, the log says why and the present ones
 * are opened again: a failure is theirs. */
FEDGE_MUST_USE fedge_status fedge_server_run_change_gpus(fedge_server_run *server,
                                                         const fedge_accumulator_config *sums,
                                                         fedge_error *err);

/* Round finalizer's thread: ends the training phase of [journal], whose accepted updates are all in
 * the sums, with a step, an evaluation and a line in rounds.jsonl. The caller has set round,
 * attempt, bytes, seconds and the workers' times in [summary]; the rest is filled. *save: the
 * checkpoint, which the caller writes, tells of (fedge_server_run_saved) and frees before the next
 * phase ends. *reopened: the disk has damaged updates that the strategy goes through; their slots
 * are open again, and nothing of the rest has happened. */
FEDGE_MUST_USE fedge_status fedge_server_run_step(fedge_server_run *server, fedge_journal *journal,
                                                  fedge_round_summary *summary, bool *reopened,
                                                  fedge_save **save, fedge_error *err);
/* Round finalizer's thread: [save], the last that was made, is written. */
void fedge_server_run_saved(fedge_server_run *server, const fedge_save *save);
/* Round finalizer's thread: drops a phase that failed. */
FEDGE_MUST_USE fedge_status fedge_server_run_drop(fedge_server_run *server, fedge_journal *journal,
                                                  const fedge_round_summary *summary,
                                                  fedge_error *err);
/* Round finalizer's thread: the line of an evaluation phase, and what it says of its round's model.
 */
FEDGE_MUST_USE fedge_status fedge_server_run_log_evaluation(fedge_server_run *server,
                                                            const fedge_round_summary *summary,
                                                            fedge_error *err);

#endif

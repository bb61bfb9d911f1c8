/* The global model and everything that moves it: run directory, sums, strategy, checkpoints.
 *
 * fedge_server_run_open finds out where a run stands and brings the model there; after that the
 * round finalizer's thread alone calls the functions that say so.
 */
#ifndef FEDGE_AGGREGATOR_RUN_SERVER_RUN_H
#define FEDGE_AGGREGATOR_RUN_SERVER_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/cluster/protocol/rank_message.h"
#include "aggregator/exchange/blob.h"
#include "aggregator/rounds/evaluator.h"
#include "aggregator/rounds/global_model.h"
#include "aggregator/rounds/round_summary.h"
#include "aggregator/rounds/selection.h"
#include "aggregator/run/checkpoint_writer.h"
#include "aggregator/run/ingest/accepted_updates.h"
#include "aggregator/run/ingest/upload.h"
#include "aggregator/run/rendezvous.h"
#include "aggregator/store/checkpoint.h"
#include "aggregator/store/journal.h"
#include "aggregator/store/recovery.h"
#include "aggregator/store/round_log.h"
#include "aggregator/store/run.h"
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

/* ---- which update of each client was accepted last --------------------------------------------
 */

/* Which update of each client was accepted last, and counted: for strategies whose clients keep
 * something and move it by that (client/kept.h). Part of a checkpoint (last-accepted.bin).
 */

/* One that is all 0 is empty. */
typedef struct fedge_last_accepted {
    uint64_t *task_ids; /* by client index; 0: none */
    uint32_t num_clients;
} fedge_last_accepted;

void fedge_last_accepted_clear(fedge_last_accepted *last_accepted);

/* The task id, or 0. */
uint64_t fedge_last_accepted_task(const fedge_last_accepted *last_accepted, uint32_t client_index);

/* The accepted updates of a journal that is closed. FEDGE_CORRUPT: of clients that no registry can
 * have. */
FEDGE_MUST_USE fedge_status fedge_last_accepted_add(fedge_last_accepted *last_accepted,
                                                    fedge_journal *journal, fedge_error *err);

/* As bytes, malloc'ed: u64 task ids, little-endian, by client index; NULL of size 0 when empty. */
FEDGE_MUST_USE fedge_status fedge_last_accepted_write(const fedge_last_accepted *last_accepted,
                                                      uint8_t **bytes, size_t *size,
                                                      fedge_error *err);
/* What write made replaces [last_accepted]. FEDGE_CORRUPT. */
FEDGE_MUST_USE fedge_status fedge_last_accepted_read(fedge_last_accepted *last_accepted,
                                                     const uint8_t *bytes, size_t size,
                                                     fedge_error *err);

/* ---- a server's run ---------------------------------------------------------------------------
 */

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

/* Makes the model file of the present values in place of the one before, and lists its parts. */
FEDGE_MUST_USE fedge_status fedge_server_run_write_model(fedge_server_run *server,
                                                         fedge_error *err);
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

/* ---- updates of a training phase --------------------------------------------------------------
 */

/* The accepted updates of a training phase, as its journal has them: what they say of themselves,
 * their bytes where a strategy goes through them, and their way into the sums again. All of it is
 * for the round finalizer's thread, or a start.
 */

/* Plain data; all of it is its own. */
typedef struct fedge_gathered {
    fedge_update_facts *facts;      /* (room for the cohort), of those that are whole */
    fedge_accepted_updates updates; /* the same, when the strategy collects */
    uint32_t states_lost;           /* how many clients have lost what they kept for it */
    uint32_t num_damaged; /* whose bytes the disk has damaged: their slots are open again */
} fedge_gathered;

/* Reads all that the step needs of the updates, and the part of [summary] that they tell. Before
 * the phase is sealed, since what is found damaged then is asked for again; behind the seal, which
 * has their number, damage is FEDGE_CORRUPT. _fini is to be called also after a failure. */
FEDGE_MUST_USE fedge_status fedge_server_run_gather(fedge_server_run *server,
                                                    fedge_journal *journal,
                                                    fedge_round_summary *summary,
                                                    fedge_gathered *gathered, fedge_error *err);
void fedge_gathered_fini(fedge_gathered *gathered); /* one that is all 0 is fine */

/* Adds the updates that are in this journal to the sums. */
FEDGE_MUST_USE fedge_status fedge_server_run_replay(fedge_server_run *server,
                                                    fedge_journal *journal, fedge_error *err);

/* ---- other ranks ------------------------------------------------------------------------------
 */

/* What other ranks have of a run: their acknowledged updates at a start, and their sums. */

/* Before recovery: all ranks come together (fedge_rendezvous). [status]: how the start has fared.
 */
FEDGE_MUST_USE fedge_status fedge_server_run_rendezvous(fedge_server_run *server,
                                                        const char *state_dir, fedge_status status,
                                                        fedge_error *err);
/* After it, however it ended; once fedge_server_run_rendezvous has succeeded. */
void fedge_server_run_end_rendezvous(fedge_server_run *server);

/* Recovery, with a journal: every update of it that is on a disk of a rank counts, once, and is in
 * the sums of that rank; what is on a disk that is not there is open again, and the log says how
 * many these are. A phase that was closed with them is open again. */
FEDGE_MUST_USE fedge_status fedge_server_run_recover_updates(fedge_server_run *server,
                                                             fedge_recovery *recovery,
                                                             fedge_error *err);

/* The accumulator of the model sums for all ranks; nothing when alone. After each open of it. */
FEDGE_MUST_USE fedge_status fedge_server_run_wrap_sums(fedge_server_run *server, fedge_error *err);
/* All know how these will be joined. */
FEDGE_MUST_USE fedge_status fedge_server_run_agree_on_sums(fedge_server_run *server,
                                                           fedge_error *err);
/* It has the sums of all. */
FEDGE_MUST_USE fedge_status fedge_server_run_join_sums(fedge_server_run *server, fedge_error *err);

/* ---- parts of a model -------------------------------------------------------------------------
 */

/* Which parts a model's blob has (edge/wire/protocol.h), and whether it pays to tell clients. */

#define FEDGE_MODEL_PARTS_MIN_BYTES ((size_t)1 << 16) /* smaller models come whole */
/* One byte of this many has to be known for a list to be offered: it takes clients a FETCH more. */
#define FEDGE_MODEL_PARTS_SHARE 16u

/* Lists the parts of [model], which lies in memory: files of [file_size] bytes with the tensors of
 * [schema], or one of them with anything behind it. *last is the list of the model before, or NULL
 * when that is not known, and the new one afterwards. model->parts is it too where parts of the
 * model are equal to one another or to the model's before, or when that is not known. Hashes all of
 * [model]. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_model_parts_add(fedge_blob *model, const fedge_schema *schema,
                                                  size_t file_size, fedge_blob **last,
                                                  fedge_error *err);

#endif

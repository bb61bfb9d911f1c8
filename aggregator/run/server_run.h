/* A server's run: the global model and all that changes it: run directory, sums, strategy,
 * checkpoints.
 *
 * fedge_server_run_open finds out where a run stopped and restores the model of that point. After
 * that, functions marked so are for the round finalizer's thread alone.
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

/* ---- which update of each client was accepted last ------------------------------------------- */

/* The last accepted update of each client, for strategies with client state, which a client
 * advances by it. Part of a checkpoint (last-accepted.bin). One that is all 0 is empty. */

typedef struct fedge_last_accepted {
    uint64_t *task_ids; /* indexed by client; 0: none */
    uint32_t num_clients;
} fedge_last_accepted;

void fedge_last_accepted_clear(fedge_last_accepted *last_accepted);

/* The task id, or 0. */
uint64_t fedge_last_accepted_task(const fedge_last_accepted *last_accepted, uint32_t client_index);

/* Adds the accepted updates of a closed journal. FEDGE_CORRUPT: a client index that no registry can
 * have. */
FEDGE_MUST_USE fedge_status fedge_last_accepted_add(fedge_last_accepted *last_accepted,
                                                    fedge_journal *journal, fedge_error *err);

/* Writes malloc'ed bytes: u64 task ids, little-endian, by client index; NULL of size 0 when empty.
 */
FEDGE_MUST_USE fedge_status fedge_last_accepted_write(const fedge_last_accepted *last_accepted,
                                                      uint8_t **bytes, size_t *size,
                                                      fedge_error *err);
/* Replaces [last_accepted] by what _write wrote. FEDGE_CORRUPT. */
FEDGE_MUST_USE fedge_status fedge_last_accepted_read(fedge_last_accepted *last_accepted,
                                                     const uint8_t *bytes, size_t size,
                                                     fedge_error *err);

/* ---- a server's run -------------------------------------------------------------------------- */

typedef struct fedge_server_run {
    const fedge_job *job;
    const fedge_plan *plan; /* &job->plan */
    const fedge_log *log;
    fedge_state state;
    fedge_run run;
    const fedge_rank_link *ranks; /* NULL: no other rank takes updates */
    const char *state_dir;
    fedge_rank_disks disks; /* disks of all ranks; one when alone */
    bool starting;          /* true until the run is open */
    fedge_global_model model;
    const char *accumulator; /* requested accumulator: a kind or "auto" */
    fedge_gpu_stats logged_gpus[FEDGE_ACCUMULATOR_MAX_GPUS]; /* the GPUs' counters at the last line
                                                                of rounds.jsonl */
    fedge_accumulator_config sums; /* model.accumulator's configuration, without the layout */
    fedge_evaluator *evaluator;    /* borrowed; NULL: no test set */
    fedge_round_log round_log;
    fedge_checkpoint checkpoint; /* last checkpoint, whose byte counters continue */
    fedge_selection selection;   /* state of the best round and of early stopping */
    uint64_t opened_ms;          /* opening time, monotonic */
    uint64_t elapsed_before_ms;  /* the run's duration when it was opened */
    fedge_blob *model_file;      /* the safetensors file and the broadcast state behind it, until
                                    fedge_server_run_take_model */
    fedge_blob *last_parts; /* part list of the last model written, offered or not; NULL: none */
    size_t model_size;      /* size of the file alone, without the broadcast state */
    char model_hash[FEDGE_HASH_TEXT];
    size_t control_size;               /* bytes of the strategy's broadcast state behind the file */
    fedge_last_accepted last_accepted; /* state of strategies with client state; changed by
                                          fedge_server_run_step alone */
} fedge_server_run;

/* Options of opening a run. All pointers outlive the run. */
typedef struct fedge_server_run_config {
    const fedge_job *job;
    fedge_run_request request;  /* argument of fedge_run_open */
    fedge_evaluator *evaluator; /* NULL: the job has no test set */
    const char *state_dir;
    bool restored;           /* the state comes from a backup: raise the incarnation first */
    const char *accumulator; /* argument of fedge_global_model_init */
    const fedge_accumulator_config *sums; /* copied argument of fedge_global_model_init */
    const fedge_rank_link *ranks;         /* links to the other ranks; NULL: none */
    const fedge_log *log;
} fedge_server_run_config;

/* Locks the state directory, opens or creates the run and recovers it: closed rounds without a
 * checkpoint are closed again, and the accepted updates of an open phase are added to the sums.
 * *recovery has what the round machine needs, and the open journal; its owner calls
 * fedge_recovery_fini. Other ranks call fedge_rank_worker_open meanwhile. */
FEDGE_MUST_USE fedge_status fedge_server_run_open(fedge_server_run *server,
                                                  const fedge_server_run_config *config,
                                                  fedge_recovery *recovery, fedge_error *err);
/* Call it also after a failed open. */
void fedge_server_run_close(fedge_server_run *server);

/* Replaces the model file by one of the present values, and lists its parts. */
FEDGE_MUST_USE fedge_status fedge_server_run_write_model(fedge_server_run *server,
                                                         fedge_error *err);
/* Takes what clients fetch: the model file of the last closed round with control_size bytes behind
 * it. The reference passes to the caller. */
fedge_blob *fedge_server_run_take_model(fedge_server_run *server);

/* Makes the deltas from earlier models to the last closed round's, newest base first, as long as
 * they are smaller than the model file. deltas: (FEDGE_DOWNLINK_STEPS), of which *count are set;
 * their references pass to the caller. */
FEDGE_MUST_USE fedge_status fedge_server_run_make_deltas(const fedge_server_run *server,
                                                         fedge_blob **deltas, uint32_t *count,
                                                         fedge_error *err);

/* Round finalizer's thread, between phases: replaces the present GPUs by those of [sums]. If these
 * cannot be opened, logs why and opens the present ones again, whose failure is returned. */
FEDGE_MUST_USE fedge_status fedge_server_run_change_gpus(fedge_server_run *server,
                                                         const fedge_accumulator_config *sums,
                                                         fedge_error *err);

/* Round finalizer's thread: ends the training phase of [journal], whose accepted updates are all in
 * the sums, with a step, an evaluation and a line in rounds.jsonl. The caller has set round,
 * attempt, bytes, seconds and the workers' times in [summary]; this fills in the rest. *save: the
 * checkpoint; the caller writes it, calls fedge_server_run_saved and frees it before the next phase
 * ends. *reopened: the disk has damaged updates that the strategy reads; their slots are open
 * again, and nothing else has happened. */
FEDGE_MUST_USE fedge_status fedge_server_run_step(fedge_server_run *server, fedge_journal *journal,
                                                  fedge_round_summary *summary, bool *reopened,
                                                  fedge_save **save, fedge_error *err);
/* Round finalizer's thread: the last [save] is written. */
void fedge_server_run_saved(fedge_server_run *server, const fedge_save *save);
/* Round finalizer's thread: drops a phase that failed. */
FEDGE_MUST_USE fedge_status fedge_server_run_drop(fedge_server_run *server, fedge_journal *journal,
                                                  const fedge_round_summary *summary,
                                                  fedge_error *err);
/* Round finalizer's thread: logs an evaluation phase in rounds.jsonl, and judges its round's model
 * by it. */
FEDGE_MUST_USE fedge_status fedge_server_run_log_evaluation(fedge_server_run *server,
                                                            const fedge_round_summary *summary,
                                                            fedge_error *err);

/* ---- updates of a training phase ------------------------------------------------------------- */

/* The accepted updates of a training phase in its journal. On the round finalizer's thread, or at a
 * start. */

/* Plain data that it owns. */
typedef struct fedge_gathered {
    fedge_update_facts *facts; /* facts of the undamaged updates; capacity: the cohort's size */
    fedge_accepted_updates updates; /* set when the strategy reads single updates */
    uint32_t states_lost;           /* clients that have lost their client state */
    uint32_t num_damaged; /* updates that the disk has damaged: their slots are open again */
} fedge_gathered;

/* Reads what the step needs of the updates, and fills in their part of [summary]. Before the phase
 * is sealed damaged updates are requested again; after the seal, which has their number, damage is
 * FEDGE_CORRUPT. Call _fini also after a failure. */
FEDGE_MUST_USE fedge_status fedge_server_run_gather(fedge_server_run *server,
                                                    fedge_journal *journal,
                                                    fedge_round_summary *summary,
                                                    fedge_gathered *gathered, fedge_error *err);
void fedge_gathered_fini(fedge_gathered *gathered); /* all 0 is fine */

/* Adds the updates of this journal to the sums. */
FEDGE_MUST_USE fedge_status fedge_server_run_replay(fedge_server_run *server,
                                                    fedge_journal *journal, fedge_error *err);

/* ---- other ranks ----------------------------------------------------------------------------- */

/* Begins all ranks together before recovery (fedge_rendezvous). [status]: the start's so far. */
FEDGE_MUST_USE fedge_status fedge_server_run_rendezvous(fedge_server_run *server,
                                                        const char *state_dir, fedge_status status,
                                                        fedge_error *err);
/* Releases the other ranks after recovery, failed or not, if the rendezvous succeeded. */
void fedge_server_run_end_rendezvous(fedge_server_run *server);

/* Recovery with a journal: each of its updates that is on some rank's disk counts once, in the sums
 * of that rank. Slots whose update is on a missing disk are open again; the log says how many. A
 * phase that was closed with them is open again, too. */
FEDGE_MUST_USE fedge_status fedge_server_run_recover_updates(fedge_server_run *server,
                                                             fedge_recovery *recovery,
                                                             fedge_error *err);

/* Makes the model's accumulator a distributed one; does nothing when alone. Call it each time the
 * accumulator was opened. */
FEDGE_MUST_USE fedge_status fedge_server_run_wrap_sums(fedge_server_run *server, fedge_error *err);
/* Makes all ranks agree on how they join their sums. */
FEDGE_MUST_USE fedge_status fedge_server_run_agree_on_sums(fedge_server_run *server,
                                                           fedge_error *err);
/* Joins the sums of all ranks in the model's accumulator. */
FEDGE_MUST_USE fedge_status fedge_server_run_join_sums(fedge_server_run *server, fedge_error *err);

/* ---- parts of a model ------------------------------------------------------------------------ */

#define FEDGE_MODEL_PARTS_MIN_BYTES ((size_t)1 << 16) /* smaller models are sent whole */
/* A list is offered when at least 1/SHARE of the bytes is known: it costs clients one more FETCH.
 */
#define FEDGE_MODEL_PARTS_KNOWN_DIVISOR 16u

/* Lists the parts (edge/wire/protocol.h) of [model], which lies in memory: files of [file_size]
 * bytes with the tensors of [schema], or one such file with anything behind it. *last: the list of
 * the model before, or NULL when unknown; afterwards the new list. model->parts becomes the new
 * list where enough parts equal one another or those of the model before, or when that is unknown.
 * Hashes all of [model]. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_model_parts_add(fedge_blob *model, const fedge_schema *schema,
                                                  size_t file_size, fedge_blob **last,
                                                  fedge_error *err);

#endif

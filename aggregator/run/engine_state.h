/* The engine's state, and what all of its files use: replies, orders to other ranks, failures.
 *
 * Files of the engine, each uses those before it: engine_state.c, engine_async.c (what outlives a
 * phase), engine_phase.c (actions of the round machine), engine_upload.c (what clients send) and
 * engine.c (the run). */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_STATE_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_STATE_H

#include <pthread.h>

#include "aggregator/cluster/protocol/slot_lease.h"
#include "aggregator/exchange/exchange.h"
#include "aggregator/run/engine.h"
#include "aggregator/run/ingest/ingest.h"
#include "aggregator/run/ingest/intake.h"
#include "aggregator/run/round_finalizer.h"
#include "aggregator/run/server_run.h"
#include "aggregator/threads/mailbox.h"

#define FEDGE_ENGINE_MAX_BAD_UPLOADS 3   /* bad uploads of one task before it is lost */
#define FEDGE_ENGINE_REFUSAL_LINES 10    /* refusals logged a second for devices that have left */
#define FEDGE_ENGINE_SPACE_RETRY_MS 5000 /* pause between attempts when the disk is full */
#define FEDGE_ENGINE_WAIT_MS 5000 /* idle time before the log says what the round waits for */
#define FEDGE_ENGINE_WAIT_REPEAT_MS 60000 /* pause before the log says so again, if changed */

/* A snapshot of the accumulator. */
typedef struct fedge_sums_snapshot {
    char kind[16];
    uint32_t num_gpus;
    fedge_gpu_stats gpus[FEDGE_ACCUMULATOR_MAX_GPUS];
} fedge_sums_snapshot;

/* One slot of the present phase. */
typedef struct fedge_engine_slot {
    uint64_t task_id; /* task of the other fields; 0: none sent yet */
    uint32_t bad_uploads;
    fedge_slot_lease lease; /* rank that may receive the update, whatever the task */
    fedge_grant *announced; /* malloc'ed announcement that waits for the lease; NULL: none */
    bool timed;             /* [seconds_upload] is that of an update that this process received */
    double seconds_upload;
    double loss, accuracy; /* EVALUATE: the client's results */
    double errors[FEDGE_ERROR_METRICS];
    uint64_t examples; /* EVALUATE: the client's examples */
} fedge_engine_slot;

/* A device, by client index. conn_id FEDGE_CONN_ALL: not connected, or it declined the plan. */
typedef struct fedge_engine_device {
    uint64_t conn_id;
    char device_id[FEDGE_UUID_TEXT];
    bool hangs_up, at_work; /* state of the duty cycle (engine_phase.h) */
    uint64_t sent_task_id;  /* last task sent on this connection; 0: none */
    uint32_t model, before; /* numbers of the last task's model and of the one before; 0: unknown */
} fedge_engine_device;

/* The part of a phase on other ranks; all 0 when alone. */
typedef struct fedge_engine_other_ranks {
    uint32_t num;     /* ranks that take updates besides this one */
    uint64_t phase;   /* number of the phase, from 1 in each process */
    uint32_t waiting; /* ranks that have yet to answer OPEN or CLOSE */
    bool closing;     /* CLOSE was sent: no slot is granted; [ending] and [summary] are set */
    fedge_rounds_action ending;
    fedge_round_summary summary;
    fedge_error worst;         /* worst answer to OPEN; FEDGE_OK: none failed */
    fedge_journal_task *tasks; /* (phase.num_tasks) while OPEN is answered */
} fedge_engine_other_ranks;

/* The model after [base] rounds, which open tasks name (engine_async.h). */
typedef struct fedge_engine_old_model {
    uint32_t base;
    fedge_blob *model;
} fedge_engine_old_model;

/* A result that counted, and its client. */
typedef struct fedge_engine_accepted {
    uint64_t task_id;
    uint32_t client_index;
} fedge_engine_accepted;

struct fedge_engine {
    pthread_t owner;
    fedge_engine_config config;
    fedge_server_run server;
    fedge_mailbox *mailbox;
    fedge_ingest *ingest;
    fedge_round_finalizer *finalizer;
    fedge_rounds *rounds;

    fedge_blob *plan, *model;         /* [model] is its file, then server.control_size bytes */
    char model_hash[FEDGE_HASH_TEXT]; /* SHA-256 of the model's file */
    fedge_blob *deltas[FEDGE_DOWNLINK_STEPS];          /* (num_deltas): each leads to [model] */
    char bases[FEDGE_DOWNLINK_STEPS][FEDGE_HASH_TEXT]; /* hashes of the models deltas start from */
    uint32_t num_deltas;
    uint32_t model_number;         /* number of models before [model] */
    char initial[FEDGE_HASH_TEXT]; /* hash of model 0 if clients can make it; else "" */
    fedge_engine_device *devices;  /* (num_devices), indexed by client */
    uint32_t num_devices;

    /* State that outlives a phase (engine_async.h). */
    fedge_engine_old_model *old_models; /* (num_old_models) */
    uint32_t num_old_models;
    fedge_grant **deferred; /* (num_deferred) */
    uint32_t num_deferred;

    /* The present phase. */
    fedge_journal *journal; /* NULL between training phases */
    fedge_intake intake;    /* uploads that come to this rank */
    fedge_engine_other_ranks other_ranks;
    fedge_journal_phase phase;
    fedge_engine_slot *slots;
    uint32_t num_slots;
    fedge_engine_accepted
        *accepted; /* results of the phase before, for clients that missed their ACK */
    uint32_t num_accepted;
    uint64_t phase_started_ms, phase_bytes_up, phase_bytes_down;
    uint64_t retry_open_ms; /* time of the next attempt to open, after the disk was full; 0: none */
    bool waiting_for_space;
    char missing_space[FEDGE_RUN_STATE_TEXT - 32]; /* message of the error, while it waits */

    bool stalled; /* no client has been at work since stalled_ms */
    uint64_t stalled_ms, wait_logged_ms;
    char wait_logged[FEDGE_RUN_STATE_TEXT];
    char gave_up[192];       /* the last client that gave up in this round, and why; "": none */
    uint32_t gave_up_client; /* index of that client */

    uint64_t run_bytes_up, run_bytes_down;
    uint64_t updates_accepted, updates_refused, updates_duplicate;
    fedge_quota refusal_lines; /* log lines about refused updates of devices that have left */
    uint32_t rounds_closed;
    double loss, accuracy;

    uint64_t round_ms; /* recent duration of a round; 0: unknown */
    uint64_t not_before_checked_ms;

    bool gpus_wanted; /* open config.sums.gpus with the next round */
    bool gpus_change; /* the round finalizer opens the GPUs: the accumulator must not be read */
    fedge_sums_snapshot sums_snapshot; /* the accumulator before the GPUs change */

    bool draining;
    bool stopped_early;    /* early stopping: no round follows the last closed one */
    bool nothing_held_out; /* the log has warned that clients have no data to evaluate on */
    bool done;
    fedge_error failure; /* FEDGE_OK: none */
};

/* Ends the engine with its first failure, which the log names. */
void fedge_engine_fail(fedge_engine *engine, const fedge_error *err);

/* Takes a snapshot of the accumulator; not while engine->gpus_change. */
void fedge_engine_snapshot_sums(const fedge_engine *engine, fedge_sums_snapshot *snapshot);

/* After an evaluation by clients: warns, once, if it measured nothing and keep-best or
 * early-stopping depends on it. */
void fedge_engine_check_evaluation(fedge_engine *engine, const fedge_round_summary *summary);
/* At the end of a run: warns if keep-best or early-stopping never had a value. */
void fedge_engine_check_selection(const fedge_engine *engine);

/* Ends the run with the last closed round, and logs why. */
void fedge_engine_stop_early(fedge_engine *engine);

/* ---- replies --------------------------------------------------------------------------------- */

/* Each posts a reply to connection [conn_id]; without memory the engine fails. */

/* The client's connection; FEDGE_CONN_ALL: none. */
uint64_t fedge_engine_conn_of(const fedge_engine *engine, uint32_t client_index);
/* Sends [message] with its member of [content]. */
void fedge_engine_send(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                       const fedge_reply *content);
void fedge_engine_send_notice(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                              const fedge_notice *notice);
void fedge_engine_send_blob(fedge_engine *engine, uint64_t conn_id, fedge_blob *blob,
                            uint64_t offset, uint64_t size);
/* Sends a last message and closes the connection. */
void fedge_engine_close_conn(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                             fedge_reason reason, uint64_t after_ms, const char *text);
void fedge_engine_withdraw(fedge_engine *engine, fedge_blob *blob); /* sent to all connections */
void fedge_engine_send_round(fedge_engine *engine, const fedge_round_summary *summary);

/* ---- orders to other ranks ------------------------------------------------------------------- */

/* Orders to the other ranks that take updates: open and close a phase, grant and recall a slot. */

/* The rank that receives the bytes of this connection. */
uint32_t fedge_engine_rank_of(const fedge_engine *engine, uint64_t conn_id);

void fedge_engine_grant(fedge_engine *engine, uint32_t rank, const fedge_grant *grant);
void fedge_engine_recall(fedge_engine *engine, uint32_t slot);

/* Opens the phase on other ranks (with engine->other_ranks.tasks), or closes it. False: there are
 * none to wait for. */
bool fedge_engine_open_other_ranks(fedge_engine *engine);
bool fedge_engine_close_other_ranks(fedge_engine *engine, bool dropped);

/* ---- status ---------------------------------------------------------------------------------- */

/* Describe what the engine waits for, for /healthz and the log, and write the log line. */

void fedge_engine_describe(const fedge_engine *engine, char *text, size_t size);
void fedge_engine_log_wait(fedge_engine *engine, uint64_t now_ms);

#endif

/* The engine's state, which the parts of the engine share: engine_reply.c (what it sends),
 * engine_phase.c (what the round machine asks), engine_upload.c (what clients send) and engine.c
 * (the run). Each uses those before it. */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_STATE_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_STATE_H

#include <pthread.h>

#include "aggregator/cluster/protocol/slot_lease.h"
#include "aggregator/exchange/quota.h"
#include "aggregator/run/engine.h"
#include "aggregator/run/ingest/ingest.h"
#include "aggregator/run/ingest/intake.h"
#include "aggregator/run/round_finalizer.h"
#include "aggregator/run/server_run.h"
#include "aggregator/threads/mailbox.h"

#define FEDGE_ENGINE_MAX_BAD_UPLOADS 3   /* useless uploads of one task before it is lost */
#define FEDGE_ENGINE_GONE_LINES 10       /* a second: refusals whose device is gone, logged */
#define FEDGE_ENGINE_SPACE_RETRY_MS 5000 /* between tries when the disk has no room */
#define FEDGE_ENGINE_WAIT_MS 5000        /* nobody at work for so long: the log says so */
#define FEDGE_ENGINE_WAIT_AGAIN_MS 60000 /* and again, when something has changed */

/* What sums, as it was when somebody looked. */
typedef struct fedge_sums_seen {
    char kind[16];
    uint32_t num_gpus;
    fedge_gpu_stats gpus[FEDGE_ACCUMULATOR_MAX_GPUS];
} fedge_sums_seen;

/* What is known of a slot's task in this phase. */
typedef struct fedge_engine_slot {
    uint64_t task_id; /* that the rest is about; 0: nothing was sent yet */
    uint32_t bad_uploads;
    fedge_slot_lease lease; /* of the slot, whatever its task */
    fedge_grant *asked;     /* for the lease; malloc'ed, NULL: none */
    bool timed;             /* an update counts that was uploaded in this start, in: */
    double seconds_upload;
    double loss, accuracy; /* EVALUATE */
    uint64_t examples;     /* EVALUATE */
} fedge_engine_slot;

/* Whom tasks are sent to; conn_id FEDGE_CONN_ALL: not connected, or it declined the plan. */
typedef struct fedge_engine_device {
    uint64_t conn_id;
    char device_id[FEDGE_UUID_TEXT];
    bool hangs_up, at_work; /* engine_not_before.c */
    uint64_t told;          /* the last task that this connection was sent; 0: none */
    uint32_t model, before; /* numbers of the models of its last task, and of the last that had
                               another; 0: not known */
} fedge_engine_device;

/* What of a phase is on other ranks too; nothing when alone. */
typedef struct fedge_engine_other_ranks {
    uint32_t num;     /* ranks that take updates besides this one */
    uint64_t phase;   /* counts those of this start */
    uint32_t waiting; /* ranks that have not answered OPEN or CLOSE */
    bool closing;     /* CLOSE was said: nothing more is granted; then: */
    fedge_rounds_action ending;
    fedge_round_summary summary;
    fedge_error worst;         /* of the answers to OPEN; status FEDGE_OK: none */
    fedge_journal_task *tasks; /* (phase.num_tasks), while OPEN is answered */
} fedge_engine_other_ranks;

/* The model after [base] rounds, which open tasks name (engine_async.h). */
typedef struct fedge_engine_old_model {
    uint32_t base;
    fedge_blob *model;
} fedge_engine_old_model;

/* A result that counted, and whose it was. */
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

    fedge_blob *plan, *model;                 /* model: its file, and server.control_size bytes */
    char model_hash[FEDGE_HASH_TEXT];         /* of the file alone */
    fedge_blob *deltas[FEDGE_DOWNLINK_STEPS]; /* to [model], num_deltas of them, from: */
    char bases[FEDGE_DOWNLINK_STEPS][FEDGE_HASH_TEXT]; /* the models before it, the newest first */
    uint32_t num_deltas;
    uint32_t model_number;         /* models that [model] has taken the place of */
    char initial[FEDGE_HASH_TEXT]; /* of model number 0, which clients can make; "": they cannot */
    fedge_engine_device *devices;  /* (num_devices), by client index */
    uint32_t num_devices;

    /* What outlives a phase (engine_async.h). */
    fedge_engine_old_model *old_models; /* (num_old_models) */
    uint32_t num_old_models;
    fedge_grant **deferred; /* (num_deferred) */
    uint32_t num_deferred;

    /* The present phase. */
    fedge_journal *journal; /* NULL between training phases */
    fedge_intake intake;    /* of what comes to this rank */
    fedge_engine_other_ranks other_ranks;
    fedge_journal_phase phase;
    fedge_engine_slot *slots;
    uint32_t num_slots;
    fedge_engine_accepted *accepted; /* of the phase before, for late questions */
    uint32_t num_accepted;
    uint64_t phase_started_ms, phase_bytes_up, phase_bytes_down;
    uint64_t retry_open_ms; /* ≠ 0: no room on the disk; try to open the phase again then */
    bool waiting_for_space;
    char lacks[FEDGE_RUN_STATE_TEXT - 32]; /* what space, while it waits for it */

    bool stalled; /* nobody is at work, since stalled_ms */
    uint64_t stalled_ms, wait_logged_ms;
    char wait_logged[FEDGE_RUN_STATE_TEXT];
    char gave_up[192];       /* the last client that gave up in this round, and why; "" when none */
    uint32_t gave_up_client; /* its index */

    uint64_t run_bytes_up, run_bytes_down;
    uint64_t updates_accepted, updates_refused, updates_duplicate;
    fedge_quota gone_lines; /* of the log, about updates whose devices are gone */
    uint32_t rounds_closed;
    double loss, accuracy;

    uint64_t round_ms; /* that a round takes, of late; 0: not known (engine_not_before.c) */
    uint64_t not_before_checked_ms;

    bool gpus_wanted; /* config.sums.gpus are to be opened with the next round */
    bool gpus_change; /* the round finalizer opens them: what sums is not to be looked at meanwhile,
                       */
    fedge_sums_seen seen; /* but here */

    bool draining;
    bool stopped_early;    /* no round follows the last closed one */
    bool nothing_held_out; /* the log has it that clients were to choose a model, and had no data */
    bool done;
    fedge_error failure; /* status FEDGE_OK: none */
};

/* The first failure is the engine's: it is done, and the log says why. */
void fedge_engine_fail(fedge_engine *engine, const fedge_error *err);

/* Not while engine->gpus_change. */
void fedge_engine_look_at_sums(const fedge_engine *engine, fedge_sums_seen *seen);

/* An evaluation by clients has closed: tells, once, when keep-best or early-stopping goes by it and
 * it has measured nothing. */
void fedge_engine_check_evaluation(fedge_engine *engine, const fedge_round_summary *summary);
/* The run is complete: tells when keep-best or early-stopping had nothing to go by. */
void fedge_engine_check_selection(const fedge_engine *engine);

/* The last closed round is the run's last, and the log says why. */
void fedge_engine_stop_early(fedge_engine *engine);

/* ---- replies ----------------------------------------------------------------------------------
 */

/* What the engine sends: all to connection [conn_id]; without memory the engine fails. */

/* The connection of a client; FEDGE_CONN_ALL: it has none. */
uint64_t fedge_engine_conn_of(const fedge_engine *engine, uint32_t client_index);
/* A message, with the member of [content] that belongs to it. */
void fedge_engine_send(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                       const fedge_reply *content);
void fedge_engine_send_notice(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                              const fedge_notice *notice);
void fedge_engine_send_blob(fedge_engine *engine, uint64_t conn_id, fedge_blob *blob,
                            uint64_t offset, uint64_t size);
/* A last message, and the end of the connection. */
void fedge_engine_close_conn(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                             fedge_reason reason, uint64_t after_ms, const char *text);
void fedge_engine_withdraw(fedge_engine *engine, fedge_blob *blob); /* to all */
void fedge_engine_tell_round(fedge_engine *engine, const fedge_round_summary *summary);

/* ---- orders to other ranks --------------------------------------------------------------------
 */

/* What the engine tells the ranks that take updates besides its own: where a phase opens and
 * closes, and who may take which slot's update. */

/* The rank that takes the bytes that come over this connection. */
uint32_t fedge_engine_rank_of(const fedge_engine *engine, uint64_t conn_id);

void fedge_engine_grant(fedge_engine *engine, uint32_t rank, const fedge_grant *grant);
void fedge_engine_recall(fedge_engine *engine, uint32_t slot);

/* The phase opens (with engine->other_ranks.tasks) or closes; false: there is nobody to wait for.
 */
bool fedge_engine_open_other_ranks(fedge_engine *engine);
bool fedge_engine_close_other_ranks(fedge_engine *engine, bool dropped);

/* ---- status -----------------------------------------------------------------------------------
 */

/* What the engine waits for, as /healthz and the log say it; and the event of it. */

void fedge_engine_describe(const fedge_engine *engine, char *text, size_t size);
void fedge_engine_log_wait(fedge_engine *engine, uint64_t now_ms);

#endif

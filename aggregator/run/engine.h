/* The run behind the connections: carries out what the round state machine decides.
 *
 * It is one thread's (engine_thread.h), which is asserted where something is done with it:
 * connections send it requests, and it posts replies, so that it knows no connection and no socket.
 * Slow work (disk, decoding, sums, evaluation) happens on
 * ingest workers and on the round finalizer's thread, which answer through a mailbox. Starting and
 * recovering are the same path: fedge_engine_new finds out where the run stands.
 */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/cluster/protocol/rank_message.h"
#include "aggregator/exchange/exchange.h"
#include "aggregator/exchange/run_link.h"
#include "aggregator/reduce/accumulator.h"
#include "aggregator/rounds/rounds.h"
#include "aggregator/rounds/selection.h"
#include "aggregator/store/run.h"
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

typedef struct fedge_engine fedge_engine;
struct fedge_evaluator;

typedef struct fedge_engine_config {
    const fedge_job *job;              /* outlives the engine */
    fedge_run_request run;             /* which one; its texts outlive the engine */
    struct fedge_evaluator *evaluator; /* of the job's test set; NULL: none. Outlives the engine */
    const char *state_dir;
    bool restored;                 /* a run that goes on is of a backup: raise its incarnation */
    uint32_t num_workers;          /* ingest threads, ≥ 1 */
    const char *accumulator;       /* what sums: the name of a kind, or "auto" */
    fedge_accumulator_config sums; /* what it is opened with, but for the layout */
    uint32_t (*num_registered)(void *registry); /* devices at present; thread-safe */
    void *registry;
    const fedge_rank_link *ranks; /* that take updates too; NULL: none. Outlives the engine */
    uint32_t return_every_us;     /* in which one device that has lost its connection is let in */
    uint32_t heartbeat_s;         /* what clients are told of it, ≥ 1 */
    const fedge_log *log;
    void (*wake)(void *user); /* wakes the engine's thread; thread-safe */
    void *wake_user;
    fedge_mailbox *replies;       /* fedge_reply; outlives the engine */
    const fedge_traffic *traffic; /* of all connections; likewise */
} fedge_engine_config;

/* Opens the state directory (and holds its lock), recovers or creates the run, starts the threads.
 */
FEDGE_MUST_USE fedge_status fedge_engine_new(const fedge_engine_config *config, uint64_t now_ms,
                                             fedge_engine **engine, fedge_error *err);
/* It belongs to the thread that calls this, from now on; at first, to the one that made it. */
void fedge_engine_hand_over(fedge_engine *engine);
/* Stops the threads, closes files. NULL is fine. */
void fedge_engine_free(fedge_engine *engine);

/* Time passes; requests and completions arrive; what follows is carried out. */
void fedge_engine_tick(fedge_engine *engine, uint64_t now_ms);
void fedge_engine_handle(fedge_engine *engine, fedge_request *request, uint64_t now_ms); /* frees */
void fedge_engine_handle_completions(fedge_engine *engine, uint64_t now_ms);
void fedge_engine_drain(fedge_engine *engine, uint64_t now_ms);
/* Peers that were paused may be read from again. */
void fedge_engine_resume_all(fedge_engine *engine);
/* True once the run is over (or drained) or a fatal error happened; *failure is FEDGE_OK or that
 * error. */
bool fedge_engine_done(const fedge_engine *engine, fedge_error *failure);

/* Leaves model.safetensors, with keep-best model-best.safetensors, and rounds.svg in the run's
 * directory, beside rounds.jsonl. To be called when fedge_engine_done. */
FEDGE_MUST_USE fedge_status fedge_engine_export(fedge_engine *engine, fedge_error *err);
/* After all results are written, those elsewhere too: marks a run that is complete as finished, so
 * that the next start begins a new one. A start before that comes back to where it writes them. */
FEDGE_MUST_USE fedge_status fedge_engine_conclude(fedge_engine *engine, fedge_error *err);

void fedge_engine_get_status(const fedge_engine *engine, fedge_run_status *status);

/* The run as one line of JSON, without its end: rounds, accuracy, loss, bytes_up, bytes_down,
 * seconds, model_sha256, run_dir. All is of the run, however many processes it took. What is not
 * known is null. *text is malloc'ed. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_engine_status_json(const fedge_run_status *status, char **text,
                                                     fedge_error *err);

#endif

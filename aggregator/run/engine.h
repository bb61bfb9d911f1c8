/* The run engine: carries out what the round state machine decides.
 *
 * One thread owns the engine (engine_thread.h); every call asserts it. The engine knows no
 * connection and no socket: requests come in, replies go out. Slow work (disk, decoding, sums,
 * evaluation) happens on ingest workers and on the round finalizer's thread, which answer by
 * completions in the engine's mailbox. Starting and recovering are one path: fedge_engine_new finds
 * out where the run stopped.
 *
 * The way of an update, by thread:
 *
 *   network    a connection parses UPLOAD and PART (aggregator/net) and posts each as a
 *              fedge_request: fedge_engine_thread_post
 *   engine     fedge_engine_handle → fedge_engine_upload: checks the announcement and leases the
 *              slot (engine_upload.c) → fedge_intake_grant: RESUME tells the client its first byte
 *              fedge_engine_part → fedge_intake_part (ingest/intake.c) → fedge_ingest_write, and
 *              with the last byte fedge_ingest_finish
 *   ingest     a worker (ingest/ingest.c) writes the bytes to the slot in the journal, validates
 *              the whole update, appends its record, syncs a group of updates at once, adds them to
 *              the sums and posts FEDGE_COMPLETION_VALIDATED
 *   engine     fedge_engine_handle_completions → fedge_engine_on_validated: reports the task to the
 *              round machine and posts the ACK
 *   network    the connection sends the ACK
 *
 * On another rank the rank worker (aggregator/cluster/rank_worker.c) takes the place of intake and
 * ingest; what it found comes to rank 0 as a FEDGE_REQUEST_REPORT. engine_upload.h says how an
 * upload resumes.
 */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/cluster/protocol/rank_message.h"
#include "aggregator/exchange/exchange.h"
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
    const fedge_job *job;  /* outlives the engine */
    fedge_run_request run; /* its texts outlive the engine */
    struct fedge_evaluator
        *evaluator; /* evaluates on the test set; NULL: none. Outlives the engine */
    const char *state_dir;
    bool restored;                 /* the state comes from a backup: raise the run's incarnation */
    uint32_t num_workers;          /* ingest threads, ≥ 1 */
    const char *accumulator;       /* name of a kind of accumulator, or "auto" */
    fedge_accumulator_config sums; /* configuration of the accumulator; the layout is filled in */
    uint32_t (*num_registered)(void *registry); /* number of devices at present; thread-safe */
    void *registry;
    const fedge_rank_link
        *ranks;               /* other ranks that take updates; NULL: none. Outlives the engine */
    uint32_t return_every_us; /* admission time of one device that reconnects */
    uint32_t heartbeat_s;     /* heartbeat interval sent to clients, ≥ 1 */
    const fedge_log *log;
    void (*wake)(void *user); /* wakes the engine's thread; thread-safe */
    void *wake_user;
    fedge_mailbox *replies;       /* mailbox of fedge_reply; outlives the engine */
    const fedge_traffic *traffic; /* counts all connections; outlives the engine */
} fedge_engine_config;

/* Opens the state directory (and holds its lock), recovers or creates the run, starts the threads.
 */
FEDGE_MUST_USE fedge_status fedge_engine_new(const fedge_engine_config *config, uint64_t now_ms,
                                             fedge_engine **engine, fedge_error *err);
/* Makes the calling thread the owner. At first it is the thread that called fedge_engine_new. */
void fedge_engine_hand_over(fedge_engine *engine);
/* Stops the threads, closes files. NULL is fine. */
void fedge_engine_free(fedge_engine *engine);

/* Each takes in an event (time, a request, completions) and carries out what follows from it. A
 * request is freed. */
void fedge_engine_tick(fedge_engine *engine, uint64_t now_ms);
void fedge_engine_handle(fedge_engine *engine, fedge_request *request, uint64_t now_ms);
void fedge_engine_handle_completions(fedge_engine *engine, uint64_t now_ms);
void fedge_engine_drain(fedge_engine *engine, uint64_t now_ms);
/* Tells all connections to read from paused peers again. */
void fedge_engine_resume_all(fedge_engine *engine);
/* True once the run is complete or drained, or after a fatal error. *failure: that error, or status
 * FEDGE_OK. */
bool fedge_engine_done(const fedge_engine *engine, fedge_error *failure);

/* Writes model.safetensors, rounds.svg and, with keep-best, model-best.safetensors to the run's
 * directory. Call it once fedge_engine_done returns true. */
FEDGE_MUST_USE fedge_status fedge_engine_export(fedge_engine *engine, fedge_error *err);
/* Marks a complete run as finished, so that the next start begins a new run. Call it after all
 * results are written, those outside the run's directory, too: a start before that writes them
 * again. */
FEDGE_MUST_USE fedge_status fedge_engine_conclude(fedge_engine *engine, fedge_error *err);

void fedge_engine_get_status(const fedge_engine *engine, fedge_run_status *status);

/* Writes the run as one line of JSON without a newline: rounds, accuracy, loss, bytes_up,
 * bytes_down, seconds, model_sha256, run_dir. The numbers cover the whole run, however many
 * processes it took; unknown ones are null. *text is malloc'ed. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_engine_status_json(const fedge_run_status *status, char **text,
                                                     fedge_error *err);

#endif

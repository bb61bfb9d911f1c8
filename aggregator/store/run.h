/* The state directory and its runs.
 *
 *     STATE/format.json                 {"format": 1}; a newer program reads an older format
 *     STATE/lock                        held by the one aggregator that uses the directory
 *     STATE/runs/RUN_ID/job.json        the job's bytes, as given
 *     STATE/runs/RUN_ID/run.json        number, incarnation, finished, next_task_id, job_sha256
 *     STATE/runs/RUN_ID/journal/        journal.h
 *     STATE/runs/RUN_ID/checkpoints/    checkpoint.h
 *     STATE/runs/RUN_ID/rounds.jsonl    round_log.h
 *     STATE/runs/RUN_ID/model.safetensors, rounds.svg    the results, after the last round
 *
 * Every start recovers: fedge_state_open, fedge_run_open, fedge_recover
 * (recovery.h).
 */
#ifndef FEDGE_AGGREGATOR_STORE_RUN_H
#define FEDGE_AGGREGATOR_STORE_RUN_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

#define FEDGE_STATE_FORMAT 1
#define FEDGE_MAX_RUNS 100000u /* run directories in one state directory */

/* A run's results, written before it is marked finished. */
#define FEDGE_RUN_MODEL "model.safetensors"
#define FEDGE_RUN_PICTURE "rounds.svg"
#define FEDGE_RUN_BEST_MODEL "model-best.safetensors"                   /* written with keep-best */
#define FEDGE_RUN_CLUSTER_MODEL "model-cluster-%" PRIu32 ".safetensors" /* N from 1 */
#define FEDGE_RUN_RESULT_NAME 48 /* bytes; enough for each of these names */

/* An open (locked) state directory. Plain data. */
typedef struct fedge_state {
    int lock; /* −1 when not held */
    char dir[FEDGE_MAX_PATH];
} fedge_state;

/* Creates the directory if necessary, takes the lock, checks the format and removes runs whose
 * creation was interrupted. FEDGE_BUSY: another aggregator uses it (the message has its pid).
 * FEDGE_UNSUPPORTED: a newer release wrote it. FEDGE_CORRUPT: format.json is not readable. */
FEDGE_MUST_USE fedge_status fedge_state_open(const char *dir, fedge_state *state, fedge_error *err);
/* FEDGE_BUSY: another process, named by the message, has the state directory open. Creates nothing.
 */
FEDGE_MUST_USE fedge_status fedge_state_check_unused(const char *dir, fedge_error *err);
void fedge_state_close(fedge_state *state); /* may be called again */

/* One execution of a job. Plain data; the files are authoritative. */
typedef struct fedge_run {
    char dir[FEDGE_MAX_PATH];       /* path STATE/runs/RUN_ID */
    char run_id[FEDGE_RUN_ID_TEXT]; /* random, 128 bits */
    uint64_t number; /* number within the state directory, from 1: the newest run has the highest */
    uint32_t incarnation;  /* ≥ 1; raised when a backup is restored */
    uint64_t next_task_id; /* first one of the last start; 0: none yet, or an older release's run */
    char job_sha256[FEDGE_HASH_TEXT]; /* SHA-256 of job.json; "": an older release's run */
    bool finished; /* set by fedge_run_open when the request names it or its results are missing */
    bool resumed;  /* the run existed before fedge_run_open */
    char lost[FEDGE_RUN_ID_TEXT]; /* new run: ID of the finished one whose results are missing and
                                     cannot be rewritten; "": none */
} fedge_run;

/* The run that a start requests. */
typedef struct fedge_run_request {
    const char *job; /* (job_size): the job's bytes */
    size_t job_size;
    const char *result;          /* a result outside the run's directory; NULL: none */
    const char *run_id;          /* the run to open, finished or not; NULL or "": any */
    bool new_run;                /* make a new one even if one is unfinished */
    uint32_t num_cluster_models; /* results besides the model */
} fedge_run_request;

/* Opens the first of these that exists:
 *
 *  1. the run of this job named by request->run_id;
 *  2. unless new_run: the newest unfinished run of this job;
 *  3. unless new_run: the newest finished run of this job, if one of its results is missing
 * (models, picture, the best round's model if it has one, request->result) and a checkpoint can
 * restore it;
 *  4. a new run.
 *
 * A run is of this job if its job.json equals the given one byte by byte. FEDGE_CORRUPT: the
 * SHA-256 in a run.json is that of the given job, but job.json differs. FEDGE_MISMATCH, in place of
 * 4: an unfinished run of another job exists and new_run is not set; the message says what to do.
 */
FEDGE_MUST_USE fedge_status fedge_run_open(const fedge_state *state,
                                           const fedge_run_request *request, fedge_run *run,
                                           fedge_error *err);

/* Records durably that all rounds are done and the results are written: the next start with this
 * job makes a new run. */
FEDGE_MUST_USE fedge_status fedge_run_finish(fedge_run *run, fedge_error *err);

/* Records durably the first task id of this start, before one is issued, so that the next start
 * begins far beyond it (recovery.h) whatever this one leaves behind. */
FEDGE_MUST_USE fedge_status fedge_run_begin_task_ids(fedge_run *run, uint64_t next_task_id,
                                                     fedge_error *err);

/* Call it after restoring a backup: updates and residuals that clients hold from the former
 * incarnation are then refused. A backup that is restored twice gets two incarnations (but for one
 * of 65,536 pairs). */
FEDGE_MUST_USE fedge_status fedge_run_raise_incarnation(fedge_run *run, fedge_error *err);

/* Paths inside the run: "journal", "checkpoints", "rounds.jsonl". FEDGE_TOO_BIG. */
FEDGE_MUST_USE fedge_status fedge_run_path(const fedge_run *run, const char *name,
                                           char path[FEDGE_MAX_PATH], fedge_error *err);

#endif

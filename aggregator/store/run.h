/* The state directory and its runs.
 *
 *     STATE/format.json                 {"format": 1}; a newer program reads an older format
 *     STATE/lock                        held by the one aggregator that uses the directory
 *     STATE/runs/RUN_ID/job.json        the job's bytes, as given
 *     STATE/runs/RUN_ID/run.json        number, incarnation, finished, next_task_id, job_sha256
 *     STATE/runs/RUN_ID/journal/        journal.h
 *     STATE/runs/RUN_ID/checkpoints/    checkpoint.h
 *     STATE/runs/RUN_ID/rounds.jsonl    round_log.h
 *     STATE/runs/RUN_ID/model.safetensors, rounds.svg    the results, once all rounds are done
 *
 * Start and recovery are one path: fedge_state_open, fedge_run_open, fedge_recover (recovery.h).
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
#define FEDGE_MAX_RUNS 100000u /* run directories looked at in one state directory */

/* A run's results, which are there before it is marked finished. */
#define FEDGE_RUN_MODEL "model.safetensors"
#define FEDGE_RUN_PICTURE "rounds.svg"
#define FEDGE_RUN_BEST_MODEL "model-best.safetensors"                   /* with keep-best */
#define FEDGE_RUN_CLUSTER_MODEL "model-cluster-%" PRIu32 ".safetensors" /* from 1 */
#define FEDGE_RUN_RESULT_NAME 48 /* bytes of the longest of these names, and more */

/* An open (locked) state directory. Plain data. */
typedef struct fedge_state {
    int lock; /* −1 when not held */
    char dir[FEDGE_MAX_PATH];
} fedge_state;

/* Creates what is missing, takes the lock, checks the format, removes what an interrupted creation
 * left. FEDGE_BUSY: another aggregator uses it (the message has its pid); FEDGE_UNSUPPORTED:
 * written by a newer release; FEDGE_CORRUPT: format.json is not readable. */
FEDGE_MUST_USE fedge_status fedge_state_open(const char *dir, fedge_state *state, fedge_error *err);
/* FEDGE_BUSY: another process has opened the state directory, and the message names it. Nothing is
 * created. */
FEDGE_MUST_USE fedge_status fedge_state_check_unused(const char *dir, fedge_error *err);
void fedge_state_close(fedge_state *state); /* one that is closed is fine */

/* One execution of a job. Plain data; the files are the truth. */
typedef struct fedge_run {
    char dir[FEDGE_MAX_PATH];       /* STATE/runs/RUN_ID */
    char run_id[FEDGE_RUN_ID_TEXT]; /* random, 128 bits */
    uint64_t number;       /* of the run in its state directory, from 1: the newest is highest */
    uint32_t incarnation;  /* from 1; raised when a backup is restored */
    uint64_t next_task_id; /* that the last start began with; 0: of an older release, or none yet */
    char job_sha256[FEDGE_HASH_TEXT]; /* of job.json; "": of an older release */
    bool finished; /* after fedge_run_open: it was named, or its results are missing */
    bool resumed;  /* existed before fedge_run_open */
    char lost[FEDGE_RUN_ID_TEXT]; /* of a new run: the finished one whose missing results nothing is
                                     left to write from; "": none */
} fedge_run;

/* Which run a start asks for. */
typedef struct fedge_run_request {
    const char *job; /* job[0, job_size): its bytes */
    size_t job_size;
    const char *result;          /* a result outside of the run's directory; NULL: none */
    const char *run_id;          /* the run to open, finished or not; NULL or "": none is named */
    bool new_run;                /* a new one although one is open */
    uint32_t num_cluster_models; /* that it leaves beside the model */
} fedge_run_request;

/* Opens the newest unfinished run whose job.json equals the given job byte by byte (by the SHA-256
 * in its run.json: FEDGE_CORRUPT when that is the given job's and job.json has another). Where
 * there is none, opens the newest finished run of this job if one of its results is missing
 * (models, picture, the best round's model if it has one, request->result) and there is a
 * checkpoint to make it from. Otherwise, or with new_run, makes a new run. Before all that, the run
 * of this job that run_id names is opened. FEDGE_MISMATCH: there are unfinished runs, of other jobs
 * only; the message says what to do. */
FEDGE_MUST_USE fedge_status fedge_run_open(const fedge_state *state,
                                           const fedge_run_request *request, fedge_run *run,
                                           fedge_error *err);

/* Records (durably) that all rounds are done and the results are there: the next start with this
 * job makes a new run. */
FEDGE_MUST_USE fedge_status fedge_run_finish(fedge_run *run, fedge_error *err);

/* Records (durably) with which task id this start begins, before one is given out: the next start
 * begins far behind it (recovery.h), whatever this one leaves. */
FEDGE_MUST_USE fedge_status fedge_run_begin_task_ids(fedge_run *run, uint64_t next_task_id,
                                                     fedge_error *err);

/* To be called after a backup was put back: updates and residuals that clients hold of the former
 * incarnation are refused from now on. */
FEDGE_MUST_USE fedge_status fedge_run_raise_incarnation(fedge_run *run, fedge_error *err);

/* Paths inside the run: "journal", "checkpoints", "rounds.jsonl". FEDGE_TOO_BIG when too long. */
FEDGE_MUST_USE fedge_status fedge_run_path(const fedge_run *run, const char *name,
                                           char path[FEDGE_MAX_PATH], fedge_error *err);

#endif

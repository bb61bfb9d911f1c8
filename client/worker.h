/* The thread that loads plans and trains models, while the link's thread serves the server.
 *
 * One assignment at a time, from blob to durable result:
 *   plan:     blob → JSON → site policy → check → initial model → callback
 *   train:    blob → values → callback → delta → encoded update → store
 *   evaluate: blob → values → callback → metrics → store
 */
#ifndef FEDGE_CLIENT_WORKER_H
#define FEDGE_CLIENT_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "client/fedge_client.h"
#include "client/store.h"
#include "edge/wire/protocol.h"

typedef enum fedge_assignment_kind {
    FEDGE_ASSIGNMENT_NONE,
    FEDGE_ASSIGNMENT_PLAN,
    FEDGE_ASSIGNMENT_TASK
} fedge_assignment_kind;

/* An assignment. Plain data. */
typedef struct fedge_assignment {
    fedge_assignment_kind kind;
    char run_id[FEDGE_RUN_ID_TEXT];
    uint32_t incarnation, client_index;
    char plan_hash[FEDGE_HASH_TEXT]; /* PLAN */
    uint64_t plan_size;
    char initial_model[FEDGE_HASH_TEXT]; /* WELCOME's; used by PLAN */
    bool new_run;    /* other blobs in the store belong to another run; used by PLAN */
    fedge_task task; /* TASK */
} fedge_assignment;

/* Result of an assignment: max_model_size of a plan; for a task the upload, already stored. */
typedef struct fedge_worker_result {
    fedge_assignment assignment;
    fedge_status status;
    fedge_error error;
    bool bad_blob; /* the blob is missing or has a wrong hash: fetch it again */
    uint64_t max_model_size;
    fedge_upload upload;
} fedge_worker_result;

typedef struct fedge_worker_config {
    fedge_client *client;
    fedge_client_callbacks callbacks;
    const struct fedge_site *site;
    fedge_store *store;
    const fedge_log *log;     /* may be NULL */
    void (*done)(void *user); /* called on the worker's thread when a result is ready */
    void *user;
} fedge_worker_config;

typedef struct fedge_worker fedge_worker;

FEDGE_MUST_USE fedge_status fedge_worker_new(const fedge_worker_config *config,
                                             fedge_worker **worker, fedge_error *err);
/* Cancels the present assignment and waits for it. NULL is allowed. */
void fedge_worker_free(fedge_worker *worker);

/* Starts the assignment after the present one. Replaces one that has not started. */
void fedge_worker_start(fedge_worker *worker, const fedge_assignment *assignment);
/* Takes the result of a finished assignment; false if there is none. */
bool fedge_worker_take(fedge_worker *worker, fedge_worker_result *result);
/* Asks the running task to end. */
void fedge_worker_cancel(fedge_worker *worker);
bool fedge_worker_cancelled(fedge_worker *worker);
/* The run of the present assignment; for callbacks. */
const char *fedge_worker_run_id(const fedge_worker *worker);
bool fedge_worker_busy(fedge_worker *worker);
/* Waits at most [ms] for the end of the present assignment; false if it still runs. */
bool fedge_worker_wait(fedge_worker *worker, uint64_t ms);

/* The plan as callbacks see it; it borrows both. */
fedge_client_plan fedge_worker_view(const struct fedge_plan *plan, const char *run_id);
/* FEDGE_INVALID_ARGUMENT: a report that every server would refuse. */
FEDGE_MUST_USE fedge_status fedge_worker_check_report(const fedge_client_report *report,
                                                      fedge_task_kind kind, fedge_error *err);

#endif

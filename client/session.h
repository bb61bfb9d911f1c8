/* The client's side of the protocol as a pure state machine: no I/O, no clock, no threads.
 *
 * Events and the time go in by function calls; what is to be done comes out of
 * fedge_session_next(). After every event the owner calls it until it returns false:
 *
 *   fedge_session_frame(session, now_ms, frame, size);
 *   while (fedge_session_next(session, writeable, &action))
 *       perform(&action);
 *
 * Frames to send come out only when [writeable] is true, one each time that the link takes one, so
 * nothing queues up: pending messages are a handful of flags, and parts of an upload are made when
 * the link is writeable.
 *
 *   OFFLINE → CONNECTING → GREETING (HELLO sent) → ONLINE (WELCOME read) → OFFLINE … → STOPPED
 *
 * Beside it runs the work: plan (fetch, load, ready), task (fetch model, work), result (stored,
 * announced, sent, acknowledged). One task and one result at a time: a new task waits until the
 * result of the one before is acknowledged or refused. A result that is stored is never computed
 * again: its bytes are offered until the server has answered.
 */
#ifndef FEDGE_CLIENT_SESSION_H
#define FEDGE_CLIENT_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/exit_codes.h"
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/wire/protocol.h"

/* Attempts to download a damaged blob before the link is dropped, and to upload before the result
 * is discarded. */
#define FEDGE_SESSION_MAX_REPEATS 3
/* A result is discarded once a server has requested this many times its bytes again. */
#define FEDGE_SESSION_MAX_RESENT 16u
/* Time limit for sending the last message (BYE, DECLINE). */
#define FEDGE_SESSION_FAREWELL_MS 400
#define FEDGE_SESSION_NEVER UINT64_MAX
#define FEDGE_SESSION_MAX_LATER_MS 86400000 /* maximum wait that a server can request */

typedef struct fedge_session_config {
    uint64_t backoff_base_ms; /* the n-th retry waits uniformly in [0, min(cap, base · 2^n)] */
    uint64_t backoff_cap_ms;
    uint32_t num_servers;         /* servers tried before n grows; 0 counts as 1 */
    uint64_t progress_timeout_ms; /* time without progress after which a link is dropped */
    uint64_t jitter_seed;         /* different on each device */
    const fedge_hello *hello;     /* must outlive the session; its errors may change */
} fedge_session_config;

typedef enum fedge_session_action_type {
    FEDGE_SESSION_CONNECT, /* open the link */
    FEDGE_SESSION_CLOSE, /* close it with [reason] and [text]; the next goes to another server, with
                            [flag] to the same one, or to [server] */
    FEDGE_SESSION_SEND,  /* send [data]: a frame, valid until the next call */
    FEDGE_SESSION_SEND_PART, /* send PART: bytes [offset, offset + data_size) of result task_id */
    FEDGE_SESSION_WELCOMED, /* store [welcome]; with [flag], first discard everything of the old run
                             */
    FEDGE_SESSION_LOOKUP_BLOB, /* answer with fedge_session_blob_at; for the model of [task] with
                                  deltas, maybe with fedge_session_base_held. task->delta: the blob
                                  is this delta; [task] is NULL for a plan. With task->parts also
                                  fedge_session_wants_list, and once task->list is HELD,
                                  fedge_session_blob_run */
    FEDGE_SESSION_STORE_CHUNK, /* write [data] of blob [hash] at [offset]; then call blob_at. [data]
                                  points into the last frame. If these two fail, call
                                  fedge_session_store_failed */
    FEDGE_SESSION_LOAD_PLAN,   /* verify and load blob [hash] of [size] bytes as the plan */
    FEDGE_SESSION_WORK,        /* do [task] with blob task->model */
    FEDGE_SESSION_CANCEL,      /* cancel the present work; it still reports its end */
    FEDGE_SESSION_DISCARD_RESULT, /* forget the stored result */
    FEDGE_SESSION_NOTE,           /* log [event] and [text] at [level] */
    FEDGE_SESSION_STOP            /* end with [exit_code]; nothing follows */
} fedge_session_action_type;

typedef struct fedge_session_action {
    fedge_session_action_type type;
    char hash[FEDGE_HASH_TEXT];
    uint64_t task_id, offset, size;
    const uint8_t *data;
    uint32_t data_size;
    const fedge_welcome *welcome; /* the session's; valid until the next event */
    const fedge_task *task;       /* the session's; valid until the next event */
    bool flag;
    fedge_reason reason;
    fedge_exit exit_code;
    const char *server; /* the address the server redirects to, or ""; owned as [welcome] is */
    fedge_log_level level;
    const char *event; /* static text */
    char text[FEDGE_MAX_TEXT];
} fedge_session_action;

typedef struct fedge_session fedge_session;

/* Allocates a session; free it with fedge_session_free. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_session_new(const fedge_session_config *config,
                                              fedge_session **session, fedge_error *err);
void fedge_session_free(fedge_session *session); /* NULL is allowed */

/* Before start: the run and the unacknowledged result of an earlier process; "" and NULL: none. */
void fedge_session_restore(fedge_session *session, const char *run_id, uint32_t incarnation,
                           const fedge_upload *result);

/* --- events; now_ms is monotonic and never goes back --- */

/* Requests the first connection at once. */
void fedge_session_start(fedge_session *session, uint64_t now_ms);
void fedge_session_connected(fedge_session *session, uint64_t now_ms);
/* The link is down, or could not be opened. [http_status]: the server's answer to the upgrade, or
 * 0. 403 ends the session: this device is not admitted. */
void fedge_session_disconnected(fedge_session *session, uint64_t now_ms, unsigned http_status,
                                const char *why);
/* A whole binary message. */
void fedge_session_frame(fedge_session *session, uint64_t now_ms, const uint8_t *frame,
                         size_t size);
/* Received bytes are no message: a text frame, a bad header, or one over the limit. */
void fedge_session_garbage(fedge_session *session, uint64_t now_ms, const char *what);
/* Blob [hash] could not be looked up, or its chunk not be stored: its fetch stops until the next
 * task, and a waiting task is declined with [reason]. */
void fedge_session_store_failed(fedge_session *session, uint64_t now_ms, const char *hash,
                                fedge_reason reason, const char *text);
/* [offset] bytes of the blob are stored; its size if it is complete. */
void fedge_session_blob_at(fedge_session *session, uint64_t now_ms, const char *hash,
                           uint64_t offset);
/* Nothing of model [hash] is stored, but the whole base of the task's delta [index]: the delta is
 * fetched, and work->delta becomes index + 1. */
void fedge_session_base_held(fedge_session *session, uint64_t now_ms, const char *hash,
                             uint32_t index);
/* Parts of the task's model [hash] may be stored: its list of parts is fetched first. */
void fedge_session_wants_list(fedge_session *session, uint64_t now_ms, const char *hash);
/* As fedge_session_blob_at, but only the bytes up to [end] are fetched; then the blob is looked up
 * again. end == offset: the lookup continues in the next call. */
void fedge_session_blob_run(fedge_session *session, uint64_t now_ms, const char *hash,
                            uint64_t offset, uint64_t end);
/* The blob had a wrong hash and was removed: it is fetched again from byte 0. Instead of a damaged
 * delta, or one that does not make its model, the whole model is fetched. */
void fedge_session_blob_bad(fedge_session *session, uint64_t now_ms, const char *hash);
/* Plan [hash] is loaded; ignored if it is not the present one. [max_model_size]: limit of a model's
 * blob. */
void fedge_session_plan_ready(fedge_session *session, uint64_t now_ms, const char *hash,
                              uint64_t max_model_size);
/* Sends DECLINE with the reason and ends with [exit_code]. */
void fedge_session_plan_failed(fedge_session *session, uint64_t now_ms, const char *hash,
                               fedge_reason reason, fedge_exit exit_code, const char *text);
/* The work has a result, which the store has made durable. */
void fedge_session_task_done(fedge_session *session, uint64_t now_ms, const fedge_upload *result);
/* The work ended without a result. FEDGE_REASON_NONE: it was cancelled, and the server is not told.
 */
void fedge_session_task_failed(fedge_session *session, uint64_t now_ms, fedge_reason reason,
                               const char *text);
/* The device's policy temporarily forbids the waiting or running task: it is declined with the
 * reason and a time to ask again. Without a task nothing happens. */
void fedge_session_task_declined(fedge_session *session, uint64_t now_ms, fedge_reason reason,
                                 uint64_t after_ms, const char *text);
/* The stored result is unreadable. */
void fedge_session_result_lost(fedge_session *session, uint64_t now_ms, const char *text);
/* Handles timeouts. Due at fedge_session_deadline(); earlier calls are harmless. */
void fedge_session_tick(fedge_session *session, uint64_t now_ms);
/* Sends BYE, closes and stops with [exit_code] within FEDGE_SESSION_FAREWELL_MS. */
void fedge_session_stop(fedge_session *session, uint64_t now_ms, fedge_exit exit_code,
                        const char *text);

/* --- what is to be done --- */

/* The next action, or false. With [writeable] it may be one SEND or SEND_PART; then pass false
 * until the link is writeable again. */
bool fedge_session_next(fedge_session *session, bool writeable, fedge_session_action *action);
/* Whether a frame waits for a writeable link. */
bool fedge_session_wants_write(const fedge_session *session);
/* When fedge_session_tick is due; FEDGE_SESSION_NEVER if no timeout is pending. */
uint64_t fedge_session_deadline(const fedge_session *session);
/* Whether a task waits (for its model, or an earlier result's acknowledgement) or runs. */
bool fedge_session_has_task(const fedge_session *session);

#endif

/* The client's side of the protocol as a pure state machine: no I/O, no clock, no threads.
 *
 * Events and the time go in by function calls; what is to be done comes out of
 * fedge_session_next(). After every event the owner calls it until it returns false:
 *
 *   fedge_session_frame(session, now_ms, frame, size);
 *   while (fedge_session_next(session, writeable, &action))
 *       perform(&action);
 *
 * Frames to send come out only when [writeable] is true, one for each time the link takes one, so
 * nothing queues up: what is still to be said is a handful of flags, and parts of an upload are
 * made when the link has room for them.
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

/* A download or an upload that was found damaged is repeated this often before the link is given up
 * (download) or the result is discarded (upload). */
#define FEDGE_SESSION_MAX_REPEATS 3
/* A result whose bytes a server has asked for again, in all this often, is discarded. */
#define FEDGE_SESSION_MAX_AGAIN 16u
/* How long the last message (BYE, DECLINE) may wait for a writeable link. */
#define FEDGE_SESSION_FAREWELL_MS 400
#define FEDGE_SESSION_NEVER UINT64_MAX
#define FEDGE_SESSION_MAX_LATER_MS                                                                 \
    86400000 /* a server that asks for more is not waited for longer */

typedef struct fedge_session_config {
    uint64_t backoff_base_ms; /* the n-th retry waits uniformly in [0, min(cap, base · 2^n)] */
    uint64_t backoff_cap_ms;
    uint32_t num_servers;         /* that are tried in turn before n grows; 0 is as 1 */
    uint64_t progress_timeout_ms; /* without progress for so long, the link is dropped */
    uint64_t jitter_seed;         /* different on each device */
    const fedge_hello *hello;     /* must outlive the session; its errors may change */
} fedge_session_config;

typedef enum fedge_session_action_type {
    FEDGE_SESSION_CONNECT,     /* open the link */
    FEDGE_SESSION_CLOSE,       /* close it, telling the peer [reason] and [text]; the next goes to
                                  another server, with [flag] to the same, or to [server] */
    FEDGE_SESSION_SEND,        /* send [data]: a frame, valid until the next call */
    FEDGE_SESSION_SEND_PART,   /* send PART: bytes [offset, offset + data_size) of result task_id */
    FEDGE_SESSION_WELCOMED,    /* store [welcome]; when [flag], first discard all of the old run */
    FEDGE_SESSION_LOOKUP_BLOB, /* answer by fedge_session_blob_at; or, when it is the model of
                                  [task], to which deltas may lead, by fedge_session_base_held.
                                  task->delta: it is this delta; of a plan [task] is NULL.
                                  With task->parts also fedge_session_wants_list, and once
                                  task->list is HELD, fedge_session_blob_run */
    FEDGE_SESSION_STORE_CHUNK, /* write [data] of blob [hash] at [offset]; then blob_at.
                                 [data] points into the frame last given. A failure of these
                                 two is fedge_session_store_failed */
    FEDGE_SESSION_LOAD_PLAN,   /* verify and load blob [hash] of [size] bytes as the plan */
    FEDGE_SESSION_WORK,        /* do [task] with blob task->model */
    FEDGE_SESSION_CANCEL,      /* stop the work under way; it still reports its end */
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
    const fedge_task *task;       /* likewise */
    bool flag;
    fedge_reason reason;
    fedge_exit exit_code;
    const char *server; /* where the server sends this client; the session's, as welcome; or "" */
    fedge_log_level level;
    const char *event; /* static text */
    char text[FEDGE_MAX_TEXT];
} fedge_session_action;

typedef struct fedge_session fedge_session;

/* Heap; the caller frees with fedge_session_free. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_session_new(const fedge_session_config *config,
                                              fedge_session **session, fedge_error *err);
void fedge_session_free(fedge_session *session); /* NULL is fine */

/* Before start: what an earlier process left. [run_id] "" when nothing; [result] NULL when none. */
void fedge_session_restore(fedge_session *session, const char *run_id, uint32_t incarnation,
                           const fedge_upload *result);

/* --- events; now_ms is monotonic and never goes back --- */

/* First connection, at once. */
void fedge_session_start(fedge_session *session, uint64_t now_ms);
void fedge_session_connected(fedge_session *session, uint64_t now_ms);
/* The link is gone, or did not come up. [http_status]: what the server answered to the upgrade, 0
 * when it did not come to that. 403 ends the session: this device is not admitted. */
void fedge_session_disconnected(fedge_session *session, uint64_t now_ms, unsigned http_status,
                                const char *why);
/* A whole binary message. */
void fedge_session_frame(fedge_session *session, uint64_t now_ms, const uint8_t *frame,
                         size_t size);
/* What came is not a message: a text frame, a bad header, one over the limit. */
void fedge_session_garbage(fedge_session *session, uint64_t now_ms, const char *what);
/* Blob [hash] could not be looked up, or a chunk of it not be stored: its fetch is given up until
 * the next task, and a task that waits is declined with [reason]. */
void fedge_session_store_failed(fedge_session *session, uint64_t now_ms, const char *hash,
                                fedge_reason reason, const char *text);
/* So many bytes of the blob are stored; a whole one is its size. */
void fedge_session_blob_at(fedge_session *session, uint64_t now_ms, const char *hash,
                           uint64_t offset);
/* Of model [hash] no byte is stored, but the whole base of the task's delta [index]: the delta is
 * fetched, and work->delta says so. */
void fedge_session_base_held(fedge_session *session, uint64_t now_ms, const char *hash,
                             uint32_t index);
/* Of the task's model [hash] parts may be held already: the list of them is fetched before it. */
void fedge_session_wants_list(fedge_session *session, uint64_t now_ms, const char *hash);
/* As fedge_session_blob_at: but only the bytes up to [end] are fetched, then the blob is looked up
 * again. end == offset: the owner has not looked at all of it, and goes on when it is asked again.
 */
void fedge_session_blob_run(fedge_session *session, uint64_t now_ms, const char *hash,
                            uint64_t offset, uint64_t end);
/* The blob does not have its hash (and has been removed): it is fetched again from byte 0;
 * a delta, or one that does not make its model: the whole model is fetched. */
void fedge_session_blob_bad(fedge_session *session, uint64_t now_ms, const char *hash);
/* Plan [hash] is loaded (one that is not wanted any more is passed over).
 * [max_model_size]: largest model blob that fits it. */
void fedge_session_plan_ready(fedge_session *session, uint64_t now_ms, const char *hash,
                              uint64_t max_model_size);
/* Says DECLINE with the reason and ends with [exit_code]. */
void fedge_session_plan_failed(fedge_session *session, uint64_t now_ms, const char *hash,
                               fedge_reason reason, fedge_exit exit_code, const char *text);
/* The work ended with a result, which is durable in the store. */
void fedge_session_task_done(fedge_session *session, uint64_t now_ms, const fedge_upload *result);
/* It ended without one. FEDGE_REASON_NONE: it was cancelled, and nothing is said. */
void fedge_session_task_failed(fedge_session *session, uint64_t now_ms, fedge_reason reason,
                               const char *text);
/* The device's policy does not allow the task that waits, or the work under way, at this moment: it
 * is given up, and the server told why and when to ask again. Nothing happens without either. */
void fedge_session_task_declined(fedge_session *session, uint64_t now_ms, fedge_reason reason,
                                 uint64_t after_ms, const char *text);
/* The stored result cannot be read any more. */
void fedge_session_result_lost(fedge_session *session, uint64_t now_ms, const char *text);
/* Time has passed. Due when now_ms reaches fedge_session_deadline(); earlier calls are harmless. */
void fedge_session_tick(fedge_session *session, uint64_t now_ms);
/* Say BYE, close and stop with [exit_code]: within FEDGE_SESSION_FAREWELL_MS. */
void fedge_session_stop(fedge_session *session, uint64_t now_ms, fedge_exit exit_code,
                        const char *text);

/* --- what is to be done --- */

/* The next action, or false. With [writeable] it may be one SEND or SEND_PART: pass false again
 * until the link has room for another. */
bool fedge_session_next(fedge_session *session, bool writeable, fedge_session_action *action);
/* True when a frame waits for a writeable link. */
bool fedge_session_wants_write(const fedge_session *session);
/* When fedge_session_tick is due; FEDGE_SESSION_NEVER when nothing is timed. */
uint64_t fedge_session_deadline(const fedge_session *session);
/* There is a task that waits, for its model or behind a result, or is worked on and still wanted.
 */
bool fedge_session_has_task(const fedge_session *session);

#endif

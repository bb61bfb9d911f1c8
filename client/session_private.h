/* The struct of the session, shared by session.c (events, time, sending) and session_read.c
 * (messages). */
#ifndef FEDGE_CLIENT_SESSION_PRIVATE_H
#define FEDGE_CLIENT_SESSION_PRIVATE_H

#include "client/session.h"
#include "edge/core/rng.h"

/* Maximum actions of an event; the owner drains them after each. */
#define FEDGE_SESSION_MAX_ACTIONS 16

typedef enum session_link {
    LINK_OFFLINE,
    LINK_CONNECTING,
    LINK_GREETING,
    LINK_ONLINE
} session_link;

typedef enum session_blob {
    BLOB_UNKNOWN, /* not looked up yet */
    BLOB_LOOKUP,  /* the store was asked */
    BLOB_FETCH,   /* chunks are arriving */
    BLOB_WHOLE
} session_blob;

typedef enum session_plan_state { PLAN_NONE, PLAN_LOADING, PLAN_READY } session_plan_state;

typedef enum session_upload {
    UPLOAD_NONE,
    UPLOAD_ANNOUNCE, /* UPLOAD is to be sent */
    UPLOAD_ANNOUNCED,
    UPLOAD_SENDING,
    UPLOAD_SENT,  /* waiting for ACK */
    UPLOAD_PAUSED /* the server asked to retry later */
} session_upload;

/* A blob being fetched from the server. */
typedef struct session_fetch {
    session_blob state;
    char hash[FEDGE_HASH_TEXT];
    uint64_t size, offset;
    uint64_t end;  /* end of the bytes to fetch now; 0: all */
    bool look;     /* look it up again after serving the link */
    bool ask;      /* send FETCH */
    bool repaired; /* fetched again after a gap; no matching chunk has arrived since */
    bool refused;  /* a FETCH was refused; no chunk has arrived since */
    unsigned bad;  /* downloads with another hash */
} session_fetch;

struct fedge_session {
    fedge_session_config config;
    fedge_rng jitter;

    session_link link;
    uint64_t now_ms;      /* time of the last event */
    uint64_t connect_at;  /* time of the next attempt while offline */
    uint64_t progress_at; /* last time that a transfer made progress */
    uint64_t online_since;
    unsigned attempt;  /* retries since the last progress */
    unsigned replaced; /* consecutive replacements of this device's connection by another */

    char run_id[FEDGE_RUN_ID_TEXT]; /* "" if unknown */
    uint32_t incarnation;
    fedge_welcome welcome;
    fedge_notice last; /* the server's notice that ends this link; all 0: none */

    session_plan_state plan;
    session_fetch plan_fetch;
    uint64_t max_model_size;

    bool has_task;  /* received, not started */
    bool working;   /* the owner works on [work] */
    bool cancelled; /* the result of [work] is unwanted */
    fedge_task task, work, incoming;
    session_fetch model_fetch;

    bool has_result;
    fedge_upload result;
    session_upload upload;
    uint64_t upload_offset, upload_retry_at;
    uint64_t bytes_resent; /* bytes that were sent and asked for again */
    unsigned upload_repeats;

    bool say_hello, say_decline;
    fedge_notice decline;

    bool stopping, stopped, say_farewell;
    fedge_message_type farewell_type;
    fedge_notice farewell;
    uint64_t stop_at;
    fedge_exit exit_code;
    char stop_text[FEDGE_MAX_TEXT];

    fedge_session_action actions[FEDGE_SESSION_MAX_ACTIONS];
    unsigned first_action, num_actions;
    uint8_t frame[FEDGE_MESSAGE_HEADER_SIZE + FEDGE_MESSAGE_MAX_META];
};

/* Appends an action and returns it, for its fields to be set. */
fedge_session_action *fedge_session_push(fedge_session *s, fedge_session_action_type type);
void fedge_session_note(fedge_session *s, fedge_log_level level, const char *event,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The server answered something useful: restarts the timeout and resets the backoff. */
void fedge_session_progress(fedge_session *s);
/* Closes the link, if there is one, and reconnects after the backoff, or after [later_ms]. */
void fedge_session_drop(fedge_session *s, fedge_reason reason, uint64_t later_ms, const char *text);
/* Begins the end; sends the notice first if [farewell] is its type. */
void fedge_session_end(fedge_session *s, fedge_exit exit_code, fedge_message_type farewell,
                       fedge_reason reason, const char *text);
/* Starts the next lookup, plan or task that can start. */
void fedge_session_advance(fedge_session *s);
/* Forgets the stored result, here and in the store. */
void fedge_session_discard_result(fedge_session *s);
/* Forgets task [task_id] if it waits or is worked on. */
void fedge_session_drop_task(fedge_session *s, uint64_t task_id);
/* Uniform in [0, most]. */
uint64_t fedge_session_jitter(fedge_session *s, uint64_t most);

#endif

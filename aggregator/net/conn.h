/* The protocol state of one client connection. Pure: bytes, replies and times are inputs, actions
 * are outputs. It does no I/O, reads no clock and takes no lock; blobs are held by reference.
 *
 * An idle connection uses only this struct. A frame is assembled in a block that is freed once the
 * frame is handled, and a blob's bytes are read straight into the frame that carries them. The
 * transport identifies the peer by its certificate; no payload changes that.
 *
 * After a call that may produce actions, the caller takes all of them with fedge_conn_next_action;
 * the next call asserts that none is left.
 */
#ifndef FEDGE_AGGREGATOR_NET_CONN_H
#define FEDGE_AGGREGATOR_NET_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/exchange/exchange.h"
#include "edge/core/log.h"
#include "edge/core/message.h"
#include "edge/core/status.h"
#include "edge/wire/protocol.h"
#include "secure/identity/registry.h"

#define FEDGE_CONN_MAX_QUEUED 32          /* frames in the send queue, blobs excluded */
#define FEDGE_CONN_HELLO_TIMEOUT_MS 10000 /* limit from the handshake to HELLO */
/* From a frame's first byte to its last. After an outage of 20 s TCP may wait for 38 s. */
#define FEDGE_CONN_FRAME_TIMEOUT_MS 45000
#define FEDGE_CONN_CLOSE_TIMEOUT_MS 5000 /* time for a peer to read the refusal */

#define FEDGE_CONN_WAITING_BYTES                                                                   \
    ((uint64_t)64                                                                                  \
     << 20) /* per direction, over all connections: frames being received, frames queued */

typedef struct fedge_conn fedge_conn;

/* Frame memory shared by the connections of one thread. A frame that would exceed the limit while
 * others hold memory waits, with its first bytes, and reading pauses. Once the queued frames exceed
 * the limit, a connection that already has one queued is dropped on the next: its peer does not
 * read. */
typedef struct fedge_conn_budget {
    uint64_t limit;   /* bytes in each direction; set by the owner, the rest by the connections */
    uint64_t in, out; /* bytes in use */
    uint32_t num_waiting; /* connections that wait for memory */
} fedge_conn_budget;

/* A log line. */
typedef struct fedge_conn_note {
    struct fedge_conn_note *next; /* private */
    fedge_log_level level;
    const char *event; /* static text */
    size_t num_fields;
    fedge_log_field fields[]; /* (num_fields); their texts follow in the same block */
} fedge_conn_note;

typedef enum fedge_conn_action_type {
    FEDGE_CONN_NOTE,     /* write [note] to the log */
    FEDGE_CONN_REQUEST,  /* pass [request] to the engine; the caller owns it */
    FEDGE_CONN_REPLACED, /* the same device has a new connection */
    FEDGE_CONN_PAUSE,    /* stop reading from the peer */
    FEDGE_CONN_RESUME,   /* resume reading */
    FEDGE_CONN_WAIT,  /* call fedge_conn_reserve_frame until it returns true, in the order of these
                         actions */
    FEDGE_CONN_WRITE, /* call fedge_conn_next_frame once the peer is writable */
    FEDGE_CONN_DROP   /* close without waiting for the peer */
} fedge_conn_action_type;

typedef struct fedge_conn_action {
    fedge_conn_action_type type;
    fedge_request *request; /* set by REQUEST */
    const fedge_conn_note
        *note; /* set by NOTE; valid until the next call of fedge_conn_next_action */
} fedge_conn_action;

/* A range of a blob that the next frame carries. */
typedef struct fedge_conn_chunk {
    fedge_blob *blob; /* owned by the connection */
    uint64_t offset;
    uint32_t size;
    size_t at; /* offset in the frame */
} fedge_conn_chunk;

/* [id] ≥ 1 identifies the connection and is never reused; [match] is copied. [traffic] and [budget]
 * outlive the connection. */
FEDGE_MUST_USE fedge_status fedge_conn_new(fedge_conn **conn, uint64_t id,
                                           const fedge_registry_match *match,
                                           fedge_traffic *traffic, fedge_conn_budget *budget,
                                           uint64_t now_ms, fedge_error *err);
/* Devices that are refused with BUSY or SHUTTING_DOWN are sent to [server], which outlives the
 * connection; NULL: to none, the default. */
void fedge_conn_set_redirect(fedge_conn *conn, const char *server);
/* Call when the transport has closed. Leaves an action if the engine must be notified. */
void fedge_conn_end(fedge_conn *conn);
void fedge_conn_free(fedge_conn *conn); /* call fedge_conn_end first; NULL is fine */

/* False if no action is left. */
bool fedge_conn_next_action(fedge_conn *conn, fedge_conn_action *action);

/* Takes bytes of a binary websocket message; [final] is set for its last ones. A bad frame is
 * answered with REFUSE; the connection closes once that is written and ignores further input. */
void fedge_conn_receive(fedge_conn *conn, const uint8_t *data, size_t size, bool final,
                        uint64_t now_ms);
/* After WAIT: reserves memory for the waiting frame, and then resumes reading. True also if no
 * frame waits any more. */
bool fedge_conn_reserve_frame(fedge_conn *conn, uint64_t now_ms);
/* Refuses a text frame. */
void fedge_conn_receive_text(fedge_conn *conn, uint64_t now_ms);
/* Logs that the peer sent a frame that violates RFC 6455; the transport closes. */
void fedge_conn_broke_rules(fedge_conn *conn, const char *why);

/* Handles a reply of the engine other than ROUND; the caller keeps [reply]. Messages are queued. A
 * peer whose queue overflows is dropped. */
void fedge_conn_take(fedge_conn *conn, const fedge_reply *reply, uint64_t now_ms);
/* Sends REFUSE or BYE without a task, then closes. */
void fedge_conn_close(fedge_conn *conn, fedge_message_type type, fedge_reason reason,
                      uint64_t after_ms, const char *text, uint64_t now_ms);

/* Whether the next frame carries a range of a blob. The caller reads it into the same [out] before
 * it calls fedge_conn_next_frame, or closes the connection if it cannot. */
bool fedge_conn_next_chunk(const fedge_conn *conn, fedge_conn_chunk *chunk);
/* Writes the next frame to out[0, FEDGE_MESSAGE_MAX_SIZE) and returns its size, 0 if there is none.
 * May produce actions. */
size_t fedge_conn_next_frame(fedge_conn *conn, uint8_t *out);
bool fedge_conn_has_frames(const fedge_conn *conn);
/* The last message is queued or sent. */
bool fedge_conn_is_closing(const fedge_conn *conn);
/* All output is written and the transport should close. */
bool fedge_conn_should_close(const fedge_conn *conn);

/* Enforces the time limits for HELLO, for a whole frame and for reading a refusal. */
void fedge_conn_tick(fedge_conn *conn, uint64_t now_ms);

uint64_t fedge_conn_id(const fedge_conn *conn);
const fedge_registry_match *fedge_conn_match(const fedge_conn *conn);

#endif

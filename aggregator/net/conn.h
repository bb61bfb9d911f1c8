/* One client's connection, as the protocol sees it. Pure: bytes, replies and time go in, actions
 * come out; it reads and writes nothing, a log's lines and a blob's bytes included, knows no clock,
 * and takes no lock. Of blobs it holds references.
 *
 * Memory while idle is this struct alone: a frame is gathered in a block that exists only until the
 * frame is handled, and a blob's bytes are read into the frame that carries them. Who the peer is
 * was decided by the transport from its certificate; nothing in a payload can change it.
 *
 * Whoever calls a function that may leave actions takes them all with fedge_conn_next_action before
 * the next call, which fails an assertion otherwise.
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

#define FEDGE_CONN_MAX_QUEUED 32          /* frames waiting to be written, blobs aside */
#define FEDGE_CONN_HELLO_TIMEOUT_MS 10000 /* from the handshake to a HELLO */
/* From the first byte of a frame to its last. After a cut of 20 s TCP may wait for 38. */
#define FEDGE_CONN_FRAME_TIMEOUT_MS 45000
#define FEDGE_CONN_CLOSE_TIMEOUT_MS 5000 /* for a peer to read why it is refused */

#define FEDGE_CONN_WAITING_BYTES                                                                   \
    ((uint64_t)64 << 20) /* of all connections: frames that arrive; likewise, that wait */

typedef struct fedge_conn fedge_conn;

/* What the connections of one thread hold: frames that are arriving, and frames that wait to be
 * written. A frame that has begun while others have all the room waits unread, with
 * what came of it at once. When those to be written are over the limit, a connection on which one
 * waits already takes no other: its peer does not read, and is dropped. Fields are the connections'
 * own but for [limit]. */
typedef struct fedge_conn_budget {
    uint64_t limit;       /* bytes, in each direction */
    uint64_t in, out;     /* bytes that are held */
    uint32_t num_waiting; /* connections, for room */
} fedge_conn_budget;

/* A line for the log. */
typedef struct fedge_conn_note {
    struct fedge_conn_note *next; /* the connection's own */
    fedge_log_level level;
    const char *event; /* static text */
    size_t num_fields;
    fedge_log_field fields[]; /* (num_fields); their texts lie behind them */
} fedge_conn_note;

typedef enum fedge_conn_action_type {
    FEDGE_CONN_NOTE,     /* log [note] */
    FEDGE_CONN_REQUEST,  /* [request] is for the engine, and the taker's */
    FEDGE_CONN_REPLACED, /* the same device has connected again */
    FEDGE_CONN_PAUSE,    /* stop reading from the peer */
    FEDGE_CONN_RESUME,   /* read again */
    FEDGE_CONN_WAIT,     /* call fedge_conn_take_room until it says yes, in the order of these */
    FEDGE_CONN_WRITE,    /* call fedge_conn_next_frame once the peer takes bytes */
    FEDGE_CONN_DROP      /* close without waiting for the peer */
} fedge_conn_action_type;

typedef struct fedge_conn_action {
    fedge_conn_action_type type;
    fedge_request *request;      /* REQUEST */
    const fedge_conn_note *note; /* NOTE; until the next call of fedge_conn_next_action */
} fedge_conn_action;

/* Bytes that the next frame carries. */
typedef struct fedge_conn_chunk {
    fedge_blob *blob; /* the connection's */
    uint64_t offset;
    uint32_t size;
    size_t at; /* where they belong in the frame */
} fedge_conn_chunk;

/* [id] ≥ 1 names the connection and is never used again; [match] is copied. [traffic] and [budget]
 * outlive the connection. */
FEDGE_MUST_USE fedge_status fedge_conn_new(fedge_conn **conn, uint64_t id,
                                           const fedge_registry_match *match,
                                           fedge_traffic *traffic, fedge_conn_budget *budget,
                                           uint64_t now_ms, fedge_error *err);
/* A device for which the server is too busy, or whose server ends, is sent to [server], which
 * outlives the connection; NULL: nowhere, as at first. */
void fedge_conn_set_redirect(fedge_conn *conn, const char *server);
/* The transport is gone: what the engine must hear of it is left as an action. */
void fedge_conn_end(fedge_conn *conn);
void fedge_conn_free(fedge_conn *conn); /* after fedge_conn_end; NULL is fine */

/* False: there is none. */
bool fedge_conn_next_action(fedge_conn *conn, fedge_conn_action *action);

/* Bytes of a binary websocket message; [final] with its last ones. A bad frame is answered with
 * REFUSE and the connection closes once that is written; what follows is ignored. */
void fedge_conn_receive(fedge_conn *conn, const uint8_t *data, size_t size, bool final,
                        uint64_t now_ms);
/* After WAIT: is there room for its frame now? Then it is read again (RESUME). True also when it
 * does not wait any more. */
bool fedge_conn_take_room(fedge_conn *conn, uint64_t now_ms);
/* A text frame came: refused. */
void fedge_conn_receive_text(fedge_conn *conn, uint64_t now_ms);
/* A frame came that no websocket may send, and why: to the log. The transport closes. */
void fedge_conn_broke_rules(fedge_conn *conn, const char *why);

/* What the engine says; not ROUND. [reply] stays the caller's. Messages are queued; an overflowing
 * queue drops the peer, which did not read. */
void fedge_conn_take(fedge_conn *conn, const fedge_reply *reply, uint64_t now_ms);
/* Sends REFUSE or BYE without a task, then closes. */
void fedge_conn_close(fedge_conn *conn, fedge_message_type type, fedge_reason reason,
                      uint64_t after_ms, const char *text, uint64_t now_ms);

/* Whether the next frame carries bytes of a blob. They are to be read into the same [out] before
 * fedge_conn_next_frame is called; a transport that cannot closes the connection. */
bool fedge_conn_next_chunk(const fedge_conn *conn, fedge_conn_chunk *chunk);
/* Writes the next frame into out[0, FEDGE_MESSAGE_MAX_SIZE) and returns its size; 0 when there is
 * none. May leave actions. */
size_t fedge_conn_next_frame(fedge_conn *conn, uint8_t *out);
bool fedge_conn_has_frames(const fedge_conn *conn);
/* A last message is on its way, or was sent. */
bool fedge_conn_is_closing(const fedge_conn *conn);
/* True when everything was written that should be, and the transport should close. */
bool fedge_conn_should_close(const fedge_conn *conn);

/* Closes what did not speak, did not finish a frame or does not read its refusal in time. */
void fedge_conn_tick(fedge_conn *conn, uint64_t now_ms);

uint64_t fedge_conn_id(const fedge_conn *conn);
const fedge_registry_match *fedge_conn_match(const fedge_conn *conn);

#endif

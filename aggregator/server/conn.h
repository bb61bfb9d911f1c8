/* One client's connection, as the protocol sees it: frames in, frames out, no sockets.
 *
 * Memory while idle is this struct alone: a frame is gathered in a block that exists only until the
 * frame is handled, and blobs are sent straight from their bytes. Who the peer is was decided by
 * the transport from its certificate; nothing in a payload can change it.
 */
#ifndef FEDGE_AGGREGATOR_SERVER_CONN_H
#define FEDGE_AGGREGATOR_SERVER_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/server/engine.h"
#include "edge/core/log.h"
#include "edge/core/message.h"
#include "edge/core/status.h"
#include "edge/io/protocol.h"
#include "secure/identity/registry.h"

#define FEDGE_CONN_MAX_QUEUED 32          /* frames waiting to be written, blobs aside */
#define FEDGE_CONN_HELLO_TIMEOUT_MS 10000 /* from the handshake to a HELLO */
#define FEDGE_CONN_FRAME_TIMEOUT_MS 30000 /* from the first byte of a frame to its last */
#define FEDGE_CONN_CLOSE_TIMEOUT_MS 5000  /* for a peer to read why it is refused */

/* What the connection asks of the transport. */
typedef struct fedge_conn_transport {
    void *user;
    void (*want_write)(void *user);         /* call fedge_conn_next_frame when writable */
    void (*pause)(void *user, bool paused); /* stop or resume reading from the peer */
    void (*drop)(void *user);               /* close without waiting for the peer */
    void (*replaced)(void *user);           /* the same device has connected again; may be NULL */
} fedge_conn_transport;

/* [match] is copied. [engine] and [log] must outlive the connection. */
FEDGE_MUST_USE fedge_status fedge_conn_new(fedge_conn **conn, fedge_engine *engine,
                                           const fedge_registry_match *match,
                                           const fedge_conn_transport *transport,
                                           const fedge_log *log, uint64_t now_ms, fedge_error *err);
/* The transport is gone: tells the engine and frees. NULL is fine. */
void fedge_conn_free(fedge_conn *conn, uint64_t now_ms);

/* Bytes of a binary websocket message; [final] with its last ones. A bad frame is answered with
 * REFUSE and the connection closes once that is written; what follows is ignored. */
void fedge_conn_receive(fedge_conn *conn, const uint8_t *data, size_t size, bool final,
                        uint64_t now_ms);
/* A text frame came: refused. */
void fedge_conn_receive_text(fedge_conn *conn);
/* A frame came that no websocket may send, and why: to the log. The transport closes. */
void fedge_conn_broke_rules(const fedge_conn *conn, const char *why);

/* Writes the next frame into out[0, FEDGE_MESSAGE_MAX_SIZE) and returns its size; 0 when there is
 * none. */
size_t fedge_conn_next_frame(fedge_conn *conn, uint8_t *out);
bool fedge_conn_has_frames(const fedge_conn *conn);
/* A last message is on its way, or was sent. */
bool fedge_conn_is_closing(const fedge_conn *conn);
/* True when everything was written that should be, and the transport should close. */
bool fedge_conn_should_close(const fedge_conn *conn);

/* Closes what did not speak, did not finish a frame or does not read its refusal in time. */
void fedge_conn_tick(fedge_conn *conn, uint64_t now_ms);

/* For the engine. Sends are queued; an overflowing queue drops the peer, which did not read. */
void fedge_conn_send_task(fedge_conn *conn, const fedge_task *task);
void fedge_conn_send_ack(fedge_conn *conn, const fedge_ack *ack);
void fedge_conn_send_resume(fedge_conn *conn, const fedge_position *position);
void fedge_conn_send_notice(fedge_conn *conn, fedge_message_type type, const fedge_notice *notice);
/* Sends REFUSE or BYE without a task, then closes. */
void fedge_conn_close(fedge_conn *conn, fedge_message_type type, fedge_reason reason,
                      uint64_t after_ms, const char *text);
/* The blob is not served any more: a download of it ends with REFUSE, and nothing holds it. */
void fedge_conn_withdraw_blob(fedge_conn *conn, const fedge_blob *blob);
void fedge_conn_pause(fedge_conn *conn, bool paused);
uint32_t fedge_conn_client_index(const fedge_conn *conn);
const fedge_registry_match *fedge_conn_match(const fedge_conn *conn);
/* For what the peer causes. */
const fedge_log *fedge_conn_log(const fedge_conn *conn);

#endif

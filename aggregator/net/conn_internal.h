/* The struct behind fedge_conn: conn.c has its life cycle and the sending side, conn_receive.c the
 * receiving side. */
#ifndef FEDGE_AGGREGATOR_NET_CONN_INTERNAL_H
#define FEDGE_AGGREGATOR_NET_CONN_INTERNAL_H

#include "aggregator/net/conn.h"

typedef enum fedge_conn_state {
    FEDGE_CONN_STATE_NEW,    /* waits for HELLO */
    FEDGE_CONN_STATE_READY,  /* joined, unless it declined the plan */
    FEDGE_CONN_STATE_CLOSING /* the last frame is queued */
} fedge_conn_state;

struct fedge_conn {
    uint64_t id;
    fedge_traffic *traffic;
    fedge_conn_budget *budget;
    fedge_registry_match match;
    fedge_conn_state state;
    uint64_t deadline_ms;    /* deadline of NEW and CLOSING */
    fedge_request *farewell; /* LEAVE, allocated with the connection so that sending it never fails;
                                NULL once sent */
    bool joined;             /* the engine has its JOIN */
    const char *redirect;    /* the server that the device is sent to, or NULL */

    /* The frame being received. */
    uint8_t header[FEDGE_MESSAGE_HEADER_SIZE];
    uint8_t *frame; /* allocated once the header is complete and within the limits */
    size_t frame_size, received, frame_capacity; /* frame_capacity: size of the block */
    uint64_t frame_started_ms;

    /* The send queue, and the blob that follows it. */
    struct fedge_queued_frame *out_head, **out_tail;
    uint32_t out_count;
    fedge_blob *sending; /* retained */
    uint64_t sending_offset, sending_end;
    size_t chunk_head; /* bytes of the last CHUNK before its payload */

    /* Pending actions. */
    fedge_conn_note *notes, **last_note;
    fedge_conn_note *noted; /* the note that was returned last */
    fedge_mailbox_item *requests, **last_request;
    bool must_write, must_drop, was_replaced, must_pause, must_resume, must_wait;
    bool paused, waiting; /* paused by the engine; waiting for memory */
    bool counted;         /* the budget includes the frame being received */
};

bool fedge_conn_has_actions(const fedge_conn *conn);
/* Adds a note and copies its texts; without memory the note is lost. */
void fedge_conn_note_down(fedge_conn *conn, fedge_log_level level, const char *event,
                          const fedge_log_field *fields, size_t num_fields);
#define FEDGE_CONN_NOTE_DOWN(conn, level, event, ...)                                              \
    fedge_conn_note_down(conn, level, event, (const fedge_log_field[]){__VA_ARGS__},               \
                         sizeof((const fedge_log_field[]){__VA_ARGS__}) / sizeof(fedge_log_field))
/* A request with this connection's identity; NULL without memory. */
fedge_request *fedge_conn_new_request(const fedge_conn *conn, fedge_request_type type);
/* Queues a request for the engine and takes ownership of it. */
void fedge_conn_ask(fedge_conn *conn, fedge_request *request);
/* Sends the engine one LEAVE if the client has joined. */
void fedge_conn_leave(fedge_conn *conn);
void fedge_conn_pause_reading(fedge_conn *conn, bool paused, bool waiting);
/* Hands the frame's block over to the caller; NULL if there is none. */
uint8_t *fedge_conn_take_frame(fedge_conn *conn);
/* Logs and sends a REFUSE, then closes. */
void fedge_conn_refuse(fedge_conn *conn, fedge_reason reason, const char *text, uint64_t now_ms);
void fedge_conn_refuse_for_memory(fedge_conn *conn, uint64_t now_ms);

#endif

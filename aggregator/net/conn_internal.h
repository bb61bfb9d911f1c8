/* What the halves of a connection share: conn.c has its life and what is said to the peer,
 * conn_receive.c what the peer says. */
#ifndef FEDGE_AGGREGATOR_NET_CONN_INTERNAL_H
#define FEDGE_AGGREGATOR_NET_CONN_INTERNAL_H

#include "aggregator/net/conn.h"

typedef enum fedge_conn_state {
    FEDGE_CONN_STATE_NEW,    /* no HELLO yet */
    FEDGE_CONN_STATE_READY,  /* joined, unless it declined the plan */
    FEDGE_CONN_STATE_CLOSING /* a last frame is on its way */
} fedge_conn_state;

struct fedge_conn {
    uint64_t id;
    fedge_traffic *traffic;
    fedge_conn_budget *budget;
    fedge_registry_match match;
    fedge_conn_state state;
    uint64_t deadline_ms;    /* of the state, while NEW or CLOSING */
    fedge_request *farewell; /* LEAVE, made with the connection so that it never fails; NULL when
                                the engine has it */
    bool joined;             /* the engine knows of it */
    const char *redirect;    /* the server that the device is sent to; NULL: none */

    /* The frame that is arriving. */
    uint8_t header[FEDGE_MESSAGE_HEADER_SIZE];
    uint8_t *frame; /* malloc'ed once the header is complete and within the limits */
    size_t frame_size, received, frame_room; /* frame_room: bytes of the block */
    uint64_t frame_started_ms;

    /* What is to be written. */
    struct fedge_queued_frame *out_head, **out_tail;
    uint32_t out_count;
    fedge_blob *sending; /* retained */
    uint64_t sending_offset, sending_end;
    size_t chunk_head; /* bytes of the last CHUNK before its payload */

    /* Actions that nobody has taken yet. */
    fedge_conn_note *notes, **last_note;
    fedge_conn_note *noted; /* the last one that was taken */
    fedge_mailbox_item *requests, **last_request;
    bool must_write, must_drop, was_replaced, must_pause, must_resume, must_wait;
    bool paused, waiting; /* by the engine; for room */
    bool counted;         /* the frame that arrives, in the budget */
};

/* Whether actions are left that nobody has taken. */
bool fedge_conn_has_actions(const fedge_conn *conn);
/* Leaves a line for the log; it is lost when there is no memory for it. Texts are copied. */
void fedge_conn_note_down(fedge_conn *conn, fedge_log_level level, const char *event,
                          const fedge_log_field *fields, size_t num_fields);
#define FEDGE_CONN_NOTE_DOWN(conn, level, event, ...)                                              \
    fedge_conn_note_down(conn, level, event, (const fedge_log_field[]){__VA_ARGS__},               \
                         sizeof((const fedge_log_field[]){__VA_ARGS__}) / sizeof(fedge_log_field))
/* A request of this connection, which asks for nothing yet; NULL: no memory. */
fedge_request *fedge_conn_new_request(const fedge_conn *conn, fedge_request_type type);
/* Leaves it to the engine; [request] is the queue's. */
void fedge_conn_ask(fedge_conn *conn, fedge_request *request);
/* Tells the engine, once, that the client is no longer there. */
void fedge_conn_leave(fedge_conn *conn);
void fedge_conn_pause_reading(fedge_conn *conn, bool paused, bool waiting);
/* The block of the frame that arrives, which is the caller's from now on; NULL: there is none. */
uint8_t *fedge_conn_take_frame(fedge_conn *conn);
/* A line, REFUSE, and the end. */
void fedge_conn_refuse(fedge_conn *conn, fedge_reason reason, const char *text, uint64_t now_ms);
void fedge_conn_refuse_for_memory(fedge_conn *conn, uint64_t now_ms);

#endif

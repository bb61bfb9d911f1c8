#include "aggregator/server/conn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum conn_state {
    CONN_NEW,    /* no HELLO yet */
    CONN_READY,  /* joined, unless it declined the plan */
    CONN_CLOSING /* a last frame is on its way */
} conn_state;

typedef struct queued_frame {
    struct queued_frame *next;
    size_t size;
    uint8_t bytes[];
} queued_frame;

struct fedge_conn {
    uint64_t id;
    const fedge_log *log;
    fedge_traffic *traffic;
    fedge_conn_budget *budget;
    fedge_registry_match match;
    conn_state state;
    uint64_t deadline_ms;    /* of the state, while NEW or CLOSING */
    fedge_request *farewell; /* LEAVE, made with the connection so that it never fails; NULL when
                                the engine has it */
    bool joined;             /* the engine knows of it */
    const char *redirect;    /* where the device is told to go instead; NULL: nowhere */

    /* The frame that is arriving. */
    uint8_t header[FEDGE_MESSAGE_HEADER_SIZE];
    uint8_t *frame; /* malloc'ed once the header is complete and within the limits */
    size_t frame_size, received, frame_room; /* frame_room: bytes of the block */
    uint64_t frame_started_ms;

    /* What is to be written. */
    queued_frame *out_head, **out_tail;
    uint32_t out_count;
    fedge_blob *sending; /* retained */
    uint64_t sending_offset, sending_end;
    size_t chunk_head; /* bytes of the last CHUNK before its payload */

    /* Actions that nobody has taken yet. */
    fedge_mailbox_item *requests, **last_request;
    bool must_write, must_drop, was_replaced, must_pause, must_resume, must_wait;
    bool paused, waiting; /* by the engine; for room */
    bool counted;         /* the frame that arrives, in the budget */
};

/* ---- life ------------------------------------------------------------------------------------ */

static fedge_request *new_request(const fedge_conn *conn, fedge_request_type type)
{
    fedge_request *request = calloc(1, sizeof(*request));
    if (request) {
        request->type = type;
        request->conn_id = conn->id;
        request->client_index = conn->match.index;
        memcpy(request->device_id, conn->match.device_id, sizeof(request->device_id));
    }
    return request;
}

fedge_status fedge_conn_new(fedge_conn **conn, uint64_t id, const fedge_registry_match *match,
                            fedge_traffic *traffic, fedge_conn_budget *budget, const fedge_log *log,
                            uint64_t now_ms, fedge_error *err)
{
    *conn = NULL;
    assert(id != FEDGE_CONN_ALL);
    fedge_conn *fresh = calloc(1, sizeof(*fresh));
    if (fresh) {
        fresh->id = id;
        fresh->match = *match;
        fresh->traffic = traffic;
        fresh->budget = budget;
        fresh->log = log;
        fresh->out_tail = &fresh->out_head;
        fresh->last_request = &fresh->requests;
        fresh->deadline_ms = now_ms + FEDGE_CONN_HELLO_TIMEOUT_MS;
        /* Made now, so that a connection can always leave: the engine would keep the place of one
         * that found no memory to say so. */
        fresh->farewell = new_request(fresh, FEDGE_REQUEST_LEAVE);
    }
    if (!fresh || !fresh->farewell) {
        free(fresh);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a connection");
    }
    *conn = fresh;
    return FEDGE_OK;
}

static void stop_blob(fedge_conn *conn)
{
    fedge_blob_release(conn->sending);
    conn->sending = NULL;
}

static void free_queued(fedge_conn *conn, queued_frame *frame)
{
    conn->budget->out -= frame->size;
    free(frame);
}

static void discard_output(fedge_conn *conn)
{
    for (queued_frame *frame = conn->out_head, *next; frame; frame = next) {
        next = frame->next;
        free_queued(conn, frame);
    }
    conn->out_head = NULL;
    conn->out_tail = &conn->out_head;
    conn->out_count = 0;
    stop_blob(conn);
}

/* The block of the frame that arrives, which is the caller's from now on; NULL: there is none. */
static uint8_t *take_frame(fedge_conn *conn)
{
    uint8_t *frame = conn->frame;
    conn->budget->in -= conn->counted ? conn->frame_size : 0;
    conn->counted = false;
    conn->frame = NULL;
    conn->frame_room = 0;
    return frame;
}

void fedge_conn_free(fedge_conn *conn)
{
    if (!conn)
        return;
    assert(!conn->joined && !conn->requests);
    discard_output(conn);
    conn->budget->num_waiting -= conn->waiting;
    free(take_frame(conn));
    free(conn->farewell);
    free(conn);
}

uint64_t fedge_conn_id(const fedge_conn *conn)
{
    return conn->id;
}

const fedge_registry_match *fedge_conn_match(const fedge_conn *conn)
{
    return &conn->match;
}

/* ---- actions --------------------------------------------------------------------------------- */

static void ask(fedge_conn *conn, fedge_request *request)
{
    request->item.next = NULL;
    *conn->last_request = &request->item;
    conn->last_request = &request->item.next;
}

static void leave(fedge_conn *conn)
{
    if (conn->joined) {
        assert(conn->farewell);
        conn->joined = false;
        ask(conn, conn->farewell);
        conn->farewell = NULL;
    }
}

void fedge_conn_end(fedge_conn *conn)
{
    leave(conn);
}

static fedge_request *next_request(fedge_conn *conn)
{
    fedge_request *request = (fedge_request *)conn->requests;
    conn->requests = request->item.next;
    if (!conn->requests)
        conn->last_request = &conn->requests;
    return request;
}

/* Who calls has taken what the last call left. */
static bool has_actions(const fedge_conn *conn)
{
    return conn->requests || conn->was_replaced || conn->must_pause || conn->must_resume ||
           conn->must_wait || conn->must_write || conn->must_drop;
}

static bool take_flag(bool *flag)
{
    const bool was_set = *flag;
    *flag = false;
    return was_set;
}

bool fedge_conn_next_action(fedge_conn *conn, fedge_conn_action *action)
{
    const struct {
        bool *flag;
        fedge_conn_action_type type;
    } flags[] = {{&conn->was_replaced, FEDGE_CONN_REPLACED}, {&conn->must_pause, FEDGE_CONN_PAUSE},
                 {&conn->must_resume, FEDGE_CONN_RESUME},    {&conn->must_wait, FEDGE_CONN_WAIT},
                 {&conn->must_write, FEDGE_CONN_WRITE},      {&conn->must_drop, FEDGE_CONN_DROP}};
    /* Requests before everything else: what was said before the end must reach the engine before
     * the end does. */
    if (conn->requests) {
        *action = (fedge_conn_action){FEDGE_CONN_REQUEST, next_request(conn)};
        return true;
    }
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (take_flag(flags[i].flag)) {
            *action = (fedge_conn_action){.type = flags[i].type};
            return true;
        }
    }
    return false;
}

static void pause_reading(fedge_conn *conn, bool paused, bool waiting)
{
    const bool was_read = !conn->paused && !conn->waiting;
    const bool is_read = !paused && !waiting;
    conn->paused = paused;
    conn->waiting = waiting;
    if (is_read != was_read) {
        conn->must_pause = was_read;
        conn->must_resume = is_read;
    }
}

/* ---- sending --------------------------------------------------------------------------------- */

static void enqueue(fedge_conn *conn, const uint8_t *bytes, size_t size)
{
    /* Nothing makes a client read. The bound is on messages, as each is small or cut from a blob
     * when the last one has left. */
    const bool no_room = conn->budget->out + size > conn->budget->limit;
    if (conn->out_count >= (no_room ? 1 : FEDGE_CONN_MAX_QUEUED)) {
        FEDGE_LOG(conn->log, FEDGE_LOG_WARN, "client-does-not-read",
                  fedge_log_str("device", conn->match.device_id),
                  fedge_log_int("frames-queued", conn->out_count));
        conn->must_drop = true;
        return;
    }
    queued_frame *frame = malloc(sizeof(*frame) + size);
    if (!frame) {
        conn->must_drop = true;
        return;
    }
    frame->next = NULL;
    frame->size = size;
    conn->budget->out += size;
    memcpy(frame->bytes, bytes, size);
    *conn->out_tail = frame;
    conn->out_tail = &frame->next;
    conn->out_count++;
    conn->must_write = true;
}

static fedge_status pack(const fedge_reply *reply, uint8_t *out, size_t room, size_t *size,
                         fedge_error *err)
{
    switch (reply->message) {
    case FEDGE_MESSAGE_WELCOME:
        return fedge_welcome_pack(&reply->welcome, out, room, size, err);
    case FEDGE_MESSAGE_TASK:
        return fedge_task_pack(&reply->task, out, room, size, err);
    case FEDGE_MESSAGE_ACK:
        return fedge_ack_pack(&reply->ack, out, room, size, err);
    case FEDGE_MESSAGE_RESUME:
        return fedge_resume_pack(&reply->position, out, room, size, err);
    default:
        return fedge_notice_pack(reply->message, &reply->notice, out, room, size, err);
    }
}

#define SMALL_FRAME (FEDGE_MESSAGE_HEADER_SIZE + FEDGE_MESSAGE_MAX_META)

static void send_message(fedge_conn *conn, const fedge_reply *reply)
{
    uint8_t bytes[SMALL_FRAME];
    size_t size = 0;
    fedge_error err;
    if (pack(reply, bytes, sizeof(bytes), &size, &err) != FEDGE_OK) {
        /* What the server says is within every limit: this is a bug. */
        fedge_log_failure(conn->log, FEDGE_LOG_ERROR, "frame-not-packed", &err);
        conn->must_drop = true;
        return;
    }
    enqueue(conn, bytes, size);
}

static void send_notice(fedge_conn *conn, fedge_message_type type, const fedge_notice *notice)
{
    send_message(conn, &(fedge_reply){.message = type, .notice = *notice});
}

/* Tells the engine that the device will not come back. */
static void give_up(fedge_conn *conn, const fedge_notice *notice)
{
    fedge_request *request = new_request(conn, FEDGE_REQUEST_DECLINE);
    if (request) { /* else its task is lost with the connection, as if it might come back */
        request->notice = *notice;
        ask(conn, request);
    }
}

/* The device has done nothing wrong: what it has been told already still goes, an ACK for one. */
static bool is_orderly(fedge_reason reason)
{
    return reason == FEDGE_REASON_RUN_COMPLETE || reason == FEDGE_REASON_SHUTTING_DOWN ||
           reason == FEDGE_REASON_COME_LATER;
}

void fedge_conn_close(fedge_conn *conn, fedge_message_type type, fedge_reason reason,
                      uint64_t after_ms, const char *text, uint64_t now_ms)
{
    if (conn->state == CONN_CLOSING)
        return;
    fedge_notice notice = {.reason = reason, .after_ms = after_ms};
    snprintf(notice.text, sizeof(notice.text), "%s", text);
    if (conn->redirect && (reason == FEDGE_REASON_SHUTTING_DOWN || reason == FEDGE_REASON_BUSY)) {
        notice.after_ms = 0; /* the other one is not away */
        snprintf(notice.server, sizeof(notice.server), "%s", conn->redirect);
    }
    /* A download is cut off in any case: it may take hours, and the client goes on with it at the
     * byte that it has. */
    if (is_orderly(reason) && conn->out_count < FEDGE_CONN_MAX_QUEUED)
        stop_blob(conn);
    else
        discard_output(conn);
    conn->state = CONN_CLOSING;
    conn->deadline_ms = now_ms + FEDGE_CONN_CLOSE_TIMEOUT_MS;
    conn->was_replaced = reason == FEDGE_REASON_REPLACED;
    /* Before it leaves: otherwise the round would wait for it until the deadline, as for one that
     * has lost its connection. */
    if (conn->joined && reason == FEDGE_REASON_REVOKED)
        give_up(conn, &notice);
    leave(conn);
    send_notice(conn, type, &notice);
}

void fedge_conn_set_redirect(fedge_conn *conn, const char *server)
{
    conn->redirect = server;
}

static void withdraw_blob(fedge_conn *conn, const fedge_blob *blob)
{
    if (conn->sending == blob) {
        const fedge_notice notice = fedge_blob_is_gone(blob->hash);
        send_notice(conn, FEDGE_MESSAGE_REFUSE, &notice);
        stop_blob(conn);
    }
}

static void log_refusal(const fedge_conn *conn, fedge_reason reason, const char *text)
{
    FEDGE_LOG(conn->log, FEDGE_LOG_WARN, "message-refused",
              fedge_log_str("device", conn->match.device_id),
              fedge_log_str("reason", fedge_reason_name(reason)), fedge_log_str("error", text));
}

void fedge_conn_broke_rules(const fedge_conn *conn, const char *why)
{
    log_refusal(conn, FEDGE_REASON_BAD_FRAME, why);
}

static void refuse(fedge_conn *conn, fedge_reason reason, const char *text, uint64_t now_ms)
{
    log_refusal(conn, reason, text);
    fedge_conn_close(conn, FEDGE_MESSAGE_REFUSE, reason, 0, text, now_ms);
}

static void refuse_for_memory(fedge_conn *conn, uint64_t now_ms)
{
    fedge_conn_close(conn, FEDGE_MESSAGE_REFUSE, FEDGE_REASON_BUSY, 1000, "out of memory", now_ms);
}

static size_t next_chunk(fedge_conn *conn, uint8_t *out)
{
    fedge_blob *blob = conn->sending;
    uint64_t left = conn->sending_end - conn->sending_offset;
    uint32_t part = left < FEDGE_MESSAGE_MAX_PAYLOAD ? (uint32_t)left : FEDGE_MESSAGE_MAX_PAYLOAD;
    fedge_blob_ref ref = {.offset = conn->sending_offset, .size = blob->size};
    memcpy(ref.hash, blob->hash, sizeof(ref.hash));
    size_t size = 0;
    fedge_error err;
    uint8_t *payload = out + conn->chunk_head; /* its place, or packing moves it there */
    if (fedge_blob_read(blob, conn->sending_offset, payload, part, &err) != FEDGE_OK) {
        fedge_log_failure(conn->log, FEDGE_LOG_ERROR, "blob-not-read", &err);
        conn->must_drop = true;
        return 0;
    }
    if (fedge_chunk_pack(&ref, payload, part, out, FEDGE_MESSAGE_MAX_SIZE, &size, &err) !=
        FEDGE_OK) {
        fedge_log_failure(conn->log, FEDGE_LOG_ERROR, "frame-not-packed", &err);
        conn->must_drop = true;
        return 0;
    }
    conn->chunk_head = size - part;
    conn->sending_offset += part;
    if (conn->sending_offset == conn->sending_end) {
        fedge_blob_release(blob);
        conn->sending = NULL;
    }
    return size;
}

size_t fedge_conn_next_frame(fedge_conn *conn, uint8_t *out)
{
    size_t size = 0;
    queued_frame *frame = conn->out_head;
    if (frame) {
        size = frame->size;
        memcpy(out, frame->bytes, size);
        conn->out_head = frame->next;
        if (!conn->out_head)
            conn->out_tail = &conn->out_head;
        conn->out_count--;
        free_queued(conn, frame);
    } else if (conn->sending) {
        size = next_chunk(conn, out);
    }
    atomic_fetch_add(&conn->traffic->down, size);
    return size;
}

bool fedge_conn_has_frames(const fedge_conn *conn)
{
    return conn->out_head || conn->sending;
}

bool fedge_conn_is_closing(const fedge_conn *conn)
{
    return conn->state == CONN_CLOSING;
}

bool fedge_conn_should_close(const fedge_conn *conn)
{
    return conn->state == CONN_CLOSING && !fedge_conn_has_frames(conn);
}

/* ---- replies --------------------------------------------------------------------------------- */

static void log_refused_update(const fedge_conn *conn, const fedge_notice *notice)
{
    FEDGE_LOG(conn->log, FEDGE_LOG_WARN, "update-refused",
              fedge_log_int("task", (int64_t)notice->task_id),
              fedge_log_str("device", conn->match.device_id),
              fedge_log_str("reason", fedge_reason_name(notice->reason)),
              fedge_log_str("error", notice->text));
}

static void begin_blob(fedge_conn *conn, const fedge_reply *reply, uint64_t now_ms)
{
    if (reply->offset >= reply->blob->size || reply->size > reply->blob->size - reply->offset) {
        refuse(conn, FEDGE_REASON_BAD_META, "FETCH: offset and size are not inside the blob",
               now_ms);
        return;
    }
    fedge_blob_release(conn->sending); /* a later FETCH replaces an earlier one */
    conn->sending = fedge_blob_retain(reply->blob);
    conn->sending_offset = reply->offset;
    conn->sending_end = reply->size > 0 ? reply->offset + reply->size : reply->blob->size;
    conn->must_write = true;
}

void fedge_conn_take(fedge_conn *conn, const fedge_reply *reply, uint64_t now_ms)
{
    if (conn->state == CONN_CLOSING)
        return;
    switch (reply->type) {
    case FEDGE_REPLY_MESSAGE:
        if (reply->message == FEDGE_MESSAGE_REFUSE && reply->notice.has_task)
            log_refused_update(conn, &reply->notice);
        send_message(conn, reply);
        break;
    case FEDGE_REPLY_BLOB:
        begin_blob(conn, reply, now_ms);
        break;
    case FEDGE_REPLY_WITHDRAW:
        withdraw_blob(conn, reply->blob);
        break;
    case FEDGE_REPLY_CLOSE:
        fedge_conn_close(conn, reply->message, reply->notice.reason, reply->notice.after_ms,
                         reply->notice.text, now_ms);
        break;
    case FEDGE_REPLY_PAUSE:
    case FEDGE_REPLY_RESUME:
        pause_reading(conn, reply->type == FEDGE_REPLY_PAUSE, conn->waiting);
        break;
    case FEDGE_REPLY_ROUND:
        assert(!"for the service");
    }
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void log_hello(const fedge_conn *conn, const fedge_hello *hello)
{
    FEDGE_LOG(conn->log, FEDGE_LOG_INFO, "client-hello",
              fedge_log_str("device", conn->match.device_id),
              fedge_log_int("client", conn->match.index), fedge_log_str("release", hello->release),
              fedge_log_str("arch", hello->arch), fedge_log_int("ram", (int64_t)hello->ram_bytes));
    for (uint32_t i = 0; i < hello->num_errors; i++) {
        FEDGE_LOG(conn->log, FEDGE_LOG_WARN, "client-reported-error",
                  fedge_log_str("device", conn->match.device_id),
                  fedge_log_str("error", hello->errors[i]));
    }
}

static void handle_hello(fedge_conn *conn, const fedge_message *message, fedge_request *request,
                         uint64_t now_ms)
{
    fedge_error err;
    fedge_hello *hello = calloc(1, sizeof(*hello));
    if (!hello) {
        refuse_for_memory(conn, now_ms);
    } else if (conn->state != CONN_NEW) {
        refuse(conn, FEDGE_REASON_BAD_STATE, "HELLO came twice", now_ms);
    } else if (fedge_hello_read(message, hello, &err) != FEDGE_OK) {
        refuse(conn, FEDGE_REASON_BAD_META, err.message, now_ms);
    } else if (hello->protocol_min > FEDGE_PROTOCOL_MAX ||
               hello->protocol_max < FEDGE_PROTOCOL_MIN) {
        refuse(conn, FEDGE_REASON_PROTOCOL_RANGE,
               "no common protocol version: this aggregator speaks version 1", now_ms);
    } else {
        log_hello(conn, hello);
        conn->state = CONN_READY;
        conn->joined = true;
        request->hangs_up = hello->hangs_up;
        ask(conn, request);
        request = NULL;
    }
    fedge_request_free(request);
    free(hello);
}

/* Takes over the message's frame, so that the engine gets its bytes without a copy. */
static void hand_over(fedge_conn *conn, const fedge_message *message, fedge_request *request,
                      uint8_t **frame)
{
    request->frame = *frame;
    *frame = NULL;
    request->meta = message->meta;
    request->meta_size = message->meta_size;
    request->payload = message->payload;
    request->payload_size = message->payload_size;
    ask(conn, request);
}

static void log_notice(const fedge_conn *conn, fedge_message_type type, const fedge_notice *notice)
{
    const bool bye = type == FEDGE_MESSAGE_BYE;
    FEDGE_LOG(
        conn->log, bye ? FEDGE_LOG_INFO : FEDGE_LOG_WARN, bye ? "client-bye" : "client-declined",
        fedge_log_str("device", conn->match.device_id), fedge_log_int("client", conn->match.index),
        fedge_log_str("reason", fedge_reason_name(notice->reason)),
        fedge_log_str("text", notice->text));
}

static void handle_notice(fedge_conn *conn, fedge_message_type type, fedge_request *request)
{
    log_notice(conn, type, &request->notice);
    if (type != FEDGE_MESSAGE_DECLINE || !conn->joined) {
        fedge_request_free(request);
        return;
    }
    const bool stays = request->notice.has_task;
    ask(conn, request);
    if (!stays)
        leave(conn); /* it declined the plan: it stays connected but gets no task */
}

static fedge_status read_message(const fedge_message *message, fedge_request *request,
                                 fedge_error *err)
{
    switch (message->type) {
    case FEDGE_MESSAGE_FETCH:
        request->type = FEDGE_REQUEST_FETCH;
        return fedge_fetch_read(message, &request->blob, err);
    case FEDGE_MESSAGE_UPLOAD:
        request->type = FEDGE_REQUEST_UPLOAD;
        request->upload = malloc(sizeof(*request->upload));
        return request->upload ? fedge_upload_read(message, request->upload, err)
                               : fedge_fail(err, FEDGE_NO_MEMORY, "out of memory");
    case FEDGE_MESSAGE_PART:
        request->type = FEDGE_REQUEST_PART;
        return fedge_position_read(message, &request->position, err);
    default:
        request->type = FEDGE_REQUEST_DECLINE;
        return fedge_notice_read(message, &request->notice, err);
    }
}

/* A message of a client that has said HELLO. */
static void handle_ready(fedge_conn *conn, const fedge_message *message, fedge_request *request,
                         uint8_t **frame, uint64_t now_ms)
{
    fedge_error err;
    const fedge_status status = read_message(message, request, &err);
    if (status == FEDGE_NO_MEMORY) {
        refuse_for_memory(conn, now_ms);
        fedge_request_free(request);
    } else if (status != FEDGE_OK) {
        refuse(conn, FEDGE_REASON_BAD_META, err.message, now_ms);
        fedge_request_free(request);
    } else if (request->type == FEDGE_REQUEST_DECLINE) {
        handle_notice(conn, message->type, request);
    } else {
        hand_over(conn, message, request, frame);
    }
}

static bool is_of_clients(unsigned type)
{
    return type == FEDGE_MESSAGE_HELLO || type == FEDGE_MESSAGE_FETCH ||
           type == FEDGE_MESSAGE_UPLOAD || type == FEDGE_MESSAGE_PART ||
           type == FEDGE_MESSAGE_DECLINE || type == FEDGE_MESSAGE_BYE;
}

/* A type that is not known is skipped, unless it says that it must not be. */
static void handle_other(fedge_conn *conn, const fedge_message *message, uint64_t now_ms)
{
    char text[96];
    if (fedge_message_type_name(message->type)) {
        snprintf(text, sizeof(text), "%s is not for a client to send",
                 fedge_message_type_name(message->type));
        refuse(conn, FEDGE_REASON_BAD_STATE, text, now_ms);
    } else if (message->flags & FEDGE_MESSAGE_FLAG_MUST) {
        snprintf(text, sizeof(text), "message type %u is not known here", message->type);
        refuse(conn, FEDGE_REASON_UNKNOWN_TYPE, text, now_ms);
    }
}

/* *frame, in which the message lies, is NULL afterwards when it was taken over. */
static void handle(fedge_conn *conn, const fedge_message *message, uint8_t **frame, uint64_t now_ms)
{
    char text[96];
    if (!is_of_clients(message->type)) {
        handle_other(conn, message, now_ms);
        return;
    }
    const bool hello = message->type == FEDGE_MESSAGE_HELLO;
    if (!hello && conn->state != CONN_READY) {
        snprintf(text, sizeof(text), "%s came before HELLO",
                 fedge_message_type_name(message->type));
        refuse(conn, FEDGE_REASON_BAD_STATE, text, now_ms);
        return;
    }
    fedge_request *request = new_request(conn, FEDGE_REQUEST_JOIN);
    if (!request)
        refuse_for_memory(conn, now_ms);
    else if (hello)
        handle_hello(conn, message, request, now_ms);
    else
        handle_ready(conn, message, request, frame, now_ms);
}

/* What holds all alone may be larger. */
static bool fits(const fedge_conn_budget *budget, size_t size)
{
    return budget->in == 0 || budget->in + size <= budget->limit;
}

/* The block of a frame that waits is not counted: who waits must not keep others waiting. */
static bool grow_frame(fedge_conn *conn, size_t room)
{
    uint8_t *frame = realloc(conn->frame, room);
    if (!frame)
        return false;
    conn->frame = frame;
    conn->frame_room = room;
    conn->counted = room == conn->frame_size;
    conn->budget->in += conn->counted ? room : 0;
    return true;
}

static void wait_for_room(fedge_conn *conn)
{
    conn->budget->num_waiting++;
    conn->frame_started_ms = 0;
    conn->must_wait = true;
    pause_reading(conn, conn->paused, true);
}

/* Takes bytes up to the end of the header, then checks it and gets a block for the frame. */
static bool take_header(fedge_conn *conn, const uint8_t **data, size_t *size, uint64_t now_ms)
{
    if (conn->received == 0)
        conn->frame_started_ms = now_ms;
    size_t want = FEDGE_MESSAGE_HEADER_SIZE - conn->received;
    size_t n = *size < want ? *size : want;
    memcpy(conn->header + conn->received, *data, n);
    conn->received += n;
    *data += n;
    *size -= n;
    if (conn->received < FEDGE_MESSAGE_HEADER_SIZE)
        return true;
    fedge_error err;
    if (fedge_message_peek(conn->header, sizeof(conn->header), &conn->frame_size, &err) !=
        FEDGE_OK) {
        refuse(conn, err.status == FEDGE_TOO_BIG ? FEDGE_REASON_TOO_BIG : FEDGE_REASON_BAD_FRAME,
               err.message, now_ms);
        return false;
    }
    const size_t came = conn->received + *size;
    const bool wait = (conn->budget->num_waiting > 0 || !fits(conn->budget, conn->frame_size)) &&
                      came < conn->frame_size;
    if (!grow_frame(conn, wait ? came : conn->frame_size)) {
        refuse_for_memory(conn, now_ms);
        return false;
    }
    memcpy(conn->frame, conn->header, sizeof(conn->header));
    if (wait)
        wait_for_room(conn);
    return true;
}

bool fedge_conn_take_room(fedge_conn *conn, uint64_t now_ms)
{
    assert(!has_actions(conn));
    if (!conn->waiting)
        return true;
    if (!fits(conn->budget, conn->frame_size) || !grow_frame(conn, conn->frame_size))
        return false;
    conn->frame_started_ms = now_ms;
    conn->budget->num_waiting--;
    pause_reading(conn, conn->paused, false);
    return true;
}

static void end_frame(fedge_conn *conn, uint64_t now_ms)
{
    uint8_t *frame = take_frame(conn);
    size_t received = conn->received;
    conn->received = 0;
    conn->frame_started_ms = 0;
    fedge_message message;
    fedge_error err;
    if (!frame)
        refuse(conn, FEDGE_REASON_BAD_FRAME, "the message is shorter than its header", now_ms);
    else if (fedge_message_unpack(frame, received, &message, &err) != FEDGE_OK)
        refuse(conn, FEDGE_REASON_BAD_FRAME, err.message, now_ms);
    else
        handle(conn, &message, &frame, now_ms);
    free(frame);
}

void fedge_conn_receive(fedge_conn *conn, const uint8_t *data, size_t size, bool final,
                        uint64_t now_ms)
{
    assert(!has_actions(conn));
    atomic_fetch_add(&conn->traffic->up, size);
    if (conn->state == CONN_CLOSING)
        return;
    if (!conn->frame && size > 0 && !take_header(conn, &data, &size, now_ms))
        return;
    if (conn->frame && size > 0) {
        if (size > conn->frame_size - conn->received) {
            refuse(conn, FEDGE_REASON_BAD_FRAME, "the message is longer than its header says",
                   now_ms);
            return;
        }
        /* While it waits, little more than came with its header. */
        if (conn->received + size > conn->frame_room && !grow_frame(conn, conn->received + size)) {
            refuse_for_memory(conn, now_ms);
            return;
        }
        memcpy(conn->frame + conn->received, data, size);
        conn->received += size;
    }
    if (final)
        end_frame(conn, now_ms);
}

void fedge_conn_receive_text(fedge_conn *conn, uint64_t now_ms)
{
    assert(!has_actions(conn));
    refuse(conn, FEDGE_REASON_BAD_FRAME, "text messages are not part of fedge.v1", now_ms);
}

void fedge_conn_tick(fedge_conn *conn, uint64_t now_ms)
{
    assert(!has_actions(conn));
    if (conn->state == CONN_CLOSING) {
        if (now_ms >= conn->deadline_ms)
            conn->must_drop = true;
    } else if (conn->state == CONN_NEW && now_ms >= conn->deadline_ms) {
        refuse(conn, FEDGE_REASON_TIMEOUT, "no HELLO within 10 seconds", now_ms);
    } else if (conn->frame_started_ms != 0 &&
               now_ms >= conn->frame_started_ms + FEDGE_CONN_FRAME_TIMEOUT_MS) {
        refuse(conn, FEDGE_REASON_TIMEOUT, "a message was not complete within 30 seconds", now_ms);
    }
}

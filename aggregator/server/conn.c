#include "aggregator/server/conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"

typedef enum conn_state {
    CONN_NEW,    /* no HELLO yet */
    CONN_READY,  /* joined */
    CONN_CLOSING /* a last frame is on its way */
} conn_state;

typedef struct queued_frame {
    struct queued_frame *next;
    size_t size;
    uint8_t bytes[];
} queued_frame;

struct fedge_conn {
    fedge_engine *engine;
    fedge_conn_transport transport;
    const fedge_log *log;
    fedge_registry_match match;
    conn_state state;
    bool joined;
    uint64_t deadline_ms; /* of the state, while NEW or CLOSING */

    /* The frame that is arriving. */
    uint8_t header[FEDGE_MESSAGE_HEADER_SIZE];
    uint8_t *frame; /* malloc'ed once the header is complete and within the limits */
    size_t frame_size, received;
    uint64_t frame_started_ms;

    /* What is to be written. */
    queued_frame *out_head, **out_tail;
    uint32_t out_count;
    fedge_blob *sending; /* retained */
    uint64_t sending_offset;
};

fedge_status fedge_conn_new(fedge_conn **conn, fedge_engine *engine,
                            const fedge_registry_match *match,
                            const fedge_conn_transport *transport, const fedge_log *log,
                            uint64_t now_ms, fedge_error *err)
{
    *conn = NULL;
    fedge_conn *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a connection");
    }
    fresh->engine = engine;
    fresh->match = *match;
    fresh->transport = *transport;
    fresh->log = log;
    fresh->out_tail = &fresh->out_head;
    fresh->deadline_ms = now_ms + FEDGE_CONN_HELLO_TIMEOUT_MS;
    *conn = fresh;
    return FEDGE_OK;
}

static void discard_output(fedge_conn *conn)
{
    for (queued_frame *frame = conn->out_head, *next; frame; frame = next) {
        next = frame->next;
        free(frame);
    }
    conn->out_head = NULL;
    conn->out_tail = &conn->out_head;
    conn->out_count = 0;
    fedge_blob_release(conn->sending);
    conn->sending = NULL;
}

static void leave(fedge_conn *conn, uint64_t now_ms)
{
    if (conn->joined) {
        conn->joined = false;
        fedge_engine_leave(conn->engine, conn, now_ms);
    }
}

void fedge_conn_free(fedge_conn *conn, uint64_t now_ms)
{
    if (!conn) {
        return;
    }
    leave(conn, now_ms);
    discard_output(conn);
    free(conn->frame);
    free(conn);
}

uint32_t fedge_conn_client_index(const fedge_conn *conn)
{
    return conn->match.index;
}

const fedge_registry_match *fedge_conn_match(const fedge_conn *conn)
{
    return &conn->match;
}

const fedge_log *fedge_conn_log(const fedge_conn *conn)
{
    return conn->log;
}

void fedge_conn_pause(fedge_conn *conn, bool paused)
{
    conn->transport.pause(conn->transport.user, paused);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void enqueue(fedge_conn *conn, const uint8_t *bytes, size_t size)
{
    if (conn->out_count >= FEDGE_CONN_MAX_QUEUED) {
        FEDGE_LOG(conn->log, FEDGE_LOG_WARN, "client-does-not-read",
                  fedge_log_str("device", conn->match.device_id),
                  fedge_log_int("frames-queued", conn->out_count));
        conn->transport.drop(conn->transport.user);
        return;
    }
    queued_frame *frame = malloc(sizeof(*frame) + size);
    if (!frame) {
        conn->transport.drop(conn->transport.user);
        return;
    }
    frame->next = NULL;
    frame->size = size;
    memcpy(frame->bytes, bytes, size);
    *conn->out_tail = frame;
    conn->out_tail = &frame->next;
    conn->out_count++;
    conn->transport.want_write(conn->transport.user);
}

/* Frames that the server makes are within every limit, so packing them cannot fail but by a bug. */
static void enqueue_packed(fedge_conn *conn, fedge_status status, const fedge_error *err,
                           const uint8_t *bytes, size_t size)
{
    if (status != FEDGE_OK) {
        fedge_log_failure(conn->log, FEDGE_LOG_ERROR, "frame-not-packed", err);
        conn->transport.drop(conn->transport.user);
        return;
    }
    enqueue(conn, bytes, size);
}

#define SMALL_FRAME (FEDGE_MESSAGE_HEADER_SIZE + FEDGE_MESSAGE_MAX_META)

void fedge_conn_send_task(fedge_conn *conn, const fedge_task *task)
{
    uint8_t bytes[SMALL_FRAME];
    size_t size = 0;
    fedge_error err;
    fedge_status status = fedge_task_pack(task, bytes, sizeof(bytes), &size, &err);
    enqueue_packed(conn, status, &err, bytes, size);
}

void fedge_conn_send_ack(fedge_conn *conn, const fedge_ack *ack)
{
    uint8_t bytes[SMALL_FRAME];
    size_t size = 0;
    fedge_error err;
    fedge_status status = fedge_ack_pack(ack, bytes, sizeof(bytes), &size, &err);
    enqueue_packed(conn, status, &err, bytes, size);
}

void fedge_conn_send_resume(fedge_conn *conn, const fedge_position *position)
{
    uint8_t bytes[SMALL_FRAME];
    size_t size = 0;
    fedge_error err;
    fedge_status status = fedge_resume_pack(position, bytes, sizeof(bytes), &size, &err);
    enqueue_packed(conn, status, &err, bytes, size);
}

void fedge_conn_send_notice(fedge_conn *conn, fedge_message_type type, const fedge_notice *notice)
{
    uint8_t bytes[SMALL_FRAME];
    size_t size = 0;
    fedge_error err;
    fedge_status status = fedge_notice_pack(type, notice, bytes, sizeof(bytes), &size, &err);
    enqueue_packed(conn, status, &err, bytes, size);
}

void fedge_conn_close(fedge_conn *conn, fedge_message_type type, fedge_reason reason,
                      uint64_t after_ms, const char *text)
{
    if (conn->state == CONN_CLOSING) {
        return;
    }
    uint64_t now_ms = fedge_os_monotonic_ms();
    fedge_notice notice = {.reason = reason, .after_ms = after_ms};
    snprintf(notice.text, sizeof(notice.text), "%s", text);
    discard_output(conn);
    conn->state = CONN_CLOSING;
    conn->deadline_ms = now_ms + FEDGE_CONN_CLOSE_TIMEOUT_MS;
    if (reason == FEDGE_REASON_REPLACED && conn->transport.replaced) {
        conn->transport.replaced(conn->transport.user);
    }
    if (conn->joined && reason == FEDGE_REASON_REVOKED) {
        fedge_engine_decline(conn->engine, conn, &notice, now_ms); /* it will not come back */
    }
    leave(conn, now_ms);
    fedge_conn_send_notice(conn, type, &notice);
}

/* The round it belonged to is over: a newer TASK is on its way or will come. */
static void refuse_blob(fedge_conn *conn, const char *hash)
{
    fedge_notice notice = {.reason = FEDGE_REASON_STALE_TASK};
    snprintf(notice.text, sizeof(notice.text), "no blob %.16s… is served any more", hash);
    fedge_conn_send_notice(conn, FEDGE_MESSAGE_REFUSE, &notice);
}

void fedge_conn_withdraw_blob(fedge_conn *conn, const fedge_blob *blob)
{
    if (conn->sending == blob) {
        refuse_blob(conn, blob->hash);
        fedge_blob_release(conn->sending);
        conn->sending = NULL;
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

static void refuse(fedge_conn *conn, fedge_reason reason, const char *text)
{
    log_refusal(conn, reason, text);
    fedge_conn_close(conn, FEDGE_MESSAGE_REFUSE, reason, 0, text);
}

static size_t next_chunk(fedge_conn *conn, uint8_t *out)
{
    fedge_blob *blob = conn->sending;
    uint64_t left = blob->size - conn->sending_offset;
    uint32_t part = left < FEDGE_MESSAGE_MAX_PAYLOAD ? (uint32_t)left : FEDGE_MESSAGE_MAX_PAYLOAD;
    fedge_blob_ref ref = {.offset = conn->sending_offset, .size = blob->size};
    memcpy(ref.hash, blob->hash, sizeof(ref.hash));
    size_t size = 0;
    fedge_error err;
    if (fedge_chunk_pack(&ref, blob->bytes + conn->sending_offset, part, out,
                         FEDGE_MESSAGE_MAX_SIZE, &size, &err) != FEDGE_OK) {
        fedge_log_failure(conn->log, FEDGE_LOG_ERROR, "frame-not-packed", &err);
        conn->transport.drop(conn->transport.user);
        return 0;
    }
    conn->sending_offset += part;
    if (conn->sending_offset == blob->size) {
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
        if (!conn->out_head) {
            conn->out_tail = &conn->out_head;
        }
        conn->out_count--;
        free(frame);
    } else if (conn->sending) {
        size = next_chunk(conn, out);
    }
    fedge_engine_count_bytes(conn->engine, 0, size);
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

/* ---- receiving ------------------------------------------------------------------------------- */

static void handle_hello(fedge_conn *conn, const fedge_message *message, uint64_t now_ms)
{
    fedge_error err;
    fedge_hello *hello = calloc(1, sizeof(*hello));
    if (!hello) {
        fedge_conn_close(conn, FEDGE_MESSAGE_REFUSE, FEDGE_REASON_BUSY, 1000, "out of memory");
        return;
    }
    if (conn->state != CONN_NEW) {
        refuse(conn, FEDGE_REASON_BAD_STATE, "HELLO came twice");
    } else if (fedge_hello_read(message, hello, &err) != FEDGE_OK) {
        refuse(conn, FEDGE_REASON_BAD_META, err.message);
    } else if (hello->protocol_min > FEDGE_PROTOCOL_MAX ||
               hello->protocol_max < FEDGE_PROTOCOL_MIN) {
        refuse(conn, FEDGE_REASON_PROTOCOL_RANGE,
               "no common protocol version: this aggregator speaks version 1");
    } else {
        FEDGE_LOG(conn->log, FEDGE_LOG_INFO, "client-hello",
                  fedge_log_str("device", conn->match.device_id),
                  fedge_log_int("client", conn->match.index),
                  fedge_log_str("release", hello->release), fedge_log_str("arch", hello->arch),
                  fedge_log_int("ram", (int64_t)hello->ram_bytes));
        for (uint32_t i = 0; i < hello->num_errors; i++) {
            FEDGE_LOG(conn->log, FEDGE_LOG_WARN, "client-reported-error",
                      fedge_log_str("device", conn->match.device_id),
                      fedge_log_str("error", hello->errors[i]));
        }
        fedge_welcome welcome;
        fedge_engine_welcome(conn->engine, conn->match.index, &welcome);
        uint8_t bytes[SMALL_FRAME];
        size_t size = 0;
        fedge_status status = fedge_welcome_pack(&welcome, bytes, sizeof(bytes), &size, &err);
        enqueue_packed(conn, status, &err, bytes, size);
        conn->state = CONN_READY;
        conn->joined = true;
        if (fedge_engine_join(conn->engine, conn, now_ms, &err) != FEDGE_OK) {
            conn->joined = false;
            fedge_conn_close(conn, FEDGE_MESSAGE_REFUSE, FEDGE_REASON_INTERNAL, 10000, err.message);
        }
    }
    free(hello);
}

static void handle_fetch(fedge_conn *conn, const fedge_message *message)
{
    fedge_error err;
    fedge_blob_ref ref;
    if (fedge_fetch_read(message, &ref, &err) != FEDGE_OK) {
        refuse(conn, FEDGE_REASON_BAD_META, err.message);
        return;
    }
    fedge_blob *blob = fedge_engine_find_blob(conn->engine, ref.hash);
    if (!blob) {
        refuse_blob(conn, ref.hash);
        return;
    }
    if (ref.offset >= blob->size) {
        refuse(conn, FEDGE_REASON_BAD_META, "FETCH: offset is not inside the blob");
        return;
    }
    fedge_blob_release(conn->sending); /* a later FETCH replaces an earlier one */
    conn->sending = fedge_blob_retain(blob);
    conn->sending_offset = ref.offset;
    conn->transport.want_write(conn->transport.user);
}

static void handle_upload(fedge_conn *conn, const fedge_message *message, uint64_t now_ms)
{
    fedge_error err;
    fedge_upload *upload = malloc(sizeof(*upload));
    if (!upload) {
        fedge_conn_close(conn, FEDGE_MESSAGE_REFUSE, FEDGE_REASON_BUSY, 1000, "out of memory");
        return;
    }
    if (fedge_upload_read(message, upload, &err) == FEDGE_OK) {
        fedge_engine_upload(conn->engine, conn, upload, message->meta, message->meta_size, now_ms);
    } else {
        refuse(conn, FEDGE_REASON_BAD_META, err.message);
    }
    free(upload);
}

static void handle_part(fedge_conn *conn, const fedge_message *message, uint64_t now_ms)
{
    fedge_error err;
    fedge_position position;
    if (fedge_position_read(message, &position, &err) != FEDGE_OK) {
        refuse(conn, FEDGE_REASON_BAD_META, err.message);
        return;
    }
    fedge_engine_part(conn->engine, conn, &position, message->payload, message->payload_size,
                      now_ms);
}

static void handle_notice(fedge_conn *conn, const fedge_message *message, uint64_t now_ms)
{
    fedge_error err;
    fedge_notice notice;
    if (fedge_notice_read(message, &notice, &err) != FEDGE_OK) {
        refuse(conn, FEDGE_REASON_BAD_META, err.message);
        return;
    }
    FEDGE_LOG(conn->log, message->type == FEDGE_MESSAGE_BYE ? FEDGE_LOG_INFO : FEDGE_LOG_WARN,
              message->type == FEDGE_MESSAGE_BYE ? "client-bye" : "client-declined",
              fedge_log_str("device", conn->match.device_id),
              fedge_log_int("client", conn->match.index),
              fedge_log_str("reason", fedge_reason_name(notice.reason)),
              fedge_log_str("text", notice.text));
    if (message->type == FEDGE_MESSAGE_DECLINE && conn->joined) {
        fedge_engine_decline(conn->engine, conn, &notice, now_ms);
        if (!notice.has_task) {
            leave(conn, now_ms); /* it declined the plan: it stays connected but gets no task */
        }
    }
}

static void handle(fedge_conn *conn, const fedge_message *message, uint64_t now_ms)
{
    char text[96];
    bool ready = conn->state == CONN_READY;
    switch (message->type) {
    case FEDGE_MESSAGE_HELLO:
        handle_hello(conn, message, now_ms);
        return;
    case FEDGE_MESSAGE_FETCH:
    case FEDGE_MESSAGE_UPLOAD:
    case FEDGE_MESSAGE_PART:
    case FEDGE_MESSAGE_DECLINE:
    case FEDGE_MESSAGE_BYE:
        if (!ready) {
            snprintf(text, sizeof(text), "%s came before HELLO",
                     fedge_message_type_name(message->type));
            refuse(conn, FEDGE_REASON_BAD_STATE, text);
        } else if (message->type == FEDGE_MESSAGE_FETCH) {
            handle_fetch(conn, message);
        } else if (message->type == FEDGE_MESSAGE_UPLOAD) {
            handle_upload(conn, message, now_ms);
        } else if (message->type == FEDGE_MESSAGE_PART) {
            handle_part(conn, message, now_ms);
        } else {
            handle_notice(conn, message, now_ms);
        }
        return;
    default:
        if (fedge_message_type_name(message->type)) {
            snprintf(text, sizeof(text), "%s is not for a client to send",
                     fedge_message_type_name(message->type));
            refuse(conn, FEDGE_REASON_BAD_STATE, text);
        } else if (message->flags & FEDGE_MESSAGE_FLAG_MUST) {
            snprintf(text, sizeof(text), "message type %u is not known here", message->type);
            refuse(conn, FEDGE_REASON_UNKNOWN_TYPE, text);
        }
    }
}

/* Takes bytes up to the end of the header, then checks it and gets a block for the frame. */
static bool take_header(fedge_conn *conn, const uint8_t **data, size_t *size, uint64_t now_ms)
{
    if (conn->received == 0) {
        conn->frame_started_ms = now_ms;
    }
    size_t want = FEDGE_MESSAGE_HEADER_SIZE - conn->received;
    size_t n = *size < want ? *size : want;
    memcpy(conn->header + conn->received, *data, n);
    conn->received += n;
    *data += n;
    *size -= n;
    if (conn->received < FEDGE_MESSAGE_HEADER_SIZE) {
        return true;
    }
    fedge_error err;
    if (fedge_message_peek(conn->header, sizeof(conn->header), &conn->frame_size, &err) !=
        FEDGE_OK) {
        refuse(conn, err.status == FEDGE_TOO_BIG ? FEDGE_REASON_TOO_BIG : FEDGE_REASON_BAD_FRAME,
               err.message);
        return false;
    }
    conn->frame = malloc(conn->frame_size);
    if (!conn->frame) {
        fedge_conn_close(conn, FEDGE_MESSAGE_REFUSE, FEDGE_REASON_BUSY, 1000, "out of memory");
        return false;
    }
    memcpy(conn->frame, conn->header, sizeof(conn->header));
    return true;
}

static void end_frame(fedge_conn *conn, uint64_t now_ms)
{
    uint8_t *frame = conn->frame;
    size_t received = conn->received;
    conn->frame = NULL;
    conn->received = 0;
    conn->frame_started_ms = 0;
    fedge_message message;
    fedge_error err;
    if (!frame) {
        refuse(conn, FEDGE_REASON_BAD_FRAME, "the message is shorter than its header");
    } else if (fedge_message_unpack(frame, received, &message, &err) != FEDGE_OK) {
        refuse(conn, FEDGE_REASON_BAD_FRAME, err.message);
    } else {
        handle(conn, &message, now_ms);
    }
    free(frame);
}

void fedge_conn_receive(fedge_conn *conn, const uint8_t *data, size_t size, bool final,
                        uint64_t now_ms)
{
    fedge_engine_count_bytes(conn->engine, size, 0);
    if (conn->state == CONN_CLOSING) {
        return;
    }
    if (!conn->frame && size > 0 && !take_header(conn, &data, &size, now_ms)) {
        return;
    }
    if (conn->frame && size > 0) {
        if (size > conn->frame_size - conn->received) {
            refuse(conn, FEDGE_REASON_BAD_FRAME, "the message is longer than its header says");
            return;
        }
        memcpy(conn->frame + conn->received, data, size);
        conn->received += size;
    }
    if (final) {
        end_frame(conn, now_ms);
    }
}

void fedge_conn_receive_text(fedge_conn *conn)
{
    refuse(conn, FEDGE_REASON_BAD_FRAME, "text messages are not part of fedge.v1");
}

void fedge_conn_tick(fedge_conn *conn, uint64_t now_ms)
{
    if (conn->state == CONN_CLOSING) {
        if (now_ms >= conn->deadline_ms) {
            conn->transport.drop(conn->transport.user);
        }
    } else if (conn->state == CONN_NEW && now_ms >= conn->deadline_ms) {
        refuse(conn, FEDGE_REASON_TIMEOUT, "no HELLO within 10 seconds");
    } else if (conn->frame_started_ms != 0 &&
               now_ms >= conn->frame_started_ms + FEDGE_CONN_FRAME_TIMEOUT_MS) {
        refuse(conn, FEDGE_REASON_TIMEOUT, "a message was not complete within 30 seconds");
    }
}

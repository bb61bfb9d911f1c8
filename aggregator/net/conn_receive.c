#include "aggregator/net/conn_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages -------------------------------------------------------------------------------- */

static void note_hello(fedge_conn *conn, const fedge_hello *hello)
{
    FEDGE_CONN_NOTE_DOWN(
        conn, FEDGE_LOG_INFO, "client-hello", fedge_log_str("device", conn->match.device_id),
        fedge_log_int("client", conn->match.index), fedge_log_str("release", hello->release),
        fedge_log_str("arch", hello->arch), fedge_log_int("ram", (int64_t)hello->ram_bytes));
    for (uint32_t i = 0; i < hello->num_errors; i++) {
        FEDGE_CONN_NOTE_DOWN(conn, FEDGE_LOG_WARN, "client-reported-error",
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
        fedge_conn_refuse_for_memory(conn, now_ms);
    } else if (conn->state != FEDGE_CONN_STATE_NEW) {
        fedge_conn_refuse(conn, FEDGE_REASON_BAD_STATE, "HELLO came twice", now_ms);
    } else if (fedge_hello_read(message, hello, &err) != FEDGE_OK) {
        fedge_conn_refuse(conn, FEDGE_REASON_BAD_META, err.message, now_ms);
    } else if (hello->protocol_min > FEDGE_PROTOCOL_MAX ||
               hello->protocol_max < FEDGE_PROTOCOL_MIN) {
        fedge_conn_refuse(conn, FEDGE_REASON_PROTOCOL_RANGE,
                          "no common protocol version: this aggregator speaks version 1", now_ms);
    } else {
        note_hello(conn, hello);
        conn->state = FEDGE_CONN_STATE_READY;
        conn->joined = true;
        request->hangs_up = hello->hangs_up;
        fedge_conn_ask(conn, request);
        request = NULL;
    }
    fedge_request_free(request);
    free(hello);
}

/* Gives the message's frame to the request, so that the engine reads the payload without a copy. */
static void hand_over(fedge_conn *conn, const fedge_message *message, fedge_request *request,
                      uint8_t **frame)
{
    request->frame = *frame;
    *frame = NULL;
    request->meta = message->meta;
    request->meta_size = message->meta_size;
    request->payload = message->payload;
    request->payload_size = message->payload_size;
    fedge_conn_ask(conn, request);
}

static void note_notice(fedge_conn *conn, fedge_message_type type, const fedge_notice *notice)
{
    const bool bye = type == FEDGE_MESSAGE_BYE;
    FEDGE_CONN_NOTE_DOWN(
        conn, bye ? FEDGE_LOG_INFO : FEDGE_LOG_WARN, bye ? "client-bye" : "client-declined",
        fedge_log_str("device", conn->match.device_id), fedge_log_int("client", conn->match.index),
        fedge_log_str("reason", fedge_reason_name(notice->reason)),
        fedge_log_str("text", notice->text));
}

static void handle_notice(fedge_conn *conn, fedge_request *request)
{
    const fedge_client_message *message = &request->message;
    note_notice(conn, message->type, &message->notice);
    if (message->type != FEDGE_MESSAGE_DECLINE || !conn->joined) {
        fedge_request_free(request);
        return;
    }
    const bool stays = message->notice.has_task;
    fedge_conn_ask(conn, request);
    if (!stays)
        fedge_conn_leave(conn); /* it declined the plan: it stays connected and gets no task */
}

/* Handles a message of a client that has sent HELLO. */
static void handle_ready(fedge_conn *conn, const fedge_message *message, fedge_request *request,
                         uint8_t **frame, uint64_t now_ms)
{
    fedge_error err;
    const fedge_status status = fedge_client_message_read(message, &request->message, &err);
    if (status == FEDGE_NO_MEMORY) {
        fedge_conn_refuse_for_memory(conn, now_ms);
        fedge_request_free(request);
    } else if (status != FEDGE_OK) {
        fedge_conn_refuse(conn, FEDGE_REASON_BAD_META, err.message, now_ms);
        fedge_request_free(request);
    } else if (message->type == FEDGE_MESSAGE_DECLINE || message->type == FEDGE_MESSAGE_BYE) {
        handle_notice(conn, request);
    } else {
        hand_over(conn, message, request, frame);
    }
}

/* An unknown type is ignored, unless its MUST flag is set. */
static void handle_other(fedge_conn *conn, const fedge_message *message, uint64_t now_ms)
{
    char text[96];
    if (fedge_message_type_name(message->type)) {
        snprintf(text, sizeof(text), "%s is not for a client to send",
                 fedge_message_type_name(message->type));
        fedge_conn_refuse(conn, FEDGE_REASON_BAD_STATE, text, now_ms);
    } else if (message->flags & FEDGE_MESSAGE_FLAG_MUST) {
        snprintf(text, sizeof(text), "message type %u is not known here", message->type);
        fedge_conn_refuse(conn, FEDGE_REASON_UNKNOWN_TYPE, text, now_ms);
    }
}

/* [message] points into *frame, which becomes NULL if a request takes it over. */
static void handle(fedge_conn *conn, const fedge_message *message, uint8_t **frame, uint64_t now_ms)
{
    char text[96];
    if (!fedge_is_of_clients(message->type)) {
        handle_other(conn, message, now_ms);
        return;
    }
    const bool hello = message->type == FEDGE_MESSAGE_HELLO;
    if (!hello && conn->state != FEDGE_CONN_STATE_READY) {
        snprintf(text, sizeof(text), "%s came before HELLO",
                 fedge_message_type_name(message->type));
        fedge_conn_refuse(conn, FEDGE_REASON_BAD_STATE, text, now_ms);
        return;
    }
    fedge_request *request =
        fedge_conn_new_request(conn, hello ? FEDGE_REQUEST_JOIN : FEDGE_REQUEST_MESSAGE);
    if (!request)
        fedge_conn_refuse_for_memory(conn, now_ms);
    else if (hello)
        handle_hello(conn, message, request, now_ms);
    else
        handle_ready(conn, message, request, frame, now_ms);
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* A single frame may exceed the limit. */
static bool fits(const fedge_conn_budget *budget, size_t size)
{
    return budget->in == 0 || budget->in + size <= budget->limit;
}

/* A waiting frame's block is not counted, so it cannot make other frames wait. */
static bool grow_frame(fedge_conn *conn, size_t capacity)
{
    uint8_t *frame = realloc(conn->frame, capacity);
    if (!frame)
        return false;
    conn->frame = frame;
    conn->frame_capacity = capacity;
    conn->counted = capacity == conn->frame_size;
    conn->budget->in += conn->counted ? capacity : 0;
    return true;
}

static void wait_for_memory(fedge_conn *conn)
{
    conn->budget->num_waiting++;
    conn->frame_started_ms = 0;
    conn->must_wait = true;
    fedge_conn_pause_reading(conn, conn->paused, true);
}

static void stop_waiting(fedge_conn *conn)
{
    if (conn->waiting) {
        conn->budget->num_waiting--;
        conn->must_wait = false;
        fedge_conn_pause_reading(conn, conn->paused, false);
    }
}

/* Completes the header, checks it and allocates the frame's block. */
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
        fedge_conn_refuse(
            conn, err.status == FEDGE_TOO_BIG ? FEDGE_REASON_TOO_BIG : FEDGE_REASON_BAD_FRAME,
            err.message, now_ms);
        return false;
    }
    const size_t came = conn->received + *size;
    const bool wait = (conn->budget->num_waiting > 0 || !fits(conn->budget, conn->frame_size)) &&
                      came < conn->frame_size;
    if (!grow_frame(conn, wait ? came : conn->frame_size)) {
        fedge_conn_refuse_for_memory(conn, now_ms);
        return false;
    }
    memcpy(conn->frame, conn->header, sizeof(conn->header));
    if (wait)
        wait_for_memory(conn);
    return true;
}

bool fedge_conn_reserve_frame(fedge_conn *conn, uint64_t now_ms)
{
    assert(!fedge_conn_has_actions(conn));
    if (!conn->waiting)
        return true;
    if (!fits(conn->budget, conn->frame_size) || !grow_frame(conn, conn->frame_size))
        return false;
    conn->frame_started_ms = now_ms;
    stop_waiting(conn);
    return true;
}

static void end_frame(fedge_conn *conn, uint64_t now_ms)
{
    uint8_t *frame = fedge_conn_take_frame(conn);
    size_t received = conn->received;
    /* The last bytes may have been decrypted before reading was paused. */
    stop_waiting(conn);
    conn->received = 0;
    conn->frame_started_ms = 0;
    fedge_message message;
    fedge_error err;
    if (!frame) {
        fedge_conn_refuse(conn, FEDGE_REASON_BAD_FRAME, "the message is shorter than its header",
                          now_ms);
    } else if (fedge_message_unpack(frame, received, &message, &err) != FEDGE_OK) {
        fedge_conn_refuse(conn, FEDGE_REASON_BAD_FRAME, err.message, now_ms);
    } else {
        handle(conn, &message, &frame, now_ms);
    }
    free(frame);
}

void fedge_conn_receive(fedge_conn *conn, const uint8_t *data, size_t size, bool final,
                        uint64_t now_ms)
{
    assert(!fedge_conn_has_actions(conn));
    atomic_fetch_add(&conn->traffic->up, size);
    if (conn->state == FEDGE_CONN_STATE_CLOSING)
        return;
    if (!conn->frame && size > 0 && !take_header(conn, &data, &size, now_ms))
        return;
    if (conn->frame && size > 0) {
        if (size > conn->frame_size - conn->received) {
            fedge_conn_refuse(conn, FEDGE_REASON_BAD_FRAME,
                              "the message is longer than its header says", now_ms);
            return;
        }
        /* A waiting frame grows only by what was in flight when reading was paused. */
        if (conn->received + size > conn->frame_capacity &&
            !grow_frame(conn, conn->received + size)) {
            fedge_conn_refuse_for_memory(conn, now_ms);
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
    assert(!fedge_conn_has_actions(conn));
    fedge_conn_refuse(conn, FEDGE_REASON_BAD_FRAME, "text messages are not part of fedge.v1",
                      now_ms);
}

static void refuse_late(fedge_conn *conn, const char *what, unsigned limit_ms, uint64_t now_ms)
{
    char text[96];
    snprintf(text, sizeof(text), "%s within %u seconds", what, limit_ms / 1000);
    fedge_conn_refuse(conn, FEDGE_REASON_TIMEOUT, text, now_ms);
}

void fedge_conn_tick(fedge_conn *conn, uint64_t now_ms)
{
    assert(!fedge_conn_has_actions(conn));
    if (conn->state == FEDGE_CONN_STATE_CLOSING) {
        if (now_ms >= conn->deadline_ms)
            conn->must_drop = true;
    } else if (conn->state == FEDGE_CONN_STATE_NEW && now_ms >= conn->deadline_ms) {
        refuse_late(conn, "no HELLO", FEDGE_CONN_HELLO_TIMEOUT_MS, now_ms);
    } else if (conn->frame_started_ms != 0 &&
               now_ms >= conn->frame_started_ms + FEDGE_CONN_FRAME_TIMEOUT_MS) {
        refuse_late(conn, "a message was not complete", FEDGE_CONN_FRAME_TIMEOUT_MS, now_ms);
    }
}

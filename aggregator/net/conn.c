#include "aggregator/net/conn_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fedge_queued_frame {
    struct fedge_queued_frame *next;
    size_t size;
    uint8_t bytes[];
} queued_frame;

/* ---- life ------------------------------------------------------------------------------------ */

fedge_request *fedge_conn_new_request(const fedge_conn *conn, fedge_request_type type)
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
                            fedge_traffic *traffic, fedge_conn_budget *budget, uint64_t now_ms,
                            fedge_error *err)
{
    *conn = NULL;
    assert(id != FEDGE_CONN_ALL);
    fedge_conn *fresh = calloc(1, sizeof(*fresh));
    if (fresh) {
        fresh->id = id;
        fresh->match = *match;
        fresh->traffic = traffic;
        fresh->budget = budget;
        fresh->out_tail = &fresh->out_head;
        fresh->last_note = &fresh->notes;
        fresh->last_request = &fresh->requests;
        fresh->deadline_ms = now_ms + FEDGE_CONN_HELLO_TIMEOUT_MS;
        /* Allocated here: without memory for it later, the engine would count this client as
         * connected. */
        fresh->farewell = fedge_conn_new_request(fresh, FEDGE_REQUEST_LEAVE);
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

uint8_t *fedge_conn_take_frame(fedge_conn *conn)
{
    uint8_t *frame = conn->frame;
    conn->budget->in -= conn->counted ? conn->frame_size : 0;
    conn->counted = false;
    conn->frame = NULL;
    conn->frame_capacity = 0;
    return frame;
}

void fedge_conn_free(fedge_conn *conn)
{
    if (!conn)
        return;
    assert(!conn->joined && !conn->requests && !conn->notes);
    discard_output(conn);
    conn->budget->num_waiting -= conn->waiting;
    free(fedge_conn_take_frame(conn));
    free(conn->farewell);
    free(conn->noted);
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

bool fedge_conn_has_actions(const fedge_conn *conn)
{
    return conn->notes || conn->requests || conn->was_replaced || conn->must_pause ||
           conn->must_resume || conn->must_wait || conn->must_write || conn->must_drop;
}

static size_t text_size(const fedge_log_field *field)
{
    return field->type == FEDGE_LOG_FIELD_STR && field->str ? strlen(field->str) + 1 : 0;
}

void fedge_conn_note_down(fedge_conn *conn, fedge_log_level level, const char *event,
                          const fedge_log_field *fields, size_t num_fields)
{
    size_t size = sizeof(fedge_conn_note) + num_fields * sizeof(*fields);
    for (size_t i = 0; i < num_fields; i++)
        size += text_size(&fields[i]);
    fedge_conn_note *note = malloc(size);
    if (!note)
        return;
    *note = (fedge_conn_note){.level = level, .event = event, .num_fields = num_fields};
    char *text = (char *)(note->fields + num_fields);
    for (size_t i = 0; i < num_fields; i++) {
        const size_t length = text_size(&fields[i]);
        note->fields[i] = fields[i];
        if (length > 0)
            note->fields[i].str = memcpy(text, fields[i].str, length);
        text += length;
    }
    *conn->last_note = note;
    conn->last_note = &note->next;
}

void fedge_conn_ask(fedge_conn *conn, fedge_request *request)
{
    request->item.next = NULL;
    *conn->last_request = &request->item;
    conn->last_request = &request->item.next;
}

void fedge_conn_leave(fedge_conn *conn)
{
    if (conn->joined) {
        assert(conn->farewell);
        conn->joined = false;
        fedge_conn_ask(conn, conn->farewell);
        conn->farewell = NULL;
    }
}

void fedge_conn_end(fedge_conn *conn)
{
    assert(!fedge_conn_has_actions(conn));
    fedge_conn_leave(conn);
}

static fedge_request *next_request(fedge_conn *conn)
{
    fedge_request *request = (fedge_request *)conn->requests;
    conn->requests = request->item.next;
    if (!conn->requests)
        conn->last_request = &conn->requests;
    return request;
}

static const fedge_conn_note *next_note(fedge_conn *conn)
{
    conn->noted = conn->notes;
    conn->notes = conn->noted->next;
    if (!conn->notes)
        conn->last_note = &conn->notes;
    return conn->noted;
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
    free(conn->noted);
    conn->noted = NULL;
    if (conn->notes) {
        *action = (fedge_conn_action){.type = FEDGE_CONN_NOTE, .note = next_note(conn)};
        return true;
    }
    /* Requests come before the actions that end a connection, so the engine gets them in order. */
    if (conn->requests) {
        *action = (fedge_conn_action){.type = FEDGE_CONN_REQUEST, .request = next_request(conn)};
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

void fedge_conn_pause_reading(fedge_conn *conn, bool paused, bool waiting)
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
    /* A peer may never read. The bound is on frames: each is small, or a chunk that is cut after
     * the previous one was sent. */
    const bool over_budget = conn->budget->out + size > conn->budget->limit;
    if (conn->out_count >= (over_budget ? 1 : FEDGE_CONN_MAX_QUEUED)) {
        FEDGE_CONN_NOTE_DOWN(conn, FEDGE_LOG_WARN, "client-does-not-read",
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

static fedge_status pack(const fedge_reply *reply, uint8_t *out, size_t capacity, size_t *size,
                         fedge_error *err)
{
    switch (reply->message) {
    case FEDGE_MESSAGE_WELCOME:
        return fedge_welcome_pack(&reply->welcome, out, capacity, size, err);
    case FEDGE_MESSAGE_TASK:
        return fedge_task_pack(&reply->task, out, capacity, size, err);
    case FEDGE_MESSAGE_ACK:
        return fedge_ack_pack(&reply->ack, out, capacity, size, err);
    case FEDGE_MESSAGE_RESUME:
        return fedge_resume_pack(&reply->position, out, capacity, size, err);
    default:
        return fedge_notice_pack(reply->message, &reply->notice, out, capacity, size, err);
    }
}

/* A reply of the engine fits every limit; a failure here is a bug. */
static void give_up_packing(fedge_conn *conn, const fedge_error *err)
{
    FEDGE_CONN_NOTE_DOWN(conn, FEDGE_LOG_ERROR, "frame-not-packed",
                         fedge_log_str("error", err->message),
                         fedge_log_str("status", fedge_status_text(err->status)));
    conn->must_drop = true;
}

#define SMALL_FRAME (FEDGE_MESSAGE_HEADER_SIZE + FEDGE_MESSAGE_MAX_META)

static void send_message(fedge_conn *conn, const fedge_reply *reply)
{
    uint8_t bytes[SMALL_FRAME];
    size_t size = 0;
    fedge_error err;
    if (pack(reply, bytes, sizeof(bytes), &size, &err) != FEDGE_OK) {
        give_up_packing(conn, &err);
        return;
    }
    enqueue(conn, bytes, size);
}

static void send_notice(fedge_conn *conn, fedge_message_type type, const fedge_notice *notice)
{
    send_message(conn, &(fedge_reply){.message = type, .notice = *notice});
}

/* Tells the engine that the device will not return. */
static void give_up(fedge_conn *conn, const fedge_notice *notice)
{
    fedge_request *request = fedge_conn_new_request(conn, FEDGE_REQUEST_MESSAGE);
    if (request) { /* without memory the task is lost with the connection, as after a disconnect */
        request->message.type = FEDGE_MESSAGE_DECLINE;
        request->message.notice = *notice;
        fedge_conn_ask(conn, request);
    }
}

/* The device did nothing wrong, so messages already queued, such as an ACK, are still sent. */
static bool is_orderly(fedge_reason reason)
{
    return reason == FEDGE_REASON_RUN_COMPLETE || reason == FEDGE_REASON_SHUTTING_DOWN ||
           reason == FEDGE_REASON_COME_LATER;
}

static void send_last(fedge_conn *conn, fedge_message_type type, fedge_reason reason,
                      uint64_t after_ms, const char *text, uint64_t now_ms)
{
    if (conn->state == FEDGE_CONN_STATE_CLOSING)
        return;
    fedge_notice notice = {.reason = reason, .after_ms = after_ms};
    snprintf(notice.text, sizeof(notice.text), "%s", text);
    if (conn->redirect && (reason == FEDGE_REASON_SHUTTING_DOWN || reason == FEDGE_REASON_BUSY)) {
        notice.after_ms = 0; /* the other server is available now */
        snprintf(notice.server, sizeof(notice.server), "%s", conn->redirect);
    }
    /* A download is cut off in any case: it may take hours, and the client resumes it at its
     * offset. */
    if (is_orderly(reason) && conn->out_count < FEDGE_CONN_MAX_QUEUED)
        stop_blob(conn);
    else
        discard_output(conn);
    conn->state = FEDGE_CONN_STATE_CLOSING;
    conn->deadline_ms = now_ms + FEDGE_CONN_CLOSE_TIMEOUT_MS;
    conn->was_replaced = reason == FEDGE_REASON_REPLACED;
    /* Before LEAVE; otherwise the round would wait until its deadline for the device to reconnect.
     */
    if (conn->joined && reason == FEDGE_REASON_REVOKED)
        give_up(conn, &notice);
    fedge_conn_leave(conn);
    send_notice(conn, type, &notice);
}

void fedge_conn_close(fedge_conn *conn, fedge_message_type type, fedge_reason reason,
                      uint64_t after_ms, const char *text, uint64_t now_ms)
{
    assert(!fedge_conn_has_actions(conn));
    send_last(conn, type, reason, after_ms, text, now_ms);
}

void fedge_conn_set_redirect(fedge_conn *conn, const char *server)
{
    conn->redirect = server;
}

static void withdraw_blob(fedge_conn *conn, const fedge_blob *blob)
{
    if (conn->sending == blob) {
        const fedge_notice notice = fedge_stale_blob_notice(blob->hash);
        send_notice(conn, FEDGE_MESSAGE_REFUSE, &notice);
        stop_blob(conn);
    }
}

static void note_refusal(fedge_conn *conn, fedge_reason reason, const char *text)
{
    FEDGE_CONN_NOTE_DOWN(
        conn, FEDGE_LOG_WARN, "message-refused", fedge_log_str("device", conn->match.device_id),
        fedge_log_str("reason", fedge_reason_name(reason)), fedge_log_str("error", text));
}

void fedge_conn_broke_rules(fedge_conn *conn, const char *why)
{
    assert(!fedge_conn_has_actions(conn));
    note_refusal(conn, FEDGE_REASON_BAD_FRAME, why);
}

void fedge_conn_refuse(fedge_conn *conn, fedge_reason reason, const char *text, uint64_t now_ms)
{
    note_refusal(conn, reason, text);
    send_last(conn, FEDGE_MESSAGE_REFUSE, reason, 0, text, now_ms);
}

void fedge_conn_refuse_for_memory(fedge_conn *conn, uint64_t now_ms)
{
    send_last(conn, FEDGE_MESSAGE_REFUSE, FEDGE_REASON_BUSY, 1000, "out of memory", now_ms);
}

/* Size of the next CHUNK's payload. */
static uint32_t chunk_size(const fedge_conn *conn)
{
    const uint64_t left = conn->sending_end - conn->sending_offset;
    return left < FEDGE_MESSAGE_MAX_PAYLOAD ? (uint32_t)left : FEDGE_MESSAGE_MAX_PAYLOAD;
}

bool fedge_conn_next_chunk(const fedge_conn *conn, fedge_conn_chunk *chunk)
{
    if (conn->out_head || !conn->sending)
        return false;
    *chunk = (fedge_conn_chunk){
        .blob = conn->sending,
        .offset = conn->sending_offset,
        .size = chunk_size(conn),
        .at = conn->chunk_head}; /* packing moves the bytes if the header's size changes */
    return true;
}

/* Packs a CHUNK around the payload that the caller has put into [out]. */
static size_t pack_chunk(fedge_conn *conn, uint8_t *out)
{
    const fedge_blob *blob = conn->sending;
    const uint32_t part = chunk_size(conn);
    fedge_blob_ref ref = {.offset = conn->sending_offset, .size = blob->size};
    memcpy(ref.hash, blob->hash, sizeof(ref.hash));
    size_t size = 0;
    fedge_error err;
    if (fedge_chunk_pack(&ref, out + conn->chunk_head, part, out, FEDGE_MESSAGE_MAX_SIZE, &size,
                         &err) != FEDGE_OK) {
        give_up_packing(conn, &err);
        stop_blob(conn);
        return 0;
    }
    conn->chunk_head = size - part;
    conn->sending_offset += part;
    if (conn->sending_offset == conn->sending_end)
        stop_blob(conn);
    return size;
}

size_t fedge_conn_next_frame(fedge_conn *conn, uint8_t *out)
{
    assert(!fedge_conn_has_actions(conn));
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
        size = pack_chunk(conn, out);
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
    return conn->state == FEDGE_CONN_STATE_CLOSING;
}

bool fedge_conn_should_close(const fedge_conn *conn)
{
    return conn->state == FEDGE_CONN_STATE_CLOSING && !fedge_conn_has_frames(conn);
}

/* ---- replies --------------------------------------------------------------------------------- */

static void note_refused_update(fedge_conn *conn, const fedge_notice *notice)
{
    FEDGE_CONN_NOTE_DOWN(conn, FEDGE_LOG_WARN, "update-refused",
                         fedge_log_int("task", (int64_t)notice->task_id),
                         fedge_log_str("device", conn->match.device_id),
                         fedge_log_str("reason", fedge_reason_name(notice->reason)),
                         fedge_log_str("error", notice->text));
}

static void begin_blob(fedge_conn *conn, const fedge_reply *reply, uint64_t now_ms)
{
    if (reply->offset >= reply->blob->size || reply->size > reply->blob->size - reply->offset) {
        fedge_conn_refuse(conn, FEDGE_REASON_BAD_META,
                          "FETCH: offset and size are not inside the blob", now_ms);
        return;
    }
    fedge_blob_release(conn->sending); /* a newer FETCH replaces the previous one */
    conn->sending = fedge_blob_retain(reply->blob);
    conn->sending_offset = reply->offset;
    conn->sending_end = reply->size > 0 ? reply->offset + reply->size : reply->blob->size;
    conn->must_write = true;
}

void fedge_conn_take(fedge_conn *conn, const fedge_reply *reply, uint64_t now_ms)
{
    assert(!fedge_conn_has_actions(conn));
    if (conn->state == FEDGE_CONN_STATE_CLOSING)
        return;
    switch (reply->type) {
    case FEDGE_REPLY_MESSAGE:
        if (reply->message == FEDGE_MESSAGE_REFUSE && reply->notice.has_task)
            note_refused_update(conn, &reply->notice);
        send_message(conn, reply);
        break;
    case FEDGE_REPLY_BLOB:
        begin_blob(conn, reply, now_ms);
        break;
    case FEDGE_REPLY_WITHDRAW:
        withdraw_blob(conn, reply->blob);
        break;
    case FEDGE_REPLY_CLOSE:
        send_last(conn, reply->message, reply->notice.reason, reply->notice.after_ms,
                  reply->notice.text, now_ms);
        break;
    case FEDGE_REPLY_PAUSE:
    case FEDGE_REPLY_RESUME:
        fedge_conn_pause_reading(conn, reply->type == FEDGE_REPLY_PAUSE, conn->waiting);
        break;
    case FEDGE_REPLY_ROUND:
        assert(!"for the service");
    }
}

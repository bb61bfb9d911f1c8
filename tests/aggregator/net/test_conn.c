/* A connection alone: the transport takes its actions, and the engine answers its requests. */
#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/net/conn.h"
#include "edge/core/os.h"

/* What came out of the connection. */
typedef struct bench {
    fedge_conn *conn;
    fedge_traffic traffic;
    fedge_conn_budget budget;
    int joins, leaves, uploads, parts, declines; /* requests */
    fedge_position part;
    uint8_t data[FEDGE_MESSAGE_MAX_PAYLOAD];
    uint32_t data_size;
    fedge_upload upload;
    fedge_blob_ref wanted; /* of the last FETCH */
    int writes_wanted, drops, replacements;
    bool paused;
    fedge_blob *blob; /* is served */
    bool refuse_join;
    uint64_t now_ms;
    uint8_t out[FEDGE_MESSAGE_MAX_SIZE];
} bench;

static void drain_actions(bench *b);

/* ---- the engine ------------------------------------------------------------------------------ */

static void take(bench *b, const fedge_reply *reply)
{
    fedge_conn_take(b->conn, reply, b->now_ms);
    drain_actions(b);
}

static void say_notice(bench *b, fedge_reply_type type, fedge_message_type message,
                       fedge_reason reason, const char *text)
{
    fedge_reply reply = {.type = type, .message = message, .notice = {.reason = reason}};
    snprintf(reply.notice.text, sizeof(reply.notice.text), "%s", text);
    take(b, &reply);
}

static void acknowledge(bench *b, uint64_t task_id)
{
    take(b, &(fedge_reply){.type = FEDGE_REPLY_MESSAGE,
                           .message = FEDGE_MESSAGE_ACK,
                           .ack = {.task_id = task_id}});
}

static void welcome(bench *b, const fedge_request *request)
{
    fedge_reply reply = {.type = FEDGE_REPLY_MESSAGE,
                         .message = FEDGE_MESSAGE_WELCOME,
                         .welcome = {.protocol = 1,
                                     .client_index = request->client_index,
                                     .server_time_ms = 1,
                                     .incarnation = 1,
                                     .plan_size = 100,
                                     .heartbeat_s = 20}};
    memset(reply.welcome.run_id, 'a', sizeof(reply.welcome.run_id) - 1);
    memset(reply.welcome.plan, 'b', sizeof(reply.welcome.plan) - 1);
    take(b, &reply);
}

static void serve(bench *b, const fedge_blob_ref *wanted)
{
    if (b->blob && strcmp(wanted->hash, b->blob->hash) == 0) {
        take(b,
             &(fedge_reply){.type = FEDGE_REPLY_BLOB, .blob = b->blob, .offset = wanted->offset});
    } else {
        take(b, &(fedge_reply){.type = FEDGE_REPLY_MESSAGE,
                               .message = FEDGE_MESSAGE_REFUSE,
                               .notice = fedge_stale_blob_notice(wanted->hash)});
    }
}

static void handle(bench *b, fedge_request *request)
{
    assert_int_equal(request->conn_id, 5);
    assert_int_equal(request->client_index, 7); /* of the certificate, not of a payload */
    assert_string_equal(request->device_id, "01234567-89ab-cdef-0123-456789abcdef");
    const fedge_client_message *message = &request->message;
    switch (request->type) {
    case FEDGE_REQUEST_JOIN:
        b->joins++;
        if (b->refuse_join) {
            say_notice(b, FEDGE_REPLY_CLOSE, FEDGE_MESSAGE_REFUSE, FEDGE_REASON_INTERNAL,
                       "no room for another");
        } else {
            welcome(b, request);
        }
        break;
    case FEDGE_REQUEST_LEAVE:
        b->leaves++;
        break;
    case FEDGE_REQUEST_MESSAGE:
        if (message->type == FEDGE_MESSAGE_FETCH) {
            serve(b, &message->blob);
        } else if (message->type == FEDGE_MESSAGE_UPLOAD) {
            b->uploads++;
            b->upload = *message->upload;
            assert_int_equal(request->meta[0], '{');
        } else if (message->type == FEDGE_MESSAGE_PART) {
            b->parts++;
            b->part = message->position;
            b->data_size = request->payload_size;
            memcpy(b->data, request->payload, request->payload_size);
        } else {
            assert_int_equal(message->type, FEDGE_MESSAGE_DECLINE);
            b->declines++;
        }
        break;
    case FEDGE_REQUEST_DRAIN:
    case FEDGE_REQUEST_GPUS:
    case FEDGE_REQUEST_REPORT:
        fail();
    }
    fedge_request_free(request);
}

/* ---- the transport --------------------------------------------------------------------------- */

static void drain_actions(bench *b)
{
    fedge_conn_action action;
    while (fedge_conn_next_action(b->conn, &action)) {
        switch (action.type) {
        case FEDGE_CONN_NOTE: /* test_conn_actions.c */
            break;
        case FEDGE_CONN_REQUEST:
            handle(b, action.request);
            break;
        case FEDGE_CONN_REPLACED:
            b->replacements++;
            break;
        case FEDGE_CONN_PAUSE:
        case FEDGE_CONN_RESUME:
            b->paused = action.type == FEDGE_CONN_PAUSE;
            break;
        case FEDGE_CONN_WAIT: /* test_conn_budget.c */
            fail();
        case FEDGE_CONN_WRITE:
            b->writes_wanted++;
            break;
        case FEDGE_CONN_DROP:
            b->drops++;
        }
    }
}

static void receive(bench *b, const uint8_t *data, size_t size, bool final)
{
    fedge_conn_receive(b->conn, data, size, final, b->now_ms);
    drain_actions(b);
}

static void tick(bench *b, uint64_t now_ms)
{
    b->now_ms = now_ms;
    fedge_conn_tick(b->conn, now_ms);
    drain_actions(b);
}

static int set_up(void **state)
{
    bench *b = calloc(1, sizeof(*b));
    assert_non_null(b);
    fedge_registry_match match = {.index = 7, .role = FEDGE_ROLE_DEVICE};
    memcpy(match.device_id, "01234567-89ab-cdef-0123-456789abcdef", sizeof(match.device_id));
    fedge_error err;
    b->now_ms = 1000;
    b->budget.limit = FEDGE_CONN_WAITING_BYTES;
    assert_int_equal(fedge_conn_new(&b->conn, 5, &match, &b->traffic, &b->budget, b->now_ms, &err),
                     FEDGE_OK);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    bench *b = *state;
    fedge_conn_end(b->conn);
    drain_actions(b);
    assert_int_equal(b->leaves, b->joins);
    fedge_conn_free(b->conn);
    assert_int_equal(b->budget.in + b->budget.out + b->budget.num_waiting, 0);
    fedge_blob_release(b->blob);
    free(b);
    return 0;
}

/* ---- what tests are written with ------------------------------------------------------------- */

static void send(bench *b, const uint8_t *frame, size_t size)
{
    receive(b, frame, size, true);
}

static size_t pack(uint8_t *out, unsigned type, unsigned flags, const char *meta,
                   const void *payload, uint32_t payload_size)
{
    fedge_message message = {.type = type,
                             .flags = flags,
                             .meta = meta,
                             .meta_size = (uint32_t)strlen(meta),
                             .payload = payload,
                             .payload_size = payload_size};
    fedge_error err;
    assert_int_equal(fedge_message_pack(&message, out, FEDGE_MESSAGE_MAX_SIZE, &err), FEDGE_OK);
    return fedge_message_size(&message);
}

static void send_message(bench *b, unsigned type, unsigned flags, const char *meta)
{
    uint8_t frame[FEDGE_MESSAGE_HEADER_SIZE + 512];
    assert_true(strlen(meta) < 512);
    send(b, frame, pack(frame, type, flags, meta, NULL, 0));
}

static size_t pack_hello(uint8_t *out, uint32_t protocol)
{
    fedge_hello hello = {.protocol_min = protocol, .protocol_max = protocol, .ram_bytes = 1 << 30};
    snprintf(hello.release, sizeof(hello.release), "0.1.0");
    snprintf(hello.arch, sizeof(hello.arch), "x86_64");
    size_t size = 0;
    fedge_error err;
    assert_int_equal(fedge_hello_pack(&hello, out, FEDGE_MESSAGE_MAX_SIZE, &size, &err), FEDGE_OK);
    return size;
}

static fedge_message next_message(bench *b)
{
    fedge_message message = {0};
    fedge_error err;
    fedge_conn_chunk chunk;
    if (fedge_conn_next_chunk(b->conn, &chunk)) {
        assert_int_equal(
            fedge_blob_read(chunk.blob, chunk.offset, b->out + chunk.at, chunk.size, &err),
            FEDGE_OK);
    }
    size_t size = fedge_conn_next_frame(b->conn, b->out);
    assert_true(size > 0);
    assert_int_equal(fedge_message_unpack(b->out, size, &message, &err), FEDGE_OK);
    return message;
}

static void say_hello(bench *b)
{
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    send(b, frame, pack_hello(frame, 1));
    assert_int_equal(next_message(b).type, FEDGE_MESSAGE_WELCOME);
    assert_int_equal(b->joins, 1);
}

/* A last frame of this type and reason is waiting, and nothing that follows counts. */
static void assert_ends_with(bench *b, fedge_message_type type, fedge_reason reason)
{
    fedge_notice notice;
    fedge_error err;
    assert_false(fedge_conn_should_close(b->conn));
    fedge_message message = next_message(b);
    assert_int_equal(message.type, type);
    assert_int_equal(fedge_notice_read(&message, &notice, &err), FEDGE_OK);
    assert_string_equal(fedge_reason_name(notice.reason), fedge_reason_name(reason));
    assert_true(notice.text[0] != '\0');
    assert_true(fedge_conn_should_close(b->conn));
    assert_int_equal(b->leaves, b->joins);

    int joins = b->joins;
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    send(b, frame, pack_hello(frame, 1));
    assert_int_equal(b->joins, joins);
    assert_false(fedge_conn_has_frames(b->conn));
}

static void assert_refused(bench *b, fedge_reason reason)
{
    assert_ends_with(b, FEDGE_MESSAGE_REFUSE, reason);
}

/* ---- frames ---------------------------------------------------------------------------------- */

static void hello_is_welcomed(void **state)
{
    bench *b = *state;
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    size_t size = pack_hello(frame, 1);
    send(b, frame, size);
    assert_int_equal(b->writes_wanted, 1);
    fedge_message message = next_message(b);
    fedge_welcome welcome;
    fedge_error err;
    assert_int_equal(message.type, FEDGE_MESSAGE_WELCOME);
    assert_int_equal(fedge_welcome_read(&message, &welcome, &err), FEDGE_OK);
    assert_int_equal(welcome.client_index, 7); /* of the certificate, not of a payload */
    assert_int_equal(b->joins, 1);
    assert_int_equal(b->traffic.up, size);
    assert_int_equal(b->traffic.down, fedge_message_size(&message));
    assert_int_equal(fedge_conn_next_frame(b->conn, b->out), 0);
    assert_false(fedge_conn_should_close(b->conn));
}

static void frames_may_be_split_anywhere(void **state)
{
    bench *b = *state;
    say_hello(b);
    uint8_t payload[300];
    for (size_t i = 0; i < sizeof(payload); i++)
        payload[i] = (uint8_t)(i * 7);
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    fedge_position position = {.task_id = 9, .offset = 12345};
    size_t size = 0;
    fedge_error err;
    assert_int_equal(
        fedge_part_pack(&position, payload, sizeof(payload), frame, sizeof(frame), &size, &err),
        FEDGE_OK);
    for (size_t cut = 0; cut <= size; cut++) {
        b->part = (fedge_position){0};
        memset(b->data, 0, sizeof(payload));
        receive(b, frame, cut, false);
        receive(b, frame + cut, size - cut, true);
        assert_int_equal(b->parts, cut + 1);
        assert_int_equal(b->part.offset, 12345);
        assert_int_equal(b->data_size, sizeof(payload));
        assert_memory_equal(b->data, payload, sizeof(payload));
    }
    for (size_t i = 0; i < size; i++)
        receive(b, frame + i, 1, i + 1 == size);
    assert_int_equal(b->parts, size + 2);
    assert_false(fedge_conn_has_frames(b->conn));
}

static void largest_frame_is_taken(void **state)
{
    bench *b = *state;
    say_hello(b);
    static uint8_t payload[FEDGE_MESSAGE_MAX_PAYLOAD];
    static uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    size_t size = pack(frame, FEDGE_MESSAGE_PART, 0, "{\"task-id\":1,\"offset\":0}", payload,
                       sizeof(payload));
    send(b, frame, size);
    assert_int_equal(b->parts, 1);
    assert_int_equal(b->data_size, FEDGE_MESSAGE_MAX_PAYLOAD);
}

static void text_is_refused(void **state)
{
    bench *b = *state;
    say_hello(b);
    fedge_conn_receive_text(b->conn, b->now_ms);
    drain_actions(b);
    assert_refused(b, FEDGE_REASON_BAD_FRAME);
}

static void damaged_frames_are_refused(void **state)
{
    bench *b = *state;
    const struct {
        size_t at;
        uint8_t value;
        fedge_reason reason;
    } damages[] = {
        {0, 'f', FEDGE_REASON_BAD_FRAME},   /* magic */
        {4, 2, FEDGE_REASON_BAD_FRAME},     /* version */
        {5, 9, FEDGE_REASON_BAD_FRAME},     /* type: the CRC covers it */
        {6, 2, FEDGE_REASON_BAD_FRAME},     /* a flag that does not exist */
        {10, 1, FEDGE_REASON_TOO_BIG},      /* meta_size + 65536 */
        {15, 1, FEDGE_REASON_TOO_BIG},      /* payload_size + 2^24 */
        {16, 0x55, FEDGE_REASON_BAD_FRAME}, /* CRC */
        {20, 1, FEDGE_REASON_BAD_FRAME},    /* reserved */
        {30, '!', FEDGE_REASON_BAD_FRAME},  /* JSON: the CRC covers it */
    };
    (void)b;
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        void *fresh = NULL;
        set_up(&fresh);
        uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
        size_t size = pack_hello(frame, 1);
        assert_int_not_equal(frame[damages[i].at], damages[i].value);
        frame[damages[i].at] = damages[i].value;
        send(fresh, frame, size);
        assert_int_equal(((bench *)fresh)->joins, 0);
        assert_refused(fresh, damages[i].reason);
        tear_down(&fresh);
    }
}

static void too_long_and_too_short_messages_are_refused(void **state)
{
    (void)state;
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE] = {0};
    size_t size = pack_hello(frame, 1);
    const size_t sizes[] = {
        0,        1,          FEDGE_MESSAGE_HEADER_SIZE - 1, FEDGE_MESSAGE_HEADER_SIZE, size - 1,
        size + 1, size + 1000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        void *fresh = NULL;
        set_up(&fresh);
        send(fresh, frame, sizes[i]);
        assert_int_equal(((bench *)fresh)->joins, 0);
        assert_refused(fresh, FEDGE_REASON_BAD_FRAME);
        tear_down(&fresh);
    }
}

/* ---- order of messages ----------------------------------------------------------------------- */

static void hello_twice_is_refused(void **state)
{
    bench *b = *state;
    say_hello(b);
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    send(b, frame, pack_hello(frame, 1));
    assert_int_equal(b->joins, 1);
    assert_refused(b, FEDGE_REASON_BAD_STATE);
}

static void nothing_comes_before_hello(void **state)
{
    (void)state;
    const unsigned types[] = {FEDGE_MESSAGE_FETCH, FEDGE_MESSAGE_UPLOAD, FEDGE_MESSAGE_PART,
                              FEDGE_MESSAGE_DECLINE, FEDGE_MESSAGE_BYE};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        void *fresh = NULL;
        set_up(&fresh);
        send_message(fresh, types[i], 0, "{}");
        assert_refused(fresh, FEDGE_REASON_BAD_STATE);
        tear_down(&fresh);
    }
}

static void messages_of_the_server_are_refused(void **state)
{
    (void)state;
    const unsigned types[] = {FEDGE_MESSAGE_WELCOME, FEDGE_MESSAGE_REFUSE, FEDGE_MESSAGE_TASK,
                              FEDGE_MESSAGE_CHUNK,   FEDGE_MESSAGE_RESUME, FEDGE_MESSAGE_ACK,
                              FEDGE_MESSAGE_CANCEL};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        void *fresh = NULL;
        set_up(&fresh);
        say_hello(fresh);
        send_message(fresh, types[i], 0, "{}");
        assert_refused(fresh, FEDGE_REASON_BAD_STATE);
        tear_down(&fresh);
    }
}

static void unknown_types_are_skipped_unless_they_must_not(void **state)
{
    bench *b = *state;
    say_hello(b);
    send_message(b, 200, 0, "{}");
    assert_false(fedge_conn_has_frames(b->conn));
    send_message(b, 200, FEDGE_MESSAGE_FLAG_MUST, "{}");
    assert_refused(b, FEDGE_REASON_UNKNOWN_TYPE);
}

static void other_protocol_versions_are_refused(void **state)
{
    bench *b = *state;
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    send(b, frame, pack_hello(frame, 2));
    assert_int_equal(b->joins, 0);
    assert_refused(b, FEDGE_REASON_PROTOCOL_RANGE);
}

static void broken_metadata_is_refused(void **state)
{
    (void)state;
    const unsigned types[] = {FEDGE_MESSAGE_FETCH, FEDGE_MESSAGE_UPLOAD, FEDGE_MESSAGE_PART,
                              FEDGE_MESSAGE_DECLINE, FEDGE_MESSAGE_BYE};
    const char *const metas[] = {"",
                                 "{",
                                 "{}",
                                 "[]",
                                 "{\"task-id\":\"1\"}",
                                 "{\"task-id\":1,\"task-id\":1}",
                                 "{\"a\":[[[[[[[[[[[[1]]]]]]]]]]]]}"};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        for (size_t k = 0; k < sizeof(metas) / sizeof(metas[0]); k++) {
            void *fresh = NULL;
            set_up(&fresh);
            say_hello(fresh);
            send_message(fresh, types[i], 0, metas[k]);
            assert_refused(fresh, FEDGE_REASON_BAD_META);
            tear_down(&fresh);
        }
    }
    void *fresh = NULL;
    set_up(&fresh);
    send_message(fresh, FEDGE_MESSAGE_HELLO, 0, "{\"protocol-min\":1}");
    assert_refused(fresh, FEDGE_REASON_BAD_META);
    tear_down(&fresh);
}

static void engine_may_refuse_to_let_it_join(void **state)
{
    bench *b = *state;
    b->refuse_join = true;
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    send(b, frame, pack_hello(frame, 1));
    assert_refused(b, FEDGE_REASON_INTERNAL); /* in place of the WELCOME */
}

static void decline_without_a_task_leaves(void **state)
{
    bench *b = *state;
    say_hello(b);
    fedge_notice notice = {.has_task = true, .task_id = 3, .reason = FEDGE_REASON_POLICY};
    uint8_t frame[1024];
    size_t size = 0;
    fedge_error err;
    assert_int_equal(
        fedge_notice_pack(FEDGE_MESSAGE_DECLINE, &notice, frame, sizeof(frame), &size, &err),
        FEDGE_OK);
    send(b, frame, size);
    assert_int_equal(b->declines, 1);
    assert_int_equal(b->leaves, 0);
    notice.has_task = false;
    assert_int_equal(
        fedge_notice_pack(FEDGE_MESSAGE_DECLINE, &notice, frame, sizeof(frame), &size, &err),
        FEDGE_OK);
    send(b, frame, size);
    assert_int_equal(b->declines, 2);
    assert_int_equal(b->leaves, 1);
    assert_false(fedge_conn_has_frames(b->conn));
}

/* ---- blobs ----------------------------------------------------------------------------------- */

static void make_blob(bench *b, size_t size)
{
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i * 31 + i / 251);
    fedge_error err;
    assert_int_equal(fedge_blob_new(bytes, size, &b->blob, &err), FEDGE_OK);
}

static void fetch(bench *b, const char *hash, uint64_t offset)
{
    char meta[160];
    snprintf(meta, sizeof(meta), "{\"hash\":\"%s\",\"offset\":%llu}", hash,
             (unsigned long long)offset);
    send_message(b, FEDGE_MESSAGE_FETCH, 0, meta);
}

static void blob_comes_in_order(void **state)
{
    bench *b = *state;
    /* Offsets of 2, 5, 6 and 6 digits, so that a chunk's metadata grows, and stays as it is. */
    const size_t size = 3 * (size_t)FEDGE_MESSAGE_MAX_PAYLOAD + 100;
    const size_t offset = 50;
    say_hello(b);
    make_blob(b, size);
    fetch(b, b->blob->hash, offset);
    /* What is queued goes between two chunks; the blob goes on behind it. */
    size_t expected = offset;
    for (int i = 0; expected < size; i++) {
        if (i == 1) {
            acknowledge(b, 4);
            assert_int_equal(next_message(b).type, FEDGE_MESSAGE_ACK);
        }
        assert_true(fedge_conn_has_frames(b->conn));
        fedge_message message = next_message(b);
        fedge_blob_ref ref;
        fedge_error err;
        assert_int_equal(message.type, FEDGE_MESSAGE_CHUNK);
        assert_int_equal(fedge_chunk_read(&message, &ref, &err), FEDGE_OK);
        assert_string_equal(ref.hash, b->blob->hash);
        assert_int_equal(ref.offset, expected);
        assert_int_equal(ref.size, size);
        assert_memory_equal(message.payload, b->blob->bytes + expected, message.payload_size);
        expected += message.payload_size;
    }
    assert_int_equal(expected, size);
    assert_false(fedge_conn_has_frames(b->conn));
    assert_int_equal(b->blob->references, 1);
    fetch(b, b->blob->hash, 0); /* and shrinks */
    const fedge_message message = next_message(b);
    assert_int_equal(message.payload_size, FEDGE_MESSAGE_MAX_PAYLOAD);
    assert_memory_equal(message.payload, b->blob->bytes, message.payload_size);
}

static void another_fetch_replaces_the_first(void **state)
{
    bench *b = *state;
    say_hello(b);
    make_blob(b, 1000);
    fetch(b, b->blob->hash, 0);
    fetch(b, b->blob->hash, 999);
    assert_int_equal(b->blob->references, 2);
    assert_int_equal(next_message(b).payload_size, 1);
    assert_false(fedge_conn_has_frames(b->conn));
}

static void blob_outlives_the_engines_interest(void **state)
{
    bench *b = *state;
    say_hello(b);
    make_blob(b, 1000);
    fetch(b, b->blob->hash, 0);
    fedge_blob_release(b->blob);
    b->blob = NULL;
    assert_int_equal(next_message(b).payload_size, 1000);
}

static void unknown_blob_is_refused_and_the_connection_stays(void **state)
{
    bench *b = *state;
    char hash[FEDGE_HASH_TEXT];
    memset(hash, '0', sizeof(hash) - 1);
    hash[sizeof(hash) - 1] = '\0';
    say_hello(b);
    fetch(b, hash, 0);
    fedge_message message = next_message(b);
    fedge_notice notice;
    fedge_error err;
    assert_int_equal(message.type, FEDGE_MESSAGE_REFUSE);
    assert_int_equal(fedge_notice_read(&message, &notice, &err), FEDGE_OK);
    assert_int_equal(notice.reason, FEDGE_REASON_STALE_TASK);
    assert_false(fedge_conn_should_close(b->conn));
}

static void offset_beyond_the_blob_is_refused(void **state)
{
    bench *b = *state;
    say_hello(b);
    make_blob(b, 1000);
    fetch(b, b->blob->hash, 1000);
    assert_refused(b, FEDGE_REASON_BAD_META);
    assert_int_equal(b->blob->references, 1);
}

/* ---- limits of time and room ----------------------------------------------------------------- */

static void who_says_nothing_is_refused(void **state)
{
    bench *b = *state;
    const uint64_t start_ms = b->now_ms;
    tick(b, start_ms + FEDGE_CONN_HELLO_TIMEOUT_MS - 1);
    assert_false(fedge_conn_has_frames(b->conn));
    tick(b, start_ms + FEDGE_CONN_HELLO_TIMEOUT_MS);
    assert_refused(b, FEDGE_REASON_TIMEOUT);
}

static void who_has_said_hello_may_be_silent(void **state)
{
    bench *b = *state;
    say_hello(b);
    tick(b, b->now_ms + 3600000);
    assert_false(fedge_conn_has_frames(b->conn));
    assert_int_equal(b->drops, 0);
}

static void frame_that_never_ends_is_refused(void **state)
{
    bench *b = *state;
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    say_hello(b);
    pack_hello(frame, 1);
    receive(b, frame, 10, false);
    /* More bytes do not buy more time. */
    b->now_ms += FEDGE_CONN_FRAME_TIMEOUT_MS - 1;
    receive(b, frame + 10, 20, false);
    tick(b, b->now_ms);
    assert_false(fedge_conn_has_frames(b->conn));
    tick(b, b->now_ms + 1);
    assert_refused(b, FEDGE_REASON_TIMEOUT);
}

static void who_does_not_read_is_dropped(void **state)
{
    bench *b = *state;
    say_hello(b);
    for (int i = 0; i < FEDGE_CONN_MAX_QUEUED; i++) {
        acknowledge(b, (uint64_t)i);
        assert_int_equal(b->drops, 0);
    }
    acknowledge(b, 99);
    assert_int_equal(b->drops, 1);
    for (int i = 0; i < FEDGE_CONN_MAX_QUEUED; i++) {
        fedge_message message = next_message(b);
        char expected[40];
        snprintf(expected, sizeof(expected), "\"task-id\":%d", i);
        char meta[64];
        snprintf(meta, sizeof(meta), "%.*s", (int)message.meta_size, message.meta);
        assert_non_null(strstr(meta, expected));
    }
    assert_int_equal(fedge_conn_next_frame(b->conn, b->out), 0);
}

static void who_does_not_read_the_refusal_is_dropped(void **state)
{
    bench *b = *state;
    say_hello(b);
    const uint64_t now_ms = b->now_ms;
    say_notice(b, FEDGE_REPLY_CLOSE, FEDGE_MESSAGE_BYE, FEDGE_REASON_SHUTTING_DOWN, "later");
    assert_int_equal(b->leaves, 1);
    tick(b, now_ms + FEDGE_CONN_CLOSE_TIMEOUT_MS - 1);
    assert_int_equal(b->drops, 0);
    tick(b, now_ms + FEDGE_CONN_CLOSE_TIMEOUT_MS);
    assert_int_equal(b->drops, 1);
}

static void close_tells_why_and_forgets_the_rest(void **state)
{
    bench *b = *state;
    say_hello(b);
    make_blob(b, 1000);
    fetch(b, b->blob->hash, 0);
    acknowledge(b, 1);
    say_notice(b, FEDGE_REPLY_CLOSE, FEDGE_MESSAGE_BYE, FEDGE_REASON_REPLACED, "another");
    say_notice(b, FEDGE_REPLY_CLOSE, FEDGE_MESSAGE_BYE, FEDGE_REASON_RUN_COMPLETE, "twice");
    assert_ends_with(b, FEDGE_MESSAGE_BYE, FEDGE_REASON_REPLACED);
}

static void an_end_comes_behind_what_was_said(void **state)
{
    static const fedge_reason ENDS[] = {FEDGE_REASON_RUN_COMPLETE, FEDGE_REASON_SHUTTING_DOWN};
    for (size_t i = 0; i < sizeof(ENDS) / sizeof(ENDS[0]); i++) {
        bench *b = *state;
        say_hello(b);
        make_blob(b, 1000);
        fetch(b, b->blob->hash, 0);
        acknowledge(b, 1);
        say_notice(b, FEDGE_REPLY_CLOSE, FEDGE_MESSAGE_BYE, ENDS[i], "the end");
        assert_int_equal(next_message(b).type, FEDGE_MESSAGE_ACK);
        assert_ends_with(b, FEDGE_MESSAGE_BYE, ENDS[i]); /* and none of the blob */
        (void)tear_down(state);
        (void)set_up(state);
    }
}

static void pause_reaches_the_transport(void **state)
{
    bench *b = *state;
    take(b, &(fedge_reply){.type = FEDGE_REPLY_PAUSE});
    assert_true(b->paused);
    take(b, &(fedge_reply){.type = FEDGE_REPLY_RESUME});
    assert_false(b->paused);
    fedge_conn_action action;
    fedge_conn_take(b->conn, &(fedge_reply){.type = FEDGE_REPLY_RESUME}, b->now_ms);
    assert_false(fedge_conn_next_action(b->conn, &action)); /* it was reading already */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(hello_is_welcomed),
        TEST(frames_may_be_split_anywhere),
        TEST(largest_frame_is_taken),
        TEST(text_is_refused),
        TEST(damaged_frames_are_refused),
        TEST(too_long_and_too_short_messages_are_refused),
        TEST(hello_twice_is_refused),
        TEST(nothing_comes_before_hello),
        TEST(messages_of_the_server_are_refused),
        TEST(unknown_types_are_skipped_unless_they_must_not),
        TEST(other_protocol_versions_are_refused),
        TEST(broken_metadata_is_refused),
        TEST(engine_may_refuse_to_let_it_join),
        TEST(decline_without_a_task_leaves),
        TEST(blob_comes_in_order),
        TEST(another_fetch_replaces_the_first),
        TEST(blob_outlives_the_engines_interest),
        TEST(unknown_blob_is_refused_and_the_connection_stays),
        TEST(offset_beyond_the_blob_is_refused),
        TEST(who_says_nothing_is_refused),
        TEST(who_has_said_hello_may_be_silent),
        TEST(frame_that_never_ends_is_refused),
        TEST(who_does_not_read_is_dropped),
        TEST(who_does_not_read_the_refusal_is_dropped),
        TEST(close_tells_why_and_forgets_the_rest),
        TEST(an_end_comes_behind_what_was_said),
        TEST(pause_reaches_the_transport),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a connection leaves to its transport: lines for the log, a blob's bytes, and when. */
#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/net/conn.h"
#include "tests/aggregator/misuse.h"

#define DEVICE "01234567-89ab-cdef-0123-456789abcdef"
#define NOW_MS 1000

typedef struct bench {
    fedge_conn *conn;
    fedge_traffic traffic;
    fedge_conn_budget budget;
    char notes[512]; /* since expect_notes: each event and its texts, in order */
    int requests, drops;
    uint8_t out[FEDGE_MESSAGE_MAX_SIZE];
} bench;

static void add_note(bench *b, const char *text)
{
    const size_t used = strlen(b->notes);
    snprintf(b->notes + used, sizeof(b->notes) - used, "%s%s", used > 0 ? " " : "", text);
}

static void drain(bench *b)
{
    fedge_conn_action action;
    while (fedge_conn_next_action(b->conn, &action)) {
        if (action.type == FEDGE_CONN_REQUEST) {
            b->requests++;
            fedge_request_free(action.request);
        }
        b->drops += action.type == FEDGE_CONN_DROP;
        if (action.type != FEDGE_CONN_NOTE)
            continue;
        add_note(b, action.note->event);
        for (size_t i = 0; i < action.note->num_fields; i++) {
            if (action.note->fields[i].type == FEDGE_LOG_FIELD_STR)
                add_note(b, action.note->fields[i].str);
        }
    }
}

static void expect_notes(bench *b, const char *expected)
{
    drain(b);
    assert_string_equal(b->notes, expected);
    b->notes[0] = '\0';
}

static void say_hello(bench *b)
{
    fedge_hello hello = {.protocol_min = 1, .protocol_max = 1, .release = "0.1.0", .arch = "riscv"};
    hello.num_errors = 2;
    snprintf(hello.errors[0], sizeof(hello.errors[0]), "first");
    snprintf(hello.errors[1], sizeof(hello.errors[1]), "second");
    size_t size = 0;
    assert_int_equal(fedge_hello_pack(&hello, b->out, sizeof(b->out), &size, NULL), FEDGE_OK);
    fedge_conn_receive(b->conn, b->out, size, true, NOW_MS);
}

static void acknowledge(bench *b)
{
    const fedge_reply reply = {
        .type = FEDGE_REPLY_MESSAGE, .message = FEDGE_MESSAGE_ACK, .ack = {.task_id = 4}};
    fedge_conn_take(b->conn, &reply, NOW_MS);
    drain(b);
}

static int set_up(void **state)
{
    bench *b = calloc(1, sizeof(*b));
    assert_non_null(b);
    fedge_registry_match match = {.index = 7, .role = FEDGE_ROLE_DEVICE};
    memcpy(match.device_id, DEVICE, sizeof(match.device_id));
    b->budget.limit = FEDGE_CONN_WAITING_BYTES;
    assert_int_equal(fedge_conn_new(&b->conn, 5, &match, &b->traffic, &b->budget, NOW_MS, NULL),
                     FEDGE_OK);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    bench *b = *state;
    drain(b);
    fedge_conn_end(b->conn);
    drain(b);
    fedge_conn_free(b->conn);
    free(b);
    return 0;
}

/* ---- the log --------------------------------------------------------------------------------- */

/* A line before what it tells of, and several in their order. */
static void lines_come_first(void **state)
{
    bench *b = *state;
    say_hello(b);
    fedge_conn_action action;
    for (int i = 0; i < 3; i++) {
        assert_true(fedge_conn_next_action(b->conn, &action));
        assert_int_equal(action.type, FEDGE_CONN_NOTE);
        assert_string_equal(action.note->fields[0].str, DEVICE);
        if (i > 0)
            assert_string_equal(action.note->fields[1].str, i == 1 ? "first" : "second");
    }
    drain(b);
    assert_int_equal(b->requests, 1);
}

static void lines_have_texts_of_their_own(void **state)
{
    bench *b = *state;
    say_hello(b);
    expect_notes(b, "client-hello " DEVICE " 0.1.0 riscv client-reported-error " DEVICE
                    " first client-reported-error " DEVICE " second");
    fedge_reply reply = {.type = FEDGE_REPLY_MESSAGE,
                         .message = FEDGE_MESSAGE_REFUSE,
                         .notice = {.has_task = true, .reason = FEDGE_REASON_BAD_VALUE}};
    snprintf(reply.notice.text, sizeof(reply.notice.text), "too large");
    fedge_conn_take(b->conn, &reply, NOW_MS);
    snprintf(reply.notice.text, sizeof(reply.notice.text), "changed");
    expect_notes(b, "update-refused " DEVICE " bad-value too large");
    fedge_conn_broke_rules(b->conn, "a reserved bit");
    expect_notes(b, "message-refused " DEVICE " bad-frame a reserved bit");
}

static void who_does_not_read_is_told_of(void **state)
{
    bench *b = *state;
    for (int i = 0; i < FEDGE_CONN_MAX_QUEUED; i++)
        acknowledge(b);
    expect_notes(b, "");
    acknowledge(b);
    expect_notes(b, "client-does-not-read " DEVICE);
    assert_int_equal(b->drops, 1);
}

/* ---- a blob's bytes -------------------------------------------------------------------------- */

/* It asks for them, and takes what it is given. */
static void the_transport_reads_a_blob(void **state)
{
    bench *b = *state;
    fedge_blob *blob = NULL;
    fedge_conn_chunk chunk;
    assert_int_equal(fedge_blob_new(calloc(1000, 1), 1000, &blob, NULL), FEDGE_OK);
    assert_false(fedge_conn_next_chunk(b->conn, &chunk));
    fedge_conn_take(b->conn, &(fedge_reply){.type = FEDGE_REPLY_BLOB, .blob = blob, .offset = 990},
                    NOW_MS);
    drain(b);
    acknowledge(b);
    assert_false(fedge_conn_next_chunk(b->conn, &chunk)); /* the ACK is first */
    assert_true(fedge_conn_next_frame(b->conn, b->out) > 0);
    assert_true(fedge_conn_next_chunk(b->conn, &chunk));
    assert_ptr_equal(chunk.blob, blob);
    assert_int_equal(chunk.offset, 990);
    assert_int_equal(chunk.size, 10);
    memcpy(b->out + chunk.at, "0123456789", 10);
    const size_t size = fedge_conn_next_frame(b->conn, b->out);
    fedge_message message;
    assert_int_equal(fedge_message_unpack(b->out, size, &message, NULL), FEDGE_OK);
    assert_int_equal(message.type, FEDGE_MESSAGE_CHUNK);
    assert_int_equal(message.payload_size, 10);
    assert_memory_equal(message.payload, "0123456789", 10);
    assert_false(fedge_conn_next_chunk(b->conn, &chunk));
    assert_int_equal(blob->references, 1);
    fedge_blob_release(blob);
}

/* ---- what must not be ------------------------------------------------------------------------ */

static void take_with_actions_left(void *user)
{
    bench *b = user;
    fedge_conn_take(b->conn, &(fedge_reply){.type = FEDGE_REPLY_PAUSE}, NOW_MS);
    fedge_conn_take(b->conn, &(fedge_reply){.type = FEDGE_REPLY_RESUME}, NOW_MS);
}

static void end_with_actions_left(void *user)
{
    bench *b = user;
    fedge_conn_broke_rules(b->conn, "a reserved bit");
    fedge_conn_end(b->conn);
}

static void actions_are_taken_before_the_next_call(void **state)
{
    assert_misuse(take_with_actions_left, *state);
    assert_misuse(end_with_actions_left, *state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lines_come_first),
        TEST(lines_have_texts_of_their_own),
        TEST(who_does_not_read_is_told_of),
        TEST(the_transport_reads_a_blob),
        TEST(actions_are_taken_before_the_next_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What connections of a thread hold together: frames that wait for room, and in what order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/net/conn.h"

#define START 30 /* bytes of a frame, header and a few */

typedef struct line {
    fedge_conn *conn;
    int waits, pauses, resumes, drops, requests;
} line;

typedef struct rig {
    fedge_traffic traffic;
    fedge_conn_budget budget;
    uint64_t now_ms;
    line lines[3];
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE]; /* a FETCH */
    size_t size;
} rig;

static void drain(line *l)
{
    fedge_conn_action action;
    while (fedge_conn_next_action(l->conn, &action)) {
        l->waits += action.type == FEDGE_CONN_WAIT;
        l->pauses += action.type == FEDGE_CONN_PAUSE;
        l->resumes += action.type == FEDGE_CONN_RESUME;
        l->drops += action.type == FEDGE_CONN_DROP;
        if (action.type == FEDGE_CONN_REQUEST) {
            l->requests++;
            fedge_request_free(action.request);
        }
    }
}

static void receive(rig *r, line *l, const uint8_t *data, size_t size, bool final)
{
    fedge_conn_receive(l->conn, data, size, final, r->now_ms);
    drain(l);
}

static bool reserve_frame(rig *r, line *l)
{
    const bool reserved = fedge_conn_reserve_frame(l->conn, r->now_ms);
    drain(l);
    return reserved;
}

static void tell(rig *r, line *l, fedge_reply_type type)
{
    const fedge_reply reply = {.type = type, .message = FEDGE_MESSAGE_ACK, .ack = {.task_id = 1}};
    fedge_conn_take(l->conn, &reply, r->now_ms);
    drain(l);
}

static void end(line *l)
{
    fedge_conn_end(l->conn);
    drain(l);
    fedge_conn_free(l->conn);
    l->conn = NULL;
}

static int set_up(void **state)
{
    rig *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    *state = r;
    r->now_ms = 1000;
    r->budget.limit = 100;
    const fedge_hello hello = {.protocol_min = 1, .protocol_max = 1, .release = "1", .arch = "a"};
    assert_int_equal(fedge_hello_pack(&hello, r->frame, sizeof(r->frame), &r->size, NULL),
                     FEDGE_OK);
    for (uint32_t i = 0; i < 3; i++) {
        const fedge_registry_match match = {.index = i, .role = FEDGE_ROLE_DEVICE};
        line *l = &r->lines[i];
        assert_int_equal(
            fedge_conn_new(&l->conn, i + 1, &match, &r->traffic, &r->budget, r->now_ms, NULL),
            FEDGE_OK);
        receive(r, l, r->frame, r->size, true);
        assert_int_equal(l->requests, 1);
    }
    fedge_blob_ref wanted = {.offset = 1};
    memset(wanted.hash, 'a', sizeof(wanted.hash) - 1);
    assert_int_equal(fedge_fetch_pack(&wanted, r->frame, sizeof(r->frame), &r->size, NULL),
                     FEDGE_OK);
    assert_true(r->size > START);
    return 0;
}

static int tear_down(void **state)
{
    rig *r = *state;
    for (int i = 0; i < 3; i++) {
        if (r->lines[i].conn)
            end(&r->lines[i]);
    }
    assert_int_equal(r->budget.in + r->budget.out + r->budget.num_waiting, 0);
    free(r);
    return 0;
}

/* The first takes all the room there is. */
static void a_frame_waits_for_room(void **state)
{
    rig *r = *state;
    line *first = &r->lines[0], *second = &r->lines[1];
    receive(r, first, r->frame, START, false);
    assert_int_equal(first->waits, 0);
    assert_int_equal(r->budget.in, r->size);
    receive(r, second, r->frame, START, false);
    assert_int_equal(second->waits, 1);
    assert_int_equal(second->pauses, 1);
    assert_false(reserve_frame(r, second));
    receive(r, second, r->frame + START, 2, false); /* was decrypted already */
    receive(r, first, r->frame + START, r->size - START, true);
    assert_int_equal(first->requests, 2);
    assert_int_equal(r->budget.in, 0);
    assert_true(reserve_frame(r, second));
    assert_int_equal(second->resumes, 1);
    receive(r, second, r->frame + START + 2, r->size - START - 2, true);
    assert_int_equal(second->requests, 2);
    assert_true(reserve_frame(r, second));
}

/* All of it was decrypted already. */
static void a_frame_may_end_while_it_waits(void **state)
{
    rig *r = *state;
    line *first = &r->lines[0], *second = &r->lines[1];
    receive(r, first, r->frame, START, false);
    receive(r, second, r->frame, START, false);
    assert_int_equal(r->budget.num_waiting, 1);
    receive(r, second, r->frame + START, r->size - START, true);
    assert_int_equal(second->requests, 2);
    assert_int_equal(second->resumes, 1);
    assert_int_equal(r->budget.num_waiting, 0);
    end(first);
    assert_true(reserve_frame(r, second));
    assert_int_equal(r->budget.in, 0); /* nothing arrives */
    fedge_conn_tick(second->conn, r->now_ms + FEDGE_CONN_FRAME_TIMEOUT_MS);
    assert_false(fedge_conn_is_closing(second->conn));
    receive(r, second, r->frame, r->size, true);
    assert_int_equal(second->requests, 3);
}

static void a_frame_may_break_off_when_it_would_wait(void **state)
{
    rig *r = *state;
    line *second = &r->lines[1];
    receive(r, &r->lines[0], r->frame, START, false);
    receive(r, second, r->frame, START, true);
    assert_true(fedge_conn_is_closing(second->conn));
    assert_int_equal(second->waits, 0);
    assert_int_equal(r->budget.num_waiting, 0);
}

/* Who waits is not slow. */
static void time_begins_when_there_is_room(void **state)
{
    rig *r = *state;
    line *first = &r->lines[0], *second = &r->lines[1];
    receive(r, first, r->frame, START, false);
    receive(r, second, r->frame, START, false);
    r->now_ms += FEDGE_CONN_FRAME_TIMEOUT_MS;
    fedge_conn_tick(second->conn, r->now_ms);
    assert_false(fedge_conn_is_closing(second->conn));
    fedge_conn_tick(first->conn, r->now_ms);
    assert_true(fedge_conn_is_closing(first->conn));
    drain(first);
    end(first);
    assert_true(reserve_frame(r, second));
    fedge_conn_tick(second->conn, r->now_ms + FEDGE_CONN_FRAME_TIMEOUT_MS - 1);
    assert_false(fedge_conn_is_closing(second->conn));
    fedge_conn_tick(second->conn, r->now_ms + FEDGE_CONN_FRAME_TIMEOUT_MS);
    assert_true(fedge_conn_is_closing(second->conn));
    drain(second);
}

static void nobody_overtakes_who_waits(void **state)
{
    rig *r = *state;
    receive(r, &r->lines[0], r->frame, START, false);
    receive(r, &r->lines[1], r->frame, START, false);
    end(&r->lines[0]);
    receive(r, &r->lines[2], r->frame, START, false);
    assert_int_equal(r->lines[2].waits, 1);
    assert_true(reserve_frame(r, &r->lines[1]));
    assert_false(reserve_frame(r, &r->lines[2]));
}

static void a_frame_that_is_all_there_does_not_wait(void **state)
{
    rig *r = *state;
    receive(r, &r->lines[0], r->frame, START, false);
    receive(r, &r->lines[1], r->frame, r->size, true);
    assert_int_equal(r->lines[1].requests, 2);
    assert_int_equal(r->lines[1].waits, 0);
}

static void room_comes_while_the_engine_has_enough(void **state)
{
    rig *r = *state;
    line *second = &r->lines[1];
    receive(r, &r->lines[0], r->frame, START, false);
    receive(r, second, r->frame, START, false);
    tell(r, second, FEDGE_REPLY_PAUSE);
    end(&r->lines[0]);
    assert_true(reserve_frame(r, second));
    assert_int_equal(second->resumes, 0);
    tell(r, second, FEDGE_REPLY_RESUME);
    assert_int_equal(second->resumes, 1);
    assert_int_equal(second->pauses, 1);
}

static void without_room_one_frame_waits_to_be_written(void **state)
{
    rig *r = *state;
    static uint8_t out[FEDGE_MESSAGE_MAX_SIZE];
    r->budget.limit = 10;
    tell(r, &r->lines[0], FEDGE_REPLY_MESSAGE);
    tell(r, &r->lines[1], FEDGE_REPLY_MESSAGE);
    assert_int_equal(r->lines[0].drops + r->lines[1].drops, 0);
    tell(r, &r->lines[0], FEDGE_REPLY_MESSAGE);
    assert_int_equal(r->lines[0].drops, 1);
    assert_true(fedge_conn_next_frame(r->lines[1].conn, out) > 0);
    tell(r, &r->lines[1], FEDGE_REPLY_MESSAGE);
    assert_int_equal(r->lines[1].drops, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_frame_waits_for_room),
        TEST(a_frame_may_end_while_it_waits),
        TEST(a_frame_may_break_off_when_it_would_wait),
        TEST(time_begins_when_there_is_room),
        TEST(nobody_overtakes_who_waits),
        TEST(a_frame_that_is_all_there_does_not_wait),
        TEST(room_comes_while_the_engine_has_enough),
        TEST(without_room_one_frame_waits_to_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

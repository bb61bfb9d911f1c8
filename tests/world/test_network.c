/* The network of simulated worlds. */
#define _GNU_SOURCE

#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "tests/world/network.h"
#include "tests/world/scheduler.h"
#include "tests/world/threads.h"

enum { SEEDS = 40, CLIENT = 3, OTHER = 4, NUM_MESSAGES = 20, LARGEST = 1000 };
#define MS ((uint64_t)1000000)
#define SECOND (1000 * MS)
#define DELAY_NS (20 * MS)

/* Bytes and parts that an end has received. */
typedef struct received {
    uint32_t num_arrivals, num_messages; /* arrivals: whole messages and parts */
    size_t size;
    uint8_t bytes[NUM_MESSAGES * LARGEST];
} received;

static void begin(uint64_t seed)
{
    world_scheduler_begin(seed);
    world_net_begin();
    world_net_listen(true);
    world_net_place(CLIENT, DELAY_NS, 10);
    world_net_place(OTHER, DELAY_NS, 10);
}

static void end(void)
{
    world_net_end();
    world_scheduler_end();
    assert_null(world_failure());
}

/* A connection that is open at both ends. */
static world_connection *connect_to_server(uint32_t client)
{
    world_connection *made = world_net_connect(client);
    world_pass(SECOND);
    assert_ptr_equal(world_net_accept(), made);
    assert_int_equal(world_net_client(made), client);
    world_net_admit(made);
    world_pass(SECOND);
    assert_true(world_net_is_open(made));
    return made;
}

static uint8_t byte_of(size_t at)
{
    return (uint8_t)(at * 7 + at / 251);
}

/* Bytes to one end are numbered consecutively. */
static void send_next(world_connection *connection, int from, size_t *sent, size_t size)
{
    uint8_t message[LARGEST];
    for (size_t i = 0; i < size; i++)
        message[i] = byte_of(*sent + i);
    world_net_send(connection, from, message, size);
    *sent += size;
}

static size_t size_of(uint32_t message)
{
    return 1 + message * 37 % LARGEST;
}

/* Receives all that has arrived by now. */
static void take(world_connection *connection, int end, received *to)
{
    world_arrival arrival;
    while (world_net_receive(connection, end, to->bytes + to->size, sizeof(to->bytes) - to->size,
                             &arrival)) {
        to->size += arrival.size;
        to->num_arrivals++;
        to->num_messages += arrival.final;
    }
}

/* The received bytes are the first of those sent. */
static void check(const received *of)
{
    for (size_t i = 0; i < of->size; i++)
        assert_int_equal(of->bytes[i], byte_of(i));
}

static void messages_keep_their_order(void **state)
{
    (void)state;
    bool in_parts = false, apart = false;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        size_t sent[2] = {0};
        received got[2] = {{0}};
        begin(seed);
        world_connection *connection = connect_to_server(CLIENT);
        for (uint32_t i = 0; i < NUM_MESSAGES; i++) {
            for (int from = 0; from < 2; from++)
                send_next(connection, from, &sent[1 - from], size_of(i));
            take(connection, NET_SERVER_END, &got[NET_SERVER_END]);
            take(connection, NET_CLIENT_END, &got[NET_CLIENT_END]);
            assert_int_equal(got[NET_CLIENT_END].num_arrivals, got[NET_CLIENT_END].num_messages);
            apart = apart || got[0].size != got[1].size;
            world_pass(DELAY_NS / 4);
        }
        world_pass(SECOND);
        for (int end = 0; end < 2; end++) {
            take(connection, end, &got[end]);
            assert_int_equal(got[end].num_messages, NUM_MESSAGES);
            assert_int_equal(got[end].size, sent[end]);
            assert_false(world_net_is_over(connection, end));
            check(&got[end]);
        }
        in_parts = in_parts || got[NET_SERVER_END].num_arrivals > NUM_MESSAGES;
        end();
    }
    assert_true(in_parts && apart);
}

/* Nothing arrives before half of the delay. The time of the next arrival is known. */
static void messages_take_their_time(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        size_t sent = 0;
        received got = {0};
        begin(seed);
        world_connection *connection = connect_to_server(CLIENT);
        assert_true(world_net_due_ns(WORLD_FIRST_CLIENT + CLIENT) == WORLD_NEVER);
        const uint64_t sent_ns = world_now_ns();
        send_next(connection, NET_SERVER_END, &sent, 100);
        const uint64_t due_ns = world_net_due_ns(WORLD_FIRST_CLIENT + CLIENT);
        assert_true(world_net_due_ns(WORLD_SERVER) == WORLD_NEVER);
        assert_true(world_net_due_ns(WORLD_FIRST_CLIENT + OTHER) == WORLD_NEVER);
        assert_in_range(due_ns - sent_ns, DELAY_NS / 2 + 1000, 3 * DELAY_NS / 2 + 1001);
        world_pass(due_ns - sent_ns - 1);
        take(connection, NET_CLIENT_END, &got);
        assert_int_equal(got.size, 0);
        world_pass(1);
        take(connection, NET_CLIENT_END, &got);
        assert_int_equal(got.size, 100);
        end();
    }
}

static void a_cut_loses_the_last_ones(void **state)
{
    (void)state;
    bool lost[2] = {0}, kept[2] = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        size_t sent[2] = {0}, sent_to_other = 0;
        received got[2] = {{0}}, other_got = {0};
        begin(seed);
        world_connection *connection = connect_to_server(CLIENT);
        world_connection *other = connect_to_server(OTHER);
        for (uint32_t i = 0; i < 3; i++) {
            send_next(connection, NET_SERVER_END, &sent[NET_CLIENT_END], 500);
            send_next(connection, NET_CLIENT_END, &sent[NET_SERVER_END], 500);
            send_next(other, NET_SERVER_END, &sent_to_other, 500);
        }
        world_net_cut(CLIENT);
        /* Nothing arrives behind what was lost. */
        for (int from = 0; from < 2; from++)
            send_next(connection, from, &sent[1 - from], 500);
        world_pass(3 * SECOND);
        for (int end = 0; end < 2; end++) {
            assert_true(world_net_is_over(connection, end) ||
                        world_net_due_ns(end == NET_SERVER_END
                                             ? WORLD_SERVER
                                             : WORLD_FIRST_CLIENT + CLIENT) <= world_now_ns());
            take(connection, end, &got[end]);
            assert_true(world_net_is_over(connection, end));
            check(&got[end]);
            lost[end] = lost[end] || got[end].size < sent[end];
            kept[end] = kept[end] || got[end].size > 0;
        }
        take(other, NET_CLIENT_END, &other_got);
        assert_int_equal(other_got.size, sent_to_other);
        assert_false(world_net_is_over(other, NET_CLIENT_END));
        end();
    }
    assert_true(lost[0] && lost[1] && kept[0] && kept[1]);
}

static void a_paused_end_fills_the_window(void **state)
{
    (void)state;
    for (int from = 0; from < 2; from++) {
        static received got;
        const int to = 1 - from;
        size_t sent = 0;
        uint32_t count = 0;
        memset(&got, 0, sizeof(got));
        begin(1);
        world_connection *connection = connect_to_server(CLIENT);
        world_net_pause(connection, to, true);
        for (; world_net_may_send(connection, from) && count < 1000; count++)
            send_next(connection, from, &sent, LARGEST);
        assert_int_equal(count, 200);
        world_pass(SECOND);
        assert_true(
            world_net_due_ns(to == NET_SERVER_END ? WORLD_SERVER : WORLD_FIRST_CLIENT + CLIENT) ==
            WORLD_NEVER);
        take(connection, to, &got);
        assert_int_equal(got.size, 0);
        assert_false(world_net_may_send(connection, from));

        world_net_pause(connection, to, false);
        for (uint32_t i = 0; i < count / NUM_MESSAGES; i++) {
            world_arrival arrival;
            uint8_t message[LARGEST];
            for (size_t size = 0; size < LARGEST * NUM_MESSAGES; size += arrival.size)
                assert_true(world_net_receive(connection, to, message, sizeof(message), &arrival));
            assert_true(world_net_may_send(connection, from));
        }
        end();
    }
}

/* Data arrives before the end of the connection. */
static void a_close_comes_after_what_was_sent(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        size_t sent = 0;
        received got = {0};
        begin(seed);
        world_connection *connection = connect_to_server(CLIENT);
        send_next(connection, NET_CLIENT_END, &sent, 900);
        world_net_close(connection, NET_CLIENT_END);
        world_pass(SECOND);
        assert_false(world_net_is_over(connection, NET_SERVER_END));
        take(connection, NET_SERVER_END, &got);
        assert_true(world_net_is_over(connection, NET_SERVER_END));
        assert_int_equal(got.size, sent);
        check(&got);
        end();
    }
}

/* The system closes what a killed process had open. */
static void a_kill_is_told(void **state)
{
    (void)state;
    begin(1);
    world_connection *connection = connect_to_server(CLIENT);
    world_connection *other = connect_to_server(OTHER);
    world_net_drop(WORLD_FIRST_CLIENT + CLIENT, false);
    world_pass(SECOND);
    assert_true(world_net_is_over(connection, NET_SERVER_END));
    assert_false(world_net_is_over(other, NET_SERVER_END));
    world_net_drop(WORLD_SERVER, false);
    world_pass(SECOND);
    assert_true(world_net_is_over(other, NET_CLIENT_END));
    other = world_net_connect(OTHER); /* nobody listens */
    assert_false(world_net_is_over(other, NET_CLIENT_END));
    world_pass(SECOND);
    assert_true(world_net_is_over(other, NET_CLIENT_END));
    assert_null(world_net_accept());
    end();
}

/* The connection lasts until the machine resets it. */
static void a_power_failure_is_told_by_nobody(void **state)
{
    (void)state;
    static const uint32_t nodes[] = {WORLD_FIRST_CLIENT + CLIENT, WORLD_SERVER};
    for (int end_here = 0; end_here < 2; end_here++) {
        size_t sent = 0;
        begin(1);
        world_connection *connection = connect_to_server(CLIENT);
        world_net_drop(nodes[end_here], true);
        for (int i = 0; i < 3; i++) {
            send_next(connection, end_here, &sent, 100);
            world_pass(100 * SECOND);
            assert_false(world_net_is_over(connection, end_here));
        }
        world_net_boot(nodes[end_here]);
        world_pass(100 * SECOND);
        assert_false(world_net_is_over(connection, end_here));
        send_next(connection, end_here, &sent, 100);
        assert_false(world_net_is_over(connection, end_here));
        world_pass(SECOND);
        assert_true(world_net_is_over(connection, end_here));
        end();
    }
}

static void a_partition_holds_everything_up(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        size_t sent[2] = {0};
        received got[2] = {{0}};
        begin(seed);
        world_connection *connection = connect_to_server(CLIENT);
        const uint64_t until_ns = world_now_ns() + 10 * SECOND;
        const uint32_t begins = seed % 2 == 0 ? 0 : NUM_MESSAGES / 2;
        for (uint32_t i = 0; i < NUM_MESSAGES; i++) {
            if (i == begins)
                world_net_partition(CLIENT, until_ns);
            send_next(connection, NET_SERVER_END, &sent[NET_CLIENT_END], size_of(i));
            send_next(connection, NET_CLIENT_END, &sent[NET_SERVER_END], size_of(i));
        }
        world_pass(until_ns - world_now_ns() - 1);
        for (int end = 0; end < 2; end++) {
            take(connection, end, &got[end]);
            assert_int_equal(got[end].size, 0);
        }
        world_pass(SECOND);
        for (int end = 0; end < 2; end++) {
            take(connection, end, &got[end]);
            assert_int_equal(got[end].size, sent[end]);
            check(&got[end]);
        }
        end();
    }
}

static void the_server_admits_or_refuses(void **state)
{
    (void)state;
    begin(1);
    world_connection *first = world_net_connect(CLIENT);
    assert_null(world_net_accept()); /* it is under way */
    world_pass(SECOND);
    world_connection *second = world_net_connect(OTHER);
    world_pass(SECOND);
    assert_ptr_equal(world_net_accept(), first);
    assert_ptr_equal(world_net_accept(), second);
    assert_null(world_net_accept());
    world_net_admit(first);
    assert_false(world_net_is_open(first));
    world_net_refuse(second, 403);
    world_pass(SECOND);
    assert_true(world_net_is_open(first));
    assert_int_equal(world_net_http_status(first), 0);
    assert_false(world_net_is_open(second));
    assert_true(world_net_is_over(second, NET_CLIENT_END));
    assert_int_equal(world_net_http_status(second), 403);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_keep_their_order),
        cmocka_unit_test(messages_take_their_time),
        cmocka_unit_test(a_cut_loses_the_last_ones),
        cmocka_unit_test(a_paused_end_fills_the_window),
        cmocka_unit_test(a_close_comes_after_what_was_sent),
        cmocka_unit_test(a_kill_is_told),
        cmocka_unit_test(a_power_failure_is_told_by_nobody),
        cmocka_unit_test(a_partition_holds_everything_up),
        cmocka_unit_test(the_server_admits_or_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Whose handshake is next, and what a flood of handshakes in vain changes. */
#include "tests/edge/core/cmocka_all.h"

#include <string.h>

#include "aggregator/net/handshake_queue.h"
#include "aggregator/net/transport.h"

static fedge_peer_address place(uint8_t number)
{
    return (fedge_peer_address){.host = {[10] = 0xff, [11] = 0xff, 10, 0, 0, number},
                                .port = number};
}

/* The rank of a place that is [known], or not. */
static unsigned rank(const fedge_turns *turns, uint8_t number, bool known)
{
    const fedge_peer_address from = place(number);
    return fedge_turns_rank(turns, &from, known);
}

static void begin(fedge_turns *turns, uint8_t number)
{
    const fedge_peer_address from = place(number);
    fedge_turns_begin(turns, &from);
}

static void handshakes_in_vain(fedge_turns *turns, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        (void)fedge_turns_in_vain(turns);
}

static void one_place_waits_behind_others(void **state)
{
    (void)state;
    fedge_turns turns = {0};
    assert_int_equal(rank(&turns, 1, false), 0);
    /* Nor is anything of what the empty ring holds a place. */
    assert_int_equal(fedge_turns_rank(&turns, &(fedge_peer_address){0}, false), 0);
    begin(&turns, 1);
    assert_int_equal(rank(&turns, 1, false), 3);
    assert_int_equal(rank(&turns, 1, true), 3);
    assert_int_equal(rank(&turns, 2, false), 0);
    for (uint8_t i = 0; i < FEDGE_TURNS_APART - 1; i++)
        begin(&turns, (uint8_t)(10 + i));
    assert_int_equal(rank(&turns, 1, false), 3);
    begin(&turns, 50); /* takes its cell */
    assert_int_equal(rank(&turns, 1, false), 0);
    assert_int_equal(rank(&turns, 10, false), 3);
}

static void known_places_come_first_in_a_flood(void **state)
{
    (void)state;
    fedge_turns turns = {0};
    begin(&turns, 1);
    assert_int_equal(rank(&turns, 2, false), rank(&turns, 2, true));
    handshakes_in_vain(&turns, FEDGE_FLOOD_SIZE);
    assert_true(rank(&turns, 2, true) < rank(&turns, 3, false));
    /* Where one has just begun waits: the flooder may be behind the same address. But not in two of
     * three turns, since so may a device. */
    for (unsigned i = 1; i < 3; i++, begin(&turns, 1)) {
        assert_true(rank(&turns, 1, true) < rank(&turns, 3, false));
        assert_true(rank(&turns, 2, true) < rank(&turns, 1, true));
        assert_true(rank(&turns, 3, false) < rank(&turns, 1, false));
    }
    assert_true(rank(&turns, 3, false) < rank(&turns, 1, true));
    assert_int_equal(rank(&turns, 1, true), rank(&turns, 1, false));
}

enum { FLOODERS = 8, DEVICE = 1, NEWCOMER = 200, TURNS = 500 };

/* The turns that one from place [number], who comes at [from_turn], waits in a flood of 132
 * handshakes a second from FLOODERS places, of which that of DEVICE is known. */
static unsigned turns_of(uint8_t number, unsigned from_turn)
{
    fedge_turns turns = {.flooded = true};
    uint8_t waiting[TURNS * 4];
    unsigned count = 0, arrivals = 0, ours = 0;
    for (unsigned turn = 0; turn < TURNS; turn++) {
        for (; arrivals * 1000 < turn * FEDGE_TURN_MS * 132; arrivals++)
            waiting[count++] = (uint8_t)(1 + arrivals % FLOODERS);
        if (turn == from_turn) {
            ours = count; /* its place in the queue */
            waiting[count++] = number;
        }
        unsigned next = 0;
        for (unsigned i = 1; i < count; i++) {
            if (rank(&turns, waiting[i], waiting[i] == DEVICE) <
                rank(&turns, waiting[next], waiting[next] == DEVICE))
                next = i;
        }
        if (count == 0)
            continue;
        begin(&turns, waiting[next]);
        if (turn >= from_turn && next == ours)
            return turn - from_turn;
        ours -= next < ours;
        memmove(waiting + next, waiting + next + 1, --count - next);
    }
    return TURNS;
}

static void a_device_waits_no_longer_than_a_newcomer(void **state)
{
    (void)state;
    unsigned newcomer = 0, device = 0; /* at the worst */
    for (unsigned turn = TURNS / 2; turn < TURNS / 2 + 30; turn++) {
        const unsigned one = turns_of(NEWCOMER, turn), other = turns_of(DEVICE, turn);
        newcomer = newcomer > one ? newcomer : one;
        device = device > other ? device : other;
    }
    assert_in_range(newcomer, 0, FEDGE_TURNS_APART);
    assert_in_range(device, 0, newcomer);
}

static void a_flood_begins_at_once_and_ends_with_a_quiet_second(void **state)
{
    (void)state;
    fedge_turns turns = {0};
    for (int second = 0; second < 3; second++) { /* never enough within one */
        for (unsigned i = 1; i < FEDGE_FLOOD_SIZE; i++)
            assert_false(fedge_turns_in_vain(&turns));
        fedge_turns_second(&turns);
        assert_false(turns.flooded);
    }
    handshakes_in_vain(&turns, FEDGE_FLOOD_SIZE - 1);
    assert_true(fedge_turns_in_vain(&turns)); /* before the second is over */
    assert_true(turns.flooded);
    assert_false(fedge_turns_in_vain(&turns)); /* said once */
    fedge_turns_second(&turns);
    assert_true(turns.flooded);
    handshakes_in_vain(&turns, FEDGE_FLOOD_SIZE);
    fedge_turns_second(&turns);
    assert_true(turns.flooded);
    handshakes_in_vain(&turns, FEDGE_FLOOD_SIZE - 1);
    fedge_turns_second(&turns);
    assert_false(turns.flooded);
}

static void who_waits_has_not_stopped(void **state)
{
    (void)state;
    const uint64_t long_ms = 10 * FEDGE_STOPPED_AFTER_MS;
    fedge_turns_guest stopped = {.known = true, .age_ms = long_ms, .silent_ms = long_ms};
    fedge_turns_guest waiter = stopped;
    waiter.waits = true;
    fedge_turns_guest slow = stopped;
    slow.silent_ms = 0;
    /* Its silence is the server's own: only its age speaks against it, as against one that talks.
     */
    assert_true(fedge_turns_spare(&stopped) > fedge_turns_spare(&waiter));
    assert_int_equal(fedge_turns_spare(&waiter), fedge_turns_spare(&slow));
    waiter.age_ms = slow.age_ms = FEDGE_SLOW_AFTER_MS - 1;
    assert_int_equal(fedge_turns_spare(&waiter), 0);
    assert_int_equal(fedge_turns_spare(&slow), 0);
    const fedge_turns_guest at_door = {.at_door = true, .known = true};
    assert_int_equal(fedge_turns_spare(&at_door), FEDGE_TURNS_MOST_SPARE);
    assert_true(fedge_turns_spare(&at_door) > fedge_turns_spare(&stopped));
}

static void who_floods_makes_room_first(void **state)
{
    (void)state;
    fedge_turns_guest known = {.waits = true, .known = true, .age_ms = FEDGE_SLOW_AFTER_MS};
    fedge_turns_guest unknown = known;
    unknown.known = false;
    assert_true(fedge_turns_spare(&unknown) > fedge_turns_spare(&known));
    fedge_turns_guest lately = known; /* the flooder may be behind a device's address */
    lately.lately = true;
    assert_true(fedge_turns_spare(&lately) > fedge_turns_spare(&unknown));
    /* The handshake that has just begun may be its own. */
    lately.waits = false;
    assert_int_equal(fedge_turns_spare(&lately), fedge_turns_spare(&known));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_place_waits_behind_others),
        cmocka_unit_test(known_places_come_first_in_a_flood),
        cmocka_unit_test(a_device_waits_no_longer_than_a_newcomer),
        cmocka_unit_test(a_flood_begins_at_once_and_ends_with_a_quiet_second),
        cmocka_unit_test(who_waits_has_not_stopped),
        cmocka_unit_test(who_floods_makes_room_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The order of handshakes, what a flood of failing ones changes, and who is evicted. */
#include "tests/edge/core/cmocka_all.h"

#include <string.h>

#include "aggregator/net/handshake_queue.h"
#include "aggregator/net/transport.h"

static fedge_peer_address address_of(uint8_t number)
{
    return (fedge_peer_address){.host = {[10] = 0xff, [11] = 0xff, 10, 0, 0, number},
                                .port = number};
}

/* Of a peer whose address is [known], or not. */
static unsigned priority(const fedge_handshake_queue *queue, uint8_t number, bool known)
{
    const fedge_peer_address from = address_of(number);
    return fedge_handshake_priority(queue, &from, known);
}

static void begin(fedge_handshake_queue *queue, uint8_t number)
{
    const fedge_peer_address from = address_of(number);
    fedge_handshake_begins(queue, &from);
}

static void handshakes_fail(fedge_handshake_queue *queue, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        (void)fedge_handshake_failed(queue);
}

static void a_recent_address_waits_behind_others(void **state)
{
    (void)state;
    fedge_handshake_queue queue = {0};
    assert_int_equal(priority(&queue, 1, false), 0);
    /* An empty ring holds no address. */
    assert_int_equal(fedge_handshake_priority(&queue, &(fedge_peer_address){0}, false), 0);
    begin(&queue, 1);
    assert_int_equal(priority(&queue, 1, false), 3);
    assert_int_equal(priority(&queue, 1, true), 3);
    assert_int_equal(priority(&queue, 2, false), 0);
    for (uint8_t i = 0; i < FEDGE_HANDSHAKES_RECENT - 1; i++)
        begin(&queue, (uint8_t)(10 + i));
    assert_int_equal(priority(&queue, 1, false), 3);
    begin(&queue, 50); /* takes its cell */
    assert_int_equal(priority(&queue, 1, false), 0);
    assert_int_equal(priority(&queue, 10, false), 3);
}

static void known_addresses_come_first_in_a_flood(void **state)
{
    (void)state;
    fedge_handshake_queue queue = {0};
    begin(&queue, 1);
    assert_int_equal(priority(&queue, 2, false), priority(&queue, 2, true));
    handshakes_fail(&queue, FEDGE_FLOOD_SIZE);
    assert_true(priority(&queue, 2, true) < priority(&queue, 3, false));
    /* A recent address waits: the flooder may be behind the same address. But not for two of
     * three handshakes, since so may a device. */
    for (unsigned i = 1; i < 3; i++, begin(&queue, 1)) {
        assert_true(priority(&queue, 1, true) < priority(&queue, 3, false));
        assert_true(priority(&queue, 2, true) < priority(&queue, 1, true));
        assert_true(priority(&queue, 3, false) < priority(&queue, 1, false));
    }
    assert_true(priority(&queue, 3, false) < priority(&queue, 1, true));
    assert_int_equal(priority(&queue, 1, true), priority(&queue, 1, false));
}

enum { FLOODERS = 8, DEVICE = 1, NEWCOMER = 200, HANDSHAKES = 500 };

/* How many handshakes begin before that of address [number], which comes at handshake [from], in a
 * flood of 132 a second from FLOODERS addresses, of which that of DEVICE is known. */
static unsigned handshakes_before(uint8_t number, unsigned from)
{
    fedge_handshake_queue queue = {.flooded = true};
    uint8_t waiting[HANDSHAKES * 4];
    unsigned count = 0, arrivals = 0, ours = 0;
    for (unsigned now = 0; now < HANDSHAKES; now++) {
        for (; arrivals * 1000 < now * FEDGE_HANDSHAKE_INTERVAL_MS * 132; arrivals++)
            waiting[count++] = (uint8_t)(1 + arrivals % FLOODERS);
        if (now == from) {
            ours = count; /* its index in the queue */
            waiting[count++] = number;
        }
        unsigned next = 0;
        for (unsigned i = 1; i < count; i++) {
            if (priority(&queue, waiting[i], waiting[i] == DEVICE) <
                priority(&queue, waiting[next], waiting[next] == DEVICE))
                next = i;
        }
        if (count == 0)
            continue;
        begin(&queue, waiting[next]);
        if (now >= from && next == ours)
            return now - from;
        ours -= next < ours;
        memmove(waiting + next, waiting + next + 1, --count - next);
    }
    return HANDSHAKES;
}

static void a_device_waits_no_longer_than_a_newcomer(void **state)
{
    (void)state;
    unsigned newcomer = 0, device = 0; /* at the worst */
    for (unsigned now = HANDSHAKES / 2; now < HANDSHAKES / 2 + 30; now++) {
        const unsigned one = handshakes_before(NEWCOMER, now),
                       other = handshakes_before(DEVICE, now);
        newcomer = newcomer > one ? newcomer : one;
        device = device > other ? device : other;
    }
    assert_in_range(newcomer, 0, FEDGE_HANDSHAKES_RECENT);
    assert_in_range(device, 0, newcomer);
}

static void a_flood_begins_at_once_and_ends_with_a_quiet_second(void **state)
{
    (void)state;
    fedge_handshake_queue queue = {0};
    for (int second = 0; second < 3; second++) { /* never enough within one */
        for (unsigned i = 1; i < FEDGE_FLOOD_SIZE; i++)
            assert_false(fedge_handshake_failed(&queue));
        fedge_handshake_second_over(&queue);
        assert_false(queue.flooded);
    }
    handshakes_fail(&queue, FEDGE_FLOOD_SIZE - 1);
    assert_true(fedge_handshake_failed(&queue)); /* before the second is over */
    assert_true(queue.flooded);
    assert_false(fedge_handshake_failed(&queue)); /* said once */
    fedge_handshake_second_over(&queue);
    assert_true(queue.flooded);
    handshakes_fail(&queue, FEDGE_FLOOD_SIZE);
    fedge_handshake_second_over(&queue);
    assert_true(queue.flooded);
    handshakes_fail(&queue, FEDGE_FLOOD_SIZE - 1);
    fedge_handshake_second_over(&queue);
    assert_false(queue.flooded);
}

static void the_three_rules_of_eviction_in_their_order(void **state)
{
    (void)state;
    const fedge_eviction_facts before_hello = {.before_hello = true};
    const fedge_eviction_facts stalled = {.age_ms = FEDGE_STALLED_AFTER_MS,
                                          .silent_ms = FEDGE_STALLED_AFTER_MS};
    const fedge_eviction_facts slow = {.age_ms = FEDGE_SLOW_AFTER_MS};
    const fedge_eviction_facts quick = {.age_ms = FEDGE_SLOW_AFTER_MS - 1};
    assert_int_equal(fedge_eviction_score(&before_hello), FEDGE_MAX_EVICTION_SCORE);
    assert_true(fedge_eviction_score(&before_hello) > fedge_eviction_score(&stalled));
    assert_true(fedge_eviction_score(&stalled) > fedge_eviction_score(&slow));
    assert_true(fedge_eviction_score(&slow) > fedge_eviction_score(&quick));
    assert_int_equal(fedge_eviction_score(&quick), 0);
    const fedge_eviction_facts soon_stalled = {.age_ms = FEDGE_STALLED_AFTER_MS,
                                               .silent_ms = FEDGE_STALLED_AFTER_MS - 1};
    assert_int_equal(fedge_eviction_score(&soon_stalled), fedge_eviction_score(&slow));
}

static void a_queued_peer_has_not_stalled(void **state)
{
    (void)state;
    const uint64_t long_ms = 10 * FEDGE_STALLED_AFTER_MS;
    const fedge_eviction_facts stalled = {.age_ms = long_ms, .silent_ms = long_ms};
    fedge_eviction_facts queued = stalled;
    queued.queued = true;
    fedge_eviction_facts slow = stalled;
    slow.silent_ms = 0;
    /* Its silence is the server's doing: only its age counts, as that of a peer that sends. */
    assert_true(fedge_eviction_score(&stalled) > fedge_eviction_score(&queued));
    assert_int_equal(fedge_eviction_score(&queued), fedge_eviction_score(&slow));
    queued.age_ms = slow.age_ms = FEDGE_SLOW_AFTER_MS - 1;
    assert_int_equal(fedge_eviction_score(&queued), 0);
    assert_int_equal(fedge_eviction_score(&slow), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recent_address_waits_behind_others),
        cmocka_unit_test(known_addresses_come_first_in_a_flood),
        cmocka_unit_test(a_device_waits_no_longer_than_a_newcomer),
        cmocka_unit_test(a_flood_begins_at_once_and_ends_with_a_quiet_second),
        cmocka_unit_test(the_three_rules_of_eviction_in_their_order),
        cmocka_unit_test(a_queued_peer_has_not_stalled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

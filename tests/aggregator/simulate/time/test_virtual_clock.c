#include "aggregator/simulate/time/virtual_clock.h"

#include "edge/core/rng.h"
#include "tests/edge/core/cmocka_all.h"

static void begin(fedge_virtual_clock *table, uint32_t task, uint32_t client, fedge_event_kind kind,
                  uint64_t duration_us)
{
    fedge_error err;
    const fedge_event event = {.client = client, .task = task, .kind = kind};
    assert_int_equal(fedge_virtual_clock_begin(table, event, duration_us, &err), FEDGE_OK);
}

static uint32_t sure(fedge_virtual_clock *table, uint32_t most, const fedge_event **events)
{
    fedge_error err;
    uint32_t num = 0;
    assert_int_equal(fedge_virtual_clock_sure(table, most, false, events, &num, &err), FEDGE_OK);
    return num;
}

/* A heap of random events gives them up in their order. */
static void events_come_in_order(void **state)
{
    (void)state;
    fedge_event_queue events = {0};
    fedge_rng rng = fedge_rng_stream(2, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (uint32_t i = 0; i < 1000; i++) {
        const fedge_event event = {.time_us = fedge_rng_below(&rng, 50),
                                   .tie_break = fedge_rng_below(&rng, 3),
                                   .client = fedge_rng_below(&rng, 50),
                                   .kind = (fedge_event_kind)fedge_rng_below(&rng, 4)};
        assert_int_equal(fedge_event_queue_push(&events, event, NULL), FEDGE_OK);
    }
    fedge_event last = fedge_event_queue_pop(&events);
    for (uint32_t i = 1; i < 1000; i++) {
        const fedge_event next = fedge_event_queue_pop(&events);
        assert_true(fedge_event_compare(&last, &next) <= 0);
        last = next;
    }
    assert_int_equal(events.count, 0);
    const fedge_event turns[] = {{.time_us = 5, .tie_break = 1, .client = 9},
                                 {.time_us = 5, .tie_break = 2, .client = 3}};
    assert_true(fedge_event_compare(&turns[0], &turns[1]) < 0);
    fedge_event_queue_fini(&events);
}

static void the_clock_goes_to_events_and_the_deadline(void **state)
{
    (void)state;
    fedge_virtual_clock table = {.now_us = 500};
    fedge_event event;
    fedge_virtual_clock_open(&table, 2);
    begin(&table, 0, 9, FEDGE_EVENT_FINISH, 2000); /* at the deadline: in time */
    begin(&table, 1, 4, FEDGE_EVENT_FINISH, 2001);
    begin(&table, 2, 7, FEDGE_EVENT_FAIL, 30);
    assert_true(fedge_virtual_clock_next(&table, &event));
    assert_int_equal(event.task, 2);
    assert_int_equal(table.now_us, 530);
    assert_true(fedge_virtual_clock_next(&table, &event));
    assert_int_equal(event.task, 0);
    assert_int_equal(table.now_us, 2500);
    assert_false(fedge_virtual_clock_next(&table, &event));
    assert_int_equal(table.now_us, 2500);
    /* The next phase knows nothing of the late one. */
    fedge_virtual_clock_open(&table, 0);
    assert_int_equal(table.opened_us, 2500);
    assert_false(fedge_virtual_clock_next(&table, &event));
    assert_true(table.deadline_us == FEDGE_TIME_NEVER && table.now_us == 2500);
    fedge_virtual_clock_fini(&table);
}

static void nothing_behind_a_failure_is_sure(void **state)
{
    (void)state;
    fedge_virtual_clock table = {0};
    const fedge_event *events = NULL;
    fedge_virtual_clock_open(&table, 1);
    begin(&table, 0, 0, FEDGE_EVENT_FINISH, 300);
    begin(&table, 1, 1, FEDGE_EVENT_FINISH, 100);
    begin(&table, 2, 2, FEDGE_EVENT_FINISH, 200);
    begin(&table, 3, 3, FEDGE_EVENT_FINISH, 1001); /* too late */
    assert_int_equal(sure(&table, 9, &events), 3);
    assert_int_equal(events[0].task, 1);
    assert_int_equal(events[1].task, 2);
    assert_int_equal(events[2].task, 0);
    assert_int_equal(sure(&table, 2, &events), 2);
    begin(&table, 4, 4, FEDGE_EVENT_FAIL, 200); /* behind client 2's end, at the same time */
    assert_int_equal(sure(&table, 9, &events), 2);
    begin(&table, 5, 5, FEDGE_EVENT_FAIL, 50);
    assert_int_equal(sure(&table, 9, &events), 0);
    fedge_virtual_clock_fini(&table);
}

/* Who comes and goes is met in the same order, and bounds what is sure only when a slot is empty.
 */
static void changes_are_met_among_the_tasks(void **state)
{
    (void)state;
    fedge_virtual_clock table = {0};
    const fedge_event *events = NULL;
    fedge_event event;
    fedge_error err;
    uint32_t num = 0;
    fedge_virtual_clock_open(&table, 1);
    begin(&table, 0, 3, FEDGE_EVENT_FINISH, 300);
    assert_int_equal(fedge_virtual_clock_change(&table, 3, FEDGE_EVENT_LEAVE, 300, &err), FEDGE_OK);
    assert_int_equal(fedge_virtual_clock_change(&table, 1, FEDGE_EVENT_JOIN, 200, &err), FEDGE_OK);
    assert_int_equal(
        fedge_virtual_clock_change(&table, 2, FEDGE_EVENT_JOIN, FEDGE_TIME_NEVER, &err), FEDGE_OK);
    assert_int_equal(table.changes.count, 2);
    assert_int_equal(sure(&table, 9, &events), 1);
    assert_int_equal(fedge_virtual_clock_sure(&table, 9, true, &events, &num, &err), FEDGE_OK);
    assert_int_equal(num, 0);
    begin(&table, 1, 4, FEDGE_EVENT_LEAVE, 250); /* with its task half done */
    assert_int_equal(sure(&table, 9, &events), 0);
    static const uint32_t clients[] = {1, 4, 3, 3};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(fedge_virtual_clock_first(&table)->client, clients[i]);
        assert_true(fedge_virtual_clock_next(&table, &event));
        assert_int_equal(event.client, clients[i]);
    }
    assert_int_equal(event.kind, FEDGE_EVENT_LEAVE); /* it had finished */
    assert_null(fedge_virtual_clock_first(&table));
    fedge_virtual_clock_fini(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_in_order),
        cmocka_unit_test(the_clock_goes_to_events_and_the_deadline),
        cmocka_unit_test(nothing_behind_a_failure_is_sure),
        cmocka_unit_test(changes_are_met_among_the_tasks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

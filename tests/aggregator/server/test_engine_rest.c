/* Devices that say when to ask them again, and those that hang up until then. */
#include "tests/edge/core/cmocka_all.h"

#include "aggregator/server/engine_rest.h"
#include "tests/aggregator/server/federation.h"

/* Of five connected devices four are asked: one is free to take a slot over. */
#define FOUR_OF_FIVE                                                                               \
    "\"num-server-rounds\":1,\"fraction-train\":0.8,\"min-train-nodes\":2,"                        \
    "\"min-available-nodes\":5"
#define HOURS_MS 3600000u
#define CALLS 4 /* rounds of a run in which each waits for the five */
#define FOUR_OF_FIVE_EACH                                                                          \
    "\"num-server-rounds\":4,\"fraction-train\":0.8,\"min-train-nodes\":2,"                        \
    "\"min-available-nodes\":5"

static federation fed;

static int tear_down(void **state)
{
    (void)state;
    fed_fini(&fed);
    return 0;
}

/* None of the five does anything, and all may hang up. */
static void begin_run(const char *rounds)
{
    fed_init(&fed, "engine-rest-test", rounds);
    fed_open(&fed);
    for (uint32_t i = 0; i < 5; i++)
        fed.devices[i].idle = fed.devices[i].hangs_up = true;
    fed_join_all(&fed, 5);
    fed_settle(&fed);
}

/* The first device that was asked. */
static fed_device *begin(void)
{
    begin_run(FOUR_OF_FIVE);
    fed_device *device = fed.devices;
    while (device->num_tasks == 0)
        device++;
    return device;
}

/* What the machine of rounds knows of a device that has put off its task. */
static uint64_t rest_after(fedge_reason reason, uint64_t after_ms)
{
    const fed_device *device = begin();
    fed_put_off(&fed.devices[device->index], reason, after_ms);
    fed_settle(&fed);
    const uint64_t until = fedge_rounds_rests_until(fed.engine->rounds, device->index);
    fed_fini(&fed);
    return until;
}

static void the_machine_of_rounds_hears_when_to_ask_again(void **state)
{
    (void)state;
    const uint64_t now_ms = begin()->federation->now_ms;
    fed_fini(&fed);
    assert_int_equal(rest_after(FEDGE_REASON_ON_BATTERY, 300000), now_ms + 300000);
    assert_int_equal(rest_after(FEDGE_REASON_OUTSIDE_HOURS, 9 * HOURS_MS), now_ms + 9 * HOURS_MS);
    assert_int_equal(rest_after(FEDGE_REASON_POLICY, 300000), UINT64_MAX); /* until it is mended */
    assert_int_equal(rest_after(FEDGE_REASON_INTERNAL, 300000), 0);        /* of this task alone */
    (void)begin();
}

/* For how long a device is sent away that has put off its task. */
static uint64_t farewell_after(fedge_reason reason, uint64_t after_ms)
{
    fed_device *device = begin();
    fed_put_off(device, reason, after_ms);
    fed_settle(&fed);
    assert_int_equal(device->farewell, FEDGE_REASON_NONE);
    fed.now_ms += FEDGE_ENGINE_REST_LOOK_MS;
    fed_settle(&fed);
    assert_int_equal(device->farewell, FEDGE_REASON_COME_LATER);
    assert_null(device->conn);
    const uint64_t told = device->farewell_after_ms;
    fed_fini(&fed);
    return told;
}

static void who_hangs_up_is_away_until_it_can_work(void **state)
{
    (void)state;
    const uint64_t of_round = farewell_after(FEDGE_REASON_INTERNAL, 0);
    assert_in_range(of_round, FEDGE_ENGINE_MIN_REST_MS, FEDGE_ENGINE_FIRST_REST_MS);
    assert_int_equal(farewell_after(FEDGE_REASON_OUTSIDE_HOURS, 9 * HOURS_MS),
                     9 * HOURS_MS - FEDGE_ENGINE_REST_LOOK_MS);
    assert_int_equal(farewell_after(FEDGE_REASON_ON_BATTERY, 2000), of_round);
    assert_int_equal(farewell_after(FEDGE_REASON_POLICY, 9 * HOURS_MS), of_round);
    (void)begin();
}

/* The device without a task in the round that is open, which is sent away. had: the tasks of each
 * device before the round, and then with it. */
static fed_device *send_away(uint32_t had[5])
{
    fed_device *away = NULL;
    for (uint32_t i = 0; i < 5; i++) {
        fed_device *device = &fed.devices[i];
        if (device->num_tasks == had[i]) {
            assert_null(away);
            away = device;
        }
        had[i] = device->num_tasks;
    }
    fed.now_ms += FEDGE_ENGINE_REST_LOOK_MS;
    fed_settle(&fed);
    assert_non_null(away);
    assert_int_equal(away->farewell, FEDGE_REASON_COME_LATER);
    assert_null(away->conn);
    return away;
}

/* Four devices do their tasks meanwhile; the next round waits for the fifth, which calls when it
 * was told to. */
static void who_has_hung_up_calls_and_is_asked_again(void **state)
{
    (void)state;
    uint32_t had[5] = {0}, asked_again = 0;
    begin_run(FOUR_OF_FIVE_EACH);
    for (uint32_t round = 1; round <= CALLS; round++) {
        const fed_device *away = send_away(had);
        const uint32_t index = away->index;
        for (uint32_t i = 0; i < 5; i++) {
            fed.devices[i].idle = false;
            if (i != index)
                fed_make_result(&fed.devices[i]);
        }
        fed_settle(&fed);
        assert_int_equal(fed_status(&fed).rounds_closed, round);
        if (round == CALLS)
            break;
        for (uint32_t i = 0; i < 5; i++) {
            assert_int_equal(fed.devices[i].num_tasks, had[i]);
            fed.devices[i].idle = true;
        }
        fed.devices[index].farewell = FEDGE_REASON_NONE;
        fed.now_ms += away->farewell_after_ms;
        fed_join(&fed, index);
        fed_settle(&fed);
        asked_again += away->num_tasks > had[index];
    }
    assert_in_range(asked_again, 1, CALLS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_machine_of_rounds_hears_when_to_ask_again, tear_down),
        cmocka_unit_test_teardown(who_hangs_up_is_away_until_it_can_work, tear_down),
        cmocka_unit_test_teardown(who_has_hung_up_calls_and_is_asked_again, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Devices that say when to ask them again, and those that hang up until then. */
#include "tests/edge/core/cmocka_all.h"

#include "aggregator/run/engine_phase.h"
#include "tests/aggregator/run/federation.h"

/* Of five connected devices four are asked: one is free to take a slot over. */
#define FOUR_OF_FIVE                                                                               \
    "\"num-server-rounds\":1,\"fraction-train\":0.8,\"min-train-nodes\":2,"                        \
    "\"min-available-nodes\":5"
#define HOURS_MS 3600000u
#define ROUNDS 4
#define ROUND_MS 60000u
#define STEP_MS 6000u
/* Who is away when a round opens is not waited for. */
#define OF_WHO_IS_THERE                                                                            \
    "\"num-server-rounds\":4,\"fraction-train\":0.8,\"min-train-nodes\":2,"                        \
    "\"min-available-nodes\":2,\"round-deadline-s\":600"

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
    const uint64_t until = fedge_rounds_not_before(fed.engine->rounds, device->index);
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
    fed.now_ms += FEDGE_ENGINE_NOT_BEFORE_CHECK_MS;
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
    assert_in_range(of_round, FEDGE_ENGINE_MIN_NOT_BEFORE_MS, FEDGE_ENGINE_FIRST_NOT_BEFORE_MS);
    assert_int_equal(farewell_after(FEDGE_REASON_OUTSIDE_HOURS, 9 * HOURS_MS),
                     9 * HOURS_MS - FEDGE_ENGINE_NOT_BEFORE_CHECK_MS);
    assert_int_equal(farewell_after(FEDGE_REASON_ON_BATTERY, 2000), of_round);
    assert_int_equal(farewell_after(FEDGE_REASON_POLICY, 9 * HOURS_MS), of_round);
    (void)begin();
}

/* The time of a round. Who is sent away calls as late as a client may; returns how many did.
 * calls_at: of each device, 0: it is there. */
static uint32_t pass_round(uint64_t calls_at[5])
{
    uint32_t calls = 0;
    for (uint32_t ms = 0; ms < ROUND_MS; ms += STEP_MS) {
        fed.now_ms += STEP_MS;
        fed_settle(&fed);
        for (uint32_t i = 0; i < 5; i++) {
            fed_device *device = &fed.devices[i];
            if (device->farewell == FEDGE_REASON_COME_LATER) {
                device->farewell = FEDGE_REASON_NONE;
                calls_at[i] = fed.now_ms + device->farewell_after_ms * 9 / 8;
            } else if (calls_at[i] != 0 && fed.now_ms >= calls_at[i]) {
                calls_at[i] = 0;
                fed_join(&fed, i);
                calls++;
            }
        }
    }
    fed_settle(&fed);
    return calls;
}

/* Those who were asked since [had] send their results; returns how many. The next round opens. */
static uint32_t report(uint32_t had[5])
{
    uint32_t asked = 0;
    for (uint32_t i = 0; i < 5; i++) {
        fed_device *device = &fed.devices[i];
        if (device->num_tasks == had[i])
            continue;
        had[i] = device->num_tasks;
        asked++;
        fed_make_result(device);
        fed_announce(device);
    }
    fed_settle(&fed);
    for (uint32_t i = 0; i < 5; i++) {
        while (fed.devices[i].sending)
            fed_send_part(&fed.devices[i]);
    }
    fed_settle(&fed);
    return asked;
}

/* Rounds wait for nobody who is away, so all have to be there when one opens: then four of the five
 * are asked. */
static void who_has_hung_up_is_there_when_the_next_round_opens(void **state)
{
    (void)state;
    uint64_t calls_at[5] = {0};
    uint32_t had[5] = {0};
    begin_run(OF_WHO_IS_THERE);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        const uint32_t calls = pass_round(calls_at);
        const uint32_t asked = report(had);
        assert_int_equal(fed_status(&fed).rounds_closed, round);
        /* The first opens with two, and nobody knows how long it takes. */
        assert_true(round > 2 || asked == 2);
        assert_true(round <= 2 || (asked == 4 && calls == 1));
    }
}

/* A minute's training tells nothing about how long the next round of it is away. */
static void nobody_leaves_while_others_evaluate(void **state)
{
    (void)state;
    uint32_t had[5] = {0};
    begin_run("\"num-server-rounds\":2,\"min-train-nodes\":5,\"min-available-nodes\":5,"
              "\"fraction-evaluate\":0.4,\"min-evaluate-nodes\":2,\"round-deadline-s\":600");
    fed.now_ms += ROUND_MS;
    fed_settle(&fed);
    assert_int_equal(report(had), 5);
    assert_int_equal(fedge_rounds_kind(fed.engine->rounds), FEDGE_TASK_EVALUATE);
    fed.now_ms += FEDGE_ENGINE_NOT_BEFORE_CHECK_MS;
    fed_settle(&fed);
    assert_int_equal(fedge_rounds_kind(fed.engine->rounds), FEDGE_TASK_EVALUATE);
    for (uint32_t i = 0; i < 5; i++)
        assert_non_null(fed.devices[i].conn);
}

/* Who counts on the mean is late for half of the rounds. */
static void short_rounds_count_more(void **state)
{
    (void)state;
    static const uint64_t TOOK[][2] = {
        {60000, 60000}, {20000, 20000}, {60000, 30000}, {30000, 30000}, {70000, 40000}};
    (void)begin();
    for (size_t i = 0; i < sizeof(TOOK) / sizeof(TOOK[0]); i++) {
        fedge_engine_note_round(fed.engine, TOOK[i][0]);
        assert_int_equal(fed.engine->round_ms, TOOK[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_machine_of_rounds_hears_when_to_ask_again, tear_down),
        cmocka_unit_test_teardown(who_hangs_up_is_away_until_it_can_work, tear_down),
        cmocka_unit_test_teardown(short_rounds_count_more, tear_down),
        cmocka_unit_test_teardown(nobody_leaves_while_others_evaluate, tear_down),
        cmocka_unit_test_teardown(who_has_hung_up_is_there_when_the_next_round_opens, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Slots of a round that change hands, senders that are held back, and what a run leaves on the
 * disk: promises that a run which goes well does not need. */
#include "tests/edge/core/cmocka_all.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/run/engine_state.h"
#include "edge/core/message.h"
#include "edge/core/os.h"
#include "tests/aggregator/run/federation.h"

/* Of five connected devices four are asked: one is free to take a slot over. */
#define FOUR_OF_FIVE                                                                               \
    "\"num-server-rounds\":1,\"fraction-train\":0.8,\"min-train-nodes\":2,"                        \
    "\"min-available-nodes\":5"

enum { DEVICES = 5 };

static federation fed;

/* ---- a queue that is full when the test says so -----------------------------------------------
 */

static bool say_full;

fedge_status __real_fedge_ingest_write(fedge_ingest *ingest, fedge_journal *journal, uint32_t slot,
                                       const fedge_ingest_part *part, uint8_t **block, bool *full,
                                       fedge_error *err);
fedge_status __wrap_fedge_ingest_write(fedge_ingest *ingest, fedge_journal *journal, uint32_t slot,
                                       const fedge_ingest_part *part, uint8_t **block, bool *full,
                                       fedge_error *err);

fedge_status __wrap_fedge_ingest_write(fedge_ingest *ingest, fedge_journal *journal, uint32_t slot,
                                       const fedge_ingest_part *part, uint8_t **block, bool *full,
                                       fedge_error *err)
{
    fedge_status status = __real_fedge_ingest_write(ingest, journal, slot, part, block, full, err);
    *full = *full || say_full;
    return status;
}

/* ---- a disk that has no room when the test says so --------------------------------------------
 */

/* The round finalizer's thread and the test's look at them. */
static atomic_bool say_no_space;
static _Atomic uint64_t room_to_leave;
static atomic_uint num_creates;
static unsigned num_waits_logged;

fedge_status __real_fedge_journal_create(const char *dir, const fedge_journal_phase *phase,
                                         const fedge_journal_task *tasks, uint64_t min_free_bytes,
                                         fedge_journal **journal, fedge_error *err);
fedge_status __wrap_fedge_journal_create(const char *dir, const fedge_journal_phase *phase,
                                         const fedge_journal_task *tasks, uint64_t min_free_bytes,
                                         fedge_journal **journal, fedge_error *err);

fedge_status __wrap_fedge_journal_create(const char *dir, const fedge_journal_phase *phase,
                                         const fedge_journal_task *tasks, uint64_t min_free_bytes,
                                         fedge_journal **journal, fedge_error *err)
{
    num_creates++;
    room_to_leave = min_free_bytes;
    return say_no_space
               ? fedge_fail(err, FEDGE_NO_SPACE, "no room, says the test")
               : __real_fedge_journal_create(dir, phase, tasks, min_free_bytes, journal, err);
}

static void count_waits(void *user, const char *line, size_t size)
{
    (void)user, (void)size;
    num_waits_logged += strstr(line, "round-waits-for-disk") != NULL;
}

/* ---- a disk that is slow when the test says so ------------------------------------------------
 */

static atomic_bool hold_sync; /* an ingest worker's thread and the test's look at it */

fedge_status __real_fedge_journal_sync(fedge_journal *journal, fedge_error *err);
fedge_status __wrap_fedge_journal_sync(fedge_journal *journal, fedge_error *err);

fedge_status __wrap_fedge_journal_sync(fedge_journal *journal, fedge_error *err)
{
    while (hold_sync)
        sched_yield();
    return __real_fedge_journal_sync(journal, err);
}

/* ---- lines of the log -------------------------------------------------------------------------
 */

static unsigned num_refusals_logged;

static void count_refusals(void *user, const char *line, size_t size)
{
    (void)user, (void)size;
    num_refusals_logged += strstr(line, "update-refused") != NULL;
}

/* ---- one round --------------------------------------------------------------------------------
 */

static int tear_down(void **state)
{
    (void)state;
    say_full = say_no_space = hold_sync = false;
    fed_fini(&fed);
    return 0;
}

/* The first of the devices that has, or has not, been asked. */
static fed_device *device_that(bool asked)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        if ((fed.devices[i].task.task_id != 0) == asked)
            return &fed.devices[i];
    }
    fail_msg("there is no such device");
    return NULL;
}

/* Devices do nothing but take their tasks. */
static void begin_idle(const char *rounds)
{
    fed_init(&fed, "slots-test", rounds);
    fed_open(&fed);
    for (uint32_t i = 0; i < FED_DEVICES; i++)
        fed.devices[i].idle = true;
    fed_join_all(&fed, DEVICES);
    fed_settle(&fed);
}

static void begin_upload(fed_device *device)
{
    if (!device->has_result)
        fed_make_result(device);
    fed_announce(device);
    fed_settle(&fed);
}

static void wake_up(fed_device *device)
{
    device->idle = false;
    if (!device->has_result && device->task.task_id != 0)
        fed_make_result(device);
}

static void finish(void)
{
    fedge_error failure;
    for (uint32_t i = 0; i < DEVICES; i++)
        wake_up(&fed.devices[i]);
    fed_finish(&fed, &failure);
    assert_string_equal(failure.status == FEDGE_OK ? "" : failure.message, "");
}

/* The slot of [old], which gives its task back, goes to the device that was not asked. */
static fed_device *hand_over(fed_device *old)
{
    fed_device *next = device_that(false);
    fed_decline(old, true);
    fed_settle(&fed);
    assert_int_equal(next->num_tasks, 1);
    assert_int_not_equal(next->task.task_id, old->task.task_id);
    return next;
}

/* ---- slots that change hands ------------------------------------------------------------------
 */

/* Though its result has the same size and checksum, it begins at the first byte. */
static void a_slots_next_device_begins_anew(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FIVE);
    fed_device *old = device_that(true);
    begin_upload(old);
    fed_send_part(old);
    fed_send_part(old);
    fed_settle(&fed);
    fed_device *next = hand_over(old);
    fed_make_result(next);
    memcpy(next->bytes, old->bytes, sizeof(next->bytes));
    next->result.crc32 = old->result.crc32;
    next->resumed_at = 77;
    begin_upload(next);
    assert_int_equal(next->num_resumes, 1);
    assert_int_equal(next->resumed_at, 0);
    finish();
    assert_int_equal(next->num_acks, 1);
    assert_int_equal(old->num_acks, 0);
    assert_int_equal(fed.summaries[0].reported, 4);
}

/* The tries that one device has used up are not the next one's. */
static void a_slots_next_device_has_all_its_tries(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FIVE);
    fed_device *old = device_that(true);
    wake_up(old);
    old->bytes[5] ^= 1;
    while (old->num_refusals < FEDGE_ENGINE_MAX_BAD_UPLOADS - 1)
        fed_step(&fed);
    old->idle = true;
    fed_settle(&fed);
    fed_device *next = hand_over(old);
    wake_up(next);
    next->bytes[5] ^= 1;
    while (next->num_refusals < FEDGE_ENGINE_MAX_BAD_UPLOADS - 1)
        fed_step(&fed);
    next->bytes[5] ^= 1;
    fed_settle(&fed);
    assert_int_equal(next->num_acks, 1);
    assert_int_equal(next->num_cancels, 0);
}

/* What the device before still sends is of no harm to the next one's result. */
static void the_device_before_does_no_harm(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FIVE);
    fed_device *old = device_that(true);
    begin_upload(old);
    fed_send_part(old);
    fed_settle(&fed);
    fed_device *next = hand_over(old);
    begin_upload(next);
    fed_send_part(next);
    const uint64_t own = old->result.task_id;
    fed_send_part(old);                         /* of its old task */
    old->result.task_id = next->result.task_id; /* and of the other's */
    fed_send_part(old);
    old->awaiting = false; /* nobody answers to that */
    fed_settle(&fed);
    assert_non_null(old->conn);
    assert_int_equal(old->num_refusals, 0);
    fed_announce(old);
    fed_settle(&fed);
    assert_int_equal(old->refusal, FEDGE_REASON_STALE_TASK);
    old->result.task_id = own;
    fed_announce(old);
    fed_settle(&fed);
    assert_int_equal(old->num_refusals, 2);
    assert_int_equal(old->refused_task, own);
    old->has_result = false;
    fed_send_part(next);
    fed_send_part(next);
    fed_settle(&fed);
    assert_int_equal(next->num_acks, 1);
    assert_int_equal(next->num_resumes, 1);
    assert_int_equal(fed_status(&fed).updates_accepted, 1);
}

/* After a restart, the slot is still the next one's; so is the result. */
static void a_new_task_survives_a_restart(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FIVE);
    fed_device *old = device_that(true);
    fed_device *next = hand_over(old);
    const uint64_t task_id = next->task.task_id;
    fed_close(&fed);
    fed_open(&fed);
    fed_join_all(&fed, DEVICES);
    fed_settle(&fed);
    assert_int_equal(next->task.task_id, task_id);
    assert_int_equal(next->num_tasks, 2);
    assert_int_equal(old->num_tasks, 1);
    wake_up(next);
    fed_settle(&fed);
    assert_int_equal(next->num_acks, 1);
    finish();
    assert_int_equal(fed.summaries[0].reported, 4);
}

/* ---- attempts that are dropped ----------------------------------------------------------------
 */

/* The disk takes a device's update only after the deadline, while [counted], if any, is of another
 * that counted in the attempt: neither is lost in silence, and both have work again. */
static void drop_with_a_late_update(const char *strategy, fed_device *counted)
{
    fed_device *late = &fed.devices[0];
    fed_init_strategy(&fed, "slots-test",
                      "\"num-server-rounds\":1,\"min-train-nodes\":2,\"min-available-nodes\":2,"
                      "\"round-deadline-s\":5",
                      strategy);
    fed_open(&fed);
    for (uint32_t i = 0; i < 2; i++)
        fed.devices[i].idle = true;
    fed_join_all(&fed, 2);
    fed_settle(&fed);
    if (counted) {
        wake_up(counted);
        fed_settle(&fed);
        assert_int_equal(counted->num_acks, 1);
        counted->idle = true;
    }
    begin_upload(late);
    hold_sync = true;
    while (late->sending)
        fed_send_part(late);
    fed.now_ms += 5000;
    while (strncmp(fed_status(&fed).state, "giving up", 9) != 0)
        fed_step(&fed);
    hold_sync = false;
    fed_settle(&fed);
    assert_int_equal(late->num_acks, 0);
    assert_int_equal(late->refusal, FEDGE_REASON_STALE_TASK);
    assert_int_equal(late->num_tasks, 2);
    assert_true(!counted || counted->num_tasks == 2);
    assert_int_equal(fed_status(&fed).updates_accepted, counted != NULL);
    finish();
    assert_int_equal(fed.summaries[0].attempt, 1);
    assert_int_equal(fed_status(&fed).updates_accepted,
                     fed.summaries[0].reported + (counted != NULL));
    fed_fini(&fed);
}

static void devices_of_a_dropped_attempt_have_work_again(void **state)
{
    (void)state;
    drop_with_a_late_update("\"type\":\"FedAvg\"", &fed.devices[1]);
    drop_with_a_late_update("\"type\":\"FedAsync\"", NULL);
    drop_with_a_late_update("\"type\":\"FedBuff\",\"buffer-size\":2", &fed.devices[1]);
    fed_init(&fed, "slots-test", FOUR_OF_FIVE);
}

/* ---- senders that are held back ---------------------------------------------------------------
 */

static void post_room(void)
{
    fedge_completion *completion = calloc(1, sizeof(*completion));
    assert_non_null(completion);
    completion->type = FEDGE_COMPLETION_RESUME;
    fedge_mailbox_post(fed.engine->mailbox, &completion->item);
    fedge_engine_handle_completions(fed.engine, fed.now_ms);
    fed_take_replies(&fed);
}

/* Who fills a queue is not read from until there is room, and nobody else. */
static void a_sender_waits_for_room(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FIVE);
    fed_device *one = device_that(true), *other = NULL;
    for (uint32_t i = 0; i < DEVICES; i++) {
        if (fed.devices[i].task.task_id != 0 && &fed.devices[i] != one)
            other = &fed.devices[i];
    }
    begin_upload(one);
    begin_upload(other);
    fed_send_part(other);
    assert_false(other->paused);
    say_full = true;
    fed_send_part(one);
    say_full = false;
    assert_true(one->paused);
    assert_false(other->paused);
    fed_send_part(other);
    fed_send_part(other);
    fed_settle(&fed);
    assert_int_equal(other->num_acks, 1);
    assert_true(one->paused);
    post_room();
    assert_false(one->paused);
    fed_send_part(one);
    fed_send_part(one);
    fed_settle(&fed);
    assert_int_equal(one->num_acks, 1);
}

/* ---- what a run leaves on the disk ------------------------------------------------------------
 */

typedef struct found {
    uint32_t lowest, highest, count;
} found;

static fedge_status note_name(void *user, const char *name, fedge_error *err)
{
    (void)err;
    found *to = user;
    unsigned round = 0;
    assert_int_equal(sscanf(name, "round-%6u", &round), 1);
    to->lowest = to->count == 0 || round < to->lowest ? round : to->lowest;
    to->highest = round > to->highest ? round : to->highest;
    to->count++;
    return FEDGE_OK;
}

static found list(const char *folder)
{
    char path[FEDGE_MAX_PATH];
    found all = {0};
    fedge_error err;
    snprintf(path, sizeof(path), "%.900s/%s", fed_status(&fed).run_dir, folder);
    assert_int_equal(fedge_os_list_dir(path, note_name, &all, &err), FEDGE_OK);
    return all;
}

/* Each checkpoint removes what is older than keep-checkpoints says, model and journal. */
static void old_rounds_are_removed(void **state)
{
    (void)state;
    for (uint32_t keep = 1; keep <= 3; keep++) {
        fed_init(&fed, "slots-test",
                 "\"num-server-rounds\":5,\"min-train-nodes\":5,\"min-available-nodes\":5");
        fed.job->keep_checkpoints = keep;
        fed_open(&fed);
        fed_join_all(&fed, DEVICES);
        for (uint32_t round = 1; round < 5; round++) {
            while (fed_status(&fed).rounds_closed < round)
                fed_step(&fed);
        }
        finish();
        assert_int_equal(fedge_engine_export(fed.engine, NULL), FEDGE_OK); /* the last is written */
        const found checkpoints = list("checkpoints"), journals = list("journal");
        assert_int_equal(checkpoints.highest, 5);
        assert_int_equal(checkpoints.count, keep);
        assert_int_equal(checkpoints.lowest, 5 - keep + 1);
        assert_int_equal(journals.highest, 5);
        assert_int_equal(journals.count, keep);
        assert_int_equal(journals.lowest, 5 - keep + 1);
        if (keep < 3)
            fed_fini(&fed);
    }
}

/* The round finalizer's thread opens phases in its own time: settling does not wait for it. */
static void await_no_room(void)
{
    while (!strstr(fed_status(&fed).state, "waiting for room on the disk"))
        fed_step(&fed);
    fed_settle(&fed);
}

static void await_create(unsigned number)
{
    while (num_creates < number)
        fed_step(&fed);
    await_no_room();
}

/* Told once, however often it is tried; and again when it happens again. */
static void a_full_disk_is_told_once(void **state)
{
    (void)state;
    fed_init(&fed, "slots-test",
             "\"num-server-rounds\":2,\"min-train-nodes\":5,\"min-available-nodes\":5");
    fed.job->min_free_disk = 1000;
    fed.log = (fedge_log){.level = FEDGE_LOG_WARN, .write = count_waits};
    num_creates = 0;
    num_waits_logged = 0;
    fed_open(&fed);
    for (uint32_t round = 1; round <= 2; round++) {
        say_no_space = true;
        if (round == 1)
            fed_join_all(&fed, DEVICES);
        while (fed_status(&fed).rounds_closed + 1 < round)
            fed_step(&fed);
        const unsigned creates = num_creates;
        for (uint32_t i = 1; i <= 3; i++) {
            await_no_room();
            fed.now_ms += FEDGE_ENGINE_SPACE_RETRY_MS - 1;
            fed_settle(&fed);
            const unsigned before = num_creates;
            fed.now_ms += 1;
            await_create(before + 1);
            assert_int_equal(num_creates, before + 1);
            assert_int_equal(num_waits_logged, round);
        }
        assert_in_range(num_creates, creates + 3, creates + 4);
        /* What the operator wants, and three checkpoints. */
        assert_int_equal(room_to_leave,
                         1000 + 3 * (sizeof(float) * FED_ELEMENTS + FEDGE_CHECKPOINT_MAX_STATE));
        say_no_space = false;
        if (round == 1) {
            fed.now_ms += FEDGE_ENGINE_SPACE_RETRY_MS;
            while (fed_status(&fed).updates_accepted == 0)
                fed_step(&fed);
        }
    }
    fed.now_ms += FEDGE_ENGINE_SPACE_RETRY_MS;
    finish();
    assert_int_equal(fed_status(&fed).rounds_closed, 2);
}

/* A device that sends nonsense and is gone before that is known, again and again. */
static void devices_that_are_gone_do_not_fill_the_log(void **state)
{
    (void)state;
    const uint32_t tries = FEDGE_ENGINE_REFUSAL_LINES + 3;
    fed_device *device = &fed.devices[0];
    begin_idle("\"num-server-rounds\":1,\"min-train-nodes\":5,\"min-available-nodes\":5");
    fed.log = (fedge_log){.level = FEDGE_LOG_WARN, .write = count_refusals};
    num_refusals_logged = 0;
    for (uint32_t i = 0; i < tries; i++) {
        const float nonsense = 1e30f; /* beyond the bound */
        fed_make_result(device);
        memcpy(device->bytes, &nonsense, sizeof(nonsense));
        device->result.crc32 = fedge_crc32(0, device->bytes, sizeof(device->bytes));
        begin_upload(device);
        while (device->sending)
            fed_send_part(device);
        fed_leave(&fed, 0);
        while (fed_status(&fed).updates_refused < i + 1)
            fed_step(&fed);
        fed_join(&fed, 0);
        fed_settle(&fed);
    }
    assert_int_equal(device->num_refusals, 0); /* it was never there to hear */
    assert_int_equal(num_refusals_logged, FEDGE_ENGINE_REFUSAL_LINES);
}

/* As one does whose announcement on a new connection has crossed the refusal of what it sent on the
 * old one. */
static void what_follows_two_announcements_may_cross_the_answers(void **state)
{
    (void)state;
    fed_device *device = &fed.devices[0];
    begin_idle("\"num-server-rounds\":1,\"min-train-nodes\":5,\"min-available-nodes\":5");
    fed_make_result(device);
    begin_upload(device);
    fed_send_part(device);
    fed_announce(device);  /* to be answered: from the second part on */
    fed_send_part(device); /* before it reads that */
    fed_settle(&fed);
    assert_int_equal(device->resumed_at, FED_PART_SIZE);
    while (device->sending)
        fed_send_part(device);
    fed_settle(&fed);
    assert_int_equal(device->num_acks, 1);
    assert_non_null(device->conn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_slots_next_device_begins_anew, tear_down),
        cmocka_unit_test_teardown(a_slots_next_device_has_all_its_tries, tear_down),
        cmocka_unit_test_teardown(the_device_before_does_no_harm, tear_down),
        cmocka_unit_test_teardown(a_new_task_survives_a_restart, tear_down),
        cmocka_unit_test_teardown(what_follows_two_announcements_may_cross_the_answers, tear_down),
        cmocka_unit_test_teardown(devices_of_a_dropped_attempt_have_work_again, tear_down),
        cmocka_unit_test_teardown(a_sender_waits_for_room, tear_down),
        cmocka_unit_test_teardown(old_rounds_are_removed, tear_down),
        cmocka_unit_test_teardown(a_full_disk_is_told_once, tear_down),
        cmocka_unit_test_teardown(devices_that_are_gone_do_not_fill_the_log, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The engine with devices that behave, and with some that do not. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/run/engine_state.h"
#include "edge/core/message.h"
#include "tests/aggregator/run/federation.h"
#include "tests/edge/core/codec/codecs.h"

#define FOUR_OF_FOUR "\"num-server-rounds\":3,\"min-train-nodes\":4,\"min-available-nodes\":4"
/* Of five connected devices four are asked: one is free to take a slot over. */
#define FOUR_OF_FIVE                                                                               \
    "\"num-server-rounds\":1,\"fraction-train\":0.8,\"min-train-nodes\":2,"                        \
    "\"min-available-nodes\":5"

static federation fed;

static int tear_down(void **state)
{
    (void)state;
    fed_fini(&fed);
    return 0;
}

static void finish(void)
{
    fedge_error failure;
    fed_finish(&fed, &failure);
    assert_string_equal(failure.status == FEDGE_OK ? "" : failure.message, "");
}

/* Whether device [index] was asked in the open phase. */
static bool is_asked(uint32_t index)
{
    return fed.devices[index].task.task_id != 0;
}

/* The device that was not asked, of [count]. */
static fed_device *free_device(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!is_asked(i))
            return &fed.devices[i];
    }
    fail_msg("every device was asked");
    return NULL;
}

static fed_device *asked_device(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (is_asked(i))
            return &fed.devices[i];
    }
    fail_msg("no device was asked");
    return NULL;
}

static void set_idle(uint32_t count, bool idle)
{
    for (uint32_t i = 0; i < count; i++)
        fed.devices[i].idle = idle;
}

/* Devices do nothing but take their tasks. */
static void begin_idle(const char *rounds, uint32_t num_devices)
{
    fed_init(&fed, "engine-test", rounds);
    fed_open(&fed);
    set_idle(FED_DEVICES, true);
    fed_join_all(&fed, num_devices);
    fed_settle(&fed);
}

/* Lets the device alone do what it has to do. */
static void wake_up(fed_device *device)
{
    device->idle = false;
    if (!device->has_result)
        fed_make_result(device);
}

static void assert_refused(const fed_device *device, fedge_reason reason)
{
    assert_string_equal(fedge_reason_name(device->refusal), fedge_reason_name(reason));
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void a_device_fetches_the_model_and_the_plan(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FOUR, 4);
    fed_device *device = &fed.devices[0];
    fed_fetch(device, device->task.model, 10);
    fed_settle(&fed);
    assert_int_equal(device->fetched, device->task.model_size - 10);
    assert_string_equal(device->chunk.hash, device->task.model);
    assert_int_equal(device->chunk.size, device->task.model_size);
    fed_fetch(device, device->welcome.plan, 0);
    fed_settle(&fed);
    assert_int_equal(device->chunk.size, device->welcome.plan_size);
}

/* The means are weighted by examples. */
static void a_round_tells_what_its_devices_said(void **state)
{
    (void)state;
    double examples = 0.0, loss = 0.0;
    uint64_t bytes_up = 0, bytes_down = 0;
    fed_init(&fed, "engine-test", FOUR_OF_FOUR);
    fed_open(&fed);
    fed_join_all(&fed, 4);
    finish();
    for (uint32_t i = 0; i < 4; i++) { /* as fed_make_result says */
        examples += 10.0 + 7.0 * i;
        loss += (10.0 + 7.0 * i) * (1.0 + i);
    }
    assert_int_equal(fed.num_summaries, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const fedge_round_summary *summary = &fed.summaries[i];
        assert_int_equal(summary->round, i + 1);
        assert_int_equal(summary->asked, 4);
        assert_int_equal(summary->reported, 4);
        assert_int_equal(summary->examples, (uint64_t)examples);
        assert_true(fabs(summary->train_loss - loss / examples) < 1e-12);
        assert_true(fabs(summary->train_accuracy - 0.5) < 1e-12);
        assert_true(isnan(summary->seconds_train)); /* nobody said */
        assert_true(summary->bytes_up > 0 && summary->bytes_down > 0);
        bytes_up += summary->bytes_up;
        bytes_down += summary->bytes_down;
    }
    /* Each round has its own bytes: together no more than all that travelled. */
    assert_true(bytes_up <= fed_status(&fed).bytes_up);
    assert_true(bytes_down <= fed_status(&fed).bytes_down);
}

/* Each round has its own part of the workers' time: together all of it. */
static void rounds_share_the_workers_time(void **state)
{
    (void)state;
    double validate = 0.0, journal = 0.0, sum = 0.0;
    fed_init(&fed, "engine-test", FOUR_OF_FOUR);
    fed_open(&fed);
    fed_join_all(&fed, 4);
    finish();
    assert_int_equal(fed.num_summaries, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const fedge_round_summary *summary = &fed.summaries[i];
        assert_true(summary->seconds_validate > 0.0 && summary->seconds_journal > 0.0 &&
                    summary->seconds_sum > 0.0);
        validate += summary->seconds_validate;
        journal += summary->seconds_journal;
        sum += summary->seconds_sum;
    }
    const fedge_run_status all = fed_status(&fed);
    assert_true(fabs(validate - all.seconds_validate) < 1e-12);
    assert_true(fabs(journal - all.seconds_journal) < 1e-12);
    assert_true(fabs(sum - all.seconds_sum) < 1e-12);
}

/* ---- results that come twice, late or from the wrong one ------------------------------------- */

static void a_result_counts_once(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FOUR, 4);
    fed_device *device = &fed.devices[0];
    wake_up(device);
    fed_settle(&fed);
    assert_int_equal(device->num_acks, 1);
    assert_false(device->ack.duplicate);
    fed_announce(device);
    fed_settle(&fed);
    assert_int_equal(device->num_acks, 2);
    assert_true(device->ack.duplicate);
    assert_int_equal(fed_status(&fed).updates_accepted, 1);

    fed_close(&fed); /* also for an aggregator that has been started anew */
    fed_open(&fed);
    fed_join_all(&fed, 4);
    fed_settle(&fed);
    fed_announce(device);
    fed_settle(&fed);
    assert_int_equal(device->num_acks, 3);
    assert_true(device->ack.duplicate);
    assert_int_equal(fed_status(&fed).updates_accepted, 0);

    uint64_t task_id = device->result.task_id; /* and in the round after */
    for (uint32_t i = 1; i < 4; i++)
        wake_up(&fed.devices[i]);
    device->idle = true;
    set_idle(4, true);
    for (uint32_t i = 1; i < 4; i++)
        fed.devices[i].idle = false;
    fed_settle(&fed);
    assert_int_equal(fed_status(&fed).rounds_closed, 1);
    assert_int_not_equal(device->task.task_id, task_id);
    assert_int_equal(device->result.task_id, task_id);
    fed_announce(device);
    fed_settle(&fed);
    assert_int_equal(device->num_acks, 4);
    assert_int_equal(device->ack.task_id, task_id);
    assert_true(device->ack.duplicate);

    fed_device *other = &fed.devices[1]; /* whose task it never was */
    uint32_t num_acks = other->num_acks;
    other->result = device->result;
    fed_announce(other);
    fed_settle(&fed);
    assert_int_equal(other->num_acks, num_acks);
    assert_refused(other, FEDGE_REASON_STALE_TASK);
}

static void a_stale_or_foreign_result_is_refused(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FOUR, 4);
    fed_device *device = &fed.devices[0];
    fed_make_result(device);
    fedge_upload good = device->result;

    device->result.task_id = 999;
    fed_announce(device);
    fed_settle(&fed);
    assert_refused(device, FEDGE_REASON_STALE_TASK);
    assert_int_equal(device->refused_task, 999);

    device->result = good;
    device->result.task_id = fed.devices[1].task.task_id;
    fed_announce(device);
    fed_settle(&fed);
    assert_refused(device, FEDGE_REASON_STALE_TASK);

    device->result = good;
    device->result.run_id[0] = device->result.run_id[0] == 'a' ? 'b' : 'a';
    fed_announce(device);
    fed_settle(&fed);
    assert_refused(device, FEDGE_REASON_STALE_RUN);

    device->result = good;
    device->result.incarnation++;
    fed_announce(device);
    fed_settle(&fed);
    assert_refused(device, FEDGE_REASON_STALE_INCARNATION);

    assert_int_equal(device->num_refusals, 4);
    assert_int_equal(device->num_resumes, 0);
    assert_non_null(device->conn);
    device->result = good; /* nothing of that has cost it its task */
    device->has_result = true;
    device->announced = false;
    set_idle(4, false);
    for (uint32_t i = 1; i < 4; i++)
        wake_up(&fed.devices[i]);
    finish();
    assert_int_equal(fed.summaries[0].reported, 4);
}

static void a_restored_backup_refuses_what_was_before(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FOUR, 4);
    fed_device *device = &fed.devices[0];
    fed_make_result(device);
    fed_close(&fed);
    fed.restored = true;
    fed_open(&fed);
    fed_join_all(&fed, 4);
    fed_settle(&fed);
    assert_true(device->welcome.incarnation > 1);
    fed_announce(device);
    fed_settle(&fed);
    assert_refused(device, FEDGE_REASON_STALE_INCARNATION);
    set_idle(4, false);
    for (uint32_t i = 0; i < 4; i++)
        fed_make_result(&fed.devices[i]);
    finish();
    assert_int_equal(fed_status(&fed).rounds_closed, 3);
}

/* ---- damaged and wrong results --------------------------------------------------------------- */

/* Is it asked only where there are no others, until it connects anew? */
static bool is_asked_last(const fed_device *device)
{
    return fedge_rounds_not_before(fed.engine->rounds, device->index) == UINT64_MAX;
}

static void a_damaged_result_is_asked_for_again_then_given_away(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FIVE, 5);
    fed_device *device = asked_device(5);
    fed_device *other = free_device(5);
    wake_up(device);
    device->bytes[5] ^= 1;
    for (uint32_t i = 1; i <= 3; i++) {
        while (device->num_refusals < i)
            fed_step(&fed);
        assert_refused(device, FEDGE_REASON_BAD_DATA);
        device->idle = i == 3;
    }
    fed_settle(&fed);
    assert_int_equal(other->num_tasks, 1);
    assert_true(is_asked_last(device));
    fed_announce(device); /* a fourth time: no longer its task */
    fed_settle(&fed);
    assert_refused(device, FEDGE_REASON_STALE_TASK);
    assert_int_equal(device->num_acks, 0);
}

static void a_damaged_result_that_comes_whole_counts(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FIVE, 5);
    fed_device *device = asked_device(5);
    wake_up(device);
    device->bytes[5] ^= 1;
    while (device->num_refusals < 2)
        fed_step(&fed);
    device->bytes[5] ^= 1;
    fed_settle(&fed);
    assert_int_equal(device->num_acks, 1);
    assert_int_equal(free_device(5)->num_tasks, 0);
    assert_false(is_asked_last(device));
}

/* A result that no repetition can mend costs the task. */
static void assert_worthless(fedge_reason reason, void (*spoil)(fed_device *device))
{
    begin_idle(FOUR_OF_FIVE, 5);
    fed_device *device = asked_device(5);
    fed_device *other = free_device(5);
    wake_up(device);
    spoil(device);
    fed_settle(&fed);
    assert_refused(device, reason);
    assert_int_equal(device->num_refusals, 1);
    assert_int_equal(device->num_acks, 0);
    assert_int_equal(other->num_tasks, 1);
    assert_int_equal(fed_status(&fed).updates_refused, 1);
    assert_true(is_asked_last(device));
    fed_fini(&fed);
}

static void put_values(fed_device *device, float value)
{
    memcpy(device->bytes + 8, &value, sizeof(value));
    device->result.crc32 = fedge_crc32(0, device->bytes, sizeof(device->bytes));
}

static void spoil_nan(fed_device *device)
{
    put_values(device, NAN);
}

static void spoil_infinity(fed_device *device)
{
    put_values(device, -INFINITY);
}

static void spoil_bound(fed_device *device)
{
    put_values(device, 4.0000005f); /* the bound is 2² */
}

static void spoil_examples(fed_device *device)
{
    device->result.num_examples = 0;
}

static void spoil_size(fed_device *device)
{
    device->result.size = device->result.sections[0].size = 60;
}

static void spoil_big(fed_device *device)
{
    device->result.size = device->result.sections[0].size = (uint64_t)1 << 40;
}

static void spoil_name(fed_device *device)
{
    device->result.sections[0].name[0] = 'x';
}

static void spoil_codec(fed_device *device)
{
    device->result.sections[0].codec = INT8;
}

static void spoil_deflate(fed_device *device)
{
    device->result.sections[0].deflate = true;
    device->result.size = device->result.sections[0].size = 20;
}

static void worthless_results_are_refused(void **state)
{
    (void)state;
    assert_worthless(FEDGE_REASON_BAD_VALUE, spoil_nan);
    assert_worthless(FEDGE_REASON_BAD_VALUE, spoil_infinity);
    assert_worthless(FEDGE_REASON_BAD_VALUE, spoil_bound);
    assert_worthless(FEDGE_REASON_BAD_VALUE, spoil_examples);
    assert_worthless(FEDGE_REASON_SCHEMA_MISMATCH, spoil_size);
    assert_worthless(FEDGE_REASON_TOO_BIG, spoil_big);
    assert_worthless(FEDGE_REASON_SCHEMA_MISMATCH, spoil_name);
    assert_worthless(FEDGE_REASON_SCHEMA_MISMATCH, spoil_codec);
    assert_worthless(FEDGE_REASON_SCHEMA_MISMATCH, spoil_deflate);
    begin_idle(FOUR_OF_FIVE, 5);
}

/* A result from a time when its task's id was used for something else: it is stale, the client does
 * what it was asked for, and nobody loses a slot. */
static void a_result_of_another_kind_is_stale(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FOUR, 4);
    fed_device *device = &fed.devices[0];
    for (uint32_t i = 1; i <= 2; i++) {
        device->task.kind = FEDGE_TASK_EVALUATE;
        fed_make_result(device);
        fed_announce(device);
        fed_settle(&fed);
        assert_int_equal(device->refusal, FEDGE_REASON_STALE_TASK);
        assert_int_equal(device->num_refusals, i);
        assert_int_equal(device->num_tasks, 1 + i); /* the same again */
        assert_int_equal(device->task.kind, FEDGE_TASK_TRAIN);
        assert_non_null(device->conn);
    }
    set_idle(4, false);
    for (uint32_t i = 0; i < 4; i++)
        wake_up(&fed.devices[i]);
    finish();
    assert_int_equal(fed.summaries[0].reported, 4);
    assert_int_equal(fed.summaries[0].attempt, 0);
}

static void who_only_sends_another_kind_loses_its_task(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FIVE, 5);
    fed_device *device = asked_device(5), *other = free_device(5);
    while (!is_asked(other->index)) {
        assert_true(device->num_refusals < 3);
        device->task.kind = FEDGE_TASK_EVALUATE;
        fed_make_result(device);
        fed_announce(device);
        fed_settle(&fed);
    }
    assert_int_equal(device->num_refusals, 3);
    assert_int_equal(device->num_tasks, 3);
}

static bool has_closed_a_round(const federation *of)
{
    return of->num_summaries > 0;
}

/* A task that a buffer carries over is open between rounds, when there are no slots: an update for
 * it waits for the next round, and nothing else does. */
static void another_kind_between_rounds_is_stale(void **state)
{
    (void)state;
    fed_init_strategy(&fed, "engine-test", "\"num-server-rounds\":2,\"min-available-nodes\":2",
                      "\"type\":\"FedAsync\"");
    fed_open(&fed);
    set_idle(2, true);
    fed_join_all(&fed, 2);
    fed_settle(&fed);
    fed_device *quick = &fed.devices[0], *slow = &fed.devices[1];
    fed_make_result(quick);
    fed_announce(quick);
    fed_settle(&fed);
    while (quick->sending)
        fed_send_part(quick);
    fed_leave(&fed, 0); /* so that the next round waits for it */
    fed_until(&fed, has_closed_a_round, "a round");
    slow->task.kind = FEDGE_TASK_EVALUATE;
    fed_make_result(slow);
    fed_announce(slow);
    fed_settle(&fed);
    assert_refused(slow, FEDGE_REASON_STALE_TASK);
    assert_int_equal(slow->num_tasks, 1);
    assert_non_null(slow->conn);
    slow->task.kind = FEDGE_TASK_TRAIN;
    wake_up(slow);
    fed_settle(&fed);
    assert_int_equal(slow->num_refusals, 1);
    assert_int_equal(slow->num_acks, 0);
    fed_join(&fed, 0);
    finish();
    assert_int_equal(slow->num_acks, 1);
    assert_int_equal(fed.summaries[1].reported, 1);
}

/* What comes behind its end would be written over the next slot. */
static void a_part_beyond_the_end_ends_the_connection(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FOUR, 4);
    fed_device *device = &fed.devices[0];
    static const uint8_t much[sizeof(device->bytes)];
    char meta[64];
    fed_make_result(device);
    fed_announce(device);
    fed_send_part(device);
    fed_settle(&fed);
    snprintf(meta, sizeof(meta), "{\"task-id\":%llu,\"offset\":%d}",
             (unsigned long long)device->task.task_id, FED_PART_SIZE);
    fed_send(device, FEDGE_MESSAGE_PART, meta, much, sizeof(much) - FED_PART_SIZE + 1);
    fed_settle(&fed);
    assert_int_equal(device->farewell, FEDGE_REASON_BAD_STATE);
    assert_int_equal(device->num_acks, 0);
}

static void a_part_out_of_place_ends_the_connection(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FOUR, 4);
    fed_device *device = &fed.devices[0];
    fed_make_result(device);
    fed_announce(device);
    fed_settle(&fed);
    device->offset = 24;
    fed_send_part(device);
    fed_settle(&fed);
    assert_int_equal(device->farewell, FEDGE_REASON_BAD_STATE);
    assert_null(device->conn);
    fed_join(&fed, 0); /* its task is still its own */
    set_idle(4, false);
    for (uint32_t i = 1; i < 4; i++)
        wake_up(&fed.devices[i]);
    finish();
    assert_int_equal(fed.summaries[0].reported, 4);
}

static void wild_metrics_do_no_harm(void **state)
{
    (void)state;
    begin_idle("\"num-server-rounds\":1,\"min-train-nodes\":4,\"min-available-nodes\":4", 4);
    for (uint32_t i = 0; i < 4; i++) {
        wake_up(&fed.devices[i]);
        fed.devices[i].result.metrics[0].value = 1e308;
        snprintf(fed.devices[i].result.metrics[1].name, FEDGE_MAX_NAME, "clamped");
        fed.devices[i].result.metrics[1].value = 1e308;
        fed.devices[i].result.num_examples = ((uint64_t)1 << 53) - 1;
    }
    finish();
    assert_int_equal(fed.summaries[0].clamped, 4 * FED_ELEMENTS);
}

/* ---- devices that come, go and decline ------------------------------------------------------- */

static void an_upload_goes_on_where_it_stopped(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FOUR, 4);
    fed_device *device = &fed.devices[0];
    fed_make_result(device);
    fed_announce(device);
    fed_settle(&fed);
    fed_send_part(device);
    fed_leave(&fed, 0);
    fed_settle(&fed);
    fed_join(&fed, 0);
    fed_settle(&fed);
    fed_announce(device);
    fed_settle(&fed);
    assert_int_equal(device->resumed_at, FED_PART_SIZE);
    device->result.crc32 ^= 1; /* another result: from the start */
    fed_announce(device);
    fed_settle(&fed);
    assert_int_equal(device->resumed_at, 0);
    device->result.crc32 ^= 1;
    device->announced = false;
    wake_up(device);
    fed_settle(&fed);
    assert_int_equal(device->num_acks, 1);
}

static void a_declined_task_goes_to_another(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FIVE, 5);
    fed_device *device = asked_device(5);
    fed_device *other = free_device(5);
    fed_decline(device, true);
    fed_settle(&fed);
    assert_int_equal(other->num_tasks, 1);
    for (uint32_t i = 0; i < 5; i++) {
        if (&fed.devices[i] != device)
            wake_up(&fed.devices[i]);
    }
    finish();
    assert_int_equal(fed.summaries[0].reported, 4);
}

static void who_declines_the_plan_gives_its_task_back(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FIVE, 5);
    fed_device *other = free_device(5);
    fed_decline(asked_device(5), false);
    fed_settle(&fed);
    assert_int_equal(other->num_tasks, 1);
}

/* The plan is declined at once, while the round's journal is still being made. */
static void a_plan_is_declined_while_the_round_opens(void **state)
{
    (void)state;
    fed_init(&fed, "engine-test", FOUR_OF_FIVE);
    fed_open(&fed);
    set_idle(FED_DEVICES, true);
    fed_join_all(&fed, 5);
    assert_memory_equal(fed_status(&fed).state, "opening", 7);
    fed_decline(&fed.devices[0], false);
    fed_decline(&fed.devices[1], false);
    fed_settle(&fed);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(fed.devices[i].num_tasks, i < 2 ? 0 : 1);
    for (uint32_t i = 2; i < 5; i++)
        wake_up(&fed.devices[i]);
    fed_settle(&fed);
    assert_int_equal(fed_status(&fed).updates_accepted, 3);
}

static void a_revoked_device_gives_its_task_back(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FIVE, 5);
    fed_device *other = free_device(5);
    fed_end_conn(asked_device(5), FEDGE_REASON_REVOKED);
    fed_settle(&fed);
    assert_int_equal(other->num_tasks, 1);
}

static void the_newer_connection_of_a_device_stays(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FOUR, 4);
    fed_device *device = &fed.devices[0];
    fed_device *older = &fed.devices[5]; /* takes over the first connection's end */
    fedge_conn *first = device->conn;
    device->conn = NULL;
    older->conn = first;
    fed_join(&fed, 0);
    assert_int_equal(fed_status(&fed).connected, 4);
    fed_settle(&fed);
    assert_int_equal(older->num_tasks + device->num_tasks, 2);
    assert_null(older->conn);
    assert_non_null(device->conn);
    assert_int_equal(fed_status(&fed).connected, 4);
    assert_int_equal(device->num_tasks, 2); /* the same again */
}

/* On its way through another rank, whose connection the device had left by then. The newer one is
 * lost, but not for long, and nothing counts twice. */
static void a_hello_is_overtaken_by_a_newer_one(void **state)
{
    (void)state;
    begin_idle(FOUR_OF_FOUR, 4);
    fed_device *device = &fed.devices[0];
    fed_device *newer = &fed.devices[5]; /* takes over that connection's end */
    wake_up(device);
    fed_settle(&fed);
    assert_int_equal(device->num_acks, 1);
    newer->conn = device->conn;
    device->conn = NULL;
    fed_join(&fed, 0); /* the older, late */
    fed_settle(&fed);
    assert_int_equal(newer->farewell, FEDGE_REASON_REPLACED);
    assert_null(newer->conn);
    fed_leave(&fed, 0); /* as it had long ago */
    fed_settle(&fed);
    assert_int_equal(fed_status(&fed).connected, 3);
    fed_join(&fed, 0); /* whoever was told so comes again */
    fed_announce(device);
    fed_settle(&fed);
    assert_int_equal(fed_status(&fed).connected, 4);
    assert_int_equal(device->num_acks, 2);
    assert_true(device->ack.duplicate);
    assert_int_equal(fed_status(&fed).updates_accepted, 1);
}

static void the_deadline_closes_with_enough_reports(void **state)
{
    (void)state;
    begin_idle("\"num-server-rounds\":1,\"min-train-nodes\":4,\"min-available-nodes\":4,"
               "\"round-deadline-s\":10,\"min-report-fraction\":0.5",
               4);
    wake_up(&fed.devices[0]);
    fed_settle(&fed);
    fed.now_ms += 10001;
    fed_settle(&fed); /* one of four: the round is tried again */
    assert_int_equal(fed_status(&fed).rounds_closed, 0);
    assert_int_equal(fed.devices[1].num_cancels, 1);
    assert_int_equal(fed.devices[0].num_tasks, 2);
    fed_make_result(&fed.devices[0]);
    wake_up(&fed.devices[2]);
    fed_settle(&fed);
    fed.now_ms += 10001;
    finish();
    assert_int_equal(fed.summaries[0].reported, 2);
    assert_int_equal(fed.summaries[0].attempt, 1);
}

/* Memory must not grow with the rounds that a slow reader has slept through. */
static void a_download_ends_with_its_model(void **state)
{
    (void)state;
    begin_idle("\"num-server-rounds\":2,\"fraction-train\":0.8,\"min-train-nodes\":2,"
               "\"min-available-nodes\":5",
               5);
    fed_device *reader = free_device(5);
    fed_fetch(reader, asked_device(5)->task.model, 0);
    reader->deaf = true;
    for (uint32_t i = 0; i < 5; i++) {
        if (&fed.devices[i] != reader)
            wake_up(&fed.devices[i]);
    }
    while (fed_status(&fed).rounds_closed == 0)
        fed_step(&fed);
    set_idle(5, true);
    reader->deaf = false;
    fed_settle(&fed);
    assert_int_equal(reader->fetched, 0);
    assert_int_equal(reader->farewell, FEDGE_REASON_STALE_TASK);
    assert_non_null(reader->conn);
}

static void status_is_json(void **state)
{
    (void)state;
    fedge_error err;
    fedge_run_status status = {.rounds_closed = 10,
                               .accuracy = 0.875,
                               .loss = NAN,
                               .bytes_up = 1,
                               .bytes_down = 2,
                               .run_bytes_up = 3979632,
                               .run_bytes_down = (uint64_t)1 << 40,
                               .seconds = 12.25,
                               .model_hash = "ab12",
                               .run_dir = "a \"quoted\"\\ folder"};
    char *json = NULL;
    assert_int_equal(fedge_engine_status_json(&status, &json, &err), FEDGE_OK);
    assert_string_equal(json,
                        "{\"rounds\":10,\"accuracy\":0.875,\"loss\":null,\"bytes_up\":3979632,"
                        "\"bytes_down\":1099511627776,\"seconds\":12.25,"
                        "\"model_sha256\":\"ab12\",\"run_dir\":\"a \\\"quoted\\\"\\\\ folder\"}");
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_is_json),
        cmocka_unit_test_teardown(a_device_fetches_the_model_and_the_plan, tear_down),
        cmocka_unit_test_teardown(a_round_tells_what_its_devices_said, tear_down),
        cmocka_unit_test_teardown(rounds_share_the_workers_time, tear_down),
        cmocka_unit_test_teardown(a_result_counts_once, tear_down),
        cmocka_unit_test_teardown(a_stale_or_foreign_result_is_refused, tear_down),
        cmocka_unit_test_teardown(a_restored_backup_refuses_what_was_before, tear_down),
        cmocka_unit_test_teardown(a_damaged_result_is_asked_for_again_then_given_away, tear_down),
        cmocka_unit_test_teardown(a_damaged_result_that_comes_whole_counts, tear_down),
        cmocka_unit_test_teardown(worthless_results_are_refused, tear_down),
        cmocka_unit_test_teardown(a_result_of_another_kind_is_stale, tear_down),
        cmocka_unit_test_teardown(who_only_sends_another_kind_loses_its_task, tear_down),
        cmocka_unit_test_teardown(another_kind_between_rounds_is_stale, tear_down),
        cmocka_unit_test_teardown(a_part_beyond_the_end_ends_the_connection, tear_down),
        cmocka_unit_test_teardown(a_part_out_of_place_ends_the_connection, tear_down),
        cmocka_unit_test_teardown(wild_metrics_do_no_harm, tear_down),
        cmocka_unit_test_teardown(an_upload_goes_on_where_it_stopped, tear_down),
        cmocka_unit_test_teardown(a_declined_task_goes_to_another, tear_down),
        cmocka_unit_test_teardown(who_declines_the_plan_gives_its_task_back, tear_down),
        cmocka_unit_test_teardown(a_plan_is_declined_while_the_round_opens, tear_down),
        cmocka_unit_test_teardown(a_revoked_device_gives_its_task_back, tear_down),
        cmocka_unit_test_teardown(the_newer_connection_of_a_device_stays, tear_down),
        cmocka_unit_test_teardown(a_hello_is_overtaken_by_a_newer_one, tear_down),
        cmocka_unit_test_teardown(the_deadline_closes_with_enough_reports, tear_down),
        cmocka_unit_test_teardown(a_download_ends_with_its_model, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The life of a run: its rounds, its end, and every way of going on. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/run/engine_state.h"
#include "edge/core/os.h"
#include "tests/aggregator/misuse.h"
#include "tests/aggregator/run/federation.h"

#define FOUR_OF_FOUR "\"num-server-rounds\":3,\"min-train-nodes\":4,\"min-available-nodes\":4"

static federation fed;

static int tear_down(void **state)
{
    (void)state;
    fed_fini(&fed);
    return 0;
}

static void begin(const char *rounds, uint32_t num_devices)
{
    fed_init(&fed, "engine-life-test", rounds);
    fed_open(&fed);
    fed_join_all(&fed, num_devices);
}

static void finish(void)
{
    fedge_error failure;
    fed_finish(&fed, &failure);
    assert_string_equal(failure.status == FEDGE_OK ? "" : failure.message, "");
}

static bool evaluates(const federation *it)
{
    return it->num_summaries == 1 && it->devices[0].task.kind == FEDGE_TASK_EVALUATE &&
           it->devices[0].task.task_id != 0;
}

static void run_to_end(uint32_t num_workers, uint32_t turn, char hash[FEDGE_HASH_TEXT])
{
    fed_init(&fed, "engine-life-test", FOUR_OF_FOUR);
    fed.num_workers = num_workers;
    fed.turn = turn;
    fed_open(&fed);
    fed_join_all(&fed, 4);
    finish();
    fedge_run_status status = fed_status(&fed);
    assert_int_equal(status.rounds_closed, 3);
    assert_int_equal(status.updates_accepted, 12);
    assert_int_equal(status.updates_refused, 0);
    memcpy(hash, status.model_hash, FEDGE_HASH_TEXT);
}

static void the_model_depends_on_the_updates_alone(void **state)
{
    (void)state;
    char first[FEDGE_HASH_TEXT], hash[FEDGE_HASH_TEXT];
    run_to_end(1, 0, first);
    const uint32_t workers[] = {1, 2, 3, 5, 4};
    for (uint32_t i = 0; i < 5; i++) {
        fed_fini(&fed);
        run_to_end(workers[i], i + 1, hash);
        assert_string_equal(hash, first);
    }
    for (uint32_t i = 0; i < 3; i++) {
        const fedge_round_summary *summary = &fed.summaries[i];
        assert_int_equal(summary->round, i + 1);
        assert_int_equal(summary->reported, 4);
        assert_int_equal(summary->examples, 10 + 17 + 24 + 31);
    }
    assert_string_equal(fed.summaries[2].model, first);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(fed.devices[i].num_acks, 3);
        assert_int_equal(fed.devices[i].farewell, FEDGE_REASON_RUN_COMPLETE);
    }
    fedge_error err;
    assert_int_equal(fedge_engine_export(fed.engine, &err), FEDGE_OK);
}

static void a_finished_run_stays_finished(void **state)
{
    (void)state;
    char hash[FEDGE_HASH_TEXT];
    fedge_error err;
    run_to_end(2, 0, hash);
    assert_int_equal(fedge_engine_export(fed.engine, &err), FEDGE_OK);
    assert_int_equal(fedge_engine_conclude(fed.engine, &err), FEDGE_OK);
    fed_close(&fed);
    fed_open(&fed); /* another run of the same job */
    assert_int_equal(fed_status(&fed).rounds_closed, 0);
}

/* The end of a run that was cut off at [end]: before its results were there, after that, and, of an
 * older release or a careless hand, when it was finished without them. */
static void cut_off_end(uint32_t end)
{
    char hash[FEDGE_HASH_TEXT], picture[FEDGE_MAX_PATH];
    fedge_error err;
    run_to_end(2, 0, hash);
    fedge_run_status before = fed_status(&fed), after;
    assert_true(before.complete && before.run_bytes_up > 3 * 4 * 64);
    if (end > 0)
        assert_int_equal(fedge_engine_export(fed.engine, &err), FEDGE_OK);
    snprintf(picture, sizeof(picture), "%.400s/rounds.svg", before.run_dir);
    if (end == 2) {
        assert_int_equal(fedge_engine_conclude(fed.engine, &err), FEDGE_OK);
        assert_int_equal(fedge_os_remove(picture, &err), FEDGE_OK);
    }
    fed_close(&fed);
    fed_open(&fed);
    finish(); /* nobody is asked for anything */
    after = fed_status(&fed);
    assert_string_equal(after.run_id, before.run_id);
    assert_string_equal(after.model_hash, hash);
    assert_true(after.complete && after.rounds_closed == 3);
    assert_int_equal(after.run_bytes_up, before.run_bytes_up);
    assert_int_equal(after.run_bytes_down, before.run_bytes_down);
    assert_int_equal(fedge_engine_export(fed.engine, &err), FEDGE_OK);
    assert_true(fedge_os_exists(picture));
    assert_int_equal(fedge_engine_conclude(fed.engine, &err), FEDGE_OK);
    fed_close(&fed);
    fed_open(&fed);
    assert_string_not_equal(fed_status(&fed).run_id, before.run_id);
}

static void the_end_of_a_run_is_cut_off(void **state)
{
    (void)state;
    for (uint32_t end = 0; end < 3; end++) {
        cut_off_end(end);
        fed_fini(&fed);
    }
    fed_init(&fed, "engine-life-test", FOUR_OF_FOUR);
}

static void a_cut_off_evaluation_is_repeated(void **state)
{
    (void)state;
    fed_init(&fed, "engine-life-test",
             "\"num-server-rounds\":1,\"min-train-nodes\":4,\"min-evaluate-nodes\":4,"
             "\"min-available-nodes\":4,\"fraction-evaluate\":1.0");
    fed_open(&fed);
    fed_join_all(&fed, 4);
    fed_until(&fed, evaluates, "the evaluation");
    for (uint32_t life = 0; life < 3; life++) {
        if (life == 1) {
            fedge_engine_drain(fed.engine, fed.now_ms); /* it is not what makes a run complete */
            finish();
        }
        assert_false(fed_status(&fed).complete);
        fed_close(&fed);
        fed_open(&fed);
    }
    fed_join_all(&fed, 4);
    finish();
    assert_true(fed_status(&fed).complete);
    assert_int_equal(fed.num_summaries, 2);
    assert_int_equal(fed.summaries[0].kind, FEDGE_TASK_TRAIN);
    assert_int_equal(fed.summaries[1].kind, FEDGE_TASK_EVALUATE);
    assert_int_equal(fed.summaries[1].round, 1);
    assert_int_equal(fed.summaries[1].reported, 4);
    fed_close(&fed);
    fed_open(&fed); /* its line is there: not once more */
    finish();
    assert_int_equal(fed.num_summaries, 2);
}

static bool has_evaluated(const federation *it)
{
    return it->num_summaries == 2;
}

/* One bit of the middle of a file; of its last line, when [last_line]. */
static void damage(const char *path, bool last_line)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    fedge_error err;
    assert_int_equal(fedge_os_read_file(path, 1 << 20, &bytes, &size, &err), FEDGE_OK);
    bytes[last_line ? size - 20 : size / 2] ^= 1;
    assert_int_equal(fedge_os_write_file(path, bytes, size, 0600, &err), FEDGE_OK);
    free(bytes);
}

/* Round 2 is open, with three of its updates, when the evaluation of round 1 is lost with what else
 * was in that file: the round goes on, at the first start. */
static void an_open_round_goes_on_without_the_evaluation_before_it(void **state)
{
    (void)state;
    char path[FEDGE_MAX_PATH], model[FEDGE_HASH_TEXT] = "";
    for (uint32_t what = 0; what < 3; what++) { /* nothing is damaged, the line, the checkpoint */
        begin("\"num-server-rounds\":2,\"min-train-nodes\":4,\"min-evaluate-nodes\":4,"
              "\"min-available-nodes\":4,\"fraction-evaluate\":1.0",
              4);
        fed_until(&fed, has_evaluated, "the end of the evaluation");
        fed.devices[3].idle = true;
        fed.devices[3].has_result = false;
        fed_settle(&fed);
        const fedge_run_status before = fed_status(&fed);
        assert_non_null(strstr(before.state, "round 2, training: 3 of 4 reported"));
        fed_close(&fed);
        snprintf(path, sizeof(path), "%.900s/%s", before.run_dir,
                 what == 1 ? "rounds.jsonl" : "checkpoints/round-000001/model.safetensors");
        if (what > 0)
            damage(path, what == 1);
        fed_open(&fed);
        const fedge_run_status after = fed_status(&fed);
        assert_non_null(strstr(after.state, "round 2, training: 3 of 4 reported"));
        assert_string_equal(after.model_hash, before.model_hash);
        fed.devices[3].idle = false;
        fed_join_all(&fed, 4);
        finish();
        assert_int_equal(fed.num_summaries, 4);
        assert_int_equal(fed.summaries[2].reported, 4);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(fed.devices[i].num_asked_again, 0);
        if (what == 0)
            memcpy(model, fed_status(&fed).model_hash, sizeof(model));
        assert_string_equal(fed_status(&fed).model_hash, model);
        if (what < 2)
            fed_fini(&fed);
    }
}

static void expect_bytes_after_a_crash(uint64_t up, uint64_t down)
{
    fed_close(&fed);
    fed_open(&fed);
    assert_int_equal(fed_status(&fed).run_bytes_up, up);
    assert_int_equal(fed_status(&fed).run_bytes_down, down);
}

static void an_evaluations_bytes_outlive_the_process(void **state)
{
    (void)state;
    begin("\"num-server-rounds\":2,\"min-train-nodes\":4,\"min-evaluate-nodes\":4,"
          "\"min-available-nodes\":4,\"fraction-evaluate\":1.0",
          4);
    fed_until(&fed, has_evaluated, "the end of the evaluation");
    const fedge_round_summary *of = fed.summaries;
    assert_int_equal(of[1].kind, FEDGE_TASK_EVALUATE);
    assert_true(of[1].bytes_up > 0 && of[1].bytes_down > 0);
    expect_bytes_after_a_crash(of[0].bytes_up + of[1].bytes_up,
                               of[0].bytes_down + of[1].bytes_down);
    fed_join_all(&fed, 4);
    finish();
    assert_int_equal(fed.num_summaries, 4);
    uint64_t up = 0, down = 0;
    for (uint32_t i = 0; i < 4; i++) {
        up += of[i].bytes_up;
        down += of[i].bytes_down;
    }
    expect_bytes_after_a_crash(up, down); /* after the last phase, before the run is concluded */
}

static void evaluation_follows_training(void **state)
{
    (void)state;
    begin("\"num-server-rounds\":2,\"min-train-nodes\":4,\"min-evaluate-nodes\":4,"
          "\"min-available-nodes\":4,\"fraction-evaluate\":1.0",
          4);
    finish();
    assert_int_equal(fed.num_summaries, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(fed.summaries[i].kind, i % 2 ? FEDGE_TASK_EVALUATE : FEDGE_TASK_TRAIN);
        assert_int_equal(fed.summaries[i].round, i / 2 + 1);
        assert_int_equal(fed.summaries[i].reported, 4);
    }
    double loss = (1.0 * 10 + 2.0 * 17 + 3.0 * 24 + 4.0 * 31) / (10 + 17 + 24 + 31);
    assert_true(fabs(fed.summaries[1].loss - loss) < 1e-12);
    assert_true(fabs(fed.summaries[1].accuracy - 0.5) < 1e-12);
}

static void drain_as_another_thread(void *user)
{
    (void)user;
    memset(&fed.engine->owner, 0, sizeof(fed.engine->owner)); /* no thread that runs */
    fedge_engine_drain(fed.engine, fed.now_ms);
}

static void the_engine_is_one_threads(void **state)
{
    (void)state;
    begin(FOUR_OF_FOUR, 4);
    fed_settle(&fed); /* no thread of the engine holds a lock at the fork */
    assert_misuse(drain_as_another_thread, NULL);
}

static void a_drained_run_goes_on_later(void **state)
{
    (void)state;
    begin(FOUR_OF_FOUR, 4);
    fed_step(&fed);
    fedge_engine_drain(fed.engine, fed.now_ms);
    finish();
    uint32_t closed = fed_status(&fed).rounds_closed;
    assert_true(closed <= 1);
    assert_int_equal(fed.devices[0].farewell, FEDGE_REASON_SHUTTING_DOWN);
    fed_close(&fed);
    fed_open(&fed);
    assert_int_equal(fed_status(&fed).rounds_closed, closed);
    fed_join_all(&fed, 4);
    finish();
    assert_int_equal(fed_status(&fed).rounds_closed, 3);
}

static bool has_failed(const federation *it)
{
    return strstr(fed_status(it).state, "attempt 2 of round 1") != NULL;
}

/* The only device declines the plan, or its task, and goes; mended, it is asked again at once. */
static void a_device_that_declined_is_asked_when_it_comes_anew(void **state)
{
    (void)state;
    for (uint32_t task = 0; task < 2; task++) {
        begin("\"num-server-rounds\":2,\"min-train-nodes\":1,\"min-available-nodes\":1", 0);
        fed.devices[0].idle = true;
        fed_join(&fed, 0);
        if (task)
            fed_settle(&fed);
        fed_decline(&fed.devices[0], task);
        fed_until(&fed, has_failed, "the end of the attempt");
        fed_leave(&fed, 0);
        const fedge_run_status status = fed_status(&fed);
        assert_non_null(strstr(status.state, "waiting for nodes: 0 of 1 connected"));
        assert_non_null(strstr(status.state, "client 0"));
        assert_non_null(strstr(status.state, "(client 0: policy: not here)"));
        fed_join(&fed, 0); /* mended, it takes its task; what it said before counts no more */
        fed_settle(&fed);
        fed_leave(&fed, 0);
        const fedge_run_status away = fed_status(&fed);
        assert_non_null(strstr(away.state, "not connected: client 0"));
        assert_null(strstr(away.state, "policy"));
        fed.devices[0].idle = false;
        fed_join(&fed, 0);
        finish();
        assert_true(fed_status(&fed).complete);
        assert_int_equal(fed.summaries[0].attempt, 1);
        assert_int_equal(fed.summaries[1].attempt, 0);
        fed_fini(&fed);
    }
    fed_init(&fed, "engine-life-test", FOUR_OF_FOUR);
}

/* Two are needed, and both decline before there is a round. */
static void a_round_that_all_have_declined_says_so_and_ends(void **state)
{
    (void)state;
    begin("\"num-server-rounds\":1,\"min-train-nodes\":2,\"min-available-nodes\":2,"
          "\"round-deadline-s\":5",
          0);
    for (uint32_t i = 0; i < 2; i++) {
        fed_join(&fed, i);
        fed_settle(&fed);
        fed_decline(&fed.devices[i], false);
        fed_settle(&fed);
    }
    assert_string_equal(fed_status(&fed).state,
                        "waiting for nodes: 0 of 2 connected; declined the job: clients 0, 1 "
                        "(client 1: policy: not here)");
    fed.now_ms += 5000;
    fed_settle(&fed);
    assert_non_null(strstr(fed_status(&fed).state, "declined the job: clients 0, 1"));
    assert_int_equal(fedge_rounds_attempt(fed.engine->rounds), 1);
    fed_join_all(&fed, 2);
    finish();
    assert_int_equal(fed.num_summaries, 1);
    assert_int_equal(fed.summaries[0].attempt, 1);
    assert_int_equal(fed.summaries[0].reported, 2);
}

static void a_failed_attempts_bytes_outlive_the_process(void **state)
{
    (void)state;
    begin("\"num-server-rounds\":1,\"min-train-nodes\":1,\"min-available-nodes\":1", 0);
    fed.devices[0].idle = true;
    fed_join(&fed, 0);
    fed_settle(&fed);
    fed_decline(&fed.devices[0], true);
    fed_until(&fed, has_failed, "the end of the attempt");
    const fedge_run_status status = fed_status(&fed);
    assert_true(status.run_bytes_up > 0 && status.run_bytes_down > 0);
    expect_bytes_after_a_crash(status.run_bytes_up, status.run_bytes_down);
}

/* Two gave up, and one of them took the other's slot when it came anew: that, too, is recovered. */
static void a_slot_of_another_is_taken_and_recovered(void **state)
{
    (void)state;
    begin(FOUR_OF_FOUR, 0);
    for (uint32_t i = 0; i < 3; i++)
        fed.devices[i].idle = true;
    fed_join_all(&fed, 4);
    fed_settle(&fed);
    fed_decline(&fed.devices[0], true);
    fed_decline(&fed.devices[1], true);
    fed_settle(&fed);
    fed_join(&fed, 1);
    fed_settle(&fed);
    assert_int_equal(fed.devices[1].num_tasks, 2);
    fed_close(&fed);
    fed_open(&fed);
    for (uint32_t i = 0; i < 3; i++)
        fed.devices[i].idle = false;
    fed_join_all(&fed, 4);
    finish();
    assert_int_equal(fed.summaries[0].attempt, 0);
    assert_int_equal(fed.summaries[0].reported, 4);
}

/* Its results are worthless: refused for good, it is not asked without a pause. */
static void whose_results_are_refused_is_set_aside(void **state)
{
    (void)state;
    begin("\"num-server-rounds\":1,\"min-train-nodes\":1,\"min-available-nodes\":1", 0);
    fed_device *device = &fed.devices[0];
    device->idle = true;
    fed_join(&fed, 0);
    fed_settle(&fed);
    fed_make_result(device);
    device->result.num_examples = 0;
    device->idle = false;
    fed_until(&fed, has_failed, "the end of the attempt");
    fed_settle(&fed);
    assert_int_equal(device->num_tasks, 1);
    assert_int_equal(device->refusal, FEDGE_REASON_BAD_VALUE);
    assert_non_null(strstr(fed_status(&fed).state, "(client 0: bad-value: "));
    fed.now_ms += FEDGE_ROUNDS_RETRY_MS;
    finish();
    assert_int_equal(device->num_tasks, 2);
}

/* Who has a task is away: the drain ends, and the round goes on at the next start. */
static void a_drain_leaves_a_round_open_for_who_is_away(void **state)
{
    (void)state;
    begin(FOUR_OF_FOUR, 0);
    fed.devices[3].idle = true;
    fed_join_all(&fed, 4);
    fed_settle(&fed);
    fed_leave(&fed, 3);
    assert_non_null(
        strstr(fed_status(&fed).state, "3 of 4 reported, 0 at work; not connected: client 3"));
    fedge_engine_drain(fed.engine, fed.now_ms);
    fed_settle(&fed);
    fed.now_ms += FEDGE_ROUNDS_GRACE_MS;
    finish();
    assert_false(fed_status(&fed).complete);
    assert_int_equal(fed.num_summaries, 0);
    fed_close(&fed);
    fed_open(&fed);
    fed.devices[3].idle = false;
    fed_join_all(&fed, 4);
    finish();
    assert_int_equal(fed.summaries[0].attempt, 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(fed.devices[i].num_asked_again, 0); /* what they had reported counts */
}

static void a_round_waits_for_room_on_the_disk(void **state)
{
    (void)state;
    fed_init(&fed, "engine-life-test", FOUR_OF_FOUR);
    fed.job->min_free_disk = (uint64_t)1 << 60;
    fed_open(&fed);
    fed_join_all(&fed, 4);
    fed_settle(&fed);
    assert_non_null(strstr(fed_status(&fed).state, "waiting for room on the disk: the journal of"));
    assert_int_equal(fed.devices[0].num_tasks, 0);
    fed.now_ms += 5000;
    fed_settle(&fed); /* still none */
    assert_non_null(strstr(fed_status(&fed).state, "waiting for room on the disk: the journal of"));
    /* It reads the job, and may be at its second try still. */
    fedge_error err;
    assert_int_equal(fedge_round_finalizer_wait(fed.engine->finalizer, &err), FEDGE_OK);
    fed_settle(&fed); /* what has come of it is known before the time goes on */
    fed.job->min_free_disk = 0;
    fed.now_ms += 5000;
    finish();
    assert_int_equal(fed_status(&fed).rounds_closed, 3);
}

static void a_drain_does_not_wait_for_room(void **state)
{
    (void)state;
    fedge_error failure;
    fed_init(&fed, "engine-life-test", FOUR_OF_FOUR);
    fed.job->min_free_disk = (uint64_t)1 << 60;
    fed_open(&fed);
    fed_join_all(&fed, 4);
    fed_settle(&fed);
    fedge_engine_drain(fed.engine, fed.now_ms);
    fed_finish(&fed, &failure);
    assert_int_equal(failure.status, FEDGE_OK);
    assert_int_equal(fed_status(&fed).rounds_closed, 0);
    fed_close(&fed);
    fed.job->min_free_disk = 0;
    fed_open(&fed);
    fed_join_all(&fed, 4);
    finish();
    assert_int_equal(fed_status(&fed).rounds_closed, 3);
}

/* How long a lost connection may take to be made anew goes by the devices that are registered, not
 * by those that have come, and by the registry as it is when a device connects. */
static void a_device_is_told_when_all_are_back(void **state)
{
    (void)state;
    static const struct {
        uint32_t device, registered, every_us, within_ms;
    } CASES[] = {{5, 10000, 5000, 50000},
                 {0, 10001, 1250, 12501},
                 {3, FED_DEVICES, 5000, 30},
                 {1, FEDGE_REGISTRY_MAX_DEVICES, 5000, FEDGE_MAX_RETURN_WITHIN_MS}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        if (i > 0)
            fed_fini(&fed);
        fed_init(&fed, "engine-life-test", FOUR_OF_FOUR);
        fed.return_every_us = CASES[i].every_us;
        fed_open(&fed);
        fed.num_registered = CASES[i].registered;
        fed_join(&fed, CASES[i].device);
        fed_settle(&fed);
        assert_int_equal(fed.devices[CASES[i].device].welcome.return_within_ms, CASES[i].within_ms);
    }
}

/* The journal of the first round in [dir]. */
static void journal_of(const char *dir, char path[512])
{
    (void)snprintf(path, 512, "%s/round-000001-a0.fj", dir);
}

/* Device 0's update is acknowledged. Then it stands in the folder of a rank that is not there, and
 * not in the journal of rank 0, as if that one's record had been lost. */
static void move_an_update_to_another_rank(void)
{
    char dir[448], mine[512], theirs[512];
    uint8_t *before, *after;
    size_t size;
    fed_init(&fed, "engine-life-test", FOUR_OF_FOUR);
    fed_open(&fed);
    for (uint32_t i = 0; i < 4; i++)
        fed.devices[i].idle = true;
    fed_join_all(&fed, 4);
    fed_settle(&fed);
    const fedge_run_status status = fed_status(&fed);
    (void)snprintf(dir, sizeof(dir), "%.400s/journal", status.run_dir);
    journal_of(dir, mine);
    MUST(fedge_os_read_file(mine, 1 << 20, &before, &size, ERR));
    fed_make_result(&fed.devices[0]);
    fed_announce(&fed.devices[0]);
    fed_settle(&fed);
    while (fed.devices[0].sending)
        fed_send_part(&fed.devices[0]);
    fed_settle(&fed);
    assert_int_equal(fed.devices[0].num_acks, 1);
    fed_close(&fed);
    (void)snprintf(dir, sizeof(dir), "%s/ranks/%s/1", fed.state_dir, status.run_id);
    journal_of(dir, theirs);
    MUST(fedge_os_make_dirs(dir, ERR));
    MUST(fedge_os_read_file(mine, 1 << 20, &after, &size, ERR));
    MUST(fedge_os_write_file(theirs, after, size, 0600, ERR));
    MUST(fedge_os_write_file(mine, before, size, 0600, ERR));
    free(before);
    free(after);
}

/* Also of a backup, which has the folders of all ranks of its disk. */
static void an_update_in_another_ranks_folder_counts(void **state)
{
    (void)state;
    for (int restored = 0; restored < 2; restored++) {
        if (restored == 1)
            fed_fini(&fed);
        move_an_update_to_another_rank();
        fed.restored = restored == 1;
        fed_open(&fed);
        assert_non_null(strstr(fed_status(&fed).state, "1 of 4 reported"));
        fed_close(&fed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_model_depends_on_the_updates_alone, tear_down),
        cmocka_unit_test_teardown(a_finished_run_stays_finished, tear_down),
        cmocka_unit_test_teardown(the_end_of_a_run_is_cut_off, tear_down),
        cmocka_unit_test_teardown(a_cut_off_evaluation_is_repeated, tear_down),
        cmocka_unit_test_teardown(an_open_round_goes_on_without_the_evaluation_before_it,
                                  tear_down),
        cmocka_unit_test_teardown(an_evaluations_bytes_outlive_the_process, tear_down),
        cmocka_unit_test_teardown(a_failed_attempts_bytes_outlive_the_process, tear_down),
        cmocka_unit_test_teardown(evaluation_follows_training, tear_down),
        cmocka_unit_test_teardown(the_engine_is_one_threads, tear_down),
        cmocka_unit_test_teardown(a_drained_run_goes_on_later, tear_down),
        cmocka_unit_test_teardown(a_device_that_declined_is_asked_when_it_comes_anew, tear_down),
        cmocka_unit_test_teardown(a_round_that_all_have_declined_says_so_and_ends, tear_down),
        cmocka_unit_test_teardown(a_slot_of_another_is_taken_and_recovered, tear_down),
        cmocka_unit_test_teardown(whose_results_are_refused_is_set_aside, tear_down),
        cmocka_unit_test_teardown(a_drain_leaves_a_round_open_for_who_is_away, tear_down),
        cmocka_unit_test_teardown(a_round_waits_for_room_on_the_disk, tear_down),
        cmocka_unit_test_teardown(a_drain_does_not_wait_for_room, tear_down),
        cmocka_unit_test_teardown(a_device_is_told_when_all_are_back, tear_down),
        cmocka_unit_test_teardown(an_update_in_another_ranks_folder_counts, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

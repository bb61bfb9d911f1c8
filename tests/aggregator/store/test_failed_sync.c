/* After a sync that failed, a file's bytes are read as they were written, a later sync succeeds,
 * and a power failure takes them all the same. What the next process goes on with has to outlive
 * one. */
#include "tests/aggregator/store/store_fixture.h"

#include <errno.h>

#include "aggregator/store/round_log.h"
#include "tests/world/disk_stub.h"

#define FOLDER WORLD_DISK_ROOT "/journal"
#define LINES WORLD_DISK_ROOT "/rounds.jsonl"

static void fail_call(uint64_t number)
{
    set_faults((world_disk_faults){.fail_at = number, .fail_errno = EIO});
}

static fedge_journal *create_journal(void)
{
    fedge_journal *journal;
    fedge_journal_phase phase = test_phase(1, 0);
    OK(fedge_os_make_dirs(FOLDER, NULL));
    OK(test_create(FOLDER, &phase, &journal, NULL));
    return journal;
}

static fedge_status recover(fedge_journal **journal)
{
    char path[FEDGE_MAX_PATH];
    OK(fedge_journal_make_path(FOLDER, 1, 0, path, NULL));
    return fedge_journal_recover(path, journal, NULL);
}

static void give_task(fedge_journal *journal, uint32_t slot, uint64_t task_id)
{
    const fedge_journal_task task = test_task(task_id);
    OK(fedge_journal_assign(journal, slot, &task, NULL));
}

static void an_update_that_recovery_finds_stays(void **state)
{
    (void)state;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        begin(draw);
        fedge_journal *journal = create_journal();
        OK(test_accept(journal, 0, 1, NULL));
        fail_call(1);
        assert_int_equal(fedge_journal_sync(journal, NULL), FEDGE_IO);
        fedge_journal_free(journal);
        OK(recover(&journal));
        assert_true(fedge_journal_get_slot(journal, 0).accepted);
        fedge_journal_free(journal);
        power_off();
        OK(recover(&journal));
        assert_true(fedge_journal_get_slot(journal, 0).accepted);
        fedge_journal_free(journal);
    }
}

/* Of the records of two tasks, a power failure may leave the second alone. The recovery that cuts
 * it off fails at call [call]; the next one must not leave it where the log will grow up to it.
 * False: recovery has fewer calls. */
static bool cut_records(uint64_t call)
{
    fedge_journal *journal = create_journal();
    give_task(journal, 0, 50);
    give_task(journal, 1, 51);
    fedge_journal_free(journal);
    power_off();
    fail_call(call);
    const bool failed = recover(&journal) != FEDGE_OK;
    set_faults((world_disk_faults){0});
    if (failed)
        OK(recover(&journal));
    give_task(journal, 1, 60);
    OK(fedge_journal_sync(journal, NULL));
    fedge_journal_free(journal);
    power_off();
    OK(recover(&journal));
    assert_int_equal(fedge_journal_get_slot(journal, 1).task.task_id, 60);
    fedge_journal_free(journal);
    return failed;
}

static void records_that_recovery_cuts_off_stay_away(void **state)
{
    (void)state;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        bool failed = true;
        for (uint64_t call = 1; failed; call++) {
            begin(draw);
            failed = cut_records(call);
            assert_true(failed || call > 10);
        }
    }
}

static void a_line_that_a_start_finds_stays(void **state)
{
    (void)state;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        fedge_round_log log;
        begin(draw);
        OK(fedge_round_log_open(&log, LINES, 0, NULL));
        OK(fedge_round_log_append(&log, 1, FEDGE_TASK_TRAIN, "", NULL));
        fail_call(2); /* the sync, after the write */
        assert_int_equal(fedge_round_log_append(&log, 1, FEDGE_TASK_EVALUATE, "", NULL), FEDGE_IO);
        fedge_round_log_close(&log);
        OK(fedge_round_log_open(&log, LINES, 1, NULL));
        assert_int_equal(log.last_kind, FEDGE_TASK_EVALUATE);
        fedge_round_log_close(&log);
        power_off();
        OK(fedge_round_log_open(&log, LINES, 1, NULL));
        assert_int_equal(log.last_kind, FEDGE_TASK_EVALUATE);
        fedge_round_log_close(&log);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_update_that_recovery_finds_stays),
        TEST(records_that_recovery_cuts_off_stay_away),
        TEST(a_line_that_a_start_finds_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

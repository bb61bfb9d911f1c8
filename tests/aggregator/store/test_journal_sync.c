/* What happens to a journal while the disk is at work: events within fdatasync, which the journal
 * calls without its lock. */
#define _DEFAULT_SOURCE /* off_t */
#include "tests/aggregator/store/store_fixture.h"

#include "aggregator/store/journal_file.h"

ssize_t __real_pwrite64(int fd, const void *bytes, size_t size, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t size, off_t at);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

/* Called once, within the sync with this number (from 1) since [arm]. */
static void (*event)(fedge_journal *journal);
static fedge_journal *subject;
static unsigned countdown;
static unsigned num_events;

static void arm(fedge_journal *journal, void (*next)(fedge_journal *journal), unsigned number)
{
    subject = journal;
    event = next;
    countdown = number;
    num_events = 0;
}

int __wrap_fdatasync(int fd)
{
    if (countdown > 0 && --countdown == 0) {
        num_events++;
        event(subject);
    }
    return __real_fdatasync(fd);
}

static void accept_another(fedge_journal *journal)
{
    OK(test_accept(journal, 1, 2, NULL));
}

/* What was appended while a sync was under way may have missed it: the next one is for it. */
static void a_sync_covers_what_was_before_it(void **state)
{
    fedge_journal *journal;
    fedge_journal_phase phase = test_phase(1, 0);
    OK(test_create(*state, &phase, &journal, NULL));
    OK(test_accept(journal, 0, 1, NULL));
    const uint64_t end = journal->log_end, num_syncs = fedge_journal_num_syncs(journal);
    arm(journal, accept_another, 1);
    OK(fedge_journal_sync(journal, NULL));
    assert_int_equal(num_events, 1);
    assert_int_equal(fedge_journal_num_accepted(journal), 2);
    assert_int_equal(journal->durable, end);
    assert_true(journal->log_end > end);
    assert_int_equal(fedge_journal_num_syncs(journal), num_syncs + 1);
    OK(fedge_journal_sync(journal, NULL));
    assert_int_equal(fedge_journal_num_syncs(journal), num_syncs + 2);
    assert_int_equal(journal->durable, journal->log_end);
    OK(fedge_journal_sync(journal, NULL));
    assert_int_equal(fedge_journal_num_syncs(journal), num_syncs + 2);
    /* Bytes of an upload, without a record, are worth a sync as well. */
    OK(fedge_journal_write(journal, 2, 3, 0, "x", 1, NULL));
    OK(fedge_journal_sync(journal, NULL));
    assert_int_equal(fedge_journal_num_syncs(journal), num_syncs + 3);
    fedge_journal_free(journal);
}

static void try_everything(fedge_journal *journal)
{
    fedge_error err;
    fedge_journal_task next = test_task(50);
    assert_int_equal(test_accept(journal, 1, 2, &err), FEDGE_CLOSED);
    assert_int_equal(fedge_journal_assign(journal, 2, &next, &err), FEDGE_CLOSED);
    assert_int_equal(fedge_journal_rewind(journal, 2, 3, &err), FEDGE_CLOSED);
}

/* From the moment a phase begins to end, its set of updates is final: what came between would not
 * be on the disk with the record that closes it. */
static void an_ending_phase_takes_nothing_more(void **state)
{
    char path[FEDGE_MAX_PATH];
    for (uint32_t round = 1; round <= 4; round++) {
        fedge_journal *journal;
        fedge_journal_phase phase = test_phase(round, 0);
        const bool closes = round % 2 == 1;
        OK(test_create(*state, &phase, &journal, NULL));
        OK(test_accept(journal, 0, 1, NULL));
        OK(fedge_journal_write(journal, 2, 3, 0, "x", 1, NULL));
        const uint64_t num_syncs = fedge_journal_num_syncs(journal);
        arm(journal, try_everything, 1 + (round > 2)); /* before the record, and after it */
        OK(closes ? fedge_journal_close(journal, NULL) : fedge_journal_fail(journal, NULL));
        assert_int_equal(num_events, 1);
        assert_int_equal(fedge_journal_num_syncs(journal), num_syncs + 2);
        assert_int_equal(journal->durable, journal->log_end);
        fedge_journal_free(journal);
        OK(fedge_journal_make_path(*state, round, 0, path, NULL));
        OK(fedge_journal_recover(path, &journal, NULL));
        assert_int_equal(fedge_journal_get_state(journal),
                         closes ? FEDGE_JOURNAL_CLOSED : FEDGE_JOURNAL_FAILED);
        assert_int_equal(fedge_journal_num_accepted(journal), 1);
        try_everything(journal); /* nor later, in another process */
        fedge_journal_free(journal);
    }
}

/* ---- how much is written ----------------------------------------------------------------------
 */

static uint64_t num_written, written_end;

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t size, off_t at)
{
    num_written += size;
    if (written_end < (uint64_t)at + size)
        written_end = (uint64_t)at + size;
    return __real_pwrite64(fd, bytes, size, at);
}

/* A log of some megabytes. Recovery clears twice what can have been written since a sync. */
static void recovery_clears_what_can_have_been_written(void **state)
{
    enum { SLOTS = 200 };
    static char metadata[FEDGE_JOURNAL_MAX_METADATA];
    static fedge_journal_task tasks[SLOTS];
    char path[FEDGE_MAX_PATH];
    fedge_journal *journal;
    fedge_journal_phase phase = test_phase(1, 0);
    phase.num_tasks = SLOTS;
    memset(metadata, 'm', sizeof(metadata));
    for (uint32_t i = 0; i < SLOTS; i++)
        tasks[i] = test_task(i + 1);
    OK(fedge_journal_create(*state, &phase, tasks, 0, &journal, NULL));
    assert_true(journal->layout.slots_offset > journal->log_end + 3 * JOURNAL_MAX_UNSYNCED);
    const uint64_t begin = journal->log_end, num_syncs = fedge_journal_num_syncs(journal);
    for (uint32_t i = 0; journal->log_end < begin + JOURNAL_MAX_UNSYNCED; i++) {
        assert_int_equal(fedge_journal_num_syncs(journal), num_syncs);
        assert_int_equal(journal->durable, begin);
        OK(fedge_journal_accept(journal, i, i + 1, 0, 0, metadata, sizeof(metadata), NULL));
    }
    assert_int_equal(fedge_journal_num_syncs(journal), num_syncs + 1);
    assert_in_range(journal->log_end - journal->durable, 1, 2 * sizeof(metadata));
    const uint64_t end = journal->log_end;
    fedge_journal_free(journal);
    OK(fedge_journal_make_path(*state, 1, 0, path, NULL));
    num_written = written_end = 0;
    OK(fedge_journal_recover(path, &journal, NULL));
    assert_int_equal(journal->log_end, end);
    assert_int_equal(written_end, end + 2 * JOURNAL_MAX_UNSYNCED);
    assert_int_equal(num_written, end - begin + 2 * JOURNAL_MAX_UNSYNCED);
    /* What is read as something else than zeros is cleared wherever it is. */
    OK(fedge_os_write_at(&journal->file, journal->layout.slots_offset - 16, "torn", 5, NULL));
    fedge_journal_free(journal);
    written_end = 0;
    OK(fedge_journal_recover(path, &journal, NULL));
    assert_int_equal(written_end, journal->layout.slots_offset - 8);
    fedge_journal_free(journal);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_sync_covers_what_was_before_it),
        TEST(an_ending_phase_takes_nothing_more),
        TEST(recovery_clears_what_can_have_been_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

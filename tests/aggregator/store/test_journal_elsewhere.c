/* Updates that another rank has made durable: they count in the journal of rank 0, until they are
 * gone. */
#include "tests/aggregator/store/store_fixture.h"

#include "aggregator/store/disk.h"
#include "aggregator/store/journal_file.h"

static const fedge_journal_location LOCATION = {.disk = 0x1234567890abcdefu, .rank = 3};

static fedge_journal_slot theirs(uint64_t task_id)
{
    return (fedge_journal_slot){.task = test_task(task_id),
                                .accepted = true,
                                .size = 1100,
                                .crc32 = 77,
                                .metadata_size = 10};
}

static fedge_journal *reopened(const char *dir, fedge_journal *journal)
{
    char path[FEDGE_MAX_PATH];
    fedge_journal_free(journal);
    OK(fedge_journal_make_path(dir, 12, 0, path, NULL));
    OK(fedge_journal_recover(path, &journal, NULL));
    return journal;
}

static void it_counts_and_comes_back(void **state)
{
    fedge_journal *journal;
    fedge_journal_phase phase = test_phase(12, 0);
    char metadata[64];
    OK(test_create(*state, &phase, &journal, NULL));
    fedge_journal_slot facts = theirs(2);
    OK(fedge_journal_accept_elsewhere(journal, 1, &facts, &LOCATION, "{\"task\":2}", NULL));
    assert_int_equal(fedge_journal_num_accepted(journal), 1);
    assert_int_equal(
        fedge_journal_accept_elsewhere(journal, 1, &facts, &LOCATION, "{\"task\":2}", NULL),
        FEDGE_DUPLICATE);
    assert_int_equal(fedge_journal_assign(journal, 1, &(fedge_journal_task){.task_id = 9}, NULL),
                     FEDGE_DUPLICATE);
    /* A task of the slot that this journal has not heard of yet. */
    facts = theirs(20);
    OK(fedge_journal_accept_elsewhere(journal, 2, &facts, &LOCATION, "{\"task\":20", NULL));
    OK(fedge_journal_close(journal, NULL));
    for (int i = 0; i < 2; i++) {
        const fedge_journal_slot slot = fedge_journal_get_slot(journal, 1);
        assert_true(slot.accepted && slot.elsewhere);
        assert_int_equal(slot.location.disk, LOCATION.disk);
        assert_int_equal(slot.location.rank, LOCATION.rank);
        assert_int_equal(slot.crc32, 77);
        assert_int_equal(slot.size, 1100);
        OK(fedge_journal_metadata(journal, 1, metadata, sizeof(metadata), NULL));
        assert_string_equal(metadata, "{\"task\":2}");
        assert_int_equal(fedge_journal_get_slot(journal, 2).task.task_id, 20);
        assert_int_equal(fedge_journal_next_task_id(journal), 21);
        assert_int_equal(fedge_journal_get_state(journal), FEDGE_JOURNAL_CLOSED);
        journal = reopened(*state, journal); /* its bytes are not looked for here */
    }
    fedge_journal_free(journal);
}

static void what_is_gone_is_open_again(void **state)
{
    fedge_journal *journal;
    fedge_journal_phase phase = test_phase(12, 0);
    const fedge_journal_slot facts = theirs(2);
    OK(test_create(*state, &phase, &journal, NULL));
    OK(fedge_journal_accept_elsewhere(journal, 1, &facts, &LOCATION, "{\"task\":2}", NULL));
    OK(test_accept(journal, 0, 1, NULL));
    OK(fedge_journal_close(journal, NULL));
    journal = reopened(*state, journal);
    OK(fedge_journal_reopen(journal, NULL));
    OK(fedge_journal_lose(journal, 1, NULL));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fedge_journal_get_state(journal), FEDGE_JOURNAL_OPEN);
        assert_int_equal(fedge_journal_num_accepted(journal), 1);
        assert_false(fedge_journal_get_slot(journal, 1).accepted);
        assert_int_equal(fedge_journal_get_slot(journal, 1).task.task_id, 2);
        journal = reopened(*state, journal);
    }
    OK(test_accept(journal, 1, 2, NULL)); /* sent again, here */
    OK(fedge_journal_close(journal, NULL));
    journal = reopened(*state, journal);
    assert_int_equal(fedge_journal_num_accepted(journal), 2);
    assert_false(fedge_journal_get_slot(journal, 1).elsewhere);
    fedge_journal_free(journal);
}

static void what_does_not_fit_is_damage(void **state)
{
    fedge_journal *journal;
    fedge_journal_phase phase = test_phase(12, 0);
    char path[FEDGE_MAX_PATH];
    OK(test_create(*state, &phase, &journal, NULL));
    const fedge_journal_slot facts = theirs(2);
    OK(fedge_journal_accept_elsewhere(journal, 1, &facts, &LOCATION, "{\"task\":2}", NULL));
    OK(fedge_journal_lose(journal, 1, NULL));
    /* The record of a loss once more: nothing is there to lose. */
    const uint64_t size = fedge_journal_record_size(JOURNAL_LOSE_BODY);
    uint8_t record[JOURNAL_RECORD_HEADER + 16];
    assert_true(size <= sizeof(record));
    OK(fedge_os_read_at(&journal->file, journal->log_end - size, record, (size_t)size, NULL));
    (void)fedge_journal_seal_record(record, JOURNAL_LOSE_BODY, journal->next_number, JOURNAL_LOSE,
                                    0);
    OK(fedge_os_write_at(&journal->file, journal->log_end, record, (size_t)size, NULL));
    fedge_journal_free(journal);
    OK(fedge_journal_make_path(*state, 12, 0, path, NULL));
    assert_int_equal(fedge_journal_recover(path, &journal, NULL), FEDGE_CORRUPT);
}

static void a_disk_has_one_number(void **state)
{
    uint64_t disk = 1, again = 0;
    fedge_error err;
    char path[FEDGE_MAX_PATH];
    OK(fedge_disk_read(*state, false, &disk, NULL));
    assert_int_equal(disk, 0);
    OK(fedge_disk_read(*state, true, &disk, NULL));
    OK(fedge_disk_read(*state, true, &again, NULL));
    assert_int_not_equal(disk, 0);
    assert_true(disk == again);
    snprintf(path, sizeof(path), "%s/disk", (const char *)*state);
    OK(fedge_os_write_file(path, "none\n", 5, 0644, NULL));
    assert_int_equal(fedge_disk_read(*state, true, &disk, &err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "remove it"));
}

static void old_journals_of_a_rank_go(void **state)
{
    char dir[FEDGE_MAX_PATH], path[FEDGE_MAX_PATH];
    fedge_journal *journal;
    OK(fedge_disk_folder(*state, TEST_RUN_ID, 2, dir, NULL));
    OK(fedge_os_make_dirs(dir, NULL));
    for (uint32_t round = 1; round <= 3; round++) {
        const fedge_journal_phase phase = test_phase(round, 0);
        OK(test_create(dir, &phase, &journal, NULL));
        fedge_journal_free(journal);
    }
    OK(fedge_disk_tidy(dir, 3, NULL));
    for (uint32_t round = 1; round <= 3; round++) {
        OK(fedge_journal_make_path(dir, round, 0, path, NULL));
        assert_int_equal(fedge_os_exists(path), round == 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_counts_and_comes_back, test_dir_setup,
                                        test_dir_teardown),
        cmocka_unit_test_setup_teardown(what_is_gone_is_open_again, test_dir_setup,
                                        test_dir_teardown),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_damage, test_dir_setup,
                                        test_dir_teardown),
        cmocka_unit_test_setup_teardown(a_disk_has_one_number, test_dir_setup, test_dir_teardown),
        cmocka_unit_test_setup_teardown(old_journals_of_a_rank_go, test_dir_setup,
                                        test_dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

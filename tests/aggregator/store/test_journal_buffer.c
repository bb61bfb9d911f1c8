/* Journals of asynchronous strategies: tasks with bases, as many updates as are wanted, and uploads
 * that go on in the journal of the next round. */
#include "tests/aggregator/store/store_fixture.h"

static fedge_journal_phase buffered_phase(uint32_t round)
{
    fedge_journal_phase phase = test_phase(round, 0);
    phase.buffered = true;
    phase.wanted = 2;
    return phase;
}

static fedge_journal *create(const char *dir, uint32_t round)
{
    fedge_journal *journal = NULL;
    const fedge_journal_phase phase = buffered_phase(round);
    fedge_journal_task tasks[TEST_SLOTS];
    for (uint32_t i = 0; i < TEST_SLOTS; i++) {
        tasks[i] = test_task(i + 1);
        tasks[i].base = round - 1 - i;
    }
    tasks[3].task_id = 0;
    OK(fedge_journal_create(dir, &phase, tasks, 0, &journal, NULL));
    return journal;
}

static fedge_journal *reopened(const char *dir, uint32_t round, fedge_journal *journal)
{
    char path[FEDGE_MAX_PATH];
    fedge_journal_free(journal);
    OK(fedge_journal_make_path(dir, round, 0, path, NULL));
    OK(fedge_journal_recover(path, &journal, NULL));
    return journal;
}

static fedge_status accept(fedge_journal *journal, uint32_t slot, uint64_t task_id)
{
    uint8_t bytes[TEST_SLOT_SIZE];
    fedge_error err;
    test_update(task_id, bytes);
    const fedge_status status =
        fedge_journal_write(journal, slot, task_id, 0, bytes, sizeof(bytes), &err);
    return status == FEDGE_OK
               ? fedge_journal_accept(journal, slot, task_id, sizeof(bytes),
                                      fedge_crc32(0, bytes, sizeof(bytes)), "{}", 2, &err)
               : status;
}

static void each_task_keeps_its_base(void **state)
{
    fedge_journal *journal = create(*state, 12);
    fedge_journal_task task = test_task(9);
    task.base = 11;
    OK(fedge_journal_assign(journal, 3, &task, NULL));
    OK(accept(journal, 1, 2));
    OK(fedge_journal_sync(journal, NULL));
    for (int i = 0; i < 2; i++) {
        assert_true(fedge_journal_get_phase(journal)->buffered);
        for (uint32_t slot = 0; slot < 3; slot++)
            assert_int_equal(fedge_journal_get_slot(journal, slot).task.base, 11 - slot);
        assert_int_equal(fedge_journal_get_slot(journal, 3).task.base, 11);
        assert_int_equal(fedge_journal_get_slot(journal, 3).task.task_id, 9);
        assert_true(fedge_journal_get_slot(journal, 1).accepted);
        journal = reopened(*state, 12, journal);
    }
    fedge_journal_free(journal);
}

/* Of a round that waits for all there is no base to read. */
static void a_plain_phase_has_the_newest(void **state)
{
    fedge_journal *journal = NULL;
    const fedge_journal_phase phase = test_phase(12, 0);
    OK(test_create(*state, &phase, &journal, NULL));
    journal = reopened(*state, 12, journal);
    assert_false(fedge_journal_get_phase(journal)->buffered);
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++)
        assert_int_equal(fedge_journal_get_slot(journal, slot).task.base, 11);
    OK(accept(journal, 0, 1));
    OK(accept(journal, 1, 2));
    OK(accept(journal, 2, 3));
    OK(accept(journal, 3, 4)); /* late ones count too */
    fedge_journal_free(journal);
}

static void no_more_than_wanted_are_accepted(void **state)
{
    fedge_journal *journal = create(*state, 12);
    OK(accept(journal, 2, 3));
    OK(accept(journal, 0, 1));
    assert_int_equal(accept(journal, 1, 2), FEDGE_CLOSED);
    OK(fedge_journal_sync(journal, NULL));
    journal = reopened(*state, 12, journal); /* before it could be closed */
    assert_int_equal(fedge_journal_num_accepted(journal), 2);
    assert_int_equal(accept(journal, 1, 2), FEDGE_CLOSED);
    OK(fedge_journal_close(journal, NULL));
    fedge_journal_free(journal);
}

static void an_upload_goes_on_in_the_next_journal(void **state)
{
    uint8_t bytes[TEST_SLOT_SIZE], read[TEST_SLOT_SIZE];
    fedge_journal *old = create(*state, 12), *next = create(*state, 13);
    test_update(2, bytes);
    OK(fedge_journal_write(old, 1, 2, 0, bytes, 1234, NULL));
    OK(accept(old, 0, 1));
    OK(fedge_journal_close(old, NULL));
    OK(fedge_journal_carry(next, 1, old, 1, NULL));
    OK(fedge_journal_carry(next, 0, old, 0, NULL)); /* was accepted: nothing goes on */
    OK(fedge_journal_carry(next, 2, old, 2, NULL)); /* had not begun */
    assert_int_equal(fedge_journal_get_slot(next, 1).written, 1234);
    assert_int_equal(fedge_journal_get_slot(next, 0).written, 0);
    assert_int_equal(fedge_journal_get_slot(next, 2).written, 0);
    OK(fedge_journal_write(next, 1, 2, 1234, bytes + 1234, sizeof(bytes) - 1234, NULL));
    OK(fedge_journal_read(next, 1, 0, read, sizeof(read), NULL));
    assert_memory_equal(read, bytes, sizeof(bytes));
    OK(fedge_journal_accept(next, 1, 2, sizeof(bytes), fedge_crc32(0, bytes, sizeof(bytes)), "{}",
                            2, NULL));
    fedge_journal_free(old);
    fedge_journal_free(next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_task_keeps_its_base, test_dir_setup,
                                        test_dir_teardown),
        cmocka_unit_test_setup_teardown(a_plain_phase_has_the_newest, test_dir_setup,
                                        test_dir_teardown),
        cmocka_unit_test_setup_teardown(no_more_than_wanted_are_accepted, test_dir_setup,
                                        test_dir_teardown),
        cmocka_unit_test_setup_teardown(an_upload_goes_on_in_the_next_journal, test_dir_setup,
                                        test_dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "aggregator/run/server_run.h"

#include "secure/identity/registry.h"
#include "tests/aggregator/store/store_fixture.h"

/* The journal of a round whose slots are of clients first, first + 1, …, with tasks likewise;
 * those in [accepted], bit by bit, have an update. */
static fedge_journal *make_journal(const char *dir, uint32_t round, uint32_t first_client,
                                   uint64_t first_task, unsigned accepted)
{
    fedge_journal *journal;
    fedge_journal_task tasks[TEST_SLOTS];
    const fedge_journal_phase phase = test_phase(round, 0);
    for (uint32_t i = 0; i < TEST_SLOTS; i++) {
        tasks[i] = test_task(first_task + i);
        tasks[i].client_index = first_client + i;
    }
    OK(fedge_journal_create(dir, &phase, tasks, 0, &journal, NULL));
    for (uint32_t i = 0; i < TEST_SLOTS; i++) {
        if (accepted >> i & 1)
            OK(test_accept(journal, i, first_task + i, NULL));
    }
    return journal;
}

static void add(fedge_last_accepted *last_accepted, const char *dir, uint32_t round,
                uint32_t first_client, uint64_t first_task, unsigned accepted)
{
    fedge_journal *journal = make_journal(dir, round, first_client, first_task, accepted);
    OK(fedge_journal_close(journal, NULL));
    OK(fedge_last_accepted_add(last_accepted, journal, NULL));
    OK(fedge_last_accepted_add(last_accepted, journal,
                               NULL)); /* closed again after a crash: the same */
    fedge_journal_free(journal);
}

static void assert_tasks(const fedge_last_accepted *last_accepted, const uint64_t *tasks,
                         uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(fedge_last_accepted_task(last_accepted, i), tasks[i]);
    assert_int_equal(fedge_last_accepted_task(last_accepted, count), 0);
    assert_int_equal(fedge_last_accepted_task(last_accepted, UINT32_MAX), 0);
}

static void the_last_accepted_is_kept(void **state)
{
    fedge_last_accepted last_accepted = {0}, read = {0};
    uint8_t *bytes = NULL;
    size_t size = 1;
    OK(fedge_last_accepted_write(&last_accepted, &bytes, &size, NULL));
    assert_null(bytes);
    assert_int_equal(size, 0);
    add(&last_accepted, *state, 1, 1, 10, 0x7);
    assert_tasks(&last_accepted, (const uint64_t[]){0, 10, 11, 12}, 4);
    add(&last_accepted, *state, 2, 2, 20, 0xA);
    assert_tasks(&last_accepted, (const uint64_t[]){0, 10, 11, 21, 0, 23}, 6);
    OK(fedge_last_accepted_write(&last_accepted, &bytes, &size, NULL));
    assert_int_equal(size, 6 * 8);
    OK(fedge_last_accepted_read(&read, bytes, size, NULL));
    assert_tasks(&read, (const uint64_t[]){0, 10, 11, 21, 0, 23}, 6);
    OK(fedge_last_accepted_read(&read, bytes, 8, NULL)); /* replaces, and does not add */
    assert_tasks(&read, (const uint64_t[]){0}, 1);
    assert_int_equal(fedge_last_accepted_read(&read, bytes, size - 1, NULL), FEDGE_CORRUPT);
    free(bytes);
    fedge_last_accepted_clear(&last_accepted);
    assert_tasks(&last_accepted, NULL, 0);
    fedge_last_accepted_clear(&read);
}

/* Where a round does not wait a client may have two updates in it, and the later one in a slot that
 * was given away before. */
static void the_latest_task_is_the_last(void **state)
{
    static const uint64_t ids[TEST_SLOTS] = {13, 11, 12, 10};
    fedge_last_accepted last_accepted = {0};
    fedge_journal *journal;
    fedge_journal_task tasks[TEST_SLOTS];
    const fedge_journal_phase phase = test_phase(1, 0);
    for (uint32_t i = 0; i < TEST_SLOTS; i++) {
        tasks[i] = test_task(ids[i]);
        tasks[i].client_index = i / 2;
    }
    OK(fedge_journal_create(*state, &phase, tasks, 0, &journal, NULL));
    for (uint32_t i = 0; i < TEST_SLOTS; i++)
        OK(test_accept(journal, i, ids[i], NULL));
    OK(fedge_journal_close(journal, NULL));
    OK(fedge_last_accepted_add(&last_accepted, journal, NULL));
    assert_tasks(&last_accepted, (const uint64_t[]){13, 12}, 2);
    fedge_journal_free(journal);
    fedge_last_accepted_clear(&last_accepted);
}

static void no_registry_has_so_many(void **state)
{
    fedge_error err;
    fedge_last_accepted last_accepted = {0};
    fedge_journal *journal = make_journal(*state, 1, FEDGE_REGISTRY_MAX_DEVICES - 1, 1, 0x2);
    OK(fedge_journal_close(journal, NULL));
    assert_int_equal(fedge_last_accepted_add(&last_accepted, journal, &err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, fedge_journal_path(journal)));
    fedge_journal_free(journal);
    fedge_last_accepted_clear(&last_accepted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_last_accepted_is_kept, test_dir_setup,
                                        test_dir_teardown),
        cmocka_unit_test_setup_teardown(the_latest_task_is_the_last, test_dir_setup,
                                        test_dir_teardown),
        cmocka_unit_test_setup_teardown(no_registry_has_so_many, test_dir_setup, test_dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "tests/aggregator/store/store_fixture.h"

#include <pthread.h>

#include "aggregator/store/journal_file.h"

static void an_update_comes_back(void **state)
{
    fedge_journal *journal;
    fedge_journal_phase phase = test_phase(12, 0);
    uint8_t bytes[TEST_SLOT_SIZE], read[TEST_SLOT_SIZE];
    char metadata[64];
    OK(test_create(*state, &phase, &journal, NULL));
    test_update(2, bytes);
    OK(fedge_journal_write(journal, 1, 2, 0, bytes, 1000, NULL));
    OK(fedge_journal_write(journal, 1, 2, 500, bytes + 500, 600, NULL)); /* some of it again */
    assert_int_equal(fedge_journal_get_slot(journal, 1).written, 1100);
    OK(test_accept(journal, 1, 2, NULL));
    OK(fedge_journal_sync(journal, NULL));
    fedge_journal_free(journal);

    char path[FEDGE_MAX_PATH];
    OK(fedge_journal_make_path(*state, 12, 0, path, NULL));
    OK(fedge_journal_recover(path, &journal, NULL));
    assert_string_equal(fedge_journal_note(journal), "");
    const fedge_journal_phase *found = fedge_journal_get_phase(journal);
    assert_string_equal(found->run_id, TEST_RUN_ID);
    assert_string_equal(found->model, TEST_MODEL);
    assert_int_equal(found->wanted, 3);
    assert_int_equal(found->num_bounds, 2);
    assert_int_equal(found->bounds_log2[1], -3);
    assert_int_equal(fedge_journal_num_accepted(journal), 1);
    assert_int_equal(fedge_journal_next_task_id(journal), TEST_SLOTS + 1);
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++) {
        fedge_journal_slot facts = fedge_journal_get_slot(journal, slot);
        fedge_journal_task task = test_task(slot + 1);
        assert_int_equal(facts.task.task_id, task.task_id);
        assert_int_equal(facts.task.client_index, task.client_index);
        assert_string_equal(facts.task.device_id, task.device_id);
        assert_int_equal(facts.accepted, slot == 1);
    }
    OK(fedge_journal_read(journal, 1, 0, read, sizeof(read), NULL));
    assert_memory_equal(read, bytes, sizeof(read));
    OK(fedge_journal_metadata(journal, 1, metadata, sizeof(metadata), NULL));
    assert_string_equal(metadata, "{\"task\":2}");
    assert_int_equal(fedge_journal_metadata(journal, 0, metadata, sizeof(metadata), NULL),
                     FEDGE_NOT_FOUND);
    assert_int_equal(fedge_journal_metadata(journal, 1, metadata, 10, NULL), FEDGE_TOO_BIG);
    fedge_journal_free(journal);
    fedge_journal_free(NULL);
}

/* A release before that wrote a phase without the word. */
static void a_phase_says_whether_its_cohort_sets_weights(void **state)
{
    for (uint32_t round = 1; round <= 2; round++) {
        fedge_journal *journal;
        fedge_journal_phase phase = test_phase(round, 0);
        char path[FEDGE_MAX_PATH];
        phase.by_cohort = round == 2;
        OK(test_create(*state, &phase, &journal, NULL));
        fedge_journal_free(journal);
        OK(fedge_journal_make_path(*state, round, 0, path, NULL));
        OK(fedge_journal_recover(path, &journal, NULL));
        assert_int_equal(fedge_journal_get_phase(journal)->by_cohort, round == 2);
        assert_int_equal(fedge_journal_get_phase(journal)->num_bounds, phase.num_bounds);
        assert_false(fedge_journal_get_phase(journal)->buffered);
        fedge_journal_free(journal);
    }
}

/* Behind the acceptance is nothing that could tell of its damage. */
static void a_damaged_record_is_not_read(void **state)
{
    fedge_journal *journal;
    fedge_journal_phase phase = test_phase(12, 0);
    uint8_t bytes[TEST_SLOT_SIZE], byte;
    char metadata[64];
    fedge_error err;
    test_update(2, bytes);
    OK(test_create(*state, &phase, &journal, NULL));
    OK(fedge_journal_write(journal, 1, 2, 0, bytes, 1100, NULL));
    OK(test_accept(journal, 1, 2, NULL));
    const uint64_t last = journal->slots[1].metadata_offset + strlen("{\"task\":2}") - 1;
    OK(fedge_os_read_at(&journal->file, last, &byte, 1, NULL));
    byte ^= 1;
    OK(fedge_os_write_at(&journal->file, last, &byte, 1, NULL));
    assert_int_equal(fedge_journal_metadata(journal, 1, metadata, sizeof(metadata), &err),
                     FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "damaged the record of task 2"));
    fedge_journal_free(journal);
}

/* No word and no page more than what is in them. */
static void records_and_slots_are_padded_no_further_than_needed(void **state)
{
    (void)state;
    for (uint64_t size = 0; size <= 24; size++) {
        assert_int_equal(fedge_journal_record_size(size),
                         JOURNAL_RECORD_HEADER + (size + 7) / 8 * 8);
    }
    for (uint32_t extra = 0; extra < 2; extra++) {
        journal_layout layout;
        fedge_journal_phase phase = test_phase(1, 0);
        phase.slot_size = 2 * JOURNAL_PAGE + extra;
        OK(fedge_journal_make_layout(&phase, &layout, NULL));
        assert_int_equal(layout.slot_stride, (2 + extra) * JOURNAL_PAGE);
        assert_int_equal(layout.slots_offset % JOURNAL_PAGE, 0);
        assert_int_equal(layout.file_size, layout.slots_offset + TEST_SLOTS * layout.slot_stride);
    }
}

static void bad_uploads_are_refused(void **state)
{
    fedge_journal *journal;
    fedge_journal_phase phase = test_phase(1, 0);
    fedge_error err;
    uint32_t slot;
    static const uint8_t bytes[TEST_SLOT_SIZE + 1];
    OK(test_create(*state, &phase, &journal, NULL));
    const struct {
        uint64_t task_id, offset;
        size_t size;
        fedge_status status;
    } cases[] = {
        {9, 0, 10, FEDGE_STALE},           {2, 0, 10, FEDGE_STALE},
        {1, 1, 10, FEDGE_OUT_OF_RANGE},    {1, 0, TEST_SLOT_SIZE + 1, FEDGE_TOO_BIG},
        {1, UINT64_MAX, 2, FEDGE_TOO_BIG},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(fedge_journal_write(journal, 0, cases[i].task_id, cases[i].offset, bytes,
                                             cases[i].size, &err),
                         cases[i].status);
        assert_int_equal(fedge_journal_get_slot(journal, 0).written, 0);
    }
    assert_int_equal(fedge_journal_accept(journal, 0, 1, 10, 0, "", 0, &err), FEDGE_OUT_OF_RANGE);
    OK(fedge_journal_write(journal, 0, 1, 0, bytes, 10, &err));
    OK(fedge_journal_rewind(journal, 0, 1, &err));
    assert_int_equal(fedge_journal_get_slot(journal, 0).written, 0);
    assert_int_equal(fedge_journal_accept(journal, 0, 1, 0, 0, (const char *)bytes,
                                          FEDGE_JOURNAL_MAX_METADATA + 1, &err),
                     FEDGE_TOO_BIG);
    OK(test_accept(journal, 0, 1, &err));
    assert_int_equal(test_accept(journal, 0, 1, &err), FEDGE_DUPLICATE);
    assert_int_equal(fedge_journal_rewind(journal, 0, 1, &err), FEDGE_DUPLICATE);
    fedge_journal_task next = test_task(50);
    assert_int_equal(fedge_journal_assign(journal, 0, &next, &err), FEDGE_DUPLICATE);
    assert_int_equal(fedge_journal_accept(journal, 0, 1, TEST_SLOT_SIZE, 0, "", 0, &err),
                     FEDGE_DUPLICATE);
    assert_int_equal(fedge_journal_num_accepted(journal), 1);
    OK(fedge_journal_find(journal, 3, &slot, &err));
    assert_int_equal(slot, 2);
    assert_int_equal(fedge_journal_find(journal, 50, &slot, &err), FEDGE_STALE);
    OK(fedge_journal_close(journal, &err));
    OK(fedge_journal_close(journal, &err));
    assert_int_equal(fedge_journal_fail(journal, &err), FEDGE_CLOSED);
    assert_int_equal(test_accept(journal, 1, 2, &err), FEDGE_CLOSED);
    assert_int_equal(fedge_journal_assign(journal, 1, &next, &err), FEDGE_CLOSED);
    fedge_journal_free(journal);
}

/* Slots lie side by side when updates fill whole pages: what one takes, to its last byte and no
 * further, no other one has. */
static void no_write_leaves_its_slot(void **state)
{
    fedge_error err;
    const uint64_t sizes[] = {4096, 8192, TEST_SLOT_SIZE};
    for (uint32_t i = 0; i < 3; i++) {
        fedge_journal *journal;
        fedge_journal_phase phase = test_phase(i + 1, 0);
        phase.slot_size = sizes[i];
        OK(test_create(*state, &phase, &journal, NULL));
        uint8_t bytes[8193], read[8192];
        const uint64_t size = sizes[i];
        for (uint32_t turn = 0; turn < TEST_SLOTS; turn++) {
            const uint32_t slot = (turn * 3 + 1) % TEST_SLOTS; /* neighbours before and after */
            memset(bytes, (int)(slot + 1), sizeof(bytes));
            OK(fedge_journal_write(journal, slot, slot + 1, 0, bytes, size - 1, &err));
            assert_int_equal(fedge_journal_write(journal, slot, slot + 1, size - 1, bytes, 2, &err),
                             FEDGE_TOO_BIG);
            assert_int_equal(fedge_journal_write(journal, slot, slot + 1, 1, bytes, size, &err),
                             FEDGE_TOO_BIG);
            assert_int_equal(fedge_journal_get_slot(journal, slot).written, size - 1);
            OK(fedge_journal_write(journal, slot, slot + 1, size - 1, bytes, 1, &err));
            assert_int_equal(fedge_journal_write(journal, slot, slot + 1, size, bytes, 1, &err),
                             FEDGE_TOO_BIG);
            OK(fedge_journal_write(journal, slot, slot + 1, size, bytes, 0, &err));
        }
        for (uint32_t slot = 0; slot < TEST_SLOTS; slot++) {
            OK(fedge_journal_read(journal, slot, 0, read, size, &err));
            for (uint64_t at = 0; at < size; at++)
                assert_int_equal(read[at], slot + 1);
            OK(fedge_journal_read(journal, slot, size - 1, read, 1, &err));
            assert_int_equal(read[0], slot + 1);
            assert_int_equal(fedge_journal_read(journal, slot, size - 1, read, 2, &err),
                             FEDGE_TOO_BIG);
            assert_int_equal(fedge_journal_read(journal, slot, size + 1, read, 0, &err),
                             FEDGE_TOO_BIG);
        }
        fedge_journal_free(journal);
    }
}

static void slots_change_hands(void **state)
{
    fedge_journal *journal;
    fedge_journal_phase phase = test_phase(1, 0);
    fedge_error err;
    char path[FEDGE_MAX_PATH];
    static const uint8_t bytes[10];
    OK(test_create(*state, &phase, &journal, NULL));
    OK(fedge_journal_write(journal, 2, 3, 0, bytes, 10, &err));
    /* As many as there is room for, and every slot can still be accepted after that. */
    uint64_t task_id = 10;
    fedge_status status = FEDGE_OK;
    while (status == FEDGE_OK) {
        fedge_journal_task next = test_task(task_id);
        status = fedge_journal_assign(journal, 2, &next, &err);
        task_id += status == FEDGE_OK;
        assert_true(task_id < 1000);
    }
    assert_int_equal(status, FEDGE_TOO_BIG);
    assert_true(task_id - 10 >= TEST_SLOTS * FEDGE_JOURNAL_ASSIGNS_PER_SLOT);
    task_id--;
    assert_int_equal(fedge_journal_get_slot(journal, 2).written, 0);
    assert_int_equal(test_accept(journal, 2, 3, &err), FEDGE_STALE);
    char *metadata = calloc(1, FEDGE_JOURNAL_MAX_METADATA);
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++) {
        OK(fedge_journal_accept(journal, slot, slot == 2 ? task_id : slot + 1, 0, 0, metadata,
                                FEDGE_JOURNAL_MAX_METADATA, &err));
    }
    free(metadata);
    OK(fedge_journal_close(journal, &err));
    fedge_journal_free(journal);
    OK(fedge_journal_make_path(*state, 1, 0, path, NULL));
    OK(fedge_journal_recover(path, &journal, NULL));
    assert_int_equal(fedge_journal_get_state(journal), FEDGE_JOURNAL_CLOSED);
    assert_int_equal(fedge_journal_num_accepted(journal), TEST_SLOTS);
    assert_int_equal(fedge_journal_get_slot(journal, 2).task.task_id, task_id);
    assert_int_equal(fedge_journal_next_task_id(journal), task_id + 1);
    assert_int_equal(test_accept(journal, 1, 2, &err), FEDGE_DUPLICATE);
    fedge_journal_free(journal);
}

static uint64_t room_of(const fedge_journal *journal)
{
    return journal->layout.slots_offset - journal->log_end;
}

/* New tasks take all of the log but what acceptances and the end need, and no more; an acceptance
 * that was shorter than the longest gives its room back. */
static void a_full_log_takes_no_new_task(void **state)
{
    fedge_journal *journal;
    fedge_journal_phase phase = test_phase(1, 0);
    fedge_error err;
    char path[FEDGE_MAX_PATH];
    OK(test_create(*state, &phase, &journal, NULL));
    const uint64_t assign = fedge_journal_record_size(JOURNAL_ASSIGN_BODY);
    const uint64_t end = fedge_journal_record_size(JOURNAL_END_BODY);
    uint64_t task_id = 10;
    uint32_t accepted = 0;
    for (; accepted < 2; accepted++) {
        const uint64_t others = (TEST_SLOTS - accepted) * fedge_journal_max_accept() + end;
        while (room_of(journal) >= others + assign) {
            fedge_journal_task next = test_task(task_id++);
            OK(fedge_journal_assign(journal, 3, &next, &err));
        }
        fedge_journal_task refused = test_task(task_id);
        assert_int_equal(fedge_journal_assign(journal, 3, &refused, &err), FEDGE_TOO_BIG);
        assert_int_equal(fedge_journal_get_slot(journal, 3).task.task_id, task_id - 1);
        assert_int_equal(fedge_journal_next_task_id(journal), task_id);
        OK(test_accept(journal, accepted, accepted + 1, &err));
    }
    assert_true(task_id > 10 + TEST_SLOTS * FEDGE_JOURNAL_ASSIGNS_PER_SLOT + 100);
    OK(test_accept(journal, 2, 3, &err)); /* the refusals have broken nothing */
    OK(test_accept(journal, 3, task_id - 1, &err));
    OK(fedge_journal_close(journal, &err));
    fedge_journal_free(journal);
    OK(fedge_journal_make_path(*state, 1, 0, path, NULL));
    OK(fedge_journal_recover(path, &journal, NULL));
    assert_string_equal(fedge_journal_note(journal), "");
    assert_int_equal(fedge_journal_num_accepted(journal), TEST_SLOTS);
    assert_int_equal(fedge_journal_get_slot(journal, 3).task.task_id, task_id - 1);
    fedge_journal_free(journal);
}

static void each_task_is_found_in_its_slot(void **state)
{
    fedge_journal *journal;
    fedge_journal_phase phase = test_phase(1, 0);
    fedge_error err;
    OK(test_create(*state, &phase, &journal, NULL));
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++) {
        uint32_t found = UINT32_MAX;
        OK(fedge_journal_find(journal, slot + 1, &found, &err));
        assert_int_equal(found, slot);
        fedge_journal_task next = test_task(slot + 21);
        OK(fedge_journal_assign(journal, slot, &next, &err));
        assert_int_equal(fedge_journal_find(journal, slot + 1, &found, &err), FEDGE_STALE);
        OK(fedge_journal_find(journal, slot + 21, &found, &err));
        assert_int_equal(found, slot);
    }
    fedge_journal_free(journal);
}

static void attempts_replace_one_another(void **state)
{
    fedge_journal *journal;
    fedge_error err;
    char first[FEDGE_MAX_PATH], second[FEDGE_MAX_PATH], other[FEDGE_MAX_PATH];
    OK(fedge_journal_make_path(*state, 7, 0, first, NULL));
    OK(fedge_journal_make_path(*state, 7, 1, second, NULL));
    OK(fedge_journal_make_path(*state, 6, 0, other, NULL));
    fedge_journal_phase phase = test_phase(6, 0);
    OK(test_create(*state, &phase, &journal, NULL));
    fedge_journal_free(journal);
    phase = test_phase(7, 0);
    OK(test_create(*state, &phase, &journal, NULL));
    OK(fedge_journal_fail(journal, NULL));
    fedge_journal_free(journal);
    assert_int_equal(test_create(*state, &phase, &journal, &err), FEDGE_EXISTS);
    OK(fedge_journal_recover(first, &journal, NULL));
    assert_int_equal(fedge_journal_get_state(journal), FEDGE_JOURNAL_FAILED);
    fedge_journal_free(journal);
    phase = test_phase(7, 1);
    OK(test_create(*state, &phase, &journal, NULL));
    fedge_journal_free(journal);
    assert_false(fedge_os_exists(first));
    assert_true(fedge_os_exists(second));
    assert_true(fedge_os_exists(other));
}

static void no_room_is_told(void **state)
{
    fedge_journal *journal;
    fedge_error err;
    char path[FEDGE_MAX_PATH];
    fedge_journal_phase phase = test_phase(1, 0);
    fedge_journal_task tasks[TEST_SLOTS];
    for (uint32_t i = 0; i < TEST_SLOTS; i++)
        tasks[i] = test_task(i + 1);
    assert_int_equal(fedge_journal_create(*state, &phase, tasks, (uint64_t)1 << 62, &journal, &err),
                     FEDGE_NO_SPACE);
    const char *behind = strstr(err.message, "takes ");
    double needed = 0;
    char unit[3] = "";
    assert_non_null(behind);
    assert_int_equal(sscanf(behind, "takes %lf %2s and ", &needed, unit), 2);
    assert_true(needed > 0 && strcmp(unit, "kB") == 0);
    assert_non_null(strstr(behind, " and the job's min-free-disk is 4612 PB, but the disk of "));
    phase.slot_size = (uint64_t)1 << 58;
    assert_int_equal(fedge_journal_create(*state, &phase, tasks, 0, &journal, &err),
                     FEDGE_NO_SPACE);
    phase.slot_size = UINT64_MAX;
    assert_int_equal(fedge_journal_create(*state, &phase, tasks, 0, &journal, &err), FEDGE_TOO_BIG);
    phase.num_tasks = FEDGE_JOURNAL_MAX_SLOTS + 1;
    assert_int_equal(fedge_journal_create(*state, &phase, tasks, 0, &journal, &err), FEDGE_TOO_BIG);
    OK(fedge_journal_make_path(*state, 1, 0, path, NULL));
    assert_false(fedge_os_exists(path));
}

static void names_are_parsed_strictly(void **state)
{
    (void)state;
    uint32_t round = 0, attempt = 0;
    assert_true(fedge_journal_parse_name("round-000012-a3.fj", &round, &attempt));
    assert_int_equal(round, 12);
    assert_int_equal(attempt, 3);
    assert_true(fedge_journal_parse_name("round-4294967295-a4294967295.fj", &round, &attempt));
    const char *bad[] = {"round-12-a3.fj",        "round-000012-a03.fj", "round-000012-a3.fj.tmp",
                         "xround-000012-a3.fj",   "round-000012.fj",     "round--00012-a3.fj",
                         "round-9999999999-a1.fj"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(fedge_journal_parse_name(bad[i], &round, &attempt));
}

typedef struct committer {
    fedge_journal *journal;
    uint32_t slot;
    fedge_status status;
} committer;

static void *commit(void *argument)
{
    committer *self = argument;
    self->status = test_accept(self->journal, self->slot, self->slot + 1, NULL);
    if (self->status == FEDGE_OK)
        self->status = fedge_journal_sync(self->journal, NULL);
    return NULL;
}

/* Each thread's update is durable when its sync returns; together they need at most one each. */
static void threads_share_their_commits(void **state)
{
    for (uint32_t round = 1; round <= 20; round++) {
        fedge_journal *journal;
        fedge_journal_phase phase = test_phase(round, 0);
        pthread_t threads[TEST_SLOTS];
        committer committers[TEST_SLOTS];
        OK(test_create(*state, &phase, &journal, NULL));
        for (uint32_t i = 0; i < TEST_SLOTS; i++) {
            committers[i] = (committer){journal, i, FEDGE_OK};
            assert_int_equal(pthread_create(&threads[i], NULL, commit, &committers[i]), 0);
        }
        for (uint32_t i = 0; i < TEST_SLOTS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(committers[i].status, FEDGE_OK);
        }
        assert_in_range(fedge_journal_num_syncs(journal), 1, TEST_SLOTS);
        uint64_t num_syncs = fedge_journal_num_syncs(journal);
        OK(fedge_journal_sync(journal, NULL)); /* nothing new: no call */
        assert_int_equal(fedge_journal_num_syncs(journal), num_syncs);
        assert_int_equal(fedge_journal_num_accepted(journal), TEST_SLOTS);
        fedge_journal_free(journal);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_damaged_record_is_not_read),
        cmocka_unit_test(records_and_slots_are_padded_no_further_than_needed),
        TEST(an_update_comes_back),
        TEST(a_phase_says_whether_its_cohort_sets_weights),
        TEST(bad_uploads_are_refused),
        TEST(no_write_leaves_its_slot),
        TEST(slots_change_hands),
        TEST(a_full_log_takes_no_new_task),
        TEST(each_task_is_found_in_its_slot),
        TEST(attempts_replace_one_another),
        TEST(no_room_is_told),
        TEST(names_are_parsed_strictly),
        TEST(threads_share_their_commits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Recovery at every point of a run's life, with the model standing for all that was accepted. */
#define _GNU_SOURCE /* openat */
#include "tests/aggregator/store/store_fixture.h"

#include <fcntl.h>

#include "aggregator/store/journal_file.h"
#include "aggregator/store/recovery.h"

typedef struct run_fixture {
    fedge_state state;
    fedge_run run;
    char checkpoints[FEDGE_MAX_PATH], journals[FEDGE_MAX_PATH];
} run_fixture;

/* Opens the state as a new process would. */
static run_fixture open_fixture(const char *dir)
{
    run_fixture f;
    OK(fedge_state_open(dir, &f.state, NULL));
    OK(fedge_run_open(&f.state, &(fedge_run_request){.job = "{}", .job_size = 2}, &f.run, NULL));
    OK(fedge_run_path(&f.run, "checkpoints", f.checkpoints, NULL));
    OK(fedge_run_path(&f.run, "journal", f.journals, NULL));
    return f;
}

static void reopen(run_fixture *f)
{
    char dir[FEDGE_MAX_PATH];
    memcpy(dir, f->state.dir, sizeof(dir));
    fedge_state_close(&f->state);
    *f = open_fixture(dir);
}

/* The "model" after a round is a text with the round's number: the same bits each time. */
static void checkpoint(run_fixture *f, uint32_t round, uint64_t next_task_id,
                       char hash[FEDGE_HASH_TEXT])
{
    char model[32];
    int size = snprintf(model, sizeof(model), "model of round %u", (unsigned)round);
    fedge_checkpoint facts = {
        .round = round, .incarnation = 1, .strategy = "FedAvg", .next_task_id = next_task_id};
    memcpy(facts.run_id, f->run.run_id, sizeof(facts.run_id));
    const fedge_checkpoint_files files = {.model = (const uint8_t *)model,
                                          .model_size = (size_t)size};
    OK(fedge_checkpoint_save(f->checkpoints, &facts, &files, NULL));
    memcpy(hash, facts.model, FEDGE_HASH_TEXT);
}

/* Makes the journal of a round with [num_accepted] updates. */
static fedge_journal *journal_of(run_fixture *f, uint32_t round, uint32_t attempt,
                                 const char *base_model, uint64_t first_task, uint32_t num_accepted)
{
    fedge_journal *journal;
    fedge_journal_task tasks[TEST_SLOTS];
    fedge_journal_phase phase = test_phase(round, attempt);
    memcpy(phase.run_id, f->run.run_id, sizeof(phase.run_id));
    memcpy(phase.model, base_model, sizeof(phase.model));
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++)
        tasks[slot] = test_task(first_task + slot);
    OK(fedge_journal_create(f->journals, &phase, tasks, 0, &journal, NULL));
    for (uint32_t slot = 0; slot < num_accepted; slot++)
        OK(test_accept(journal, slot, first_task + slot, NULL));
    OK(fedge_journal_sync(journal, NULL));
    return journal;
}

static void a_new_run_has_nothing(void **state)
{
    run_fixture f = open_fixture(*state);
    fedge_recovery recovery;
    char hash[FEDGE_HASH_TEXT];
    OK(fedge_recover(&f.run, &recovery, NULL));
    assert_false(recovery.has_checkpoint);
    assert_int_equal(recovery.last_closed, 0);
    assert_int_equal(recovery.next_task_id, 1);
    assert_null(recovery.journal);
    checkpoint(&f, 0, 1, hash);
    fedge_recovery_fini(&recovery);
    OK(fedge_recover(&f.run, &recovery, NULL));
    assert_true(recovery.has_checkpoint);
    assert_int_equal(recovery.next_task_id, 1); /* no ids are skipped in a run's first start */
    assert_int_equal(recovery.num_tasks, 0);
    assert_string_equal(recovery.note, "");
    fedge_recovery_fini(&recovery);
    fedge_recovery_fini(&recovery);
    fedge_state_close(&f.state);
}

static void an_open_round_goes_on(void **state)
{
    run_fixture f = open_fixture(*state);
    fedge_recovery recovery;
    char hash[FEDGE_HASH_TEXT];
    checkpoint(&f, 0, 1, hash);
    fedge_journal_free(journal_of(&f, 1, 0, hash, 1, 2));
    reopen(&f);
    OK(fedge_recover(&f.run, &recovery, NULL));
    assert_false(recovery.reclose);
    assert_non_null(recovery.journal);
    assert_int_equal(recovery.attempt, 0);
    assert_int_equal(recovery.wanted, 3);
    assert_int_equal(recovery.num_tasks, TEST_SLOTS);
    assert_int_equal(recovery.next_task_id, TEST_SLOTS + 1 + FEDGE_RECOVERY_TASK_ID_GAP);
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++) {
        assert_int_equal(recovery.tasks[slot].task_id, slot + 1);
        assert_int_equal(recovery.tasks[slot].client_index, slot + 101);
        assert_int_equal(recovery.tasks[slot].state,
                         slot < 2 ? FEDGE_TASK_REPORTED : FEDGE_TASK_OPEN);
    }
    /* The round machine takes it from there. */
    fedge_rounds_spec spec = {.num_server_rounds = 3,
                              .fraction_train = 1.0,
                              .over_selection = 1.4,
                              .max_cohort = 10,
                              .min_report_fraction = 1.0};
    fedge_rounds *rounds;
    fedge_rounds_action action;
    OK(fedge_rounds_new(&spec, 1, &rounds, NULL));
    const fedge_rounds_progress progress = {.last_closed = recovery.last_closed,
                                            .next_task_id = recovery.next_task_id,
                                            .attempt = recovery.attempt,
                                            .wanted = recovery.wanted,
                                            .tasks = recovery.tasks,
                                            .num_tasks = recovery.num_tasks};
    OK(fedge_rounds_restore(rounds, &progress, 0, NULL));
    OK(fedge_rounds_report(rounds, 3, NULL));
    assert_true(fedge_rounds_next(rounds, &action) && action.type == FEDGE_ROUNDS_CANCEL);
    assert_true(fedge_rounds_next(rounds, &action) && action.type == FEDGE_ROUNDS_CLOSE);
    fedge_rounds_free(rounds);
    fedge_recovery_fini(&recovery);
    fedge_state_close(&f.state);
}

static void a_failed_attempt_is_followed_by_the_next(void **state)
{
    run_fixture f = open_fixture(*state);
    fedge_recovery recovery;
    char hash[FEDGE_HASH_TEXT];
    checkpoint(&f, 0, 1, hash);
    fedge_journal *journal = journal_of(&f, 1, 2, hash, 40, 1);
    OK(fedge_journal_fail(journal, NULL));
    fedge_journal_free(journal);
    OK(fedge_recover(&f.run, &recovery, NULL));
    assert_null(recovery.journal);
    assert_int_equal(recovery.attempt, 3);
    assert_int_equal(recovery.num_tasks, 0);
    assert_int_equal(recovery.next_task_id, 44);
    fedge_recovery_fini(&recovery);
    fedge_state_close(&f.state);
}

/* A client gave its task in slot [former] up, came anew, and took another's empty slot. Slot 0 has
 * an update unless it is the former. */
static void check_former_slot(const char *dir, uint32_t former)
{
    run_fixture f = open_fixture(dir);
    fedge_recovery recovery;
    char hash[FEDGE_HASH_TEXT];
    checkpoint(&f, 0, 1, hash);
    const uint32_t num_accepted = former > 0;
    fedge_journal *journal = journal_of(&f, 1, 0, hash, 1, num_accepted);
    fedge_journal_task task = test_task(TEST_SLOTS + 1);
    task.client_index = fedge_journal_get_slot(journal, former).task.client_index;
    OK(fedge_journal_assign(journal, 1, &task, NULL));
    OK(fedge_journal_sync(journal, NULL));
    fedge_journal_free(journal);
    reopen(&f);
    OK(fedge_recover(&f.run, &recovery, NULL));
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++) {
        assert_int_equal(recovery.tasks[slot].state, slot < num_accepted ? FEDGE_TASK_REPORTED
                                                     : slot == former    ? FEDGE_TASK_LOST
                                                                         : FEDGE_TASK_OPEN);
    }
    assert_int_equal(recovery.tasks[1].client_index, recovery.tasks[former].client_index);
    fedge_recovery_fini(&recovery);
    OK(fedge_os_remove_tree(f.run.dir, NULL));
    fedge_state_close(&f.state);
}

static void a_slot_is_empty_whose_client_has_another(void **state)
{
    check_former_slot(*state, 2);
    check_former_slot(*state, 0); /* the first by client, too */
}

/* What a start gave out and nothing recorded, as the ids of an evaluation, is skipped by the next.
 */
static void task_ids_begin_behind_the_last_start(void **state)
{
    run_fixture f = open_fixture(*state);
    fedge_recovery recovery;
    char hash[FEDGE_HASH_TEXT];
    uint64_t last = 1;
    checkpoint(&f, 0, 1, hash);
    for (int start = 0; start < 3; start++) {
        reopen(&f);
        OK(fedge_recover(&f.run, &recovery, NULL));
        assert_int_equal(recovery.next_task_id, last + FEDGE_RECOVERY_TASK_ID_GAP);
        last = recovery.next_task_id;
        OK(fedge_run_begin_task_ids(&f.run, last, NULL));
        fedge_recovery_fini(&recovery);
    }
    fedge_state_close(&f.state);
}

/* Closed but not checkpointed; then two rounds back and again forward, without losing the updates
 * of the round that was open. */
static void closed_rounds_are_closed_again(void **state)
{
    run_fixture f = open_fixture(*state);
    fedge_recovery recovery;
    char hash[3][FEDGE_HASH_TEXT], path[FEDGE_MAX_PATH + 64];
    checkpoint(&f, 0, 1, hash[0]);
    for (uint32_t round = 1; round <= 2; round++) {
        fedge_journal *journal = journal_of(&f, round, 0, hash[round - 1], round * 10, 3);
        OK(fedge_journal_close(journal, NULL));
        fedge_journal_free(journal);
        OK(fedge_recover(&f.run, &recovery, NULL));
        assert_true(recovery.reclose);
        assert_int_equal(recovery.last_closed, round - 1);
        assert_int_equal(fedge_journal_num_accepted(recovery.journal), 3);
        checkpoint(&f, round, round * 10 + 4, hash[round]);
        fedge_recovery_fini(&recovery);
    }
    fedge_journal_free(journal_of(&f, 3, 0, hash[2], 30, 1));
    for (uint32_t round = 1; round <= 2; round++) {
        snprintf(path, sizeof(path), "%s/round-%06u/model.safetensors", f.checkpoints,
                 (unsigned)round);
        OK(fedge_os_write_file(path, "x", 1, 0600, NULL));
    }
    for (uint32_t round = 1; round <= 2; round++) {
        char again[FEDGE_HASH_TEXT];
        OK(fedge_recover(&f.run, &recovery, NULL));
        assert_true(recovery.reclose);
        assert_int_equal(recovery.last_closed, round - 1);
        assert_non_null(strstr(recovery.note, "passed over"));
        checkpoint(&f, round, recovery.next_task_id, again);
        assert_string_equal(again, hash[round]);
        fedge_recovery_fini(&recovery);
    }
    OK(fedge_recover(&f.run, &recovery, NULL));
    assert_false(recovery.reclose);
    assert_int_equal(recovery.last_closed, 2);
    assert_int_equal(fedge_journal_num_accepted(recovery.journal), 1);
    fedge_recovery_fini(&recovery);
    fedge_state_close(&f.state);
}

/* The newest checkpoint is damaged, and its round cannot be closed again since updates are gone: it
 * is open at this start and at each after a crash. */
static void a_round_that_is_opened_again_stays_open(void **state)
{
    run_fixture f = open_fixture(*state);
    fedge_recovery recovery;
    char hash[FEDGE_HASH_TEXT], path[FEDGE_MAX_PATH + 64];
    checkpoint(&f, 0, 1, hash);
    fedge_journal *journal = journal_of(&f, 1, 0, hash, 10, 3);
    OK(fedge_journal_close(journal, NULL));
    fedge_journal_free(journal);
    checkpoint(&f, 1, 14, hash);
    snprintf(path, sizeof(path), "%s/round-000001/model.safetensors", f.checkpoints);
    OK(fedge_os_write_file(path, "x", 1, 0600, NULL));
    fedge_journal_free(journal_of(&f, 2, 0, hash, 20, 1));
    reopen(&f);
    OK(fedge_recover(&f.run, &recovery, NULL));
    assert_true(recovery.reclose);
    OK(fedge_recovery_reopen(&f.run, &recovery, NULL));
    for (int start = 0; start < 2; start++) {
        assert_false(recovery.reclose);
        assert_int_equal(recovery.last_closed, 0);
        assert_int_equal(fedge_journal_get_state(recovery.journal), FEDGE_JOURNAL_OPEN);
        assert_int_equal(fedge_journal_num_accepted(recovery.journal), 3);
        fedge_recovery_fini(&recovery);
        reopen(&f);
        OK(fedge_recover(&f.run, &recovery, NULL));
    }
    fedge_recovery_fini(&recovery);
    /* It closes, and the next one opens. */
    checkpoint(&f, 1, 14, hash);
    fedge_journal_free(journal_of(&f, 2, 0, hash, 30, 1));
    fedge_state_close(&f.state);
}

/* A byte of the update in the first slot of a journal. */
static void damage_update(const char *path)
{
    static uint8_t page[4096];
    journal_layout layout;
    fedge_os_file file;
    uint32_t num_slots;
    uint64_t size, slot_size;
    OK(fedge_os_open(&file, path, FEDGE_OS_READ_WRITE, NULL));
    OK(fedge_os_file_size(&file, &size, NULL));
    OK(fedge_os_read_at(&file, 0, page, sizeof(page), NULL));
    OK(fedge_journal_unpack_header(page, size, path, &layout, &num_slots, &slot_size, NULL));
    OK(fedge_os_read_at(&file, layout.slots_offset, page, 1, NULL));
    page[0] ^= 0x20;
    OK(fedge_os_write_at(&file, layout.slots_offset, page, 1, NULL));
    fedge_os_close(&file);
}

/* A round was sealed, and its updates are damaged: it is open again, at this start and the next,
 * unless something has come after it. */
static void a_sealed_round_with_damage_is_open_again(void **state)
{
    run_fixture f = open_fixture(*state);
    fedge_recovery recovery;
    fedge_error err;
    char hash[FEDGE_HASH_TEXT], path[FEDGE_MAX_PATH];
    checkpoint(&f, 0, 1, hash);
    fedge_journal *journal = journal_of(&f, 1, 0, hash, 10, 3);
    OK(fedge_journal_close(journal, NULL));
    fedge_journal_free(journal);
    OK(fedge_journal_make_path(f.journals, 1, 0, path, NULL));
    damage_update(path);
    fedge_journal_free(journal_of(&f, 2, 0, hash, 20, 1));
    assert_int_equal(fedge_recover(&f.run, &recovery, &err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "closed round 1 cannot be repeated"));
    assert_null(strstr(err.message, "asked for again"));
    char later[FEDGE_MAX_PATH];
    OK(fedge_journal_make_path(f.journals, 2, 0, later, NULL));
    OK(fedge_os_remove(later, NULL));
    for (int start = 0; start < 2; start++) {
        OK(fedge_recover(&f.run, &recovery, &err));
        assert_false(recovery.reclose);
        assert_int_equal(recovery.last_closed, 0);
        assert_int_equal(fedge_journal_get_state(recovery.journal), FEDGE_JOURNAL_OPEN);
        assert_int_equal(fedge_journal_num_accepted(recovery.journal), 2);
        assert_int_equal(recovery.tasks[0].state, FEDGE_TASK_OPEN);
        assert_int_equal(recovery.tasks[1].state, FEDGE_TASK_REPORTED);
        /* The first of these starts notes in the journal that it is lost. */
        const char *told =
            strstr(recovery.note, "is not whole. Updates that are not whole are asked for again");
        assert_int_equal(told != NULL, start == 0);
        fedge_recovery_fini(&recovery);
    }
    fedge_state_close(&f.state);
}

static void what_cannot_be_repaired_is_told(void **state)
{
    run_fixture f = open_fixture(*state);
    fedge_recovery recovery;
    fedge_error err;
    char hash[FEDGE_HASH_TEXT], path[FEDGE_MAX_PATH + 64];
    checkpoint(&f, 0, 1, hash);
    fedge_journal_free(journal_of(&f, 1, 0, TEST_MODEL, 1, 1)); /* of another base model */
    assert_int_equal(fedge_recover(&f.run, &recovery, &err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "base model"));
    OK(fedge_journal_make_path(f.journals, 1, 0, path, NULL));
    OK(fedge_os_remove(path, NULL));

    checkpoint(&f, 1, 9, hash); /* damaged, and its journal is gone */
    snprintf(path, sizeof(path), "%s/round-000001/model.safetensors", f.checkpoints);
    OK(fedge_os_write_file(path, "x", 1, 0600, NULL));
    assert_int_equal(fedge_recover(&f.run, &recovery, &err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "round 1 was closed"));

    OK(fedge_os_remove_tree(f.checkpoints, NULL));
    OK(fedge_os_make_dirs(f.checkpoints, NULL));
    fedge_journal_free(journal_of(&f, 5, 0, TEST_MODEL, 1, 1)); /* journals but no checkpoint */
    assert_int_equal(fedge_recover(&f.run, &recovery, &err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "no checkpoint"));
    fedge_state_close(&f.state);
}

static void retention_keeps_what_is_needed(void **state)
{
    run_fixture f = open_fixture(*state);
    char hash[FEDGE_HASH_TEXT], path[FEDGE_MAX_PATH + 64];
    checkpoint(&f, 0, 1, hash);
    for (uint32_t round = 1; round <= 6; round++) {
        fedge_journal_free(journal_of(&f, round, 0, hash, round * 10, 1));
        if (round < 6)
            checkpoint(&f, round, 1, hash);
    }
    OK(fedge_retention_apply(&f.run, 9, 0, NULL)); /* there are fewer: all stay */
    OK(fedge_retention_apply(&f.run, 3, 0, NULL));
    for (uint32_t round = 0; round <= 6; round++) {
        snprintf(path, sizeof(path), "%s/round-%06u", f.checkpoints, (unsigned)round);
        assert_int_equal(fedge_os_exists(path), round >= 3 && round <= 5);
        OK(fedge_journal_make_path(f.journals, round, 0, path, NULL));
        assert_int_equal(fedge_os_exists(path), round >= 3);
    }
    OK(fedge_retention_apply(&f.run, 1, 0, NULL));
    OK(fedge_journal_make_path(f.journals, 6, 0, path, NULL));
    assert_true(fedge_os_exists(path));
    fedge_state_close(&f.state);
}

/* Its checkpoint alone stays: nothing is closed again from there. */
static void retention_keeps_the_best(void **state)
{
    static const uint32_t BEST[] = {1, 1, 1, 4, 4, 4}; /* older than the last two, at times */
    run_fixture f = open_fixture(*state);
    char hash[FEDGE_HASH_TEXT], path[FEDGE_MAX_PATH + 64];
    checkpoint(&f, 0, 1, hash);
    for (uint32_t round = 1; round <= 6; round++) {
        const uint32_t best = BEST[round - 1];
        fedge_journal_free(journal_of(&f, round, 0, hash, round * 10, 1));
        checkpoint(&f, round, 1, hash);
        OK(fedge_retention_apply(&f.run, 2, best, NULL));
        for (uint32_t r = 0; r <= round; r++) {
            snprintf(path, sizeof(path), "%s/round-%06u", f.checkpoints, (unsigned)r);
            assert_int_equal(fedge_os_exists(path), r == best || r + 1 >= round);
            OK(fedge_journal_make_path(f.journals, r, 0, path, NULL));
            assert_int_equal(fedge_os_exists(path), r > 0 && r + 1 >= round);
        }
    }
    fedge_state_close(&f.state);
}

static void leftovers_are_removed(void **state)
{
    run_fixture f = open_fixture(*state);
    fedge_recovery recovery;
    char paths[3][FEDGE_MAX_PATH + 32];
    snprintf(paths[0], sizeof(paths[0]), "%s/round-000001-a0.fj.tmp", f.journals);
    snprintf(paths[1], sizeof(paths[1]), "%s/round-000001.new", f.checkpoints);
    snprintf(paths[2], sizeof(paths[2]), "%s/round-000001.old", f.checkpoints);
    for (int i = 0; i < 3; i++)
        OK(fedge_os_make_dirs(paths[i], NULL));
    OK(fedge_recover(&f.run, &recovery, NULL));
    for (int i = 0; i < 3; i++)
        assert_false(fedge_os_exists(paths[i]));
    fedge_recovery_fini(&recovery);
    fedge_state_close(&f.state);
}

/* Each kill while a file of the run was written has left one. */
static void leftovers_beside_the_runs_files_are_removed(void **state)
{
    run_fixture f = open_fixture(*state);
    fedge_recovery recovery;
    static const char *const names[] = {"run.json.a1B2c3.tmp", "model.safetensors.000000.tmp",
                                        "notes.tmp", "rounds.jsonl.old", "run.json"};
    char paths[5][FEDGE_MAX_PATH + 32];
    for (int i = 0; i < 5; i++) {
        snprintf(paths[i], sizeof(paths[i]), "%s/%s", f.run.dir, names[i]);
        if (i < 4)
            OK(fedge_os_write_file(paths[i], "x", 1, 0600, NULL));
    }
    OK(fedge_recover(&f.run, &recovery, NULL));
    for (int i = 0; i < 5; i++)
        assert_int_equal(fedge_os_exists(paths[i]), i >= 2);
    fedge_recovery_fini(&recovery);
    fedge_state_close(&f.state);
}

/* A checkpoint and a journal that are both damaged are both named. */
static void every_repair_is_told(void **state)
{
    run_fixture f = open_fixture(*state);
    fedge_recovery recovery;
    char hash[FEDGE_HASH_TEXT], unused[FEDGE_HASH_TEXT], path[FEDGE_MAX_PATH + 64];
    checkpoint(&f, 0, 1, hash);
    checkpoint(&f, 1, 5, unused);
    snprintf(path, sizeof(path), "%s/round-000001/model.safetensors", f.checkpoints);
    OK(fedge_os_write_file(path, "x", 1, 0600, NULL));
    fedge_journal *journal = journal_of(&f, 1, 0, hash, 1, 2);
    OK(fedge_journal_close(journal, NULL));
    const uint64_t end = journal->log_end;
    fedge_journal_free(journal);
    OK(fedge_journal_make_path(f.journals, 1, 0, path, NULL));
    fedge_os_file file;
    OK(fedge_os_open(&file, path, FEDGE_OS_READ_WRITE, NULL));
    OK(fedge_os_write_at(&file, end, "half a record", 13, NULL));
    fedge_os_close(&file);
    OK(fedge_recover(&f.run, &recovery, NULL));
    assert_int_equal(fedge_journal_num_accepted(recovery.journal), 2);
    const char *first = strstr(recovery.note, "Checkpoint of round 1 passed over: ");
    assert_ptr_equal(first, recovery.note);
    const char *second = fedge_journal_note(recovery.journal);
    assert_int_not_equal(second[0], '\0');
    assert_string_equal(recovery.note + strlen(recovery.note) - strlen(second), second);
    fedge_recovery_fini(&recovery);
    fedge_state_close(&f.state);
}

/* Nothing else is removed instead of what cannot be named. */
static void a_leftover_with_too_long_a_path_is_an_error(void **state)
{
    char dir[FEDGE_MAX_PATH], name[251];
    fedge_recovery recovery;
    fedge_error err;
    memset(name, 'x', sizeof(name));
    snprintf(dir, sizeof(dir), "%s/%.240s", (const char *)*state, name);
    OK(fedge_os_make_dirs(dir, NULL));
    run_fixture f = open_fixture(dir);
    int journals = open(f.journals, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(journals >= 0);
    memcpy(name + sizeof(name) - 5, ".tmp", 5);
    int made = openat(journals, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(made >= 0);
    assert_int_equal(close(made), 0);
    assert_true(strlen(f.journals) + strlen(name) + 2 > FEDGE_MAX_PATH);
    assert_int_equal(fedge_recover(&f.run, &recovery, &err), FEDGE_TOO_BIG);
    assert_non_null(strstr(err.message, "xxx is too long"));
    assert_int_equal(unlinkat(journals, name, 0), 0);
    assert_int_equal(close(journals), 0);
    fedge_state_close(&f.state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_run_has_nothing),
        TEST(every_repair_is_told),
        TEST(a_leftover_with_too_long_a_path_is_an_error),
        TEST(an_open_round_goes_on),
        TEST(a_failed_attempt_is_followed_by_the_next),
        TEST(a_slot_is_empty_whose_client_has_another),
        TEST(task_ids_begin_behind_the_last_start),
        TEST(closed_rounds_are_closed_again),
        TEST(a_round_that_is_opened_again_stays_open),
        TEST(a_sealed_round_with_damage_is_open_again),
        TEST(what_cannot_be_repaired_is_told),
        TEST(retention_keeps_what_is_needed),
        TEST(retention_keeps_the_best),
        TEST(leftovers_are_removed),
        TEST(leftovers_beside_the_runs_files_are_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A bit that the disk has changed, in any file that recovery reads: it stands where it stood, or
 * the damage is told. */
#include "tests/aggregator/store/store_fixture.h"

#include "aggregator/store/recovery.h"
#include "aggregator/store/round_log.h"
#include "edge/json/json.h"

#define MAX_FILES 16

/* The journals are long, and zeros for the most part. */
#define RECORDS_END ((size_t)6000)
#define SLOTS_SIZE ((size_t)TEST_SLOTS * 8192)

/* --- the files ------------------------------------------------------------------------------- */

typedef struct kept_file {
    char path[FEDGE_MAX_PATH];
    uint8_t *data;
    size_t size;
} kept_file;

static struct {
    kept_file files[MAX_FILES];
    size_t count;
} kept;

static fedge_status keep(void *user, const char *name, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    const char *folder = user;
    snprintf(path, sizeof(path), "%.200s/%.200s", folder, name);
    if (strcmp(name, "lock") == 0)
        return FEDGE_OK;
    if (fedge_os_is_dir(path))
        return fedge_os_list_dir(path, keep, path, err);
    assert_in_range(kept.count, 0, MAX_FILES - 1);
    kept_file *file = &kept.files[kept.count++];
    memcpy(file->path, path, sizeof(path));
    return fedge_os_read_file(path, (size_t)16 << 20, &file->data, &file->size, err);
}

static void put_back(const kept_file *file)
{
    uint8_t *now = NULL;
    size_t size = 0;
    const bool same =
        fedge_os_read_file(file->path, (size_t)16 << 20, &now, &size, NULL) == FEDGE_OK &&
        size == file->size && memcmp(now, file->data, size) == 0;
    free(now);
    if (same)
        return;
    FILE *out = fopen(file->path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(file->data, 1, file->size, out), file->size);
    assert_int_equal(fclose(out), 0);
}

/* --- where a run stands ---------------------------------------------------------------------- */

/* All that recovery finds, as text. */
typedef struct standing {
    char text[4096];
    size_t used;
} standing;

static void add(standing *to, const char *text)
{
    to->used += (size_t)snprintf(to->text + to->used, sizeof(to->text) - to->used, "%s ", text);
    assert_in_range(to->used, 1, sizeof(to->text) - 1);
}

static void add_number(standing *to, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    add(to, text);
}

static void add_slot(standing *to, fedge_journal *journal, uint32_t i)
{
    uint8_t bytes[TEST_SLOT_SIZE];
    char metadata[64];
    const fedge_journal_slot slot = fedge_journal_get_slot(journal, i);
    add_number(to, slot.task.task_id);
    add_number(to, slot.task.client_index);
    add(to, slot.task.device_id);
    add_number(to, slot.accepted);
    if (!slot.accepted)
        return;
    OK(fedge_journal_read(journal, i, 0, bytes, slot.size, NULL));
    OK(fedge_journal_metadata(journal, i, metadata, sizeof(metadata), NULL));
    add_number(to, fedge_crc32(0, bytes, slot.size));
    add(to, metadata);
}

static void describe(const fedge_run *run, const fedge_recovery *recovery, standing *to)
{
    const fedge_checkpoint_data *data = &recovery->checkpoint;
    const fedge_checkpoint *facts = &data->checkpoint;
    add_number(to, run->number);
    add_number(to, run->incarnation);
    add_number(to, run->finished);
    add(to, run->run_id);
    add_number(to, recovery->last_closed);
    add_number(to, recovery->attempt);
    add_number(to, recovery->next_task_id);
    add(to, facts->strategy);
    add_number(to, facts->bytes_up);
    add_number(to, facts->bytes_down);
    add_number(to, facts->elapsed_ms);
    add_number(to, fedge_crc32(0, data->model, data->model_size));
    add_number(to, fedge_crc32(0, data->strategy_state, data->strategy_state_size));
    add_number(to, fedge_crc32(0, data->last_accepted, data->last_accepted_size));
    add_number(to, recovery->reclose);
    add_number(to, recovery->wanted);
    for (uint32_t i = 0; i < recovery->num_tasks; i++)
        add_slot(to, recovery->journal, i);
}

/* A start: fails, or fills [to]; [told]: it said what it had to repair. */
static fedge_status start(const char *dir, standing *to, bool *told, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    fedge_state state;
    fedge_run run = {.number = 0};
    fedge_recovery recovery = {.has_checkpoint = false};
    fedge_round_log log = {.file = {.fd = -1}};
    to->used = 0;
    *told = false;
    fedge_status status = fedge_state_open(dir, &state, err);
    if (status != FEDGE_OK)
        return status;
    status = fedge_run_open(&state, &(fedge_run_request){.job = "{}", .job_size = 2}, &run, err);
    if (status == FEDGE_OK)
        status = fedge_recover(&run, &recovery, err);
    if (status == FEDGE_OK)
        status = fedge_run_path(&run, "rounds.jsonl", path, err);
    if (status == FEDGE_OK)
        status = fedge_round_log_open(&log, path, recovery.last_closed, err);
    if (status == FEDGE_OK) {
        *told = recovery.note[0] != '\0' || log.last_round < recovery.last_closed;
        describe(&run, &recovery, to);
        fedge_round_log_close(&log);
    }
    fedge_recovery_fini(&recovery);
    fedge_state_close(&state);
    return status;
}

/* --- the run --------------------------------------------------------------------------------- */

static void save_checkpoint(const fedge_run *run, uint32_t round, char hash[FEDGE_HASH_TEXT])
{
    char dir[FEDGE_MAX_PATH];
    const uint8_t last_accepted[16] = {(uint8_t)round};
    fedge_checkpoint facts = {.round = round,
                              .incarnation = 1,
                              .strategy = "SCAFFOLD",
                              .next_task_id = 1 + TEST_SLOTS * round,
                              .bytes_up = 1000 * round,
                              .bytes_down = 2000 * round,
                              .elapsed_ms = 777 * round};
    memcpy(facts.run_id, run->run_id, sizeof(facts.run_id));
    const fedge_checkpoint_files files = {.model = (const uint8_t *)"the model's values",
                                          .model_size = 18 - round,
                                          .strategy_state = (const uint8_t *)"momentum",
                                          .strategy_state_size = 8,
                                          .last_accepted = last_accepted,
                                          .last_accepted_size = sizeof(last_accepted)};
    OK(fedge_run_path(run, "checkpoints", dir, NULL));
    OK(fedge_checkpoint_save(dir, &facts, &files, NULL));
    memcpy(hash, facts.model, FEDGE_HASH_TEXT);
}

/* A journal of [round] on the model [hash] with two updates, the first of them by a second task. */
static void save_journal(const fedge_run *run, uint32_t round, const char *hash, bool closed)
{
    char dir[FEDGE_MAX_PATH];
    fedge_journal *journal;
    fedge_journal_task tasks[TEST_SLOTS];
    fedge_journal_phase phase = test_phase(round, 0);
    memcpy(phase.run_id, run->run_id, sizeof(phase.run_id));
    memcpy(phase.model, hash, sizeof(phase.model));
    const uint64_t first = 1 + (uint64_t)10 * (round - 1);
    for (uint32_t i = 0; i < TEST_SLOTS; i++)
        tasks[i] = test_task(first + i);
    const fedge_journal_task second = test_task(first + TEST_SLOTS);
    OK(fedge_run_path(run, "journal", dir, NULL));
    OK(fedge_journal_create(dir, &phase, tasks, 0, &journal, NULL));
    OK(fedge_journal_assign(journal, 0, &second, NULL));
    OK(test_accept(journal, 0, first + TEST_SLOTS, NULL));
    OK(fedge_journal_sync(journal, NULL));
    OK(test_accept(journal, 1, first + 1, NULL));
    OK(closed ? fedge_journal_close(journal, NULL) : fedge_journal_sync(journal, NULL));
    fedge_journal_free(journal);
}

/* One round closed and its journal kept, the next one open. */
static void make_run(const char *dir)
{
    char path[FEDGE_MAX_PATH], hash[FEDGE_HASH_TEXT];
    fedge_state state;
    fedge_run run;
    fedge_round_log log;
    OK(fedge_state_open(dir, &state, NULL));
    OK(fedge_run_open(&state, &(fedge_run_request){.job = "{}", .job_size = 2}, &run, NULL));
    save_checkpoint(&run, 0, hash);
    save_journal(&run, 1, hash, true);
    OK(fedge_run_path(&run, "rounds.jsonl", path, NULL));
    OK(fedge_round_log_open(&log, path, 0, NULL));
    OK(fedge_round_log_append(&log, 1, FEDGE_TASK_TRAIN, "\"accuracy\":0.5", NULL));
    fedge_round_log_close(&log);
    save_checkpoint(&run, 1, hash);
    save_journal(&run, 2, hash, false);
    fedge_state_close(&state);
}

/* The next byte of the file to change, one bit of it. */
static size_t next_place(const kept_file *file, size_t at)
{
    if (file->size < RECORDS_END)
        return at + (file->size > 100 ? 3 : 1);
    if (at < RECORDS_END)
        return at + 11;
    return at < file->size - SLOTS_SIZE ? file->size - SLOTS_SIZE : at + 1009;
}

static void look_at(const char *dir, const kept_file *damaged, const standing *whole)
{
    standing now;
    bool told;
    fedge_error err = {.message = ""};
    const fedge_status status = start(dir, &now, &told, &err);
    if (status != FEDGE_OK) {
        assert_true(strlen(err.message) > 20);
    } else if (!told && strcmp(now.text, whole->text) != 0) {
        fail_msg("damage of %s is not told: %s instead of %s", damaged->path, now.text,
                 whole->text);
    }
    for (size_t i = 0; i < kept.count; i++) { /* recovery has repaired, or cut */
        put_back(&kept.files[i]);
    }
}

static void damage_is_told(void **state)
{
    char dir[FEDGE_MAX_PATH];
    standing whole;
    bool told;
    snprintf(dir, sizeof(dir), "%s/state", (const char *)*state);
    make_run(dir);
    kept.count = 0;
    OK(fedge_os_list_dir(dir, keep, dir, NULL));
    assert_int_equal(kept.count, 14);
    OK(start(dir, &whole, &told, NULL));
    assert_false(told);
    for (size_t i = 0; i < kept.count; i++) {
        kept_file *file = &kept.files[i];
        for (size_t at = 0; at < file->size; at = next_place(file, at)) {
            const uint8_t bit = (uint8_t)(1 << (at * 5 + i) % 8);
            file->data[at] ^= bit;
            put_back(file);
            file->data[at] ^= bit;
            look_at(dir, file, &whole);
        }
        for (size_t size = 0; size < file->size; size += file->size / 5 + 1) {
            const kept_file cut = {.data = file->data, .size = size};
            kept_file shorter = cut;
            memcpy(shorter.path, file->path, sizeof(shorter.path));
            put_back(&shorter);
            look_at(dir, file, &whole);
        }
    }
    for (size_t i = 0; i < kept.count; i++)
        free(kept.files[i].data);
}

/* The seals of all files removed: as an older release left them. */
static void files_of_an_older_release_are_taken(void **state)
{
    char dir[FEDGE_MAX_PATH];
    standing whole, now;
    uint32_t removed = 0;
    bool told;
    snprintf(dir, sizeof(dir), "%s/state", (const char *)*state);
    make_run(dir);
    OK(start(dir, &whole, &told, NULL));
    kept.count = 0;
    OK(fedge_os_list_dir(dir, keep, dir, NULL));
    for (size_t i = 0; i < kept.count; i++) {
        kept_file *file = &kept.files[i];
        if (strstr(file->path, ".json") && file->size > FEDGE_SEAL_SIZE) {
            char *seal = strstr((char *)file->data, ",\"crc32\":");
            assert_non_null(seal);
            memcpy(seal, "}\n", 3);
            file->size -= FEDGE_SEAL_SIZE - 1;
            put_back(file);
            removed++;
        }
        free(file->data);
    }
    assert_int_equal(removed, 5); /* of format, run, two checkpoints and the round log */
    OK(start(dir, &now, &told, NULL));
    assert_false(told);
    assert_string_equal(now.text, whole.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(damage_is_told, test_dir_setup, test_dir_teardown),
        cmocka_unit_test_setup_teardown(files_of_an_older_release_are_taken, test_dir_setup,
                                        test_dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

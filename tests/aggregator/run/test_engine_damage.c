/* The disk flips bits during a run: the model is made of undamaged bytes, or not at all. */
#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "aggregator/run/engine_state.h"
#include "aggregator/run/exit_codes.h"
#include "aggregator/store/journal_file.h"
#include "aggregator/store/model_file.h"
#include "tests/aggregator/run/federation.h"

#define ROUNDS "\"num-server-rounds\":2,\"min-train-nodes\":4,\"min-available-nodes\":4"

enum { DEVICES = 4 };

static federation fed;
static bool damage_sealed; /* device 0's update, once the seal is on the disk */

static void damage_update(const fedge_journal *journal, uint32_t device);

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
fedge_status __real_fedge_journal_close(fedge_journal *journal, fedge_error *err);
fedge_status __wrap_fedge_journal_close(fedge_journal *journal, fedge_error *err);
/* NOLINTEND(bugprone-reserved-identifier) */

fedge_status __wrap_fedge_journal_close(fedge_journal *journal, fedge_error *err)
{
    const fedge_status status = __real_fedge_journal_close(journal, err);
    if (damage_sealed)
        damage_update(journal, 0);
    return status;
}

static void flip(const char *path, uint64_t offset)
{
    fedge_os_file file;
    uint8_t byte;
    MUST(fedge_os_open(&file, path, FEDGE_OS_READ_WRITE, ERR));
    MUST(fedge_os_read_at(&file, offset, &byte, 1, ERR));
    byte ^= 0x10;
    MUST(fedge_os_write_at(&file, offset, &byte, 1, ERR));
    fedge_os_close(&file);
}

/* A byte of what the journal has of the device's update. */
static void damage_update(const fedge_journal *journal, uint32_t device)
{
    for (uint32_t slot = 0; slot < journal->phase.num_tasks; slot++) {
        const journal_layout *layout = &journal->layout;
        if (journal->slots[slot].facts.task.client_index == device) {
            fed_must(journal->slots[slot].facts.accepted, "update", "not there");
            flip(journal->file.path, layout->slots_offset + slot * layout->slot_stride + 42);
        }
    }
}

/* A byte of what the device said of it. */
static void damage_record(const fedge_journal *journal, uint32_t device)
{
    for (uint32_t slot = 0; slot < journal->phase.num_tasks; slot++) {
        if (journal->slots[slot].facts.task.client_index == device)
            flip(journal->file.path, journal->slots[slot].metadata_offset + 9);
    }
}

/* All but the last device have reported in round 1. */
static void begin(const char *strategy)
{
    char inside[32];
    snprintf(inside, sizeof(inside), "\"type\":\"%s\"", strategy);
    fed_init_strategy(&fed, "engine-damage-test", ROUNDS, inside);
    fed_open(&fed);
    fed.devices[DEVICES - 1].idle = true;
    fed_join_all(&fed, DEVICES);
    fed_settle(&fed);
    assert_int_equal(fedge_journal_num_accepted(fed.engine->journal), DEVICES - 1);
}

static void report_last(void)
{
    fed.devices[DEVICES - 1].idle = false;
    fed_make_result(&fed.devices[DEVICES - 1]);
}

static void finish(char hash[FEDGE_HASH_TEXT])
{
    fedge_error failure;
    fed_finish(&fed, &failure);
    assert_string_equal(failure.status == FEDGE_OK ? "" : failure.message, "");
    const fedge_run_status status = fed_status(&fed);
    assert_int_equal(status.rounds_closed, 2);
    memcpy(hash, status.model_hash, FEDGE_HASH_TEXT);
    fed_fini(&fed);
}

/* The model's hash after the same run without damage. */
static void run_undamaged(const char *strategy, char hash[FEDGE_HASH_TEXT])
{
    begin(strategy);
    report_last();
    finish(hash);
}

static void damage_before_the_step_is_asked_for_again(void **state)
{
    static const char *const STRATEGIES[] = {"FedMedian", "IFCA"};
    (void)state;
    for (size_t i = 0; i < sizeof(STRATEGIES) / sizeof(*STRATEGIES); i++) {
        char whole[FEDGE_HASH_TEXT], mended[FEDGE_HASH_TEXT];
        run_undamaged(STRATEGIES[i], whole);
        begin(STRATEGIES[i]);
        damage_update(fed.engine->journal, 0);
        damage_record(fed.engine->journal, 2);
        report_last();
        finish(mended);
        assert_string_equal(mended, whole);
        for (uint32_t d = 0; d < DEVICES; d++)
            assert_int_equal(fed.devices[d].num_asked_again, d == 0 || d == 2);
    }
}

/* Between the seal and the step: this process ends, and the next one asks again. */
static void damage_behind_the_seal_is_never_stepped_with(void **state)
{
    char whole[FEDGE_HASH_TEXT], mended[FEDGE_HASH_TEXT];
    fedge_error failure;
    (void)state;
    run_undamaged("FedMedian", whole);
    begin("FedMedian");
    damage_sealed = true;
    report_last();
    fed_finish(&fed, &failure);
    assert_int_equal(failure.status, FEDGE_CORRUPT);
    assert_non_null(strstr(failure.message, "the disk has damaged the update of task"));
    assert_int_equal(fedge_exit_code_of(failure.status, FEDGE_EXIT_FAILURE), FEDGE_EXIT_FAILURE);
    damage_sealed = false;
    fed_close(&fed);
    fed_open(&fed);
    assert_int_equal(fed_status(&fed).rounds_closed, 0);
    fed_join_all(&fed, DEVICES);
    finish(mended);
    assert_string_equal(mended, whole);
    for (uint32_t d = 0; d < DEVICES; d++)
        assert_int_equal(fed.devices[d].num_asked_again, d == 0);
}

static bool first_is_saved(const federation *of)
{
    if (fed_status(of).rounds_closed != 1)
        return false;
    fedge_blob *model = of->engine->model;
    assert_int_equal(pthread_mutex_lock(&model->lock), 0);
    const bool saved = !model->bytes;
    assert_int_equal(pthread_mutex_unlock(&model->lock), 0);
    return saved;
}

/* The last byte of the file that the newest model is served from. */
static void damage_model(void)
{
    const fedge_blob *model = fed.engine->model;
    assert_null(model->bytes);
    flip(model->file.path, model->size - 1);
}

static fedge_status read_model(fedge_error *err)
{
    uint8_t bytes[1024];
    assert_in_range(fed.engine->model->size, 1, sizeof(bytes));
    return fedge_blob_read(fed.engine->model, 0, bytes, fed.engine->model->size, err);
}

/* Round 1 has closed and its model's file is damaged; reading it fails. */
static void begin_with_a_damaged_model(void)
{
    fedge_error err;
    begin("FedAvg");
    report_last();
    while (fed_status(&fed).rounds_closed == 0)
        fed_step(&fed);
    fed.devices[DEVICES - 1].idle = true;
    fed_until(&fed, first_is_saved, "checkpoint");
    damage_model();
    assert_int_equal(read_model(&err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "is damaged: its bytes are not those of SHA-256"));
}

static void a_damaged_model_is_mended_from_memory(void **state)
{
    char whole[FEDGE_HASH_TEXT], mended[FEDGE_HASH_TEXT];
    fedge_error err;
    (void)state;
    run_undamaged("FedAvg", whole);
    begin_with_a_damaged_model();
    fed_settle(&fed);
    fed_step(&fed);
    assert_int_equal(read_model(&err), FEDGE_OK);
    fed.devices[0].fetched = 0;
    fed_fetch(&fed.devices[0], fed.engine->model->hash, 0);
    fed_settle(&fed);
    assert_int_equal(fed.devices[0].fetched, fed.engine->model->size);
    report_last();
    finish(mended);
    assert_string_equal(mended, whole);
}

/* Where memory cannot give it either, the next start makes it from the journal. */
static void a_model_that_cannot_be_mended_ends_the_run(void **state)
{
    char whole[FEDGE_HASH_TEXT], mended[FEDGE_HASH_TEXT];
    fedge_error failure;
    (void)state;
    run_undamaged("FedAvg", whole);
    begin_with_a_damaged_model();
    fed.engine->server.model.values[0] += 1.0f;
    fed_finish(&fed, &failure);
    assert_int_equal(failure.status, FEDGE_MISMATCH);
    assert_non_null(strstr(failure.message, "when the program is started again"));
    fed_close(&fed);
    fed_open(&fed);
    fed.devices[DEVICES - 1].idle = false;
    fed_join_all(&fed, DEVICES);
    finish(mended);
    assert_string_equal(mended, whole);
}

static void the_final_model_is_the_one_that_is_named(void **state)
{
    char path[FEDGE_MAX_PATH];
    fedge_error failure;
    fedge_model_report report;
    (void)state;
    begin("FedAvg");
    report_last();
    fed_finish(&fed, &failure);
    MUST(fedge_round_finalizer_wait(fed.engine->finalizer, ERR));
    damage_model();
    MUST(fedge_engine_export(fed.engine, ERR));
    MUST(fedge_run_path(&fed.engine->server.run, FEDGE_RUN_MODEL, path, ERR));
    MUST(fedge_model_file_read(path, &report, ERR));
    assert_string_equal(report.model, fed_status(&fed).model_hash);
    fedge_model_report_fini(&report);
    fed_fini(&fed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_before_the_step_is_asked_for_again),
        cmocka_unit_test(damage_behind_the_seal_is_never_stepped_with),
        cmocka_unit_test(a_damaged_model_is_mended_from_memory),
        cmocka_unit_test(a_model_that_cannot_be_mended_ends_the_run),
        cmocka_unit_test(the_final_model_is_the_one_that_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A journal's updates one by one: plain ones are read where they lie, deflated ones are kept
 * decoded, and what that takes is free before a step begins. */
#include "tests/aggregator/store/store_fixture.h"

#include "aggregator/rounds/strategy.h"
#include "aggregator/run/ingest/accepted_updates.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"
#include "tests/aggregator/rounds/strategy_jobs.h"

enum { UPDATES = 3, BOUND_LOG2 = 2 };

typedef struct fixture {
    fedge_job *job;
    fedge_journal *journal;
    fedge_stored_updates kept;
    fedge_accepted_updates updates;
    fedge_upload uploads[UPDATES];
} fixture;

/* Update i has (i + 1) / 64 everywhere. */
static void begin(fixture *f, const char *more, const char *dir)
{
    fedge_error err;
    uint8_t *bytes[UPDATES];
    int8_t bounds[FEDGE_MAX_TENSORS];
    fedge_journal_task tasks[UPDATES];
    *f = (fixture){0};
    OK(parse_parts(&(job_parts){.strategy = "{\"type\": \"FedMedian\"}", .more = more}, &f->job,
                   &err));
    const fedge_plan *plan = &f->job->plan;
    const size_t count = plan->sent.schema.num_elements;
    memset(bounds, BOUND_LOG2, sizeof(bounds));
    fedge_journal_phase phase = test_phase(1, 0);
    phase.num_bounds = plan->sent.schema.num_tensors;
    memcpy(phase.bounds_log2, bounds, phase.num_bounds);
    phase.slot_size = fedge_update_max_size(plan);
    phase.num_tasks = UPDATES;
    float *changes = malloc(count * sizeof(*changes));
    float *residual = calloc(count + 1, sizeof(*residual));
    for (uint32_t i = 0; i < UPDATES; i++) {
        tasks[i] = test_task(i + 1);
        for (size_t k = 0; k < count; k++)
            changes[k] = (float)(i + 1) / 64.0f;
        const fedge_update update = {.plan = plan,
                                     .bounds_log2 = bounds,
                                     .changes = changes,
                                     .residual = fedge_plan_makes_residual(plan) ? residual : NULL};
        OK(fedge_update_encode(&update, &f->uploads[i], &bytes[i], &err));
    }
    free(changes);
    free(residual);
    OK(fedge_journal_create(dir, &phase, tasks, 0, &f->journal, &err));
    fedge_stored_updates_init(&f->kept, &plan->sent.sections[0].schema, 1 << 20);
    OK(fedge_accepted_updates_init(&f->updates, plan, f->journal, &f->kept, UPDATES, &err));
    for (uint32_t i = 0; i < UPDATES; i++) {
        fedge_upload *upload = &f->uploads[i];
        upload->crc32 = fedge_crc32(0, bytes[i], upload->size);
        OK(fedge_journal_write(f->journal, i, i + 1, 0, bytes[i], (uint32_t)upload->size, &err));
        OK(fedge_journal_accept(f->journal, i, i + 1, upload->size, upload->crc32, "{}", 2, &err));
        OK(fedge_accepted_updates_add(&f->updates, i, upload, &err));
        free(bytes[i]);
    }
}

static void end(fixture *f)
{
    fedge_accepted_updates_fini(&f->updates);
    fedge_stored_updates_fini(&f->kept);
    fedge_journal_free(f->journal);
    fedge_job_free(f->job);
}

static bool has_room(const fixture *f)
{
    return f->updates.bytes || f->updates.raw || f->updates.v;
}

/* As both are sent without loss. */
static void check_values(fixture *f)
{
    const fedge_updates updates = fedge_accepted_updates_get(&f->updates);
    fedge_error err;
    assert_int_equal(updates.num, UPDATES);
    for (uint32_t i = 0; i < UPDATES; i++) {
        int32_t v[3];
        OK(updates.read(updates.user, i, 2, 0, 3, v, &err));
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(v[k], (i + 1) << (30 - BOUND_LOG2 - 6));
    }
}

static void plain_ones_need_no_room(void **state)
{
    fixture f;
    begin(&f, ", \"update\": {\"codec\": \"none\", \"deflate\": false}", *state);
    assert_false(has_room(&f));
    check_values(&f);
    end(&f);
}

static void the_room_of_deflated_ones_is_free_when_a_step_begins(void **state)
{
    fixture f;
    begin(&f, ", \"update\": {\"codec\": \"none\", \"deflate\": true}", *state);
    assert_true(has_room(&f));
    check_values(&f);
    assert_false(has_room(&f));
    end(&f);
}

/* The last byte of slot [slot]'s update becomes another. */
static void damage(fixture *f, uint32_t slot)
{
    const size_t at = (size_t)f->uploads[slot].size - 1;
    uint8_t byte;
    fedge_os_file file;
    fedge_error err;
    uint64_t size, stride = (fedge_update_max_size(&f->job->plan) + 4095) / 4096 * 4096;
    OK(fedge_os_open(&file, fedge_journal_path(f->journal), FEDGE_OS_READ_WRITE, &err));
    OK(fedge_os_file_size(&file, &size, &err));
    const uint64_t offset = size - stride * (UPDATES - slot) + at;
    OK(fedge_os_read_at(&file, offset, &byte, 1, &err));
    byte ^= 4;
    OK(fedge_os_write_at(&file, offset, &byte, 1, &err));
    fedge_os_close(&file);
}

static void damage_is_found_as_they_are_added(void **state)
{
    static const char *const more[] = {
        ", \"update\": {\"codec\": \"none\", \"deflate\": false}",
        ", \"update\": {\"codec\": \"int8\", \"deflate\": false}",
        ", \"update\": {\"up\": \"topk:0.5\", \"error-feedback\": \"off\"}",
        ", \"update\": {\"codec\": \"none\", \"deflate\": true}"};
    for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++) {
        fixture f;
        fedge_error err;
        begin(&f, more[i], *state);
        fedge_accepted_updates again;
        damage(&f, 1);
        OK(fedge_accepted_updates_init(&again, &f.job->plan, f.journal, &f.kept, UPDATES, &err));
        OK(fedge_accepted_updates_add(&again, 0, &f.uploads[0], &err));
        assert_int_equal(fedge_accepted_updates_add(&again, 1, &f.uploads[1], &err), FEDGE_CORRUPT);
        assert_non_null(strstr(err.message, "the disk has damaged the update of task 2"));
        OK(fedge_accepted_updates_add(&again, 2, &f.uploads[2], &err));
        assert_int_equal(again.num, 2);
        fedge_accepted_updates_fini(&again);
        end(&f);
        OK(fedge_os_remove_tree(*state, &err));
        OK(fedge_os_make_dirs(*state, &err));
    }
}

/* Of the piece that is damaged alone. */
static void later_damage_is_found_as_they_are_read(void **state)
{
    fixture f;
    fedge_error err;
    int32_t v[3];
    begin(&f, ", \"update\": {\"codec\": \"none\", \"deflate\": false}", *state);
    const fedge_updates updates = fedge_accepted_updates_get(&f.updates);
    const uint32_t last = f.job->plan.sent.schema.num_tensors - 1;
    damage(&f, 1);
    OK(updates.read(updates.user, 1, 0, 0, 3, v, &err));
    OK(updates.read(updates.user, 2, last, 0, 3, v, &err));
    assert_int_equal(updates.read(updates.user, 1, last, 0, 3, v, &err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "the disk has damaged the update of task 2"));
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plain_ones_need_no_room, test_dir_setup, test_dir_teardown),
        cmocka_unit_test_setup_teardown(the_room_of_deflated_ones_is_free_when_a_step_begins,
                                        test_dir_setup, test_dir_teardown),
        cmocka_unit_test_setup_teardown(damage_is_found_as_they_are_added, test_dir_setup,
                                        test_dir_teardown),
        cmocka_unit_test_setup_teardown(later_damage_is_found_as_they_are_read, test_dir_setup,
                                        test_dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What the store and the rounds make, with memory that runs out at each allocation in turn. */
#include "tests/edge/core/no_memory.h"

#include "tests/aggregator/store/store_fixture.h"

#include "aggregator/rounds/evaluator.h"
#include "aggregator/rounds/global_model.h"
#include "aggregator/rounds/rounds.h"
#include "aggregator/run/ingest/accepted_updates.h"
#include "aggregator/store/json_file.h"
#include "aggregator/store/recovery.h"
#include "aggregator/store/round_log.h"
#include "edge/plan/plan.h"

static const char JOB[] =
    "{\"fedge-job\": 1, \"name\": \"s\", \"model\": {\"input-shape\": [2], \"layers\": ["
    "{\"type\": \"Linear\", \"in_features\": 2, \"out_features\": 2}]},"
    "\"data\": {\"name\": \"d\", \"shape\": [2], \"dtype\": \"f32\", \"labels\": 2},"
    "\"training\": {\"learning-rate\": 0.5}, \"rounds\": {\"num-server-rounds\": 3},"
    "\"test-set\": {\"values\": \"test.csv\"}}";

static const char *folder; /* of the test */

static void in_folder(const char *name, char path[FEDGE_MAX_PATH])
{
    snprintf(path, FEDGE_MAX_PATH, "%s/%s", folder, name);
}

/* --- what stands on the heap ----------------------------------------------------------------- */

static fedge_status make_journal(void **made, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    fedge_journal *journal = *made;
    const fedge_journal_phase phase = test_phase(1, 0);
    OK(fedge_journal_make_path(folder, 1, 0, path, NULL));
    OK(fedge_os_remove_tree(path, NULL)); /* the failure may be one after its making */
    const fedge_status status = test_create(folder, &phase, &journal, err);
    *made = journal;
    return status;
}

static fedge_status recover_journal(void **made, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    fedge_journal *journal = *made;
    OK(fedge_journal_make_path(folder, 1, 0, path, NULL));
    const fedge_status status = fedge_journal_recover(path, &journal, err);
    *made = journal;
    return status;
}

static void free_journal(void *made)
{
    fedge_journal_free(made);
}

static void journals(void **state)
{
    fedge_journal *journal;
    folder = *state;
    each_allocation_may_fail(make_journal, free_journal);
    char path[FEDGE_MAX_PATH];
    OK(fedge_journal_make_path(folder, 1, 0, path, NULL));
    OK(fedge_journal_recover(path, &journal, NULL));
    OK(test_accept(journal, 0, 1, NULL));
    OK(test_accept(journal, 1, 2, NULL));
    fedge_journal_free(journal);
    each_allocation_may_fail(recover_journal, free_journal);
}

static fedge_status read_json(void **made, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    cJSON *json = *made;
    in_folder("a.json", path);
    const fedge_status status = fedge_json_file_read(path, 1000, &json, err);
    *made = json;
    return status;
}

static void delete_json(void *made)
{
    cJSON_Delete(made);
}

static void json_files(void **state)
{
    char path[FEDGE_MAX_PATH];
    folder = *state;
    in_folder("a.json", path);
    OK(fedge_json_file_write(path, "{\"format\":1}", 12, NULL));
    each_allocation_may_fail(read_json, delete_json);
}

static fedge_status make_rounds(void **made, fedge_error *err)
{
    fedge_rounds *rounds = *made;
    const fedge_rounds_spec spec = {.num_server_rounds = 3,
                                    .fraction_train = 1,
                                    .min_train_nodes = 1,
                                    .min_available_nodes = 1,
                                    .over_selection = 1,
                                    .max_cohort = 8,
                                    .max_weight = 1,
                                    .round_deadline_ms = 100,
                                    .min_report_fraction = 1};
    const fedge_status status = fedge_rounds_new(&spec, 7, &rounds, err);
    *made = rounds;
    return status;
}

static void free_rounds(void *made)
{
    fedge_rounds_free(made);
}

static void rounds(void **state)
{
    (void)state;
    each_allocation_may_fail(make_rounds, free_rounds);
}

static fedge_job *job;

static fedge_status make_evaluator(void **made, fedge_error *err)
{
    fedge_evaluator *evaluator = *made;
    const fedge_status status = fedge_evaluator_new(job, &evaluator, err);
    *made = evaluator;
    return status;
}

static void free_evaluator(void *made)
{
    fedge_evaluator_free(made);
}

static fedge_status make_accepted(void **made, fedge_error *err)
{
    static fedge_accepted_updates updates;
    char path[FEDGE_MAX_PATH];
    fedge_journal *journal = NULL;
    const fedge_journal_phase phase = test_phase(1, 0);
    const long left = no_memory.left;
    no_memory.left = -1;
    OK(fedge_journal_make_path(folder, 1, 0, path, NULL));
    OK(fedge_os_remove_tree(path, NULL));
    OK(test_create(folder, &phase, &journal, err));
    no_memory.left = left;
    const fedge_status status =
        fedge_accepted_updates_init(&updates, &job->plan, journal, NULL, 4, err);
    fedge_journal_free(journal);
    if (status != FEDGE_OK)
        fedge_accepted_updates_fini(&updates);
    *made = status == FEDGE_OK ? &updates : NULL;
    return status;
}

static void free_accepted(void *made)
{
    fedge_accepted_updates_fini(made);
}

static fedge_global_model model;

static fedge_status make_model_file(void **made, fedge_error *err)
{
    uint8_t *file = *made;
    size_t size, told;
    const fedge_status status = fedge_global_model_write(&model, &file, &size, &told, err);
    *made = file;
    return status;
}

static void models(void **state)
{
    const fedge_accumulator_config config = {.num_lanes = 1};
    (void)state;
    OK(fedge_strategy_job_parse(JOB, sizeof(JOB) - 1, "job.json", &job, NULL));
    OK(fedge_global_model_init(&model, job, "cpu", &config, NULL));
    OK(fedge_global_model_begin(&model, NULL));
    each_allocation_may_fail(make_model_file, free);
    fedge_global_model_fini(&model);
    fedge_job_free(job);
}

static void evaluators(void **state)
{
    char path[FEDGE_MAX_PATH], data[FEDGE_MAX_PATH];
    folder = *state;
    in_folder("job.json", path);
    in_folder("test.csv", data);
    OK(fedge_os_write_file(path, JOB, sizeof(JOB) - 1, 0600, NULL));
    OK(fedge_os_write_file(data, "1,2,0\n3,4,1\n", 12, 0600, NULL));
    OK(fedge_job_load(path, &job, NULL));
    each_allocation_may_fail(make_evaluator, free_evaluator);
    each_allocation_may_fail(make_accepted, free_accepted);
    fedge_job_free(job);
}

/* --- what is filled in place ----------------------------------------------------------------- */

/* Recovery holds a checkpoint, a journal and a list of tasks: after a failure none of them. */
static void recovery_holds_nothing_after_a_failure(void **state)
{
    char path[FEDGE_MAX_PATH];
    fedge_state open;
    fedge_run run;
    fedge_journal *journal;
    OK(fedge_state_open(*state, &open, NULL));
    OK(fedge_run_open(&open, &(fedge_run_request){.job = "{}", .job_size = 2}, &run, NULL));
    fedge_checkpoint facts = {
        .round = 0, .incarnation = 1, .strategy = "FedAvg", .next_task_id = 1};
    memcpy(facts.run_id, run.run_id, sizeof(facts.run_id));
    const fedge_checkpoint_files files = {.model = (const uint8_t *)"model",
                                          .model_size = 5,
                                          .strategy_state = (const uint8_t *)"state",
                                          .strategy_state_size = 5};
    OK(fedge_run_path(&run, "checkpoints", path, NULL));
    OK(fedge_checkpoint_save(path, &facts, &files, NULL));
    fedge_journal_phase phase = test_phase(1, 0);
    memcpy(phase.run_id, run.run_id, sizeof(phase.run_id));
    memcpy(phase.model, facts.model, sizeof(phase.model));
    OK(fedge_run_path(&run, "journal", path, NULL));
    OK(test_create(path, &phase, &journal, NULL));
    OK(test_accept(journal, 1, 2, NULL));
    OK(fedge_journal_close(journal, NULL));
    fedge_journal_free(journal);
    bool run_out = true;
    for (long n = 0; run_out; n++) {
        fedge_recovery recovery;
        fedge_error err;
        assert_in_range(n, 0, 1000);
        no_memory.left = n;
        no_memory.run_out = false;
        const fedge_status status = fedge_recover(&run, &recovery, &err);
        run_out = no_memory.run_out;
        no_memory.left = -1;
        assert_int_equal(status, run_out ? FEDGE_NO_MEMORY : FEDGE_OK);
        if (run_out) {
            assert_null(recovery.journal);
            assert_null(recovery.tasks);
            assert_null(recovery.checkpoint.model);
        }
        fedge_recovery_fini(&recovery);
    }
    fedge_state_close(&open);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(journals), TEST(json_files), TEST(rounds),
        TEST(models),   TEST(evaluators), TEST(recovery_holds_nothing_after_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

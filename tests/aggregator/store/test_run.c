#include "tests/aggregator/store/store_fixture.h"

#include "aggregator/store/checkpoint.h"
#include "aggregator/store/run.h"

static const char job_a[] = "{\"name\": \"a\"}", job_b[] = "{\"name\": \"b\"}";

static fedge_status open_run(const fedge_state *state, const char *job, bool new_run,
                             fedge_run *run, fedge_error *err)
{
    const fedge_run_request request = {.job = job, .job_size = strlen(job), .new_run = new_run};
    return fedge_run_open(state, &request, run, err);
}

static void a_run_is_resumed(void **state)
{
    fedge_state place;
    fedge_run first, again;
    char path[FEDGE_MAX_PATH + 64];
    OK(fedge_state_open(*state, &place, NULL));
    OK(open_run(&place, job_a, false, &first, NULL));
    assert_false(first.resumed);
    assert_int_equal(first.number, 1);
    assert_int_equal(first.incarnation, 1);
    assert_int_equal(strlen(first.run_id), 32);
    const char *names[] = {"job.json", "run.json", "journal", "checkpoints"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        OK(fedge_run_path(&first, names[i], path, NULL));
        assert_true(fedge_os_exists(path));
    }
    fedge_state_close(&place);
    fedge_state_close(&place);
    OK(fedge_state_open(*state, &place, NULL));
    OK(open_run(&place, job_a, false, &again, NULL));
    assert_true(again.resumed);
    assert_string_equal(again.run_id, first.run_id);
    assert_int_equal(again.next_task_id, 0);
    OK(fedge_run_begin_task_ids(&again, 77, NULL));
    OK(fedge_run_raise_incarnation(&again, NULL));
    OK(open_run(&place, job_a, false, &again, NULL));
    assert_true(again.incarnation > first.incarnation);
    assert_int_equal(again.next_task_id, 77);
    fedge_state_close(&place);
}

static void another_job_needs_a_new_run(void **state)
{
    fedge_state place;
    fedge_run first, second, third;
    fedge_error err;
    OK(fedge_state_open(*state, &place, NULL));
    OK(open_run(&place, job_a, false, &first, NULL));
    assert_int_equal(open_run(&place, job_b, false, &second, &err), FEDGE_MISMATCH);
    assert_non_null(strstr(err.message, "--new-run"));
    assert_non_null(strstr(err.message, first.run_id));
    OK(open_run(&place, job_b, true, &second, NULL));
    assert_int_equal(second.number, 2);
    assert_string_not_equal(first.run_id, second.run_id);
    OK(open_run(&place, job_a, false, &third, NULL)); /* each job finds its own */
    assert_string_equal(third.run_id, first.run_id);
    OK(open_run(&place, job_a, true, &third, NULL));
    OK(open_run(&place, job_a, false, &first, NULL)); /* the newest of two */
    assert_string_equal(third.run_id, first.run_id);
    fedge_state_close(&place);
}

static void a_finished_run_is_left_alone(void **state)
{
    fedge_state place;
    fedge_run first, second;
    OK(fedge_state_open(*state, &place, NULL));
    OK(open_run(&place, job_a, false, &first, NULL));
    OK(fedge_run_finish(&first, NULL));
    OK(open_run(&place, job_b, false, &second, NULL));
    assert_false(second.resumed);
    assert_int_equal(second.number, 2);
    fedge_state_close(&place);
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[FEDGE_MAX_PATH + 64];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    OK(fedge_os_write_file(path, text, strlen(text), 0600, NULL));
}

static void write_result(const fedge_run *run, const char *name)
{
    char path[FEDGE_MAX_PATH];
    OK(fedge_run_path(run, name, path, NULL));
    OK(fedge_os_write_file(path, "result", 6, 0644, NULL));
}

static void remove_from(const fedge_run *run, const char *name)
{
    char path[FEDGE_MAX_PATH];
    OK(fedge_run_path(run, name, path, NULL));
    OK(fedge_os_remove_tree(path, NULL));
}

/* Round 3 is the last and, with [best], another one the best. */
static void save_checkpoints(const fedge_run *run, uint32_t best)
{
    char path[FEDGE_MAX_PATH];
    const uint8_t model[] = "model";
    const fedge_checkpoint_files files = {.model = model, .model_size = sizeof(model)};
    OK(fedge_run_path(run, "checkpoints", path, NULL));
    for (uint32_t round = best > 0 ? best : 3; round <= 3; round++) {
        fedge_checkpoint checkpoint = {.round = round, .strategy = "FedAvg"};
        checkpoint.selection.best = (fedge_selected){.round = best, .model = "b"};
        OK(fedge_checkpoint_save(path, &checkpoint, &files, NULL));
    }
}

/* A finished run of job_a with its results, and the best round's model if [best]. */
static void make_finished(const fedge_state *place, uint32_t best, fedge_run *run)
{
    OK(open_run(place, job_a, true, run, NULL));
    save_checkpoints(run, best);
    write_result(run, FEDGE_RUN_MODEL);
    write_result(run, FEDGE_RUN_PICTURE);
    if (best > 0)
        write_result(run, FEDGE_RUN_BEST_MODEL);
    OK(fedge_run_finish(run, NULL));
}

static void assert_comes_back(const fedge_state *place, const char *result, const fedge_run *run)
{
    const fedge_run_request request = {.job = job_a, .job_size = strlen(job_a), .result = result};
    fedge_run again;
    OK(fedge_run_open(place, &request, &again, NULL));
    assert_string_equal(again.run_id, run->run_id);
    assert_true(again.finished && again.resumed);
}

/* A new run begins; [lost]: the run of which something is missing for good. */
static void assert_another(const fedge_state *place, const char *result, const char *lost)
{
    const fedge_run_request request = {.job = job_a, .job_size = strlen(job_a), .result = result};
    fedge_run again;
    OK(fedge_run_open(place, &request, &again, NULL));
    assert_false(again.finished || again.resumed);
    assert_string_equal(again.lost, lost);
    OK(fedge_os_remove_tree(again.dir, NULL));
}

static void a_finished_run_without_its_results_comes_back(void **state)
{
    static const char *const names[] = {FEDGE_RUN_MODEL, FEDGE_RUN_PICTURE, FEDGE_RUN_BEST_MODEL};
    fedge_state place;
    fedge_run run, other;
    OK(fedge_state_open(*state, &place, NULL));
    for (uint32_t best = 0; best < 2; best++) {
        make_finished(&place, best, &run);
        assert_another(&place, NULL, "");
        for (size_t i = 0; i < 2 + best; i++) {
            remove_from(&run, names[i]);
            assert_comes_back(&place, NULL, &run);
            write_result(&run, names[i]);
        }
        assert_another(&place, NULL, "");
    }
    remove_from(&run, FEDGE_RUN_MODEL);
    OK(open_run(&place, job_b, false, &other, NULL)); /* another job's do not count */
    assert_int_equal(other.number, 3);
    assert_string_equal(other.lost, "");
    fedge_state_close(&place);
}

static void models_of_clusters_are_results(void **state)
{
    fedge_state place;
    fedge_run run, again;
    fedge_run_request request = {.job = job_a, .job_size = strlen(job_a), .num_cluster_models = 2};
    OK(fedge_state_open(*state, &place, NULL));
    make_finished(&place, 0, &run);
    assert_another(&place, NULL, "");
    for (int i = 0; i < 2; i++) {
        OK(fedge_run_open(&place, &request, &again, NULL));
        assert_string_equal(again.run_id, run.run_id);
        write_result(&run, i == 0 ? "model-cluster-2.safetensors" : "model-cluster-1.safetensors");
    }
    OK(fedge_run_open(&place, &request, &again, NULL));
    assert_false(again.finished || again.resumed);
    fedge_state_close(&place);
}

static void a_missing_result_elsewhere_counts(void **state)
{
    fedge_state place;
    fedge_run run;
    char result[FEDGE_MAX_PATH];
    OK(fedge_state_open(*state, &place, NULL));
    make_finished(&place, 0, &run);
    snprintf(result, sizeof(result), "%s/result.json", (const char *)*state);
    assert_comes_back(&place, result, &run);
    OK(fedge_os_write_file(result, "{}", 2, 0644, NULL));
    assert_another(&place, result, "");
    fedge_state_close(&place);
}

/* A new run begins, and names the one whose results nobody can have any more. */
static void results_that_nothing_is_left_of_are_told(void **state)
{
    fedge_state place;
    fedge_run run;
    char result[FEDGE_MAX_PATH];
    OK(fedge_state_open(*state, &place, NULL));
    make_finished(&place, 1, &run);
    remove_from(&run, FEDGE_RUN_BEST_MODEL);
    remove_from(&run, "checkpoints/round-000001");
    assert_another(&place, NULL, run.run_id);
    remove_from(&run, "checkpoints/round-000003/state.json");
    assert_another(&place, NULL, ""); /* nothing tells that there was a best one */
    remove_from(&run, "checkpoints/round-000002");
    remove_from(&run, "checkpoints/round-000003");
    assert_another(&place, NULL, "");
    snprintf(result, sizeof(result), "%s/result.json", (const char *)*state);
    assert_another(&place, result, run.run_id);
    remove_from(&run, "checkpoints");
    remove_from(&run, FEDGE_RUN_MODEL);
    assert_another(&place, NULL, run.run_id);
    fedge_state_close(&place);
}

static void a_new_run_leaves_missing_results(void **state)
{
    fedge_state place;
    fedge_run first, second;
    char path[FEDGE_MAX_PATH];
    OK(fedge_state_open(*state, &place, NULL));
    OK(open_run(&place, job_a, false, &first, NULL));
    OK(fedge_run_path(&first, "checkpoints/round-000000", path, NULL));
    OK(fedge_os_make_dirs(path, NULL));
    OK(fedge_run_finish(&first, NULL));
    OK(open_run(&place, job_a, true, &second, NULL));
    assert_int_equal(second.number, 2);
    fedge_state_close(&place);
}

/* Bits of the job.json of [run]: told with what mends it, and no run of this job is begun. */
static void assert_damage_is_told(const fedge_state *place, const fedge_run *run)
{
    char text[sizeof(job_a)];
    fedge_run again;
    fedge_error err;
    for (size_t bit = 0; bit < 8 * strlen(job_a); bit += 7) {
        memcpy(text, job_a, sizeof(job_a));
        text[bit / 8] ^= (char)(1 << bit % 8);
        write_text(run->dir, "job.json", text);
        assert_int_equal(open_run(place, job_a, false, &again, &err), FEDGE_CORRUPT);
        assert_non_null(strstr(err.message, "job.json is damaged: put a copy of the given job"));
        assert_non_null(strstr(err.message, run->run_id));
    }
    OK(open_run(place, job_b, true, &again, NULL)); /* no matter of another job's */
    OK(fedge_os_remove_tree(again.dir, NULL));
    write_text(run->dir, "job.json", job_a); /* as the message says */
    OK(open_run(place, job_a, false, &again, NULL));
    assert_string_equal(again.run_id, run->run_id);
}

static void a_damaged_job_is_told(void **state)
{
    fedge_state place;
    fedge_run run, again;
    fedge_error err;
    OK(fedge_state_open(*state, &place, NULL));
    OK(open_run(&place, job_a, false, &run, NULL));
    assert_damage_is_told(&place, &run);
    OK(fedge_run_begin_task_ids(&run, 77, NULL));
    assert_damage_is_told(&place, &run);
    OK(fedge_os_remove_tree(run.dir, NULL));
    make_finished(&place, 0, &run);
    remove_from(&run, FEDGE_RUN_MODEL);
    assert_damage_is_told(&place, &run);
    /* Of an older release, until the next write. */
    write_text(run.dir, "run.json", "{\"number\":1,\"incarnation\":1}");
    OK(open_run(&place, job_a, false, &run, NULL));
    write_text(run.dir, "job.json", "{\"name\": \"c\"}");
    assert_int_equal(open_run(&place, job_a, false, &again, &err), FEDGE_MISMATCH);
    OK(fedge_run_begin_task_ids(&run, 78, NULL));
    assert_int_equal(open_run(&place, job_a, false, &again, &err), FEDGE_CORRUPT);
    fedge_state_close(&place);
}

/* A run that is asked for by its name is neither followed by a new one nor passed over. */
static void a_named_run_is_opened_though_finished(void **state)
{
    fedge_state place;
    fedge_run first, second, again;
    OK(fedge_state_open(*state, &place, NULL));
    OK(open_run(&place, job_a, false, &first, NULL));
    OK(fedge_run_finish(&first, NULL));
    fedge_run_request request = {.job = job_a, .job_size = strlen(job_a), .run_id = first.run_id};
    OK(fedge_run_open(&place, &request, &again, NULL));
    assert_string_equal(again.run_id, first.run_id);
    assert_true(again.finished && again.resumed);
    request.run_id = "";
    OK(fedge_run_open(&place, &request, &second, NULL));
    assert_int_equal(second.number, 2);
    request.run_id = first.run_id;
    OK(fedge_run_open(&place, &request, &again, NULL));
    assert_string_equal(again.run_id, first.run_id);
    OK(fedge_run_finish(&second, NULL));
    request.job = job_b;
    OK(fedge_run_open(&place, &request, &again, NULL));
    assert_int_equal(again.number, 3); /* of this job it would have to be */
    fedge_state_close(&place);
}

static void a_second_aggregator_is_refused(void **state)
{
    fedge_state first, second;
    fedge_error err;
    char pid[32];
    OK(fedge_state_open(*state, &first, NULL));
    assert_int_equal(fedge_state_open(*state, &second, &err), FEDGE_BUSY);
    snprintf(pid, sizeof(pid), "pid %ld", (long)getpid());
    assert_non_null(strstr(err.message, pid));
    assert_non_null(strstr(err.message, "another aggregator"));
    fedge_state_close(&second);
    fedge_state_close(&first);
    OK(fedge_state_open(*state, &second, &err));
    fedge_state_close(&second);
}

static void bad_state_is_told(void **state)
{
    fedge_state place;
    fedge_run run;
    fedge_error err;
    const struct {
        const char *text;
        fedge_status status;
    } formats[] = {
        {"{\"format\":2}", FEDGE_UNSUPPORTED},
        {"{\"format\":\"1\"}", FEDGE_CORRUPT},
        {"{\"format\":1.5}", FEDGE_CORRUPT},
        {"{\"format\":1", FEDGE_CORRUPT},
        {"[1]", FEDGE_CORRUPT},
        {"", FEDGE_CORRUPT},
    };
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        write_text(*state, "format.json", formats[i].text);
        assert_int_equal(fedge_state_open(*state, &place, &err), formats[i].status);
        assert_non_null(strstr(err.message, "format.json"));
    }
    write_text(*state, "format.json", "{\"format\":1}");
    OK(fedge_state_open(*state, &place, NULL));
    OK(open_run(&place, job_a, false, &run, NULL));
    const char *broken[] = {"", "{}", "{\"number\":1,\"incarnation\":0}",
                            "{\"number\":-1,\"incarnation\":1}",
                            "{\"number\":1,\"incarnation\":4294967296}"};
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        write_text(run.dir, "run.json", broken[i]);
        assert_int_equal(open_run(&place, job_a, false, &run, &err), FEDGE_CORRUPT);
        assert_non_null(strstr(err.message, "run.json"));
        snprintf(run.dir, sizeof(run.dir), "%s/runs/%s", (const char *)*state, run.run_id);
    }
    fedge_state_close(&place);
    char long_path[600];
    memset(long_path, 'x', sizeof(long_path));
    long_path[sizeof(long_path) - 1] = '\0';
    assert_int_equal(fedge_state_open(long_path, &place, &err), FEDGE_TOO_BIG);
}

/* A crash while a run was made leaves nothing that counts. */
static void half_made_runs_vanish(void **state)
{
    fedge_state place;
    fedge_run run;
    char path[FEDGE_MAX_PATH + 64];
    snprintf(path, sizeof(path), "%s/runs/new-0123/journal", (const char *)*state);
    OK(fedge_os_make_dirs(path, NULL));
    OK(fedge_state_open(*state, &place, NULL));
    assert_false(fedge_os_exists(path));
    snprintf(path, sizeof(path), "%s/runs/somebody's notes", (const char *)*state);
    OK(fedge_os_make_dirs(path, NULL));
    OK(open_run(&place, job_a, false, &run, NULL));
    assert_int_equal(run.number, 1);
    fedge_state_close(&place);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_run_is_resumed),
        TEST(another_job_needs_a_new_run),
        TEST(a_finished_run_is_left_alone),
        TEST(a_finished_run_without_its_results_comes_back),
        TEST(models_of_clusters_are_results),
        TEST(a_missing_result_elsewhere_counts),
        TEST(results_that_nothing_is_left_of_are_told),
        TEST(a_new_run_leaves_missing_results),
        TEST(a_damaged_job_is_told),
        TEST(a_named_run_is_opened_though_finished),
        TEST(a_second_aggregator_is_refused),
        TEST(bad_state_is_told),
        TEST(half_made_runs_vanish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SCAFFOLD's control variate of a client: what it sends, what it keeps, and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_state.h"
#include "edge/core/bytes.h"
#include "edge/core/os.h"
#include "edge/data/formats/safetensors.h"
#include "edge/plan/update.h"

/* Linear(2, 2) of which row 1 is trained: two weights and a bias. */
static const char JOB[] =
    "{\"fedge-job\": 1, \"name\": \"s\", \"model\": {\"input-shape\": [2], \"layers\": ["
    "{\"type\": \"Linear\", \"in_features\": 2, \"out_features\": 2, \"train-channels\": [1, 2]}]},"
    "\"data\": {\"name\": \"d\", \"shape\": [2], \"dtype\": \"f32\", \"labels\": 2},"
    "\"training\": {\"learning-rate\": 0.5}, \"rounds\": {\"num-server-rounds\": 3},"
    "\"strategy\": {\"type\": \"SCAFFOLD\"}, \"update\": {\"codec\": \"none\", \"deflate\": "
    "false}}";

static const char RUN[] = "00112233445566778899aabbccddeeff";
static const int8_t BOUNDS[4] = {2, 2, 0, 0}; /* of the variates: 1 */
static const float SERVER[3] = {0.25f, -0.5f, 0.125f};

static fedge_job *job;
static fedge_store *store;
static fedge_hooks_state hooks;
static fedge_client_state client_state;
static int num_lost; /* warnings */

static void count_lost(void *user, const char *line, size_t size)
{
    (void)user, (void)size;
    num_lost += strstr(line, " warn kept-lost ") != NULL;
}

static const fedge_log LOG = {.level = FEDGE_LOG_WARN, .write = count_lost};

static int set_up(void **state)
{
    (void)state;
    num_lost = 0;
    fedge_error err;
    return fedge_job_parse(JOB, sizeof(JOB) - 1, "job.json", &job, &err) != FEDGE_OK ||
           fedge_store_open(NULL, 1 << 20, &store, &err) != FEDGE_OK ||
           fedge_hooks_state_init(&hooks, &job->plan, &err) != FEDGE_OK;
}

static int tear_down(void **state)
{
    (void)state;
    fedge_hooks_state_fini(&hooks);
    fedge_store_close(store);
    fedge_job_free(job);
    return 0;
}

static void begin(uint64_t last_accepted)
{
    fedge_error err = {0};
    const fedge_schema *schema = &job->plan.sent.sections[0].schema;
    size_t size = 0;
    assert_int_equal(fedge_safetensors_size(schema, &size, &err), FEDGE_OK);
    uint8_t *file = malloc(size);
    assert_int_equal(fedge_safetensors_write(schema, SERVER, file, size, &err), FEDGE_OK);
    const fedge_task task = {.has_last_accepted = true, .last_accepted = last_accepted};
    client_state = (fedge_client_state){.store = store, .run_id = RUN, .log = &LOG};
    if (fedge_client_state_begin(&client_state, &hooks, &task, file, size, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    free(file);
}

/* A round of 4 steps at 0.5 that moved the trained values so, and what is kept of it. */
static void work(uint64_t task_id, const float move[3], uint64_t last_accepted)
{
    fedge_error err = {0};
    float sent[6];
    uint8_t *bytes = NULL;
    begin(last_accepted);
    memcpy(sent, move, 3 * sizeof(float));
    assert_int_equal(fedge_hooks_end(&hooks, 4, 0.5, sent, &err), FEDGE_OK);
    for (int i = 0; i < 3; i++)
        assert_true(sent[3 + i] == -move[i] / 2 - SERVER[i]);
    fedge_upload upload = {.task_id = task_id};
    memcpy(upload.run_id, RUN, sizeof(RUN));
    assert_int_equal(
        fedge_client_state_encode(
            &hooks, &(fedge_update){.plan = &job->plan, .bounds_log2 = BOUNDS, .changes = sent},
            &upload, &bytes, &err),
        FEDGE_OK);
    for (int i = 0; i < 2; i++) { /* a full disk is tried again: that changes nothing */
        if (fedge_client_state_store(&client_state, &hooks, &upload, &err) != FEDGE_OK)
            fail_msg("%s", err.message);
    }
    free(bytes);
}

static void expect_own(uint64_t last_accepted, float a, float b, float c)
{
    begin(last_accepted);
    const float own[3] = {a, b, c};
    assert_memory_equal(hooks.client_state, own, sizeof(own));
    const float correction[6] = {0, 0, SERVER[0] - a, SERVER[1] - b, 0, SERVER[2] - c};
    assert_memory_equal(hooks.correction, correction, sizeof(correction));
}

static void it_is_that_of_the_update_that_counted(void **state)
{
    (void)state;
    expect_own(0, 0, 0, 0);
    work(7, (const float[3]){0.5f, 1.0f, -3.0f}, 0);
    expect_own(0, 0, 0, 0); /* not in c, or all begin anew */
    /* −0.5 / 2 − 0.25 = −0.5; −1 / 2 + 0.5 = 0; 3 / 2 − 0.125 = 1.375, sent as the bound, 1 */
    expect_own(7, -0.5f, 0, 1);
    work(8, (const float[3]){0, 0, 0}, 7);
    expect_own(7, -0.5f, 0, 1); /* refused, cancelled, or of a round that failed */
    work(9, (const float[3]){0, 0, 0}, 7);
    expect_own(9, -0.75f, 0.5f, 0.875f);
    expect_own(7, -0.5f, 0, 1);
    assert_false(client_state.lost);
    work(10, (const float[3]){0, 0, 0}, 9);
    expect_own(9, -0.75f, 0.5f, 0.875f);
    expect_own(10, -1.0f, 1.0f, 0.75f); /* the bound: −1 */
}

/* The server knows of an update and the device does not, or has something else in its place. */
static void a_lost_one_is_told(void **state)
{
    (void)state;
    fedge_error err;
    const uint8_t junk[11] = {9};
    expect_own(9, 0, 0, 0);
    assert_true(client_state.lost);
    assert_int_equal(num_lost, 1);
    assert_int_equal(fedge_store_put(store, RUN, "fedge-control-next", junk, sizeof(junk), &err),
                     FEDGE_OK);
    assert_int_equal(fedge_store_put(store, RUN, "fedge-control", junk, sizeof(junk), &err),
                     FEDGE_OK);
    expect_own(9, 0, 0, 0);
    assert_true(client_state.lost);
    assert_int_equal(num_lost, 2);
    expect_own(0, 0, 0, 0);
    assert_false(client_state.lost);
    assert_int_equal(num_lost, 2);
    work(10, (const float[3]){0.5f, 1.0f, -3.0f}, 9);
    assert_true(client_state.lost);
    expect_own(10, -0.5f, 0, 1);
    assert_false(client_state.lost);
}

#define DIR "control-test"

static void write_file(const char *path, const uint8_t *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* In a directory: whatever bit of a variate's file the disk changes, c_i is lost, never another. */
static void a_damaged_one_is_lost(void **state)
{
    (void)state;
    static const char *const names[] = {
        DIR "/kv/00112233445566778899aabbccddeeff/fedge-control+crc32",
        DIR "/kv/00112233445566778899aabbccddeeff/fedge-control-next+crc32"};
    fedge_error err;
    fedge_store_close(store);
    assert_int_equal(fedge_os_remove_tree(DIR, NULL), FEDGE_OK);
    assert_int_equal(fedge_store_open(DIR, 1 << 20, &store, &err), FEDGE_OK);
    work(7, (const float[3]){0.5f, 1.0f, -3.0f}, 0);
    work(8, (const float[3]){0, 0, 0}, 7);
    for (int i = 0; i < 2; i++) {
        uint8_t *file;
        size_t size;
        assert_int_equal(fedge_os_read_file(names[i], 1000, &file, &size, &err), FEDGE_OK);
        const uint64_t task_id = fedge_get_u64(file);
        assert_true(task_id == 7 || task_id == 8);
        for (size_t bit = 0; bit < size * 8; bit++) {
            file[bit / 8] ^= (uint8_t)(1 << bit % 8);
            write_file(names[i], file, size);
            file[bit / 8] ^= (uint8_t)(1 << bit % 8);
            expect_own(task_id, 0, 0, 0);
            assert_true(client_state.lost);
            expect_own(15 - task_id, task_id == 7 ? -0.75f : -0.5f, task_id == 7 ? 0.5f : 0,
                       task_id == 7 ? 0.875f : 1);
            assert_false(client_state.lost);
        }
        write_file(names[i], file, size);
        free(file);
    }
    assert_int_equal(fedge_os_remove_tree(DIR, NULL), FEDGE_OK);
}

/* A server that cannot tell would leave c_i at 0 for ever. */
static void an_older_server_is_refused(void **state)
{
    (void)state;
    fedge_error err;
    const fedge_task task = {.task_id = 3};
    client_state = (fedge_client_state){.store = store, .run_id = RUN};
    assert_int_equal(fedge_client_state_begin(&client_state, &hooks, &task, NULL, 0, &err),
                     FEDGE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "update the aggregator"));
}

/* Clusters are evaluated with the broadcast models, and whatever codec sends the updates. */
static void an_evaluation_needs_no_update(void **state)
{
    (void)state;
    fedge_error err = {0};
    uint8_t file[1024];
    size_t size = 0;
    const fedge_schema *schema = &job->plan.sent.sections[0].schema;
    const fedge_task task = {.task_id = 3, .kind = FEDGE_TASK_EVALUATE};
    client_state = (fedge_client_state){.store = store, .run_id = RUN, .log = &LOG};
    assert_int_equal(fedge_safetensors_size(schema, &size, &err), FEDGE_OK);
    assert_in_range(size, 1, sizeof(file));
    assert_int_equal(fedge_safetensors_write(schema, SERVER, file, size, &err), FEDGE_OK);
    if (fedge_client_state_begin(&client_state, &hooks, &task, file, size, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_false(client_state.lost);
}

static void it_needs_steps_and_a_rate(void **state)
{
    (void)state;
    fedge_error err;
    float sent[6] = {0};
    begin(0);
    assert_int_equal(fedge_hooks_end(&hooks, 0, 0.5, sent, &err), FEDGE_INVALID_ARGUMENT);
    assert_int_equal(fedge_hooks_end(&hooks, 4, 0, sent, &err), FEDGE_INVALID_ARGUMENT);
}

static void another_file_is_refused(void **state)
{
    (void)state;
    fedge_error err;
    uint8_t file[1024];
    size_t size = 0;
    const float values[6] = {0};
    const fedge_task task = {.has_last_accepted = true};
    client_state = (fedge_client_state){.store = store, .run_id = RUN};
    assert_int_equal(fedge_safetensors_size(&job->plan.schema, &size, &err), FEDGE_OK);
    assert_in_range(size, 1, sizeof(file));
    assert_int_equal(fedge_safetensors_write(&job->plan.schema, values, file, size, &err),
                     FEDGE_OK);
    assert_int_equal(fedge_client_state_begin(&client_state, &hooks, &task, file, size, &err),
                     FEDGE_MISMATCH);
    assert_int_not_equal(fedge_client_state_begin(&client_state, &hooks, &task, file, 0, &err),
                         FEDGE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_is_that_of_the_update_that_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lost_one_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_one_is_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_older_server_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_evaluation_needs_no_update, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_needs_steps_and_a_rate, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_file_is_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

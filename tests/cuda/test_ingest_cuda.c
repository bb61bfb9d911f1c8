/* Ingest workers whose sums are on a GPU: the updates of a group go into them by one launch,
 * whether they were sent as they are or deflated. */
#include "tests/aggregator/store/store_fixture.h"

#include <pthread.h>

#include "aggregator/rounds/global_model.h"
#include "aggregator/rounds/strategy.h"
#include "aggregator/run/ingest/ingest.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"
#include "tests/cuda/emulator/emulator.h"

enum { INPUTS = 64, OUTPUTS = 16, ELEMENTS = (INPUTS + 1) * OUTPUTS, MAX_SIZE = 4 * ELEMENTS };

static const char JOB[] =
    "{\"fedge-job\":1,\"name\":\"tiny\",\"model\":{\"input-shape\":[64],\"layers\":["
    "{\"type\":\"Linear\",\"in_features\":64,\"out_features\":16}]},\"data\":{\"name\":\"points\","
    "\"shape\":[64],\"dtype\":\"f32\",\"labels\":16},\"training\":{\"learning-rate\":0.1},"
    "\"rounds\":{\"num-server-rounds\":1},\"update\":{%s}}";

/* The workers' first write waits until all is queued, so that they find it all at once; and their
 * clock stands still, so that no group is too old. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

fedge_status __real_fedge_journal_write(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                        uint64_t offset, const void *bytes, size_t size,
                                        fedge_error *err);
fedge_status __wrap_fedge_journal_write(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                        uint64_t offset, const void *bytes, size_t size,
                                        fedge_error *err);
uint64_t __wrap_fedge_os_monotonic_ns(void);

fedge_status __wrap_fedge_journal_write(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                        uint64_t offset, const void *bytes, size_t size,
                                        fedge_error *err)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return __real_fedge_journal_write(journal, slot, task_id, offset, bytes, size, err);
}

uint64_t __wrap_fedge_os_monotonic_ns(void)
{
    return 1000;
}

/* ---- one phase ------------------------------------------------------------------------------- */

typedef struct phase {
    fedge_job *job;
    fedge_accumulator accumulator, expected; /* on the GPU; on the CPU */
    fedge_mailbox *mailbox;
    fedge_ingest *ingest;
    fedge_journal *journal;
    int8_t bounds[FEDGE_MAX_TENSORS];
} phase;

static fedge_error err;

static void begin(phase *self, const char *update, const char *dir, uint32_t num_tasks,
                  bool in_place)
{
    char text[sizeof(JOB) + 64];
    fedge_journal_task tasks[2 * FEDGE_ACCUMULATOR_MAX_BATCH];
    snprintf(text, sizeof(text), JOB, update);
    memset(self, 0, sizeof(*self));
    if (fedge_strategy_job_parse(text, strlen(text), "job.json", &self->job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    const fedge_update_layout layout = fedge_plan_update_layout(&self->job->plan);
    const fedge_accumulator_config config = {
        .layout = &layout, .num_lanes = 1, .in_place = in_place};
    if (fedge_accumulator_open("cuda", &config, &self->accumulator, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    OK(fedge_accumulator_open("cpu", &config, &self->expected, &err));
    OK(fedge_mailbox_new(&self->mailbox, NULL, NULL, &err));
    OK(fedge_ingest_new(&self->ingest, &self->job->plan, &self->accumulator, self->mailbox, 1,
                        &err));
    fedge_journal_phase made = test_phase(1, 0);
    made.slot_size = MAX_SIZE;
    made.num_tasks = num_tasks;
    memset(made.bounds_log2, 2, sizeof(made.bounds_log2));
    for (uint32_t i = 0; i < num_tasks; i++)
        tasks[i] = test_task(i + 1);
    OK(fedge_journal_create(dir, &made, tasks, 0, &self->journal, &err));
    memset(self->bounds, 2, sizeof(self->bounds));
}

static void end(phase *self, const char *dir)
{
    fedge_ingest_free(self->ingest);
    for (fedge_mailbox_item *item = fedge_mailbox_take(self->mailbox), *next; item; item = next) {
        next = item->next;
        assert_int_equal(((fedge_completion *)item)->status, FEDGE_OK);
        free(item);
    }
    fedge_mailbox_free(self->mailbox);
    fedge_journal_free(self->journal);
    fedge_accumulator_close(&self->accumulator);
    fedge_accumulator_close(&self->expected);
    fedge_job_free(self->job);
    OK(fedge_os_remove_tree(dir, NULL));
    OK(fedge_os_make_dirs(dir, NULL));
    assert_null(emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
}

/* A task's update, of few different values, so that deflating pays. */
static uint8_t *make_upload(const phase *self, uint64_t task_id, fedge_ingest_upload *made)
{
    float values[ELEMENTS];
    static float residual[ELEMENTS + 1]; /* and its round */
    uint8_t *encoded = NULL;
    for (uint32_t i = 0; i < ELEMENTS; i++)
        values[i] = (float)((i / 100 + task_id) % 5) / 8.0f - 0.25f;
    memset(residual, 0, sizeof(residual));
    OK(fedge_update_encode(
        &(fedge_update){.plan = &self->job->plan,
                        .bounds_log2 = self->bounds,
                        .changes = values,
                        .residual = fedge_plan_makes_residual(&self->job->plan) ? residual : NULL},
        &made->upload, &encoded, &err));
    assert_in_range(made->upload.size, 1, MAX_SIZE);
    made->upload.task_id = task_id;
    made->weight = 1 + (uint32_t)task_id % 5;
    made->meta_size = (uint32_t)snprintf(made->meta, sizeof(made->meta), "{}");
    return encoded;
}

static void queue_update(phase *self, uint32_t slot)
{
    bool full = true;
    fedge_ingest_upload *upload = calloc(1, sizeof(*upload));
    uint8_t *bytes = make_upload(self, slot + 1, upload);
    const fedge_ingest_part part = {
        .task_id = slot + 1, .data = bytes, .size = (uint32_t)upload->upload.size};
    OK(fedge_ingest_write(self->ingest, self->journal, slot, &part, NULL, &full, &err));
    free(bytes);
    OK(fedge_ingest_finish(self->ingest, self->journal, slot, upload, &err));
}

/* The sums are those of the CPU, which replays the journal. */
static void check_sums(phase *self, uint32_t count)
{
    int64_t sums[ELEMENTS], expected[ELEMENTS];
    for (uint32_t slot = 0; slot < count; slot++) {
        fedge_ingest_upload upload = {0};
        free(make_upload(self, slot + 1, &upload));
        OK(fedge_ingest_replay(&self->job->plan, &self->expected, self->journal, slot,
                               &upload.upload, upload.weight, &err));
    }
    OK(fedge_accumulator_read(&self->accumulator, 0, ELEMENTS, sums, &err));
    OK(fedge_accumulator_read(&self->expected, 0, ELEMENTS, expected, &err));
    assert_memory_equal(sums, expected, sizeof(sums));
    assert_int_equal(fedge_accumulator_get_totals(&self->accumulator).num_updates, count);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const struct {
    const char *update, *kernel;
} WAYS[] = {
    {"\"codec\":\"none\",\"deflate\":false", "accumulate"},
    {"\"codec\":\"int8\",\"deflate\":false", "accumulate"},
    {"\"codec\":\"int8\",\"deflate\":true", "accumulate"},
    {"\"up\":\"topk:0.1+int8+deflate\"", "add_values"},
};
enum { NUM_WAYS = sizeof(WAYS) / sizeof(WAYS[0]), BATCH = FEDGE_ACCUMULATOR_MAX_BATCH };

/* How often the kernel is launched for [count] updates that come at once. in_place: there is room
 * on the GPU for one of them. */
static uint64_t count_launches(size_t way, uint32_t count, bool in_place, const char *dir)
{
    phase self;
    assert_true(emulator_start(
        &(emulator_config){.num_gpus = 1, .fail_at = WAYS[way].kernel, .unprotected = true}));
    begin(&self, WAYS[way].update, dir, count, in_place);
    pthread_mutex_lock(&gate);
    for (uint32_t slot = 0; slot < count; slot++)
        queue_update(&self, slot);
    pthread_mutex_unlock(&gate);
    if (fedge_ingest_flush(self.ingest, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    const uint64_t launches = emulator_counted();
    check_sums(&self, count);
    end(&self, dir);
    return launches;
}

static void a_group_is_added_by_one_launch(void **state)
{
    for (size_t i = 0; i < NUM_WAYS; i++) {
        assert_int_equal(count_launches(i, BATCH, false, *state), 1);
        assert_int_equal(count_launches(i, BATCH + 3, false, *state), 2);
    }
}

/* What the GPU has no copy of is added at once where its room is wanted by the next, else with its
 * group; the sums are the same. */
static void without_room_on_the_gpu_each_is_added_alone(void **state)
{
    for (size_t i = 0; i < NUM_WAYS; i++)
        assert_int_equal(count_launches(i, BATCH, true, *state), BATCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_group_is_added_by_one_launch, test_dir_setup,
                                        test_dir_teardown),
        cmocka_unit_test_setup_teardown(without_room_on_the_gpu_each_is_added_alone, test_dir_setup,
                                        test_dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

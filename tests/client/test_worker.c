/* What the worker makes of the reports of a trainer that is not fedge's own. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/builtin_trainer.h"
#include "client/worker.h"
#include "edge/core/os.h"
#include "edge/data/formats/safetensors.h"
#include "edge/plan/plan.h"
#include "edge/site/site.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/identity.h"

static const float MODEL[2] = {0.25F, -1.5F};

#define RUN "00112233445566778899aabbccddeeff"
#define JOB                                                                                        \
    "{\"fedge-job\": 1, \"name\": \"own\", \"model\": {\"type\": \"external\", \"tensors\": ["     \
    "{\"name\": \"w\", \"shape\": [2]}]}, \"training\": {\"learning-rate\": 0.1}, "                \
    "\"rounds\": {\"num-server-rounds\": 1}, \"update\": {\"codec\": \"none\", "                   \
    "\"deflate\": false}}"
/* Of two values, too. */
#define SCAFFOLD_JOB                                                                               \
    "{\"fedge-job\": 1, \"name\": \"s\", \"model\": {\"input-shape\": [1], \"layers\": ["          \
    "{\"type\": \"Linear\", \"in_features\": 1, \"out_features\": 2, \"bias\": false}]}, "         \
    "\"data\": {\"name\": \"d\", \"shape\": [1], \"dtype\": \"f32\", \"labels\": 2}, "             \
    "\"training\": {\"learning-rate\": 0.5}, \"rounds\": {\"num-server-rounds\": 3}, "             \
    "\"strategy\": {\"type\": \"SCAFFOLD\"}}"

#define TYPED_JOB                                                                                  \
    "{\"fedge-job\": 1, \"name\": \"t\", \"model\": {\"type\": \"external\", \"tensors\": ["       \
    "{\"name\": \"h\", \"shape\": [3], \"dtype\": \"F16\"}, {\"name\": \"count\", \"shape\": [], " \
    "\"dtype\": \"I64\"}, {\"name\": \"w\", \"shape\": [1]}, {\"name\": \"b\", \"shape\": [1], "   \
    "\"dtype\": \"BF16\", \"frozen\": true}]}, \"training\": {\"learning-rate\": 0.1}, "           \
    "\"rounds\": {\"num-server-rounds\": 1}, \"update\": {\"codec\": \"none\", "                   \
    "\"deflate\": false}}"

typedef struct rig {
    fedge_store *store;
    fedge_worker *worker;
    sem_t done;
    fedge_worker_result result;
    const char *job;            /* NULL: JOB */
    const float *model;         /* NULL: MODEL */
    bool typed;                 /* the trainer takes typed tensors */
    fedge_client_report report; /* what the next evaluation says */
    float seen[2];              /* what the last training began with */
    bool has_deltas;            /* the plan's models travel as deltas, too */
    bool trains, loses;         /* a training ends well; the model's blob is gone then */
    uint64_t works_ms;          /* how long an evaluation takes, */
    atomic_bool released;       /* unless it is released */
    fedge_assignment plan;
} rig;

static void on_done(void *user)
{
    (void)sem_post(&((rig *)user)->done);
}

static fedge_status take_plan(void *user, fedge_client *client, const fedge_client_plan *plan,
                              fedge_error *err)
{
    (void)user, (void)client, (void)plan, (void)err;
    return FEDGE_OK;
}

/* Of TYPED_JOB. */
static fedge_status train_typed(const fedge_client_task *task, float *values)
{
    const fedge_client_tensor *tensors = task->tensors;
    int64_t *count = tensors[1].data;
    uint16_t *half = tensors[0].data, *frozen = tensors[3].data;
    assert_string_equal(tensors[1].spec->name, "count");
    assert_true((uintptr_t)count % 8 == 0 && count[0] == -7);
    assert_true(tensors[2].data == values + 5);
    assert_true(half[0] == 0x3c00 && half[1] == 0xc000 && half[2] == 0);
    assert_int_equal(frozen[0], 0x3f80);
    count[0] = 1;
    half[2] = 0x3800;
    frozen[0] = 0;
    values[5] += 1;
    return FEDGE_OK;
}

static fedge_status train(void *user, fedge_client *client, const fedge_client_task *task,
                          float *values, fedge_client_report *report, fedge_error *err)
{
    (void)client, (void)task;
    rig *r = user;
    *report = r->report;
    memcpy(r->seen, values, sizeof(r->seen));
    if (r->typed)
        return train_typed(task, values);
    assert_null(task->tensors);
    if (r->trains) {
        values[0] += 1;
        values[1] -= 2;
        return r->loses ? fedge_store_blobs_keep(r->store, NULL, 0, err) : FEDGE_OK;
    }
    memset(values, 0, sizeof(r->seen));
    return fedge_fail(err, FEDGE_INTERNAL, "trained for nothing");
}

static fedge_status evaluate(void *user, fedge_client *client, const fedge_client_task *task,
                             const float *values, fedge_client_report *report, fedge_error *err)
{
    (void)client, (void)task, (void)values, (void)err;
    rig *r = user;
    *report = r->report;
    for (const uint64_t end_ms = fedge_os_monotonic_ms() + r->works_ms;
         fedge_os_monotonic_ms() < end_ms && !atomic_load(&r->released);)
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 1000000}, NULL);
    return FEDGE_OK;
}

/* The time of day of a board whose clock was set back by an hour since the wait began. */
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    const int status = __real_clock_gettime(clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += 3600;
    return status;
}

static void do_assignment(rig *r, const fedge_assignment *assignment)
{
    fedge_worker_start(r->worker, assignment);
    while (!fedge_worker_take(r->worker, &r->result))
        (void)sem_wait(&r->done);
}

static void put_blob(rig *r, const void *bytes, size_t size, char hash[FEDGE_HASH_TEXT])
{
    fedge_sha256_text(bytes, size, hash);
    assert_int_equal(fedge_store_blob_append(r->store, hash, 0, bytes, size, size, NULL), FEDGE_OK);
}

/* A worker that has its plan; *task is to evaluate a model that it holds. */
static void begin(rig *r, fedge_assignment *task)
{
    fedge_job *job;
    char *text;
    uint8_t file[1024];
    size_t size;
    (void)sem_init(&r->done, 0, 0);
    const char *job_text = r->job ? r->job : JOB;
    assert_int_equal(fedge_job_parse(job_text, strlen(job_text), "job.json", &job, NULL), FEDGE_OK);
    if (r->has_deltas)
        job->plan.update.down = job->plan.update.codec;
    assert_int_equal(fedge_store_open(NULL, 0, &r->store, NULL), FEDGE_OK);
    const fedge_worker_config config = {.callbacks = {.struct_size = sizeof(config.callbacks),
                                                      .user = r,
                                                      .plan = take_plan,
                                                      .train = train,
                                                      .evaluate = evaluate,
                                                      .typed_tensors = r->typed},
                                        .store = r->store,
                                        .done = on_done,
                                        .user = r};
    assert_int_equal(fedge_worker_new(&config, &r->worker, NULL), FEDGE_OK);
    fedge_assignment plan = {.kind = FEDGE_ASSIGNMENT_PLAN, .run_id = RUN};
    assert_int_equal(fedge_plan_write(&job->plan, &text, &size, NULL), FEDGE_OK);
    plan.plan_size = size;
    put_blob(r, text, size, plan.plan_hash);
    free(text);
    do_assignment(r, &plan);
    assert_int_equal(r->result.status, FEDGE_OK);
    r->plan = plan;
    assert_int_equal(fedge_safetensors_size(&job->plan.schema, &size, NULL), FEDGE_OK);
    assert_in_range(size, 1, sizeof(file));
    assert_int_equal(
        fedge_safetensors_write(&job->plan.schema, r->model ? r->model : MODEL, file, size, NULL),
        FEDGE_OK);
    *task = (fedge_assignment){.kind = FEDGE_ASSIGNMENT_TASK, .run_id = RUN};
    task->task =
        (fedge_task){.task_id = 1, .kind = FEDGE_TASK_EVALUATE, .round = 1, .model_size = size};
    put_blob(r, file, size, task->task.model);
    fedge_job_free(job);
}

static void end(rig *r)
{
    fedge_worker_free(r->worker);
    fedge_store_close(r->store);
    (void)sem_destroy(&r->done);
}

/* It counts as missing, so the task is declined with words for the trainer's author. */
static void a_metric_that_is_not_finite_is_missing(void **state)
{
    (void)state;
    static rig r;
    fedge_assignment task;
    begin(&r, &task);
    r.report = (fedge_client_report){
        .num_examples = 4, .num_metrics = 2, .metrics = {{"loss", 0.5}, {"accuracy", 1}}};
    static const double NOT_FINITE[] = {NAN, INFINITY, -INFINITY};
    for (int metric = 0; metric < 2; metric++) {
        const double good = r.report.metrics[metric].value;
        for (int i = 0; i < 3; i++) {
            r.report.metrics[metric].value = NOT_FINITE[i];
            do_assignment(&r, &task);
            assert_int_equal(r.result.status, FEDGE_INVALID_ARGUMENT);
            assert_non_null(strstr(r.result.error.message, "must report \"loss\" and"));
        }
        r.report.metrics[metric].value = good;
    }
    do_assignment(&r, &task);
    assert_int_equal(r.result.status, FEDGE_OK);
    assert_true(r.result.upload.num_metrics >= 2);
    end(&r);
}

static void training_begins_with_the_tasks_model(void **state)
{
    (void)state;
    static rig r;
    fedge_assignment task;
    begin(&r, &task);
    task.task.kind = FEDGE_TASK_TRAIN;
    task.task.learning_rate = 0.1F;
    for (int again = 0; again < 2; again++) {
        memset(r.seen, 0, sizeof(r.seen));
        do_assignment(&r, &task);
        assert_int_equal(r.result.status, FEDGE_INTERNAL);
        assert_memory_equal(r.seen, MODEL, sizeof(MODEL));
    }
    end(&r);
}

/* What does not lead to the model is fetched again. Without deltas in the plan there is none: it is
 * the model that counts, and it is fetched where it is not there. */
static void a_delta_that_makes_no_model_is_a_bad_blob(void **state)
{
    (void)state;
    for (int with = 0; with < 2; with++) {
        static rig r;
        fedge_assignment task;
        r.has_deltas = with != 0;
        begin(&r, &task);
        r.report = (fedge_client_report){
            .num_examples = 4, .num_metrics = 2, .metrics = {{"loss", 0.5}, {"accuracy", 1}}};
        fedge_delta_ref *delta = &task.task.deltas[0];
        memcpy(delta->base, task.task.model, sizeof(delta->base));
        delta->size = 5;
        put_blob(&r, "wrong", 5, delta->hash);
        task.task.num_deltas = task.task.delta = 1;
        memcpy(task.task.model, delta->hash, sizeof(task.task.model)); /* not a model's */
        task.task.model[0] = task.task.model[0] == 'a' ? 'b' : 'a';
        do_assignment(&r, &task);
        assert_int_equal(r.result.status, with ? FEDGE_TRUNCATED : FEDGE_NOT_FOUND);
        assert_true(r.result.bad_blob);
        memcpy(task.task.model, delta->base, sizeof(task.task.model));
        task.task.num_deltas = task.task.delta = 0;
        do_assignment(&r, &task);
        assert_int_equal(r.result.status, FEDGE_OK);
        assert_false(r.result.bad_blob);
        end(&r);
    }
}

/* What the model was at the start is read again when it has been trained. */
static void the_update_is_what_has_changed(void **state)
{
    (void)state;
    static rig r;
    fedge_assignment task;
    float sent[2];
    begin(&r, &task);
    r.report = (fedge_client_report){.num_examples = 4};
    r.trains = true;
    task.task.kind = FEDGE_TASK_TRAIN;
    do_assignment(&r, &task);
    assert_int_equal(r.result.status, FEDGE_OK);
    assert_int_equal(r.result.upload.size, sizeof(sent));
    assert_int_equal(fedge_store_result_read(r.store, 0, (uint8_t *)sent, sizeof(sent), NULL),
                     FEDGE_OK);
    assert_true(sent[0] == 1 && sent[1] == -2);
    r.loses = true;
    do_assignment(&r, &task);
    assert_int_equal(r.result.status, FEDGE_NOT_FOUND);
    assert_true(r.result.bad_blob);
    end(&r);
}

/* What a trainer leaves of halves is taken, and of what is frozen it is not. */
static void tensors_have_types_of_their_own(void **state)
{
    (void)state;
    static rig r;
    fedge_assignment task;
    float model[7] = {1, -2, 0, 0, 0, 4, 1}, sent[4];
    const int64_t count = -7;
    memcpy(model + 3, &count, sizeof(count));
    r.job = TYPED_JOB;
    r.model = model;
    r.typed = true;
    begin(&r, &task);
    r.report = (fedge_client_report){.num_examples = 4};
    task.task.kind = FEDGE_TASK_TRAIN;
    for (int again = 0; again < 2; again++) {
        do_assignment(&r, &task);
        assert_int_equal(r.result.status, FEDGE_OK);
        assert_int_equal(r.result.upload.size, sizeof(sent));
        assert_int_equal(fedge_store_result_read(r.store, 0, (uint8_t *)sent, sizeof(sent), NULL),
                         FEDGE_OK);
        assert_true(sent[0] == 0 && sent[1] == 0 && sent[2] == 0.5f && sent[3] == 1);
    }
    end(&r);
}

static void a_wait_ends_whatever_the_time_of_day_is(void **state)
{
    (void)state;
    static rig r;
    fedge_assignment task;
    begin(&r, &task);
    r.report = (fedge_client_report){
        .num_examples = 4, .num_metrics = 2, .metrics = {{"loss", 0.5}, {"accuracy", 1}}};
    r.works_ms = 5000; /* a wait that goes wrong ends with the work */
    fedge_worker_start(r.worker, &task);
    while (!fedge_worker_busy(r.worker))
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_false(fedge_worker_wait(r.worker, 20));
    atomic_store(&r.released, true);
    assert_true(fedge_worker_wait(r.worker, 60000));
    end(&r);
}

/* With the plan, where it is named and no model is held; a wrong one is not kept. */
static void the_initial_model_is_made(void **state)
{
    (void)state;
    static rig r;
    fedge_assignment task;
    static const float ZEROS[2] = {0}; /* the model is external */
    uint8_t file[1024], *made = NULL;
    char initial[FEDGE_HASH_TEXT];
    uint64_t held = 0;
    begin(&r, &task);
    const size_t size = (size_t)task.task.model_size;
    fedge_tensor_spec tensor;
    fedge_schema schema;
    fedge_schema_init(&schema, &tensor, 1);
    assert_int_equal(fedge_schema_add(&schema, "w", FEDGE_F32, 1, (uint32_t[]){2}, NULL), FEDGE_OK);
    assert_int_equal(fedge_safetensors_write(&schema, ZEROS, file, size, NULL), FEDGE_OK);
    fedge_sha256_text(file, size, initial);
    memcpy(r.plan.initial_model, initial, sizeof(initial));
    do_assignment(&r, &r.plan); /* another model is held */
    assert_int_equal(fedge_store_blob_held(r.store, initial, size, &held, NULL), FEDGE_OK);
    assert_int_equal(held, 0);
    for (int right = 0; right < 2; right++) {
        assert_int_equal(
            fedge_store_blobs_keep(r.store, (const char *[]){r.plan.plan_hash}, 1, NULL), FEDGE_OK);
        memcpy(r.plan.initial_model, right ? initial : task.task.model, sizeof(initial));
        do_assignment(&r, &r.plan);
        assert_int_equal(r.result.status, FEDGE_OK);
        assert_int_equal(fedge_store_blob_held(r.store, r.plan.initial_model, size, &held, NULL),
                         FEDGE_OK);
        assert_int_equal(held, right ? size : 0);
    }
    do_assignment(&r, &r.plan); /* it is held */
    assert_int_equal(fedge_store_blob_load(r.store, initial, size, &made, NULL), FEDGE_OK);
    assert_memory_equal(made, file, size);
    free(made);
    end(&r);
}

/* A device that lacks the data declines the plan before it makes the job's initial model. */
static void without_data_no_model_is_made(void **state)
{
    (void)state;
    static const char LISTED[] = "{\"data\": {\"d\": {\"values\": \"/dev/null\"}}}",
                      GONE[] = "{\"data\": {\"d\": {\"values\": \"/dev/null/d.csv\"}}}",
                      OTHER[] = "{\"data\": {\"e\": {\"values\": \"/dev/null\"}}}";
    static const char *const sites[] = {LISTED, GONE, OTHER};
    for (int i = 0; i < 3; i++) {
        static rig r;
        fedge_assignment task;
        fedge_site *site;
        fedge_builtin *trainer;
        fedge_worker_config config = {.done = on_done, .user = &r};
        float values[2];
        uint8_t file[1024];
        fedge_job *job;
        uint64_t held = 0;
        r.job = SCAFFOLD_JOB;
        begin(&r, &task);
        fedge_worker_free(r.worker);
        assert_int_equal(fedge_site_parse(sites[i], strlen(sites[i]), "site.json", &site, NULL),
                         FEDGE_OK);
        assert_int_equal(fedge_builtin_new(&(fedge_builtin_config){.site = site}, &trainer,
                                           &config.callbacks, NULL),
                         FEDGE_OK);
        config.site = site;
        config.store = r.store;
        assert_int_equal(fedge_worker_new(&config, &r.worker, NULL), FEDGE_OK);
        assert_int_equal(fedge_job_parse(r.job, strlen(r.job), "job.json", &job, NULL), FEDGE_OK);
        fedge_plan_initial_values(&job->plan, values);
        const size_t size = (size_t)task.task.model_size;
        assert_int_equal(fedge_safetensors_write(&job->plan.schema, values, file, size, NULL),
                         FEDGE_OK);
        fedge_job_free(job);
        fedge_sha256_text(file, size, r.plan.initial_model);
        assert_int_equal(
            fedge_store_blobs_keep(r.store, (const char *[]){r.plan.plan_hash}, 1, NULL), FEDGE_OK);
        do_assignment(&r, &r.plan);
        assert_int_equal(r.result.status, i == 0 ? FEDGE_OK : FEDGE_NOT_FOUND);
        assert_int_equal(fedge_store_blob_held(r.store, r.plan.initial_model, size, &held, NULL),
                         FEDGE_OK);
        assert_int_equal(held, i == 0 ? size : 0);
        end(&r);
        fedge_builtin_free(trainer);
        fedge_site_free(site);
    }
}

/* A model's header may have a mebibyte. A control file beside the model takes no second one. */
static void a_models_blob_has_one_spare_header(void **state)
{
    (void)state;
    for (int has_control = 0; has_control < 2; has_control++) {
        static rig r;
        fedge_assignment task;
        r.job = has_control ? SCAFFOLD_JOB : NULL;
        begin(&r, &task);
        assert_int_equal(r.result.max_model_size, task.task.model_size * (has_control ? 2 : 1) +
                                                      FEDGE_SAFETENSORS_MAX_HEADER);
        end(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_metric_that_is_not_finite_is_missing),
        cmocka_unit_test(training_begins_with_the_tasks_model),
        cmocka_unit_test(a_delta_that_makes_no_model_is_a_bad_blob),
        cmocka_unit_test(the_update_is_what_has_changed),
        cmocka_unit_test(the_initial_model_is_made),
        cmocka_unit_test(without_data_no_model_is_made),
        cmocka_unit_test(a_models_blob_has_one_spare_header),
        cmocka_unit_test(tensors_have_types_of_their_own),
        cmocka_unit_test(a_wait_ends_whatever_the_time_of_day_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

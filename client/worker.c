#define _POSIX_C_SOURCE 200809L /* clock_gettime, pthread_condattr_setclock */
#include "client/worker.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/client_state.h"
#include "client/fedge_client.h"
#include "client/own_trainer.h"
#include "edge/core/os.h"
#include "edge/data/formats/safetensors.h"
#include "edge/plan/plan.h"
#include "edge/plan/update.h"
#include "edge/site/site.h"
#include "secure/crypto/sha256.h"

#define SPACE_RETRY_MS 5000 /* interval between attempts to store a result on a full disk */
#define SPACE_RETRIES 6 /* then the task is declined, so that the round or a drain can continue */
#define SPACE_CHECK_MS 200 /* interval of checks for cancellation meanwhile */

struct fedge_worker {
    fedge_worker_config config;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool stopping, busy, has_result;
    fedge_assignment next; /* FEDGE_ASSIGNMENT_NONE: nothing waits */
    fedge_worker_result result;
    atomic_bool cancelled;

    /* Used only by the thread. */
    fedge_worker_result at_work;
    unsigned space_retries; /* bounds of the task */
    fedge_plan *plan;
    fedge_client_plan view; /* view of [plan] for the callbacks */
    char run_id[FEDGE_RUN_ID_TEXT];
    /* The model, then the trained model, then the changes; allocated with the plan. The starting
     * model is read again from the store. */
    float *values;
    int8_t *bounds;
    fedge_hooks_state hooks; /* used if the plan has hooks */
    fedge_client_state state;
    fedge_own_trainer own; /* memory around a trainer that is not fedge's */
    fedge_client_report report;
};

/* --- plans ----------------------------------------------------------------------------------- */

static void drop_plan(fedge_worker *w)
{
    fedge_hooks_state_fini(&w->hooks);
    fedge_own_trainer_fini(&w->own);
    fedge_plan_free(w->plan);
    free(w->values);
    free(w->bounds);
    w->plan = NULL;
    w->values = NULL;
    w->bounds = NULL;
}

static fedge_status allocate_values(fedge_worker *w, fedge_error *err)
{
    const fedge_schema *schema = &w->plan->schema;
    size_t sent = w->plan->sent.schema.num_elements;
    w->values = calloc(sent > schema->num_elements ? sent : schema->num_elements, sizeof(float));
    w->bounds = calloc(w->plan->sent.schema.num_tensors, 1);
    if (!w->values || !w->bounds)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %zu values", schema->num_elements);
    FEDGE_TRY(fedge_hooks_state_init(&w->hooks, w->plan, err));
    return fedge_own_trainer_init(&w->own, w->plan, &w->config.callbacks, w->values, err);
}

fedge_client_plan fedge_worker_view(const fedge_plan *plan, const char *run_id)
{
    return (fedge_client_plan){.name = plan->name,
                               .run_id = run_id,
                               .external = plan->external,
                               .schema = &plan->schema,
                               .seed = plan->seed,
                               .local_epochs = plan->training.local_epochs,
                               .local_steps = plan->training.local_steps,
                               .batch_size = plan->training.batch_size,
                               .momentum = plan->training.optimizer.momentum,
                               .weight_decay = plan->training.optimizer.weight_decay,
                               .full = plan,
                               .config = plan->config ? plan->config : "{}",
                               .num_parameters = plan->num_parameters};
}

/* An unusable blob is fetched again; other failures concern the assignment. */
static fedge_status of_blob(fedge_worker *w, fedge_status status)
{
    w->at_work.bad_blob =
        status == FEDGE_CORRUPT || status == FEDGE_NOT_FOUND || status == FEDGE_TRUNCATED;
    return status;
}

/* Destination of a model's file, written in parts. */
typedef struct file_parts {
    fedge_store_blob blob;
    uint64_t at; /* offset of the next part */
    fedge_sha256_stream *stream;
} file_parts;

static fedge_status hash_part(void *user, const uint8_t *bytes, size_t size, fedge_error *err)
{
    (void)err;
    fedge_sha256_stream_add(((file_parts *)user)->stream, bytes, size);
    return FEDGE_OK;
}

static fedge_status store_part(void *user, const uint8_t *bytes, size_t size, fedge_error *err)
{
    file_parts *p = user;
    p->at += size;
    return fedge_store_blob_append(p->blob.store, p->blob.hash, p->at - size, bytes, size,
                                   p->blob.size, err);
}

/* Stores the file of w->values if it is blob [hash]; otherwise FEDGE_CORRUPT. */
static fedge_status store_model(fedge_worker *w, const char *hash, uint64_t size, fedge_error *err)
{
    file_parts p = {.blob = {w->config.store, hash, size}};
    char actual[FEDGE_HASH_TEXT];
    FEDGE_TRY(fedge_sha256_stream_new(size, &p.stream, err));
    const fedge_status status =
        fedge_safetensors_put(&w->plan->schema, w->values, hash_part, &p, err);
    fedge_sha256_stream_text(p.stream, actual);
    fedge_sha256_stream_free(p.stream);
    FEDGE_TRY(status);
    /* Hashed before storing: the store would keep half of a wrong blob. */
    if (strcmp(actual, hash) != 0)
        return fedge_fail(err, FEDGE_CORRUPT, "what was made is not model %.12s…", hash);
    return fedge_safetensors_put(&w->plan->schema, w->values, store_part, &p, err);
}

/* A device without a model generates the initial one, which saves a download, and later deltas
 * apply to it. If that fails, or the server's model differs, a task's model is fetched. */
static void make_initial_model(fedge_worker *w, uint64_t size)
{
    const char *wanted = w->at_work.assignment.initial_model;
    unsigned num_blobs = 0;
    uint64_t held = 0;
    fedge_error err;
    if (!wanted[0] || fedge_store_blobs_count(w->config.store, &num_blobs, &err) ||
        (num_blobs > 1 && !w->at_work.assignment.new_run) ||
        fedge_store_blob_held(w->config.store, wanted, size, &held, &err) || held > 0)
        return; /* the run has another model besides the plan */
    fedge_plan_initial_values(w->plan, w->values);
    if (store_model(w, wanted, size, &err))
        fedge_log_failure(w->config.log, FEDGE_LOG_WARN, "initial-model", &err);
}

static fedge_status do_plan(fedge_worker *w, fedge_error *err)
{
    const fedge_client_callbacks *call = &w->config.callbacks;
    const fedge_assignment *given = &w->at_work.assignment;
    uint8_t *text;
    size_t model_size;
    /* First, since a device has memory for one plan. */
    drop_plan(w);
    FEDGE_TRY(of_blob(
        w, fedge_store_blob_load(w->config.store, given->plan_hash, given->plan_size, &text, err)));
    const fedge_status status =
        fedge_plan_parse((const char *)text, (size_t)given->plan_size, &w->plan, err);
    free(text);
    FEDGE_TRY(status);
    if (w->config.site)
        FEDGE_TRY(fedge_site_check(w->config.site, w->plan, err));
    FEDGE_TRY(fedge_safetensors_size(&w->plan->schema, &model_size, err));
    FEDGE_TRY(allocate_values(w, err));
    memcpy(w->run_id, given->run_id, sizeof(w->run_id));
    w->view = fedge_worker_view(w->plan, w->run_id);
    /* Headers of the files in a model's blob may be larger than fedge's, together by one header. */
    w->at_work.max_model_size = (uint64_t)model_size * (1 + fedge_plan_num_broadcast(w->plan)) +
                                FEDGE_SAFETENSORS_MAX_HEADER;
    if (call->check)
        FEDGE_TRY(call->check(call->user, w->config.client, &w->view, err));
    /* Before the trainer allocates its memory, maybe the last. */
    make_initial_model(w, model_size);
    return call->plan ? call->plan(call->user, w->config.client, &w->view, err) : FEDGE_OK;
}

/* --- tasks ----------------------------------------------------------------------------------- */

/* Reads w->values from the model file in blob [hash], or subtracts the file's values from them. */
static fedge_status read_model(fedge_worker *w, const char *hash, bool subtract, fedge_error *err)
{
    const fedge_task *task = &w->at_work.assignment.task;
    fedge_store_blob blob = {w->config.store, hash, task->model_size};
    FEDGE_TRY(of_blob(w, fedge_store_blob_check(blob.store, hash, blob.size, err)));
    /* In the blob, the control file follows the model's file. */
    return fedge_safetensors_get(fedge_store_blob_read, &blob, blob.size - task->control_size,
                                 &w->plan->schema, subtract, w->values, err);
}

/* Makes the model from its base and a delta, and stores its file. */
static fedge_status apply_delta(fedge_worker *w, const fedge_delta_ref *delta, fedge_error *err)
{
    const fedge_task *task = &w->at_work.assignment.task;
    uint8_t *bytes;
    FEDGE_TRY(read_model(w, delta->base, false, err));
    FEDGE_TRY(fedge_store_blob_load(w->config.store, delta->hash, delta->size, &bytes, err));
    const fedge_status status =
        fedge_model_delta_apply(w->plan, bytes, (size_t)delta->size, w->values, err);
    free(bytes);
    FEDGE_TRY(status);
    return store_model(w, task->model, task->model_size, err);
}

/* Loads the task's model to w->values. */
static fedge_status take_model(fedge_worker *w, fedge_error *err)
{
    const fedge_task *task = &w->at_work.assignment.task;
    /* Without deltas in the plan, those of a task are ignored. */
    if (!task->delta || !w->plan->update.down.values)
        return read_model(w, task->model, false, err);
    const fedge_status status = apply_delta(w, &task->deltas[task->delta - 1], err);
    /* Then the whole model is fetched, unless this device lacks memory or disk space. */
    w->at_work.bad_blob = status && status != FEDGE_NO_MEMORY && status != FEDGE_NO_SPACE;
    return status;
}

/* Reads the control file, which follows the model's file; malloc'ed. */
static fedge_status read_control(fedge_worker *w, uint8_t **file, fedge_error *err)
{
    const fedge_task *task = &w->at_work.assignment.task;
    const size_t size = (size_t)task->control_size;
    *file = size > 0 ? malloc(size) : NULL;
    if (size == 0)
        return FEDGE_OK;
    if (!*file)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a control file of %zu bytes", size);
    fedge_store_blob blob = {w->config.store, task->model, task->model_size};
    return fedge_store_blob_read(&blob, blob.size - size, *file, size, err);
}

static fedge_status begin_state(fedge_worker *w, fedge_error *err)
{
    const fedge_task *task = &w->at_work.assignment.task;
    uint8_t *control = NULL;
    fedge_status status;
    FEDGE_TRY_OR(read_control(w, &control, err), done);
    status = fedge_client_state_begin(&w->state, &w->hooks, task, control,
                                      (size_t)task->control_size, err);
done:
    free(control);
    return status;
}

static fedge_status load_model(fedge_worker *w, fedge_error *err)
{
    const fedge_task *task = &w->at_work.assignment.task;
    if (task->control_size >= task->model_size) {
        return fedge_fail(err, FEDGE_MISMATCH, "a control file of %llu bytes in a blob of %llu",
                          (unsigned long long)task->control_size,
                          (unsigned long long)task->model_size);
    }
    FEDGE_TRY(take_model(w, err));
    const bool train = task->kind == FEDGE_TASK_TRAIN;
    if (train || fedge_plan_is_personal(w->plan) || fedge_plan_is_clustered(w->plan))
        FEDGE_TRY(begin_state(w, err));
    if (train ? fedge_plan_replaces(w->plan) : fedge_plan_is_personal(w->plan))
        fedge_personal_put(w->plan, w->hooks.client_state, w->values);
    return FEDGE_OK;
}

static fedge_status set_bounds(fedge_worker *w, fedge_error *err)
{
    const fedge_task *task = &w->at_work.assignment.task;
    uint32_t n = w->plan->sent.schema.num_tensors;
    if (task->num_bounds != 0 && task->num_bounds != n) {
        return fedge_fail(err, FEDGE_MISMATCH, "the task has %u bounds for %u tensors",
                          task->num_bounds, n);
    }
    /* Without bounds from the server, both sides derive them from the model. */
    fedge_sections_bounds(w->plan, w->values, w->bounds);
    if (task->num_bounds != 0)
        memcpy(w->bounds, task->bounds_log2, n);
    return FEDGE_OK;
}

static bool reports(const fedge_client_report *report, const char *name)
{
    for (uint32_t i = 0; i < report->num_metrics && i < FEDGE_CLIENT_MAX_METRICS; i++) {
        if (strcmp(report->metrics[i].name, name) == 0)
            return isfinite(report->metrics[i].value);
    }
    return false;
}

/* Declines what the server would refuse forever, with a message for the trainer's author. */
fedge_status fedge_worker_check_report(const fedge_client_report *report, fedge_task_kind kind,
                                       fedge_error *err)
{
    if (report->num_examples == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "the trainer reports no examples");
    if (kind == FEDGE_TASK_EVALUATE && (!reports(report, "loss") || !reports(report, "accuracy"))) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the trainer's evaluation must report \"loss\" and \"accuracy\"");
    }
    return FEDGE_OK;
}

static fedge_status call_trainer(fedge_worker *w, fedge_error *err)
{
    const fedge_assignment *given = &w->at_work.assignment;
    const fedge_client_task task = {
        .task_id = given->task.task_id,
        .round = given->task.round,
        .client_index = given->client_index,
        .learning_rate = given->task.learning_rate,
        .deadline_ms = given->task.deadline_ms,
        .plan = &w->view,
        .correction = w->hooks.correction,
        .personal = fedge_plan_is_personal(w->plan) ? w->hooks.client_state : NULL,
        .others = fedge_plan_is_clustered(w->plan) ? w->hooks.broadcast : NULL};
    FEDGE_TRY(fedge_own_trainer_call(&w->own, &w->config.callbacks, w->config.client, &task,
                                     given->task.kind == FEDGE_TASK_TRAIN, w->values, &w->report,
                                     err));
    return fedge_worker_check_report(&w->report, given->task.kind, err);
}

static void add_metric(fedge_upload *upload, const char *name, double value)
{
    if (upload->num_metrics == FEDGE_MAX_METRICS || !isfinite(value))
        return;
    fedge_metric *metric = &upload->metrics[upload->num_metrics++];
    snprintf(metric->name, sizeof(metric->name), "%s", name);
    metric->value = value;
}

static void fill_upload(fedge_worker *w, double seconds)
{
    const fedge_assignment *given = &w->at_work.assignment;
    fedge_upload *upload = &w->at_work.upload;
    memset(upload, 0, sizeof(*upload));
    upload->task_id = given->task.task_id;
    memcpy(upload->run_id, given->run_id, sizeof(upload->run_id));
    upload->incarnation = given->incarnation;
    upload->num_examples = w->report.num_examples;
    if (w->plan->hooks && !w->plan->hooks->local_state && given->task.kind == FEDGE_TASK_TRAIN &&
        w->state.lost)
        add_metric(upload, FEDGE_CLIENT_STATE_LOST, 1); /* the trainer's may fill the list */
    for (uint32_t i = 0; i < w->report.num_metrics && i < FEDGE_CLIENT_MAX_METRICS; i++)
        add_metric(upload, w->report.metrics[i].name, w->report.metrics[i].value);
    add_metric(upload, given->task.kind == FEDGE_TASK_TRAIN ? "seconds-train" : "seconds-evaluate",
               seconds);
}

static double seconds_since(uint64_t start_ns)
{
    return (double)(fedge_os_monotonic_ns() - start_ns) * 1e-9;
}

/* After a full disk, waits before the next attempt. False if the result is unwanted, or after too
 * many attempts. */
static bool wait_for_space(fedge_worker *w, const fedge_error *err)
{
    fedge_log_failure(w->config.log, FEDGE_LOG_ERROR, "store", err);
    if (w->space_retries++ == SPACE_RETRIES)
        return false;
    for (int i = 0; i < SPACE_RETRY_MS / SPACE_CHECK_MS && !atomic_load(&w->cancelled); i++)
        fedge_worker_wait(w, SPACE_CHECK_MS); /* the worker is busy, so this only sleeps */
    return !atomic_load(&w->cancelled);
}

/* Subtracts the starting model from the trained one: the task's model, or the selected further one.
 */
static fedge_status subtract_start(fedge_worker *w, fedge_error *err)
{
    if (fedge_plan_is_clustered(w->plan) && w->report.chosen > 0) {
        const float *start = w->hooks.broadcast + (w->report.chosen - 1) * w->hooks.num_trained;
        for (size_t i = 0; i < w->hooks.num_trained; i++)
            w->values[i] -= start[i];
        fedge_sections_take(&w->plan->sent, w->values);
        return FEDGE_OK;
    }
    if (atomic_load(&w->cancelled))
        return fedge_fail(err, FEDGE_CANCELLED, "cancelled");
    FEDGE_TRY(read_model(w, w->at_work.assignment.task.model, true, err));
    fedge_sections_take(&w->plan->sent, w->values);
    return FEDGE_OK;
}

/* Encodes w_end − w_start into *bytes. */
static fedge_status encode(fedge_worker *w, uint8_t **bytes, fedge_error *err)
{
    fedge_upload *upload = &w->at_work.upload;
    const fedge_update update = {
        .plan = w->plan,
        .bounds_log2 = w->bounds,
        .changes = w->values,
        .residual = fedge_plan_makes_residual(w->plan) ? w->hooks.client_state : NULL,
        .round = w->at_work.assignment.task.round};
    /* Personal values stay on the device as values, not as changes. */
    uint64_t start_ns = fedge_os_monotonic_ns();
    if (fedge_plan_replaces(w->plan))
        fedge_personal_take(w->plan, w->values, w->hooks.client_state);
    if (fedge_plan_is_clustered(w->plan))
        add_metric(upload, FEDGE_CLUSTER, w->report.chosen);
    if (fedge_plan_counts_steps(w->plan))
        add_metric(upload, FEDGE_NUM_STEPS, (double)w->report.num_steps);
    FEDGE_TRY(subtract_start(w, err));
    if (fedge_plan_measures(w->plan))
        add_metric(upload, FEDGE_SQUARED_NORM, fedge_squared_norm(w->plan, w->values));
    if (w->plan->hooks) {
        FEDGE_TRY(fedge_hooks_end(&w->hooks, w->report.num_steps,
                                  w->at_work.assignment.task.learning_rate, w->values, err));
    }
    FEDGE_TRY(fedge_client_state_encode(&w->hooks, &update, upload, bytes, err));
    /* The client state is stored before the result: otherwise, after a crash, the device's state
     * would be behind the accepted update. */
    fedge_status status;
    do
        status = fedge_client_state_store(&w->state, &w->hooks, upload, err);
    while (status == FEDGE_NO_SPACE && wait_for_space(w, err));
    FEDGE_TRY(status);
    add_metric(upload, "seconds-encode", seconds_since(start_ns));
    return FEDGE_OK;
}

static fedge_status do_task(fedge_worker *w, fedge_error *err)
{
    const fedge_assignment *given = &w->at_work.assignment;
    uint8_t *bytes = NULL;
    if (!w->plan)
        return fedge_fail(err, FEDGE_INTERNAL, "a task without a plan");
    memcpy(w->run_id, given->run_id, sizeof(w->run_id));
    w->state =
        (fedge_client_state){.store = w->config.store, .run_id = w->run_id, .log = w->config.log};
    w->space_retries = 0;
    FEDGE_TRY(load_model(w, err));
    FEDGE_TRY(set_bounds(w, err));
    uint64_t start_ns = fedge_os_monotonic_ns();
    FEDGE_TRY(call_trainer(w, err));
    fill_upload(w, seconds_since(start_ns));
    fedge_status status = FEDGE_OK;
    if (given->task.kind == FEDGE_TASK_TRAIN)
        status = encode(w, &bytes, err);
    /* The task was cancelled just after its training, so its result is unwanted. */
    if (status == FEDGE_OK && atomic_load(&w->cancelled))
        status = fedge_fail(err, FEDGE_CANCELLED, "cancelled");
    if (status == FEDGE_OK) {
        do
            status = fedge_store_result_put(w->config.store, &w->at_work.upload, bytes, err);
        while (status == FEDGE_NO_SPACE && wait_for_space(w, err));
    }
    free(bytes);
    return status;
}

/* --- the thread ------------------------------------------------------------------------------ */

static void do_assignment(fedge_worker *w)
{
    fedge_worker_result *r = &w->at_work;
    r->error.message[0] = '\0';
    r->bad_blob = false;
    r->status =
        r->assignment.kind == FEDGE_ASSIGNMENT_PLAN ? do_plan(w, &r->error) : do_task(w, &r->error);
}

static void *run(void *user)
{
    fedge_worker *w = user;
    pthread_mutex_lock(&w->mutex);
    while (!w->stopping) {
        /* A result must be taken before the next assignment begins. */
        if (w->next.kind == FEDGE_ASSIGNMENT_NONE || w->has_result) {
            pthread_cond_wait(&w->changed, &w->mutex);
            continue;
        }
        w->at_work.assignment = w->next;
        w->next.kind = FEDGE_ASSIGNMENT_NONE;
        w->busy = true;
        atomic_store(&w->cancelled, false);
        pthread_mutex_unlock(&w->mutex);
        do_assignment(w);
        pthread_mutex_lock(&w->mutex);
        w->busy = false;
        w->has_result = true;
        w->result = w->at_work;
        pthread_cond_broadcast(&w->changed);
        w->config.done(w->config.user);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* Waits by a clock that nobody sets: a board's time of day may jump by years. */
static void init_changed(fedge_worker *w)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

fedge_status fedge_worker_new(const fedge_worker_config *config, fedge_worker **worker,
                              fedge_error *err)
{
    *worker = NULL;
    fedge_worker *w = calloc(1, sizeof(*w));
    if (!w)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a worker of %zu bytes", sizeof(*w));
    w->config = *config;
    pthread_mutex_init(&w->mutex, NULL);
    init_changed(w);
    int rc = pthread_create(&w->thread, NULL, run, w);
    if (rc) {
        free(w);
        return fedge_fail_errno(err, rc, "cannot start the worker's thread");
    }
    *worker = w;
    return FEDGE_OK;
}

void fedge_worker_free(fedge_worker *worker)
{
    if (!worker)
        return;
    pthread_mutex_lock(&worker->mutex);
    worker->stopping = true;
    atomic_store(&worker->cancelled, true);
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->mutex);
    pthread_join(worker->thread, NULL);
    pthread_cond_destroy(&worker->changed);
    pthread_mutex_destroy(&worker->mutex);
    drop_plan(worker);
    free(worker);
}

void fedge_worker_start(fedge_worker *worker, const fedge_assignment *assignment)
{
    pthread_mutex_lock(&worker->mutex);
    worker->next = *assignment;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->mutex);
}

bool fedge_worker_take(fedge_worker *worker, fedge_worker_result *result)
{
    pthread_mutex_lock(&worker->mutex);
    bool has = worker->has_result;
    if (has)
        *result = worker->result;
    worker->has_result = false;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->mutex);
    return has;
}

void fedge_worker_cancel(fedge_worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    /* The session expects an answer to each task, so one that has not begun is reported as
     * cancelled. */
    if (worker->next.kind == FEDGE_ASSIGNMENT_TASK && !worker->busy && !worker->has_result) {
        worker->result.assignment = worker->next;
        worker->result.status = FEDGE_CANCELLED;
        worker->result.bad_blob = false;
        worker->next.kind = FEDGE_ASSIGNMENT_NONE;
        worker->has_result = true;
        worker->config.done(worker->config.user);
    }
    bool call = worker->busy && worker->at_work.assignment.kind == FEDGE_ASSIGNMENT_TASK;
    if (call)
        atomic_store(&worker->cancelled, true);
    pthread_mutex_unlock(&worker->mutex);
    /* Unlocked, since a callback may ask whether it is cancelled. */
    if (call && worker->config.callbacks.cancel)
        worker->config.callbacks.cancel(worker->config.callbacks.user, worker->config.client);
}

bool fedge_worker_cancelled(fedge_worker *worker)
{
    return atomic_load(&worker->cancelled);
}

const char *fedge_worker_run_id(const fedge_worker *worker)
{
    return worker->run_id;
}

bool fedge_worker_busy(fedge_worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    bool busy = worker->busy;
    pthread_mutex_unlock(&worker->mutex);
    return busy;
}

bool fedge_worker_wait(fedge_worker *worker, uint64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&worker->mutex);
    while (worker->busy && pthread_cond_timedwait(&worker->changed, &worker->mutex, &until) == 0) {
    }
    bool idle = !worker->busy;
    pthread_mutex_unlock(&worker->mutex);
    return idle;
}

#include "aggregator/simulate/run/trainer_cuda.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/sampler.h"
#include "aggregator/simulate/run/client_update.h"
#include "aggregator/workers/worker_pool.h"
#include "edge/core/os.h"
#include "edge/io/client_hooks.h"
#include "edge/train/cuda/cohort.h"

#define LEAST_SLOTS                                                                                \
    16 /* wanted: a test set comes in pieces, which are evaluated side by side                     \
        */

typedef struct trainer_cuda trainer_cuda;

/* What a cohort's configuration points to. */
typedef struct needs {
    fedge_model_options options;
    fedge_augmented augmented;
} needs;

/* One GPU and its thread. */
typedef struct gpu {
    trainer_cuda *engine;
    fedge_cohort *cohort;
    fedge_cohort_memory memory;
    fedge_client_update update;
    uint32_t index;
    fedge_cohort_piece *pieces; /* (num_pieces): where the sums of changes lie on it */
    uint64_t last_ns;           /* when it was last done with a task */
    fedge_status status;
    fedge_error error;
} gpu;

/* A task, and its client's work on a GPU. */
typedef struct job {
    fedge_cohort_task cohort; /* first: what the cohort hands back */
    fedge_trainer_engine_task *task;
    bool done;
} job;

struct trainer_cuda {
    fedge_trainer_engine_config config;
    const fedge_plan *plan;
    needs has;
    uint32_t num_gpus;
    gpu *gpus;
    fedge_worker_pool *threads; /* of all GPUs but the first */
    uint64_t host_bytes;
    bool accumulates;    /* changes are added to sums where they are trained */
    uint32_t num_pieces; /* then */
    size_t update_bytes; /* then: of an update, as it would travel */
    /* The work in hand; the mutex is for the queue. */
    pthread_mutex_t mutex;
    job *jobs;
    uint32_t room, num_jobs, next, num_done;
    bool training, lost;
    const int8_t *bounds_log2;
    double rate;
    fedge_trainer_config trainer;
};

/* ---- what it can do
 * -------------------------------------------------------------------------- */

static fedge_cohort_examples examples_of(const fedge_dataset *dataset)
{
    return dataset
               ? (fedge_cohort_examples){fedge_dataset_values(dataset),
                                         fedge_dataset_labels(dataset), fedge_dataset_size(dataset)}
               : (fedge_cohort_examples){0};
}

/* The kernels' number of a section's codec; below 0: they have none. */
static int codec_of(const fedge_section *section)
{
    char text[FEDGE_CODEC_TEXT];
    (void)fedge_codec_text(&section->codec, text);
    return strcmp(text, "none") == 0   ? FEDGE_COHORT_CODEC_NONE
           : strcmp(text, "int8") == 0 ? FEDGE_COHORT_CODEC_INT8
                                       : -1;
}

/* Pieces of what travels; 0: not all of it is in codecs that GPUs know, or it is no plain change.
 */
static uint32_t count_pieces(const fedge_plan *plan)
{
    uint64_t count = 0;
    if (plan->hooks || fedge_plan_keeps(plan) || fedge_plan_makes_residual(plan) ||
        plan->update.deflate)
        return 0;
    for (uint32_t s = 0; s < plan->sent.num_sections; s++) {
        const fedge_section *section = &plan->sent.sections[s];
        if (codec_of(section) < 0)
            return 0;
        for (uint32_t t = 0; t < section->schema.num_tensors; t++) {
            count +=
                (section->schema.tensors[t].count + FEDGE_COHORT_PIECE - 1) / FEDGE_COHORT_PIECE;
        }
    }
    return count <= INT32_MAX ? (uint32_t)count : 0;
}

static uint32_t clients_asked(const fedge_trainer_engine_config *config)
{
    return fedge_cohort_size_of(&config->job->rounds, FEDGE_TASK_TRAIN,
                                config->client_data->num_clients)
        .asked;
}

/* [has] is filled, and must outlive the result. Of one of so many GPUs. */
static fedge_cohort_config cohort_config(const fedge_trainer_engine_config *config,
                                         uint32_t num_gpus, needs *has)
{
    const fedge_plan *plan = &config->job->plan;
    const uint32_t asked = clients_asked(config);
    const uint32_t share = (asked + num_gpus - 1) / num_gpus;
    const fedge_dataset *other =
        config->test_set != config->client_data->dataset ? config->test_set : NULL;
    const fedge_trainer_config any = {
        0}; /* of the augmentation, its arguments are all that counts */
    const fedge_examples none = {0};
    has->options = fedge_plan_model_options(plan);
    (void)fedge_plan_augment(plan, &any, &none, &has->augmented);
    return (fedge_cohort_config){
        .model = &plan->model,
        .options = &has->options,
        .sets = {examples_of(config->client_data->dataset), examples_of(other)},
        .dtype = plan->data.dtype,
        .num_channels = plan->data.num_channels,
        .divide_by = plan->data.divide_by,
        .mean = plan->data.mean,
        .std = plan->data.std,
        .augmentation = plan->data.has_augmentation ? &has->augmented.augmentation : NULL,
        .most_slots = share > LEAST_SLOTS ? share : LEAST_SLOTS,
        .num_pieces = count_pieces(plan)};
}

static fedge_status count_gpus(const fedge_trainer_engine_config *config, uint32_t *count,
                               fedge_error *err)
{
    uint32_t there = 0;
    const fedge_status status = fedge_cohort_count_gpus(&there, err);
    there = there < FEDGE_COHORT_MAX_GPUS ? there : FEDGE_COHORT_MAX_GPUS;
    *count = config->num_gpus > 0 ? config->num_gpus : there;
    for (uint32_t i = 0; i < config->num_gpus && status == FEDGE_OK; i++) {
        if (config->gpus[i] >= there) {
            return fedge_fail(err, FEDGE_NOT_FOUND, "GPU %u is not there: there are 0 to %u",
                              config->gpus[i], there - 1);
        }
    }
    return status;
}

static fedge_status check(const fedge_trainer_engine_config *config, fedge_error *err)
{
    const fedge_plan *plan = &config->job->plan;
    needs has;
    fedge_model_options evaluated;
    uint32_t num_gpus = 0;
    const fedge_cohort_config cohort = cohort_config(config, 1, &has);
    if (fedge_plan_evaluation_options(plan, &evaluated)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "evaluation in int8: GPUs do not do it: take --engine cpu");
    }
    if (fedge_plan_measures(plan)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s wants the loss before training: GPUs do not take it: take --engine "
                          "cpu",
                          config->job->strategy);
    }
    if (fedge_plan_is_personal(plan)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s keeps a part of the model on clients: GPUs do not train it: take "
                          "--engine cpu",
                          config->job->strategy);
    }
    fedge_status status = fedge_cohort_check(&cohort, err);
    return status == FEDGE_OK ? count_gpus(config, &num_gpus, err) : status;
}

static fedge_status size(const fedge_trainer_engine_config *config, uint64_t *bytes,
                         fedge_error *err)
{
    needs has;
    fedge_cohort_memory memory;
    uint32_t num_gpus = 0;
    fedge_status status = count_gpus(config, &num_gpus, err);
    if (status != FEDGE_OK)
        return status;
    const fedge_cohort_config cohort = cohort_config(config, num_gpus, &has);
    const uint32_t threads = config->num_threads > 0 ? config->num_threads : 1;
    status = fedge_cohort_bytes(&cohort, &memory, err);
    *bytes = (memory.host + fedge_client_update_size(config->job, false)) * num_gpus;
    *bytes = (*bytes + threads - 1) / threads;
    return status;
}

/* ---- tasks
 * -----------------------------------------------------------------------------------
 */

/* What a client keeps is there, and what the strategy has it do comes to pass, as its slot is about
 * to begin. */
static bool begin_update(gpu *self, job *begun)
{
    fedge_error err;
    const fedge_status status = fedge_client_update_begin(&self->update, begun->task->client,
                                                          &begun->cohort.correction, &err);
    if (status != FEDGE_OK) {
        begun->task->status = status;
        memcpy(begun->task->message, err.message, sizeof(begun->task->message));
        begun->done = true;
    }
    return status == FEDGE_OK;
}

static fedge_cohort_task *next(void *user)
{
    gpu *self = user;
    trainer_cuda *engine = self->engine;
    job *begun = NULL;
    pthread_mutex_lock(&engine->mutex);
    while (!begun && engine->next < engine->num_jobs && !engine->lost) {
        job *at = &engine->jobs[engine->next++];
        if (!at->done && (at->task->work == FEDGE_TRAINER_ENGINE_TRAIN) == engine->training)
            begun = at;
        if (begun && engine->training && !begin_update(self, begun))
            begun = NULL;
    }
    pthread_mutex_unlock(&engine->mutex);
    return begun ? &begun->cohort : NULL;
}

static fedge_status fail_value(const trainer_cuda *self, size_t value, fedge_error *err)
{
    const fedge_schema *schema = &self->plan->schema;
    uint32_t t = 0;
    while (t + 1 < schema->num_tensors && schema->tensors[t + 1].offset <= value)
        t++;
    return fedge_fail(err, FEDGE_NOT_FINITE,
                      "round %u: after training, value %zu of \"%s\" is not finite: lower the "
                      "learning rate, or clip the gradients' norm",
                      (unsigned)self->trainer.round, value - schema->tensors[t].offset,
                      schema->tensors[t].name);
}

/* The loss of the last step comes before what the step makes of the parameters.
 */
static fedge_status check_finite(const trainer_cuda *self, const float *values, fedge_error *err)
{
    for (size_t i = 0; i < self->plan->schema.num_elements; i++) {
        if (!isfinite(values[i]))
            return fail_value(self, i, err);
    }
    return FEDGE_OK;
}

/* What a change that was added on the GPU leaves to do. */
static fedge_status count_update(gpu *self, job *done, fedge_error *err)
{
    const trainer_cuda *engine = self->engine;
    if (done->cohort.bad_value != UINT32_MAX)
        return fail_value(engine, done->cohort.bad_value, err);
    done->task->bytes_up = engine->update_bytes;
    done->task->clamped = done->cohort.clamped;
    return fedge_accumulator_begin(&engine->config.global->accumulator, done->cohort.weight, err);
}

static fedge_status add_update(gpu *self, job *done, float *values, fedge_error *err)
{
    const trainer_cuda *engine = self->engine;
    fedge_status status = check_finite(engine, values, err);
    if (status == FEDGE_OK) { /* others have begun since this one has */
        status = fedge_client_update_begin(&self->update, done->task->client,
                                           &done->cohort.correction, err);
    }
    if (status == FEDGE_OK && self->update.values)
        memcpy(self->update.values, values, engine->plan->schema.num_elements * sizeof(*values));
    return status == FEDGE_OK
               ? fedge_client_update_add(&self->update, done->task, engine->trainer.round,
                                         engine->bounds_log2, engine->rate, values, NULL, err)
               : status;
}

static void take_result(void *user, fedge_cohort_task *task, float *values)
{
    gpu *self = user;
    trainer_cuda *engine = self->engine;
    job *done = (job *)task;
    fedge_error err = task->error;
    done->task->result = task->result;
    done->task->status = task->status;
    if (task->status == FEDGE_OK && values)
        done->task->status = add_update(self, done, values, &err);
    else if (task->status == FEDGE_OK && task->weight > 0)
        done->task->status = count_update(self, done, &err);
    done->task->message[0] = '\0';
    if (done->task->status != FEDGE_OK)
        memcpy(done->task->message, err.message, sizeof(done->task->message));
    const uint64_t now_ns = fedge_os_monotonic_ns();
    done->task->seconds = (double)(now_ns - self->last_ns) * 1e-9;
    done->done = true;
    self->last_ns = now_ns;
    pthread_mutex_lock(&engine->mutex);
    const uint32_t count = ++engine->num_done;
    pthread_mutex_unlock(&engine->mutex);
    if (self->index == 0 && engine->config.on_done)
        engine->config.on_done(engine->config.user, count);
}

/* ---- rounds
 * ----------------------------------------------------------------------------------
 */

static bool cancel(void *user)
{
    const gpu *self = user;
    const fedge_trainer_engine_config *config = &self->engine->config;
    return config->cancel && config->cancel(config->user);
}

static void work(gpu *self)
{
    trainer_cuda *engine = self->engine;
    const bool stops = engine->training || engine->jobs[0].task->may_stop;
    const fedge_cohort_work wanted = {.start = engine->config.global->values,
                                      .training = engine->training ? &engine->trainer : NULL,
                                      .pieces = self->pieces,
                                      .num_pieces = engine->training ? engine->num_pieces : 0,
                                      .next = next,
                                      .done = take_result,
                                      .cancel = stops ? cancel : NULL,
                                      .user = self};
    self->last_ns = fedge_os_monotonic_ns();
    self->status = fedge_cohort_run(self->cohort, &wanted, &self->error);
    if (self->status != FEDGE_OK) {
        pthread_mutex_lock(&engine->mutex);
        engine->lost = true;
        pthread_mutex_unlock(&engine->mutex);
    }
}

static void work_beside(void *user, uint32_t worker)
{
    trainer_cuda *self = user;
    work(&self->gpus[worker + 1]);
}

/* All tasks that train, or all others; the first GPU's thread is the caller's. */
static void run_kind(trainer_cuda *self, bool training)
{
    self->training = training;
    self->next = 0;
    fedge_worker_pool_begin(self->threads, work_beside, self);
    work(&self->gpus[0]);
    fedge_worker_pool_end(self->threads);
}

/* Fills a task's part of the work; false when it cannot be done. */
static bool begin_task(const trainer_cuda *self, job *at)
{
    const fedge_client_data *data = self->config.client_data;
    fedge_trainer_engine_task *task = at->task;
    const fedge_view view = task->work == FEDGE_TRAINER_ENGINE_TEST ? task->view
                            : task->work == FEDGE_TRAINER_ENGINE_EVALUATE
                                ? fedge_client_data_held_out(data, task->client)
                                : fedge_client_data_train(data, task->client);
    at->cohort = (fedge_cohort_task){.set = view.dataset != data->dataset,
                                     .examples = view.indices,
                                     .num_examples = view.count,
                                     .client_index = task->client,
                                     .predicted = task->predicted};
    if (task->work == FEDGE_TRAINER_ENGINE_EVALUATE && view.count == 0) {
        task->status = FEDGE_UNSUPPORTED;
        (void)fedge_os_format(task->message, sizeof(task->message),
                              "no examples are held out: set 'validation-fraction' in the site "
                              "file");
        return false;
    }
    if (task->work == FEDGE_TRAINER_ENGINE_TRAIN && self->accumulates) {
        task->facts.num_examples = view.count;
        at->cohort.weight = fedge_update_weight(self->config.global, &task->facts);
    }
    return true;
}

/* Where the sums of a section's tensors lie on the GPU, at the bounds of this round. */
static fedge_status place_section(const gpu *self, const fedge_section *section,
                                  fedge_cohort_piece **next_piece, fedge_error *err)
{
    const trainer_cuda *engine = self->engine;
    const fedge_trainer_engine_config *config = &engine->config;
    const uint32_t number = config->num_gpus > 0 ? config->gpus[self->index] : self->index;
    fedge_status status = FEDGE_OK;
    for (uint32_t t = 0; t < section->schema.num_tensors && status == FEDGE_OK; t++) {
        const fedge_tensor_spec *tensor = &section->schema.tensors[t];
        const size_t first = engine->plan->sent.places[section->first + t];
        int64_t *sums = NULL;
        status = fedge_accumulator_lend(&config->global->accumulator, number, tensor->offset, &sums,
                                        err);
        for (size_t at = 0; at < tensor->count && status == FEDGE_OK; at += FEDGE_COHORT_PIECE) {
            const size_t left = tensor->count - at;
            *(*next_piece)++ = (fedge_cohort_piece){
                .sums = sums + at,
                .first = (uint32_t)(first + at),
                .count = (uint16_t)(left < FEDGE_COHORT_PIECE ? left : FEDGE_COHORT_PIECE),
                .bound_log2 = engine->bounds_log2 ? engine->bounds_log2[section->first + t] : 0,
                .codec = (uint8_t)codec_of(section)};
        }
    }
    return status;
}

static fedge_status place_pieces(trainer_cuda *self, fedge_error *err)
{
    const fedge_sent *sent = &self->plan->sent;
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < self->num_gpus && status == FEDGE_OK; i++) {
        fedge_cohort_piece *next_piece = self->gpus[i].pieces;
        for (uint32_t s = 0; s < sent->num_sections && status == FEDGE_OK; s++)
            status = place_section(&self->gpus[i], &sent->sections[s], &next_piece, err);
    }
    return status;
}

static fedge_status make_room(trainer_cuda *self, uint32_t count)
{
    if (count > self->room) {
        free(self->jobs);
        self->jobs = calloc(count, sizeof(*self->jobs));
        self->room = self->jobs ? count : 0;
    }
    return self->room >= count ? FEDGE_OK : FEDGE_NO_MEMORY;
}

/* What a lost GPU, or memory that is not there, has left undone. */
static void fail_rest(trainer_cuda *self)
{
    const gpu *failed = NULL;
    for (uint32_t i = 0; i < self->num_gpus; i++)
        failed = self->gpus[i].status != FEDGE_OK ? &self->gpus[i] : failed;
    for (uint32_t i = 0; failed && i < self->num_jobs; i++) {
        if (!self->jobs[i].done) {
            self->jobs[i].task->status = failed->status;
            memcpy(self->jobs[i].task->message, failed->error.message,
                   sizeof(failed->error.message));
        }
    }
}

static void run(void *state, uint32_t round, const int8_t *bounds_log2,
                fedge_trainer_engine_task *tasks, uint32_t num_tasks)
{
    trainer_cuda *self = state;
    uint32_t training = 0, others = 0;
    if (make_room(self, num_tasks) != FEDGE_OK) {
        for (uint32_t i = 0; i < num_tasks; i++) {
            tasks[i].status = FEDGE_NO_MEMORY;
            (void)fedge_os_format(tasks[i].message, sizeof(tasks[i].message),
                                  "no memory for a round's tasks");
        }
        return;
    }
    self->bounds_log2 = bounds_log2;
    self->rate = round > 0 ? fedge_plan_learning_rate(self->plan, round) : 0.0;
    self->trainer = fedge_plan_trainer_config(self->plan, round, 0, self->rate);
    self->num_jobs = num_tasks;
    self->num_done = 0;
    gpu *first = &self->gpus[0];
    first->status = self->accumulates ? place_pieces(self, &first->error) : FEDGE_OK;
    self->lost = first->status != FEDGE_OK;
    for (uint32_t i = 0; i < num_tasks; i++) {
        self->jobs[i].task = &tasks[i];
        self->jobs[i].done = !begin_task(self, &self->jobs[i]);
        training += tasks[i].work == FEDGE_TRAINER_ENGINE_TRAIN;
        others += tasks[i].work != FEDGE_TRAINER_ENGINE_TRAIN;
    }
    if (training > 0 && !self->lost)
        run_kind(self, true);
    if (others > 0 && !self->lost)
        run_kind(self, false);
    fail_rest(self);
}

/* ---- life
 * ------------------------------------------------------------------------------------
 */

static void tell(const trainer_cuda *self, const gpu *at)
{
    const fedge_trainer_engine_config *config = &self->config;
    const fedge_cohort_memory *memory = &at->memory;
    if (config->log) {
        FEDGE_LOG(
            config->log, FEDGE_LOG_INFO, "trainer-engine", fedge_log_str("kind", "cuda"),
            fedge_log_int("gpu", config->num_gpus > 0 ? config->gpus[at->index] : at->index),
            fedge_log_int("clients-at-once", fedge_cohort_slots(at->cohort)),
            fedge_log_int("bytes-each", (int64_t)memory->slot),
            fedge_log_int("bytes-shared", (int64_t)memory->shared),
            fedge_log_str("updates", self->accumulates ? "stay on the GPU" : "come to the host"));
    }
}

static fedge_status open_gpu(trainer_cuda *self, uint32_t index, fedge_error *err)
{
    const fedge_trainer_engine_config *config = &self->config;
    gpu *at = &self->gpus[index];
    fedge_cohort_config cohort = cohort_config(config, self->num_gpus, &self->has);
    cohort.gpu = config->num_gpus > 0 ? (int)config->gpus[index] : (int)index;
    at->engine = self;
    at->index = index;
    fedge_status status = fedge_cohort_bytes(&cohort, &at->memory, err);
    if (status == FEDGE_OK)
        status = fedge_cohort_new(&cohort, &at->cohort, err);
    if (status == FEDGE_OK) {
        status =
            fedge_client_update_init(&at->update, config, index % config->num_threads, false, err);
    }
    if (status == FEDGE_OK && cohort.num_pieces > 0) {
        at->pieces = calloc(cohort.num_pieces, sizeof(*at->pieces));
        status = at->pieces ? FEDGE_OK
                            : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a GPU's trainer");
    }
    if (status == FEDGE_OK)
        self->host_bytes += at->memory.host + at->update.total;
    return status;
}

static void close_engine(void *state)
{
    trainer_cuda *self = state;
    if (!self)
        return;
    fedge_worker_pool_free(self->threads);
    for (uint32_t i = 0; self->gpus && i < self->num_gpus; i++) {
        fedge_cohort_free(self->gpus[i].cohort);
        fedge_client_update_fini(&self->gpus[i].update);
        free(self->gpus[i].pieces);
    }
    pthread_mutex_destroy(&self->mutex);
    free(self->gpus);
    free(self->jobs);
    free(self);
}

/* Do the sums of all GPUs lie where these train? */
static bool can_accumulate(trainer_cuda *self)
{
    fedge_error why;
    return self->num_pieces > 0 && !self->config.global->strategy->collects &&
           place_pieces(self, &why) == FEDGE_OK;
}

static fedge_status open_engine(const fedge_trainer_engine_config *config, void **state,
                                fedge_error *err)
{
    *state = NULL;
    trainer_cuda *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for GPUs' trainer");
    fresh->config = *config;
    fresh->plan = &config->job->plan;
    pthread_mutex_init(&fresh->mutex, NULL);
    fedge_status status = count_gpus(config, &fresh->num_gpus, err);
    if (status == FEDGE_OK) {
        fresh->gpus = calloc(fresh->num_gpus, sizeof(*fresh->gpus));
        status = fresh->gpus ? FEDGE_OK
                             : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for GPUs' trainer");
    }
    for (uint32_t i = 0; i < fresh->num_gpus && status == FEDGE_OK; i++)
        status = open_gpu(fresh, i, err);
    if (status == FEDGE_OK) { /* without a thread the other GPUs do its work */
        const fedge_worker_pool_config threads = {.name = "GPU's thread",
                                                  .thread = "gpu",
                                                  .num_workers = fresh->num_gpus - 1,
                                                  .fewer_will_do = true};
        status = fedge_worker_pool_new(&fresh->threads, &threads, err);
    }
    if (status != FEDGE_OK) {
        close_engine(fresh);
        return status;
    }
    fresh->num_pieces = count_pieces(fresh->plan);
    fresh->accumulates = can_accumulate(fresh);
    fresh->update_bytes = fedge_plan_layout(fresh->plan).size;
    for (uint32_t i = 0; i < fresh->num_gpus; i++)
        tell(fresh, &fresh->gpus[i]);
    *state = fresh;
    return FEDGE_OK;
}

static uint64_t bytes_per_thread(const void *state)
{
    const trainer_cuda *self = state;
    return self->host_bytes / self->num_gpus;
}

static void describe(const void *state, char *text, size_t size)
{
    const trainer_cuda *self = state;
    const fedge_trainer_engine_config *config = &self->config;
    const uint32_t asked = clients_asked(config);
    const uint32_t share = (asked + self->num_gpus - 1) / self->num_gpus;
    size_t used = 0;
    for (uint32_t i = 0; i < self->num_gpus && used + 1 < size; i++) {
        const gpu *at = &self->gpus[i];
        const uint32_t slots = fedge_cohort_slots(at->cohort);
        const int length =
            snprintf(text + used, size - used,
                     "%sGPU %u: %u clients at once, %u waves for %u a round; %zu bytes each, %zu "
                     "shared; updates %s",
                     i > 0 ? "\n" : "", (unsigned)(config->num_gpus > 0 ? config->gpus[i] : i),
                     (unsigned)slots, (unsigned)((share + slots - 1) / slots), (unsigned)share,
                     at->memory.slot, at->memory.shared,
                     self->accumulates ? "stay on the GPU" : "come to the host");
        used += length > 0 ? (size_t)length : 0;
    }
}

const fedge_trainer_engine_ops fedge_trainer_engine_cuda = {.name = "cuda",
                                                            .check = check,
                                                            .size = size,
                                                            .open = open_engine,
                                                            .close = close_engine,
                                                            .run = run,
                                                            .bytes_per_thread = bytes_per_thread,
                                                            .describe = describe};

/* The work of a team: its cohorts' configuration, its runs' jobs and their results. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/sampler.h"
#include "aggregator/simulate/cohort/trainer_cuda_internal.h"
#include "edge/core/os.h"

#define LEAST_SLOTS 16 /* chunks of a test set that are evaluated side by side */

/* ---- a cohort's configuration ---------------------------------------------------------------- */

static fedge_cohort_examples examples_of(const fedge_dataset *dataset)
{
    return dataset
               ? (fedge_cohort_examples){fedge_dataset_values(dataset),
                                         fedge_dataset_labels(dataset), fedge_dataset_size(dataset)}
               : (fedge_cohort_examples){0};
}

/* The kernels' number of a section's codec; below 0: they have none. The clients of a plan with
 * such a codec are trained on GPUs, and their models copied back, encoded and summed by the host.
 */
static int codec_of(const fedge_section *section)
{
    char text[FEDGE_CODEC_TEXT];
    (void)fedge_codec_text(&section->codec, text);
    return section->codec.tensors      ? -1
           : strcmp(text, "none") == 0 ? FEDGE_COHORT_CODEC_NONE
           : strcmp(text, "int8") == 0 ? FEDGE_COHORT_CODEC_INT8
                                       : -1;
}

uint32_t fedge_trainer_cuda_count_chunks(const fedge_plan *plan)
{
    uint64_t count = 0;
    if (plan->hooks || fedge_plan_has_client_state(plan) || fedge_plan_makes_residual(plan) ||
        plan->update.deflate)
        return 0;
    for (uint32_t s = 0; s < plan->sent.num_sections; s++) {
        const fedge_section *section = &plan->sent.sections[s];
        if (codec_of(section) < 0)
            return 0;
        for (uint32_t t = 0; t < section->schema.num_tensors; t++) {
            count +=
                (section->schema.tensors[t].count + FEDGE_COHORT_CHUNK - 1) / FEDGE_COHORT_CHUNK;
        }
    }
    return count <= INT32_MAX ? (uint32_t)count : 0;
}

uint32_t fedge_trainer_cuda_clients_asked(const fedge_sim_backend_config *config)
{
    return fedge_cohort_size_of(&config->job->rounds, FEDGE_TASK_TRAIN,
                                config->client_data->num_clients)
        .asked;
}

fedge_cohort_config fedge_trainer_cuda_cohort_of(const fedge_sim_backend_config *config,
                                                 uint32_t num_gpus, uint32_t num_members,
                                                 trainer_cuda_storage *storage)
{
    const fedge_plan *plan = &config->job->plan;
    const uint32_t asked = fedge_trainer_cuda_clients_asked(config);
    const uint32_t each = (asked * num_members + num_gpus - 1) / num_gpus;
    const fedge_dataset *other =
        config->test_set != config->client_data->dataset ? config->test_set : NULL;
    const fedge_trainer_config any = {0}; /* only the augmentation's arguments are used */
    const fedge_examples none = {0};
    storage->options = fedge_plan_model_options(plan);
    (void)fedge_plan_augment(plan, &any, &none, &storage->augmented);
    return (fedge_cohort_config){
        .model = &plan->model,
        .options = &storage->options,
        .sets = {examples_of(config->client_data->dataset), examples_of(other)},
        .dtype = plan->data.dtype,
        .num_channels = plan->data.num_channels,
        .divide_by = plan->data.divide_by,
        .mean = plan->data.mean,
        .std = plan->data.std,
        .augmentation = plan->data.has_augmentation ? &storage->augmented.augmentation : NULL,
        .most_slots = each > LEAST_SLOTS ? each : LEAST_SLOTS,
        .num_chunks = fedge_trainer_cuda_count_chunks(plan),
        .num_members = num_members};
}

fedge_status fedge_trainer_cuda_count_gpus(const fedge_sim_backend_config *config, uint32_t *count,
                                           fedge_error *err)
{
    uint32_t available = 0;
    FEDGE_TRY(fedge_cohort_count_gpus(&available, err));
    available = available < FEDGE_COHORT_MAX_GPUS ? available : FEDGE_COHORT_MAX_GPUS;
    *count = config->num_gpus > 0 ? config->num_gpus : available;
    for (uint32_t i = 0; i < config->num_gpus; i++) {
        if (config->gpus[i] >= available) {
            return fedge_fail(err, FEDGE_NOT_FOUND, "GPU %u is not there: there are 0 to %u",
                              config->gpus[i], available - 1);
        }
    }
    return FEDGE_OK;
}

uint32_t fedge_trainer_cuda_number(const fedge_sim_backend_config *config, uint32_t index)
{
    return config->num_gpus > 0 ? config->gpus[index] : index;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Lists the sums of a section's tensors on the GPU, with the bounds of this round. */
static fedge_status set_section_chunks(const trainer_cuda *backend, uint32_t index,
                                       const fedge_section *section,
                                       fedge_cohort_chunk **next_chunk, fedge_error *err)
{
    const fedge_sim_backend_config *config = &backend->config;
    const uint32_t number = fedge_trainer_cuda_number(config, index);
    for (uint32_t t = 0; t < section->schema.num_tensors; t++) {
        const fedge_tensor_spec *tensor = &section->schema.tensors[t];
        const size_t first = backend->plan->sent.model_offsets[section->first + t];
        int64_t *sums = NULL;
        FEDGE_TRY(fedge_accumulator_device_pointer(&config->global->accumulator, number,
                                                   tensor->offset, &sums, err));
        for (size_t at = 0; at < tensor->count; at += FEDGE_COHORT_CHUNK) {
            const size_t left = tensor->count - at;
            *(*next_chunk)++ = (fedge_cohort_chunk){
                .sums = sums + at,
                .first = (uint32_t)(first + at),
                .count = (uint16_t)(left < FEDGE_COHORT_CHUNK ? left : FEDGE_COHORT_CHUNK),
                .bound_log2 = backend->bounds_log2 ? backend->bounds_log2[section->first + t] : 0,
                .codec = (uint8_t)codec_of(section)};
        }
    }
    return FEDGE_OK;
}

fedge_status fedge_trainer_cuda_set_chunks(trainer_cuda *self, fedge_error *err)
{
    const fedge_sent *sent = &self->plan->sent;
    for (uint32_t i = 0; i < self->team->num_gpus; i++) {
        fedge_cohort_chunk *next_chunk = self->chunks[i];
        for (uint32_t s = 0; s < sent->num_sections; s++)
            FEDGE_TRY(set_section_chunks(self, i, &sent->sections[s], &next_chunk, err));
    }
    return FEDGE_OK;
}

/* Loads the client's state and runs the strategy's hook, just before its slot begins. False: the
 * task has failed. */
static bool begin_update(const trainer_cuda_gpu *self, trainer_cuda_job *job)
{
    fedge_error err;
    const fedge_status status = fedge_client_update_begin(
        &job->backend->updates[self->index], job->task->client, &job->cohort.correction, &err);
    if (status != FEDGE_OK) {
        job->task->status = status;
        memcpy(job->task->message, err.message, sizeof(job->task->message));
        job->done = true;
    }
    return status == FEDGE_OK;
}

/* The run's next job of the current kind; NULL: none is left. */
static trainer_cuda_job *next_job(const trainer_cuda_gpu *self, trainer_cuda *backend)
{
    const bool training = self->team->training;
    trainer_cuda_job *job = NULL;
    while (!job && backend->next < backend->num_jobs) {
        trainer_cuda_job *at = &backend->jobs[backend->next++];
        if (!at->done && (at->task->work == FEDGE_SIM_BACKEND_TRAIN) == training)
            job = at;
        if (job && training && !begin_update(self, job))
            job = NULL;
    }
    return job;
}

/* Takes jobs of the runs in turn. */
static fedge_cohort_task *next(void *user)
{
    trainer_cuda_gpu *self = user;
    trainer_cuda_team *team = self->team;
    trainer_cuda_job *job = NULL;
    pthread_mutex_lock(&team->mutex);
    for (uint32_t i = 0; i < team->num_members && !job && !team->lost; i++)
        job = next_job(self, team->members[team->next_member++ % team->num_members]);
    pthread_mutex_unlock(&team->mutex);
    return job ? &job->cohort : NULL;
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

/* The loss of the last step is computed before its change of the parameters, so these are checked.
 */
static fedge_status check_finite(const trainer_cuda *self, const float *values, fedge_error *err)
{
    for (size_t i = 0; i < self->plan->schema.num_elements; i++) {
        if (!isfinite(values[i]))
            return fail_value(self, i, err);
    }
    return FEDGE_OK;
}

/* Counts a change that the GPU has added. */
static fedge_status count_update(const trainer_cuda_job *done, fedge_error *err)
{
    const trainer_cuda *backend = done->backend;
    if (done->cohort.bad_value != UINT32_MAX)
        return fail_value(backend, done->cohort.bad_value, err);
    done->task->bytes_up = backend->update_bytes;
    done->task->clamped = done->cohort.clamped;
    return fedge_accumulator_begin(&backend->config.global->accumulator, done->cohort.weight, err);
}

static fedge_status add_update(const trainer_cuda_gpu *self, trainer_cuda_job *done, float *values,
                               fedge_error *err)
{
    const trainer_cuda *backend = done->backend;
    fedge_client_update *update = &backend->updates[self->index];
    FEDGE_TRY(check_finite(backend, values, err));
    /* Other clients have used this buffer since this one began. */
    FEDGE_TRY(fedge_client_update_begin(update, done->task->client, &done->cohort.correction, err));
    if (update->values)
        memcpy(update->values, values, backend->plan->schema.num_elements * sizeof(*values));
    return fedge_client_update_add(update, done->task, backend->trainer.round, backend->bounds_log2,
                                   backend->rate, values, values + backend->plan->num_parameters,
                                   err);
}

static void take_result(void *user, fedge_cohort_task *task, float *values)
{
    trainer_cuda_gpu *self = user;
    trainer_cuda_job *done = (trainer_cuda_job *)task;
    trainer_cuda *backend = done->backend;
    fedge_error err = task->error;
    done->task->result = task->result;
    done->task->status = task->status;
    if (task->status == FEDGE_OK && values)
        done->task->status = add_update(self, done, values, &err);
    else if (task->status == FEDGE_OK && task->weight > 0)
        done->task->status = count_update(done, &err);
    done->task->message[0] = '\0';
    if (done->task->status != FEDGE_OK)
        memcpy(done->task->message, err.message, sizeof(done->task->message));
    const uint64_t now_ns = fedge_os_monotonic_ns();
    done->task->seconds = (double)(now_ns - self->last_ns) * 1e-9;
    done->done = true;
    self->last_ns = now_ns;
    pthread_mutex_lock(&self->team->mutex);
    const uint32_t count = ++backend->num_done;
    pthread_mutex_unlock(&self->team->mutex);
    /* on_done is for the run's own thread. */
    if (self->index == 0 && self->team->max_members == 1 && backend->config.on_done)
        backend->config.on_done(backend->config.user, count);
}

/* ---- all runs -------------------------------------------------------------------------------- */

/* Interrupting one run of a sweep interrupts all. */
static bool cancel(void *user)
{
    const trainer_cuda_gpu *self = user;
    bool cancelled = false;
    for (uint32_t m = 0; m < self->team->num_members && !cancelled; m++) {
        const fedge_sim_backend_config *config = &self->team->members[m]->config;
        cancelled = config->cancel && config->cancel(config->user);
    }
    return cancelled;
}

static void work(trainer_cuda_gpu *self)
{
    trainer_cuda_team *team = self->team;
    fedge_cohort_member members[FEDGE_COHORT_MAX_MEMBERS];
    bool stops = team->training;
    for (uint32_t m = 0; m < team->num_members; m++) {
        const trainer_cuda *backend = team->members[m];
        stops = stops || (backend->num_jobs > 0 && backend->jobs[0].task->may_stop);
        members[m] = (fedge_cohort_member){.start = backend->config.global->values,
                                           .training = team->training ? &backend->trainer : NULL,
                                           .chunks = backend->chunks[self->index]};
    }
    const fedge_cohort_work wanted = {.members = members,
                                      .num_members = team->num_members,
                                      .num_chunks =
                                          team->training ? team->members[0]->num_chunks : 0,
                                      .next = next,
                                      .done = take_result,
                                      .cancel = stops ? cancel : NULL,
                                      .user = self};
    self->last_ns = fedge_os_monotonic_ns();
    self->status = fedge_cohort_run(self->cohort, &wanted, &self->error);
    if (self->status != FEDGE_OK) {
        pthread_mutex_lock(&team->mutex);
        team->lost = true;
        pthread_mutex_unlock(&team->mutex);
    }
}

static void work_on_thread(void *user, uint32_t worker)
{
    trainer_cuda_team *team = user;
    work(&team->gpus[worker + 1]);
}

/* Does all training jobs of these runs, or all others. The caller works for the first GPU. */
static void run_kind(trainer_cuda_team *team, trainer_cuda *const *members, uint32_t count,
                     bool training)
{
    memcpy(team->members, members, count * sizeof(*members));
    team->num_members = count;
    team->next_member = 0;
    team->training = training;
    for (uint32_t m = 0; m < count; m++) {
        team->members[m]->next = 0;
        for (uint32_t i = 0; i < team->members[m]->num_jobs; i++)
            team->members[m]->jobs[i].cohort.member = m;
    }
    fedge_worker_pool_begin(team->threads, work_on_thread, team);
    work(&team->gpus[0]);
    fedge_worker_pool_end(team->threads);
}

/* Has the run jobs of the kind? */
static bool has_kind(const trainer_cuda *self, bool training)
{
    bool has = false;
    for (uint32_t i = 0; i < self->num_jobs && !has; i++) {
        const trainer_cuda_job *at = &self->jobs[i];
        has = !at->done && (at->task->work == FEDGE_SIM_BACKEND_TRAIN) == training;
    }
    return has;
}

/* Fails the jobs that a lost GPU or a lack of memory has left undone. */
static void fail_unfinished(trainer_cuda *self)
{
    const trainer_cuda_team *team = self->team;
    fedge_status status = self->failed ? self->error.status : FEDGE_OK;
    const fedge_error *why = &self->error;
    for (uint32_t i = 0; i < team->num_gpus && !self->failed; i++) {
        if (team->gpus[i].status != FEDGE_OK) {
            status = team->gpus[i].status;
            why = &team->gpus[i].error;
        }
    }
    for (uint32_t i = 0; status != FEDGE_OK && i < self->num_jobs; i++) {
        if (!self->jobs[i].done) {
            self->jobs[i].task->status = status;
            memcpy(self->jobs[i].task->message, why->message, sizeof(why->message));
        }
    }
}

void fedge_trainer_cuda_work(trainer_cuda_team *team)
{
    trainer_cuda *waiting[FEDGE_COHORT_MAX_MEMBERS], *ready[FEDGE_COHORT_MAX_MEMBERS];
    const uint32_t count = team->num_members;
    pthread_mutex_lock(&team->mutex);
    team->lost = false; /* a cohort whose GPU is lost fails again */
    pthread_mutex_unlock(&team->mutex);
    for (uint32_t i = 0; i < team->num_gpus; i++)
        team->gpus[i].status = FEDGE_OK;
    memcpy(waiting, team->members, count * sizeof(*waiting));
    for (int k = 0; k < 2; k++) {
        const bool training = k == 0;
        uint32_t num_ready = 0;
        for (uint32_t m = 0; m < count; m++) {
            if (!waiting[m]->failed && has_kind(waiting[m], training))
                ready[num_ready++] = waiting[m];
        }
        if (num_ready > 0 && !team->lost)
            run_kind(team, ready, num_ready, training);
    }
    for (uint32_t m = 0; m < count; m++)
        fail_unfinished(waiting[m]);
    memcpy(team->members, waiting, count * sizeof(*waiting));
    team->num_members = count;
}

#include "aggregator/simulate/cohort/training_backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/strategy.h"
#include "aggregator/simulate/cohort/trainer_cuda_internal.h"
#include "edge/core/os.h"

/* ---- abilities ------------------------------------------------------------------------------- */

/* Checks that each GPU has the job's precision and memory for a client. Runs that share GPUs check
 * it when they join a team, since memory then depends on the others. */
static fedge_status check_gpus(const fedge_sim_backend_config *config, fedge_error *err)
{
    uint32_t num_gpus = 0;
    trainer_cuda_storage storage;
    FEDGE_TRY(fedge_trainer_cuda_count_gpus(config, &num_gpus, err));
    for (uint32_t i = 0; i < num_gpus && !config->shared; i++) {
        fedge_cohort_config cohort = fedge_trainer_cuda_cohort_of(config, num_gpus, 1, &storage);
        cohort.gpu = (int)fedge_trainer_cuda_number(config, i);
        FEDGE_TRY(fedge_cohort_check_gpu(&cohort, err));
    }
    return FEDGE_OK;
}

static fedge_status check(const fedge_sim_backend_config *config, fedge_error *err)
{
    const fedge_plan *plan = &config->job->plan;
    trainer_cuda_storage storage;
    fedge_model_options evaluated;
    const fedge_cohort_config cohort = fedge_trainer_cuda_cohort_of(config, 1, 1, &storage);
    if (fedge_plan_evaluation_options(plan, &evaluated))
        return fedge_fail(err, FEDGE_UNSUPPORTED, "GPUs cannot evaluate in int8: use --engine cpu");
    if (fedge_data_num_targets(&plan->data) > 0) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "GPUs learn classes, not numbers (data.targets): use --engine cpu");
    }
    const char *lacks =
        fedge_plan_measures(plan) ? "needs the loss before training, which GPUs do not compute: use"
        : config->job->rounds.buffer_size > 0
            ? "trains from several models at a time: GPUs do not: take"
        : fedge_plan_is_clustered(plan) ? "has clients choose among models: GPUs do not: take"
        : fedge_plan_is_personal(plan)
            ? "keeps a part of the model on clients, which GPUs cannot train: use"
            : NULL;
    if (lacks) {
        return fedge_fail(err, FEDGE_UNSUPPORTED, "%s %s --engine cpu", config->job->strategy,
                          lacks);
    }
    FEDGE_TRY(fedge_cohort_check(&cohort, err));
    return check_gpus(config, err);
}

static bool adds_in_place(const fedge_sim_backend_config *config)
{
    const fedge_strategy_ops *strategy = NULL;
    fedge_error why;
    return fedge_trainer_cuda_count_chunks(&config->job->plan) > 0 &&
           fedge_strategy_of(config->job, &strategy, &why) == FEDGE_OK && !strategy->collects;
}

static fedge_status size(const fedge_sim_backend_config *config, uint64_t *bytes, fedge_error *err)
{
    trainer_cuda_storage storage;
    fedge_cohort_memory memory;
    uint32_t num_gpus = 0;
    FEDGE_TRY(fedge_trainer_cuda_count_gpus(config, &num_gpus, err));
    const fedge_cohort_config cohort = fedge_trainer_cuda_cohort_of(config, num_gpus, 1, &storage);
    const uint32_t threads = config->num_threads > 0 ? config->num_threads : 1;
    FEDGE_TRY(fedge_cohort_bytes(&cohort, &memory, err));
    *bytes = (memory.host + fedge_client_update_size(config->job, false)) * num_gpus;
    *bytes = (*bytes + threads - 1) / threads;
    return FEDGE_OK;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Prepares a job; false: its task has failed. */
static bool begin_task(trainer_cuda *self, trainer_cuda_job *at)
{
    const fedge_client_data *data = self->config.client_data;
    fedge_sim_backend_task *task = at->task;
    const fedge_view view = task->work == FEDGE_SIM_BACKEND_TEST ? task->view
                            : task->work == FEDGE_SIM_BACKEND_EVALUATE
                                ? fedge_client_data_held_out(data, task->client)
                                : fedge_client_data_train(data, task->client);
    at->backend = self;
    at->cohort = (fedge_cohort_task){.set = view.dataset != data->dataset,
                                     .examples = view.indices,
                                     .num_examples = view.count,
                                     .client_index = task->client,
                                     .predicted = task->predicted};
    if (task->work == FEDGE_SIM_BACKEND_EVALUATE && view.count == 0) {
        task->status = FEDGE_UNSUPPORTED;
        (void)fedge_os_format(task->message, sizeof(task->message),
                              "no examples are held out: set 'validation-fraction' in the site "
                              "file");
        return false;
    }
    if (task->work == FEDGE_SIM_BACKEND_TRAIN && self->accumulates) {
        task->facts.num_examples = view.count;
        at->cohort.weight = fedge_update_weight(self->config.global, &task->facts);
    }
    return true;
}

static fedge_status reserve_jobs(trainer_cuda *self, uint32_t count)
{
    if (count > self->capacity) {
        free(self->jobs);
        self->jobs = calloc(count, sizeof(*self->jobs));
        self->capacity = self->jobs ? count : 0;
    }
    return self->capacity >= count ? FEDGE_OK : FEDGE_NO_MEMORY;
}

static void run(void *state, uint32_t round, const int8_t *bounds_log2,
                fedge_sim_backend_task *tasks, uint32_t num_tasks)
{
    trainer_cuda *self = state;
    if (reserve_jobs(self, num_tasks) != FEDGE_OK) {
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
    self->failed =
        self->accumulates && fedge_trainer_cuda_set_chunks(self, &self->error) != FEDGE_OK;
    for (uint32_t i = 0; i < num_tasks; i++) {
        self->jobs[i].task = &tasks[i];
        self->jobs[i].done = !begin_task(self, &self->jobs[i]);
    }
    fedge_trainer_cuda_run_together(self);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void log_gpu(const trainer_cuda *self, const trainer_cuda_gpu *at)
{
    const fedge_sim_backend_config *config = &self->config;
    const fedge_cohort_memory *memory = &at->memory;
    if (config->log) {
        FEDGE_LOG(
            config->log, FEDGE_LOG_INFO, "trainer-engine", fedge_log_str("kind", "cuda"),
            fedge_log_int("gpu", fedge_trainer_cuda_number(config, at->index)),
            fedge_log_int("clients-at-once", fedge_cohort_slots(at->cohort)),
            fedge_log_int("bytes", (int64_t)(memory->slots + memory->shared)),
            fedge_log_int("bytes-each", (int64_t)memory->slot),
            fedge_log_int("bytes-shared", (int64_t)memory->shared),
            fedge_log_str("updates", self->accumulates ? "stay on the GPU" : "come to the host"));
    }
}

static fedge_status no_memory(fedge_error *err)
{
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for GPUs' trainer");
}

/* Takes this run's buffers for GPU [index]. */
static fedge_status open_buffers(trainer_cuda *self, uint32_t index, fedge_error *err)
{
    const fedge_sim_backend_config *config = &self->config;
    fedge_client_update *update = &self->updates[index];
    FEDGE_TRY(fedge_client_update_init(update, config, index % config->num_threads, false, err));
    if (self->num_chunks > 0) {
        self->chunks[index] = calloc(self->num_chunks, sizeof(**self->chunks));
        if (!self->chunks[index])
            return no_memory(err);
    }
    self->host_bytes += self->team->gpus[index].memory.host + update->total;
    return FEDGE_OK;
}

static fedge_status open_all(trainer_cuda *self, fedge_error *err)
{
    FEDGE_TRY(fedge_trainer_cuda_join(self, err));
    self->updates = calloc(self->team->num_gpus, sizeof(*self->updates));
    self->chunks = calloc(self->team->num_gpus, sizeof(*self->chunks));
    if (!self->updates || !self->chunks)
        return no_memory(err);
    for (uint32_t i = 0; i < self->team->num_gpus; i++)
        FEDGE_TRY(open_buffers(self, i, err));
    return FEDGE_OK;
}

static void close_backend(void *state)
{
    trainer_cuda *self = state;
    if (!self)
        return;
    for (uint32_t i = 0; self->team && i < self->team->num_gpus; i++) {
        if (self->updates)
            fedge_client_update_fini(&self->updates[i]);
        if (self->chunks)
            free(self->chunks[i]);
    }
    fedge_trainer_cuda_leave(self);
    free(self->updates);
    free(self->chunks);
    free(self->jobs);
    free(self);
}

/* Are the accumulator's sums on the GPUs that train? */
static bool can_accumulate(trainer_cuda *self)
{
    fedge_error why;
    return self->num_chunks > 0 && !self->config.global->strategy->collects &&
           fedge_trainer_cuda_set_chunks(self, &why) == FEDGE_OK;
}

static fedge_status open_backend(const fedge_sim_backend_config *config, void **state,
                                 fedge_error *err)
{
    *state = NULL;
    trainer_cuda *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return no_memory(err);
    fresh->config = *config;
    fresh->plan = &config->job->plan;
    fresh->num_chunks = fedge_trainer_cuda_count_chunks(fresh->plan);
    const fedge_status status = open_all(fresh, err);
    if (status != FEDGE_OK) {
        close_backend(fresh);
        return status;
    }
    fresh->accumulates = can_accumulate(fresh);
    fresh->update_bytes = fedge_plan_update_layout(fresh->plan).size;
    for (uint32_t i = 0; i < fresh->team->num_gpus; i++)
        log_gpu(fresh, &fresh->team->gpus[i]);
    *state = fresh;
    return FEDGE_OK;
}

static uint64_t bytes_per_thread(const void *state)
{
    const trainer_cuda *self = state;
    return self->host_bytes / self->team->num_gpus;
}

static void describe(const void *state, char *text, size_t size)
{
    const trainer_cuda *self = state;
    const fedge_sim_backend_config *config = &self->config;
    const uint32_t asked = fedge_trainer_cuda_clients_asked(config);
    const uint32_t gpus = self->team->num_gpus, each = (asked + gpus - 1) / gpus;
    size_t used = 0;
    for (uint32_t i = 0; i < gpus && used + 1 < size; i++) {
        const trainer_cuda_gpu *at = &self->team->gpus[i];
        const uint32_t slots = fedge_cohort_slots(at->cohort);
        const int length = snprintf(
            text + used, size - used,
            "%sGPU %u: %u clients at once, %u waves for %u a round; %zu bytes: %zu each, %zu "
            "shared; updates %s",
            i > 0 ? "\n" : "", (unsigned)fedge_trainer_cuda_number(config, i), (unsigned)slots,
            (unsigned)((each + slots - 1) / slots), (unsigned)each,
            at->memory.slots + at->memory.shared, at->memory.slot, at->memory.shared,
            self->accumulates ? "stay on the GPU" : "come to the host");
        used += length > 0 ? (size_t)length : 0;
    }
}

const fedge_sim_backend_ops fedge_sim_backend_cuda = {.name = "cuda",
                                                      .batches_runs = true,
                                                      .check = check,
                                                      .adds_in_place = adds_in_place,
                                                      .size = size,
                                                      .open = open_backend,
                                                      .close = close_backend,
                                                      .run = run,
                                                      .bytes_per_thread = bytes_per_thread,
                                                      .describe = describe};

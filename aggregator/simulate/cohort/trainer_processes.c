/* The backend "process": trainers of one's own, in processes. Each thread has one process, which
 * trains one virtual client at a time; all that a device does around its trainer is done here. */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/cohort/client_update.h"
#include "aggregator/simulate/cohort/trainer_process.h"
#include "aggregator/simulate/cohort/trainer_values.h"
#include "aggregator/simulate/cohort/training_backend.h"
#include "aggregator/threads/worker_pool.h"
#include "edge/core/os.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/personal.h"

typedef struct processes processes;

/* One thread. */
typedef struct worker {
    processes *all;
    fedge_trainer_process process;
    fedge_client_update update;
} worker;

struct processes {
    fedge_sim_backend_config config;
    const fedge_plan *plan;
    fedge_sim_backend testers; /* fedge's trainers, where the server has a test set; or all 0 */
    /* The current call of run. */
    uint32_t round;
    const int8_t *bounds_log2;
    fedge_sim_backend_task *tasks;
    uint32_t num_tasks;
    atomic_uint_fast32_t next, num_done;
    fedge_worker_pool *threads; /* besides the caller's */
    worker workers[];
};

/* ---- one task -------------------------------------------------------------------------------- */

/* Copies what the trainer sees of the hooks' state to shared memory, or what it may change back. */
static void copy_hooks(worker *self)
{
    const fedge_simulated_layout *layout = &self->process.layout;
    const fedge_hooks_state *hooks = &self->update.hooks;
    float *to = self->process.values;
    if (layout->correction > 0)
        memcpy(to + layout->correction_at, hooks->correction, layout->correction * sizeof(*to));
    if (layout->personal > 0)
        memcpy(to + layout->personal_at, hooks->client_state, layout->personal * sizeof(*to));
    if (layout->others > 0)
        memcpy(to + layout->others_at, hooks->broadcast, layout->others * sizeof(*to));
}

static fedge_status call(worker *self, fedge_sim_backend_task *task, uint32_t round,
                         fedge_trainer_report *report, fedge_error *err)
{
    processes *all = self->all;
    const bool train = task->work == FEDGE_SIM_BACKEND_TRAIN;
    bool declined = false;
    const fedge_simulated_message message = {
        .kind = train ? FEDGE_SIMULATED_TRAIN : FEDGE_SIMULATED_EVALUATE,
        .task_id = task->task_id,
        .deadline_ms = all->config.job->rounds.round_deadline_ms,
        .learning_rate = fedge_plan_learning_rate(all->plan, round),
        .round = round,
        .client_index = task->client,
        .num_clients = all->config.client_data->num_clients};
    /* Evaluation is not interrupted: its round has closed, and its line must be written. */
    const fedge_trainer_calls calls = {.stored = all->config.values,
                                       .cancel = train ? all->config.cancel : NULL,
                                       .user = all->config.user};
    FEDGE_TRY(fedge_trainer_process_call(&self->process, &message, &calls, report, &declined, err));
    task->has_means = true;
    task->loss = report->loss;
    task->accuracy = report->accuracy;
    task->result = (fedge_trainer_result){.num_examples = report->num_examples,
                                          .num_steps = report->num_steps};
    return FEDGE_OK;
}

/* The model that the client trained: the task's, or a further one. */
static fedge_status find_start(worker *self, fedge_sim_backend_task *task,
                               const fedge_trainer_report *report, fedge_error *err)
{
    const fedge_hooks_state *hooks = &self->update.hooks;
    if (!fedge_plan_is_clustered(self->all->plan) || report->chosen == 0)
        return FEDGE_OK;
    if (report->chosen > hooks->num_broadcast) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "the trainer chose model %u of %u",
                          report->chosen, hooks->num_broadcast + 1);
    }
    task->facts.cluster = report->chosen;
    self->update.start = hooks->broadcast + (report->chosen - 1) * hooks->num_trained;
    return FEDGE_OK;
}

static fedge_status train(worker *self, fedge_sim_backend_task *task, fedge_error *err)
{
    processes *all = self->all;
    const size_t bytes = all->plan->schema.num_elements * sizeof(float);
    const uint32_t round = task->round > 0 ? task->round : all->round;
    const float *correction = NULL;
    fedge_trainer_report report;
    FEDGE_TRY(fedge_client_update_begin(&self->update, task->client, &correction, err));
    if (task->start) {
        self->update.start = task->start;
        memcpy(self->update.values, task->start, bytes);
    }
    memcpy(self->process.values, self->update.values, bytes);
    copy_hooks(self);
    FEDGE_TRY(call(self, task, round, &report, err));
    FEDGE_TRY(find_start(self, task, &report, err));
    memcpy(self->update.values, self->process.values, bytes);
    if (self->process.layout.personal > 0) {
        memcpy(self->update.hooks.client_state,
               self->process.values + self->process.layout.personal_at,
               self->process.layout.personal * sizeof(float));
    }
    if (fedge_plan_counts_steps(all->plan))
        task->facts.num_steps = report.num_steps;
    if (isfinite(report.start_loss))
        task->facts.start_loss = report.start_loss;
    return fedge_client_update_add(&self->update, task, all->round, all->bounds_log2,
                                   fedge_plan_learning_rate(all->plan, round), NULL, NULL, err);
}

static fedge_status evaluate(worker *self, fedge_sim_backend_task *task, fedge_error *err)
{
    const processes *all = self->all;
    const fedge_plan *plan = all->plan;
    const float *correction = NULL;
    fedge_trainer_report report;
    if (fedge_plan_is_clustered(plan) || fedge_plan_is_personal(plan))
        FEDGE_TRY(fedge_client_update_begin(&self->update, task->client, &correction, err));
    memcpy(self->process.values, all->config.global->values,
           plan->schema.num_elements * sizeof(float));
    if (fedge_plan_is_personal(plan))
        fedge_personal_put(plan, self->update.hooks.client_state, self->process.values);
    copy_hooks(self);
    return call(self, task, all->round, &report, err);
}

static void work(worker *self)
{
    processes *all = self->all;
    uint_fast32_t at;
    while ((at = atomic_fetch_add(&all->next, 1)) < all->num_tasks) {
        fedge_sim_backend_task *task = &all->tasks[at];
        fedge_error err;
        const uint64_t start_ns = fedge_os_monotonic_ns();
        task->status = task->work == FEDGE_SIM_BACKEND_TRAIN ? train(self, task, &err)
                                                             : evaluate(self, task, &err);
        task->message[0] = '\0';
        if (task->status != FEDGE_OK)
            memcpy(task->message, err.message, sizeof(task->message));
        task->seconds = (double)(fedge_os_monotonic_ns() - start_ns) * 1e-9;
        const uint_fast32_t done = atomic_fetch_add(&all->num_done, 1) + 1;
        /* Only on the caller's thread, which may draw a bar without a lock. */
        if (self == all->workers && all->config.on_done)
            all->config.on_done(all->config.user, (uint32_t)done);
    }
}

/* The first worker is the caller's thread. */
static void work_on_thread(void *user, uint32_t thread)
{
    processes *all = user;
    work(&all->workers[thread + 1]);
}

static void run(void *state, uint32_t round, const int8_t *bounds_log2,
                fedge_sim_backend_task *tasks, uint32_t num_tasks)
{
    processes *all = state;
    if (num_tasks > 0 && tasks[0].work == FEDGE_SIM_BACKEND_TEST) { /* then all are */
        fedge_sim_backend_run(&all->testers, round, bounds_log2, tasks, num_tasks);
        return;
    }
    all->round = round;
    all->bounds_log2 = bounds_log2;
    all->tasks = tasks;
    all->num_tasks = num_tasks;
    atomic_store(&all->next, 0);
    atomic_store(&all->num_done, 0);
    fedge_worker_pool_begin(all->threads, work_on_thread, all);
    work(&all->workers[0]);
    fedge_worker_pool_end(all->threads);
}

/* ---- the server's examples ------------------------------------------------------------------- */

/* On examples of the server the model is evaluated as the server does it, which knows its layers.
 */
static bool tests(const fedge_sim_backend_config *config)
{
    return config->test_set && config->max_evaluated > 0 && !config->job->plan.external;
}

/* ---- life ------------------------------------------------------------------------------------ */

static fedge_status check(const fedge_sim_backend_config *config, fedge_error *err)
{
    return config->trainers ? FEDGE_OK
                            : fedge_fail(err, FEDGE_UNSUPPORTED,
                                         "--engine process: say with --trainer COMMAND how to "
                                         "start a trainer");
}

static fedge_status size(const fedge_sim_backend_config *config, uint64_t *bytes, fedge_error *err)
{
    *bytes = 0;
    if (tests(config))
        FEDGE_TRY(fedge_sim_backend_cpu.size(config, bytes, err));
    *bytes += fedge_client_update_size(config->job, true) +
              fedge_simulated_layout_of(&config->job->plan).bytes;
    return FEDGE_OK;
}

static void close_all(void *state)
{
    processes *all = state;
    if (!all)
        return;
    fedge_sim_backend_close(&all->testers);
    fedge_worker_pool_free(all->threads); /* The threads use what is freed below. */
    for (uint32_t i = 0; i < all->config.num_threads; i++) {
        fedge_trainer_process_end(&all->workers[i].process);
        fedge_client_update_fini(&all->workers[i].update);
    }
    free(all);
}

/* Starts all processes before it waits for the first, since a program may take long to load. */
static fedge_status start(processes *all, fedge_error *err)
{
    const fedge_sim_backend_config *config = &all->config;
    const fedge_trainer_calls calls = {.cancel = config->cancel, .user = config->user};
    if (tests(config))
        FEDGE_TRY(fedge_sim_backend_open(&all->testers, &fedge_sim_backend_cpu, config, err));
    for (uint32_t i = 0; i < config->num_threads; i++)
        FEDGE_TRY(fedge_trainer_process_start(&all->workers[i].process, config->trainers, i, err));
    for (uint32_t i = 0; i < config->num_threads; i++) {
        worker *self = &all->workers[i];
        FEDGE_TRY(fedge_client_update_init(&self->update, config, i, true, err));
        FEDGE_TRY(fedge_trainer_process_plan(&self->process, all->plan, &calls, err));
    }
    const fedge_worker_pool_config threads = {.name = "thread",
                                              .thread = "trainer",
                                              .advice = "use fewer --threads",
                                              .num_workers = config->num_threads - 1};
    return fedge_worker_pool_new(&all->threads, &threads, err);
}

static fedge_status open_all(const fedge_sim_backend_config *config, void **state, fedge_error *err)
{
    *state = NULL;
    if (config->num_threads == 0 || config->num_threads > FEDGE_SIM_BACKEND_MAX_THREADS) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "%u trainers: 1 to %u", config->num_threads,
                          FEDGE_SIM_BACKEND_MAX_THREADS);
    }
    processes *fresh = calloc(1, sizeof(*fresh) + config->num_threads * sizeof(worker));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u trainers", config->num_threads);
    fresh->config = *config;
    fresh->plan = &config->job->plan;
    atomic_init(&fresh->next, 0);
    atomic_init(&fresh->num_done, 0);
    for (uint32_t i = 0; i < config->num_threads; i++) {
        fresh->workers[i].all = fresh;
        fresh->workers[i].process = (fedge_trainer_process){.channel = -1, .memory = -1};
    }
    const fedge_status status = start(fresh, err);
    if (status != FEDGE_OK) {
        close_all(fresh);
        return status;
    }
    *state = fresh;
    return FEDGE_OK;
}

static uint64_t bytes_per_thread(const void *state)
{
    const processes *all = state;
    return all->workers[0].update.total + all->workers[0].process.layout.bytes;
}

static void describe(const void *state, char *text, size_t text_size)
{
    const processes *all = state;
    (void)fedge_os_format(text, text_size, "processes: %u clients at once, %llu bytes each here",
                          (unsigned)all->config.num_threads,
                          (unsigned long long)bytes_per_thread(state));
}

const fedge_sim_backend_ops fedge_sim_backend_process = {.name = "process",
                                                         .check = check,
                                                         .size = size,
                                                         .open = open_all,
                                                         .close = close_all,
                                                         .run = run,
                                                         .bytes_per_thread = bytes_per_thread,
                                                         .describe = describe};

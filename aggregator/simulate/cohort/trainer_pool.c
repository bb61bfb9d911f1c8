#include "aggregator/simulate/cohort/training_backend.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/evaluator.h"
#include "aggregator/rounds/sampler.h"
#include "aggregator/simulate/cohort/client_update.h"
#include "aggregator/simulate/cohort/evaluation.h"
#include "aggregator/simulate/cohort/memory.h"
#include "aggregator/threads/worker_pool.h"
#include "edge/core/os.h"
#include "edge/plan/client_hooks.h"

/* Spin this long before sleeping: about one wake-up. With more threads than CPUs spinning would
 * keep others from work. */
#define SPIN_NS 100000

typedef struct trainer_pool trainer_pool;

/* One thread. */
typedef struct worker {
    trainer_pool *pool;
    uint32_t lane;                  /* index in the global model's accumulator */
    fedge_model *model, *evaluator; /* the same, unless evaluation has its own */
    fedge_model *tester;            /* a model with the batch size of the server's evaluation */
    void *block, *evaluator_block, *tester_block, *scratch;
    size_t scratch_size;
    fedge_client_update update;
    uint_fast32_t ready_for; /* number of the call of run whose global model [model] equals */
    uint64_t total;          /* bytes of all */
} worker;

struct trainer_pool {
    fedge_sim_backend_config config;
    const fedge_plan *plan;
    /* The current call of run. */
    uint32_t round;
    const int8_t *bounds_log2;
    fedge_sim_backend_task *tasks;
    uint32_t num_tasks;
    atomic_uint_fast32_t next, num_done;
    uint_fast32_t num_calls;
    fedge_worker_pool *threads; /* besides the caller's */
    worker workers[];
};

/* ---- one task -------------------------------------------------------------------------------- */

/* Adds the trained model's update to the sums. */
static fedge_status add_update(worker *self, fedge_sim_backend_task *task, double rate,
                               fedge_error *err)
{
    const trainer_pool *pool = self->pool;
    const fedge_plan *plan = pool->plan;
    float *values = self->update.values;
    if (values && !fedge_plan_is_personal(plan)) { /* else training has put them there */
        memcpy(values, self->update.start, plan->schema.num_elements * sizeof(*values));
        fedge_model_get_trained(self->model, values);
    }
    FEDGE_TRY(fedge_client_update_add(&self->update, task, pool->round, pool->bounds_log2, rate,
                                      fedge_model_values(self->model),
                                      fedge_model_buffers(self->model), err));
    /* Adding makes the model equal the global one again where all of it was sent. */
    const bool whole = plan->sent.schema.num_elements == plan->schema.num_elements;
    self->ready_for = whole && !values && !task->start ? pool->num_calls : 0;
    return FEDGE_OK;
}

/* Loads the client's state and runs the strategy's first hook. */
static fedge_status begin_update(worker *self, uint32_t client, fedge_error *err)
{
    const float *correction = NULL;
    FEDGE_TRY(fedge_client_update_begin(&self->update, client, &correction, err));
    if (correction) {
        memcpy(fedge_model_correction(self->model), correction,
               fedge_model_num_values(self->model) * sizeof(float));
    }
    return FEDGE_OK;
}

static fedge_trainer_workspace workspace_of(const worker *self)
{
    const fedge_sim_backend_config *config = &self->pool->config;
    return (fedge_trainer_workspace){self->scratch, self->scratch_size, config->cancel,
                                     config->user};
}

/* Sets the model to [start], or NULL: to the global one. */
static void prepare(worker *self, const float *start)
{
    if (start)
        fedge_model_set_state(self->model, start);
    else if (self->ready_for != self->pool->num_calls)
        fedge_model_set_state(self->model, self->pool->config.global->values);
    self->ready_for = 0;
}

/* Measures the loss before training. */
static fedge_status measure(worker *self, fedge_sim_backend_task *task,
                            const fedge_examples *examples, fedge_error *err)
{
    const fedge_trainer_workspace workspace = workspace_of(self);
    fedge_trainer_result result;
    FEDGE_TRY(fedge_trainer_evaluate(self->model, examples, fedge_model_max_batch(self->model),
                                     &workspace, &result, err));
    if (result.num_seen > 0)
        task->facts.start_loss = result.loss_sum / (double)result.num_seen;
    return FEDGE_OK;
}

/* Chooses, as a client does, the model that fits its examples best; the broadcast models are
 * loaded. *values: the chosen model's. */
static fedge_status choose(worker *self, uint32_t client, uint32_t *chosen, const float **values,
                           fedge_error *err)
{
    const fedge_sim_backend_config *config = &self->pool->config;
    const fedge_view view = fedge_client_data_train(config->client_data, client);
    const fedge_examples examples = fedge_view_examples(&view);
    const fedge_hooks_state *hooks = &self->update.hooks;
    const fedge_trainer_workspace workspace = workspace_of(self);
    double least = INFINITY;
    *chosen = 0;
    *values = config->global->values;
    for (uint32_t i = 0; i <= hooks->num_broadcast; i++) {
        const float *at =
            i == 0 ? config->global->values : hooks->broadcast + (i - 1) * hooks->num_trained;
        fedge_trainer_result result;
        fedge_model_set_state(self->model, at);
        const fedge_status status = fedge_trainer_evaluate(
            self->model, &examples, fedge_model_max_batch(self->model), &workspace, &result, err);
        if (status != FEDGE_OK && status != FEDGE_NOT_FINITE) /* one that diverged does not fit */ {
            return status;
        }
        if (status == FEDGE_OK && result.loss_sum < least) {
            least = result.loss_sum;
            *chosen = i;
            *values = at;
        }
    }
    return FEDGE_OK;
}

/* Starts from the model that the client chooses. */
static fedge_status begin_chosen(worker *self, fedge_sim_backend_task *task, fedge_error *err)
{
    FEDGE_TRY(choose(self, task->client, &task->facts.cluster, &self->update.start, err));
    fedge_model_set_state(self->model, self->update.start);
    fedge_model_reset_optimizer(self->model);
    return FEDGE_OK;
}

/* Trains with a personal plan; the client's state is loaded. */
static fedge_status train_personal(worker *self, fedge_sim_backend_task *task,
                                   const fedge_examples *examples,
                                   const fedge_trainer_config *config, fedge_error *err)
{
    const fedge_trainer_workspace workspace = workspace_of(self);
    const fedge_local_training with = {.plan = self->pool->plan,
                                       .model = self->model,
                                       .examples = examples,
                                       .config = config,
                                       .workspace = &workspace};
    return fedge_personal_train(&with, self->update.values, self->update.hooks.client_state,
                                &task->result, err);
}

static fedge_status train(worker *self, fedge_sim_backend_task *task, fedge_error *err)
{
    const trainer_pool *pool = self->pool;
    const fedge_plan *plan = pool->plan;
    const fedge_view view = fedge_client_data_train(pool->config.client_data, task->client);
    const uint32_t round = task->round > 0 ? task->round : pool->round;
    const double rate = fedge_plan_learning_rate(plan, round);
    const fedge_trainer_config config = fedge_plan_trainer_config(plan, round, task->client, rate);
    const fedge_examples stored = fedge_view_examples(&view);
    fedge_augmented augmented;
    const fedge_examples examples = fedge_plan_augment(plan, &config, &stored, &augmented);
    prepare(self, task->start);
    /* Each client begins without momentum, as a device does. */
    fedge_model_reset_optimizer(self->model);
    if (fedge_plan_measures(plan))
        FEDGE_TRY(measure(self, task, &stored, err));
    FEDGE_TRY(begin_update(self, task->client, err));
    if (task->start)
        self->update.start = task->start;
    if (fedge_plan_is_clustered(plan))
        FEDGE_TRY(begin_chosen(self, task, err));
    if (fedge_plan_is_personal(plan)) {
        FEDGE_TRY(train_personal(self, task, &examples, &config, err));
    } else {
        const fedge_trainer_workspace workspace = workspace_of(self);
        FEDGE_TRY(
            fedge_trainer_run(self->model, &examples, &config, &workspace, &task->result, err));
    }
    return add_update(self, task, rate, err);
}

/* The values to evaluate: the global model's, or the client's personal or chosen model's. */
static fedge_status find_values(worker *self, const fedge_sim_backend_task *task,
                                const float **values, fedge_error *err)
{
    const fedge_sim_backend_config *config = &self->pool->config;
    const fedge_plan *plan = self->pool->plan;
    const float *global = config->global->values;
    *values = global;
    if (task->personal && fedge_plan_is_clustered(plan)) {
        uint32_t chosen = 0;
        FEDGE_TRY(begin_update(self, task->client, err));
        return choose(self, task->client, &chosen, values, err);
    }
    float *state = self->update.hooks.client_state;
    if (!task->personal || !fedge_client_states_has(config->states, task->client))
        return FEDGE_OK;
    FEDGE_TRY(fedge_client_states_get(config->states, task->client, state, err));
    memcpy(self->update.values, global, plan->schema.num_elements * sizeof(*global));
    fedge_personal_put(plan, state, self->update.values);
    *values = self->update.values;
    return FEDGE_OK;
}

static fedge_status evaluate(worker *self, fedge_sim_backend_task *task, fedge_error *err)
{
    const fedge_sim_backend_config *config = &self->pool->config;
    const fedge_view view = fedge_client_data_held_out(config->client_data, task->client);
    if (view.count == 0) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "no examples are held out: set 'validation-fraction' in the client file");
    }
    const fedge_examples examples = fedge_view_examples(&view);
    const float *values = NULL;
    FEDGE_TRY(find_values(self, task, &values, err));
    fedge_model_set_state(self->evaluator, values);
    /* Without cancel: the round has closed, and its line must be written. */
    const fedge_trainer_workspace workspace = {.scratch = self->scratch,
                                               .scratch_size = self->scratch_size};
    return fedge_trainer_evaluate(self->evaluator, &examples,
                                  fedge_model_max_batch(self->evaluator), &workspace, &task->result,
                                  err);
}

/* Evaluates batch by batch, to read each batch's outputs from the model. */
static fedge_status test(worker *self, fedge_sim_backend_task *task, fedge_error *err)
{
    const trainer_pool *pool = self->pool;
    const fedge_trainer_workspace workspace = {.scratch = self->scratch,
                                               .scratch_size = self->scratch_size};
    const float *values = NULL;
    task->result = (fedge_trainer_result){.num_examples = task->view.count};
    if (task->may_stop && pool->config.cancel && pool->config.cancel(pool->config.user))
        return fedge_fail(err, FEDGE_CANCELLED, "interrupted");
    FEDGE_TRY(find_values(self, task, &values, err));
    fedge_model_set_state(self->tester, values);
    for (uint32_t at = 0; at < task->view.count;) {
        const uint32_t left = task->view.count - at;
        const fedge_view batch = {task->view.dataset, task->view.indices + at,
                                  left < FEDGE_EVALUATOR_BATCH ? left : FEDGE_EVALUATOR_BATCH};
        const fedge_examples examples = fedge_view_examples(&batch);
        fedge_trainer_result result;
        FEDGE_TRY(fedge_trainer_evaluate(self->tester, &examples, FEDGE_EVALUATOR_BATCH, &workspace,
                                         &result, err));
        task->result.num_seen += result.num_seen;
        task->result.loss_sum += result.loss_sum;
        task->result.correct += result.correct;
        fedge_errors_merge(&task->result.errors, &result.errors);
        if (task->predicted) {
            fedge_classify(&pool->plan->model, fedge_model_outputs(self->tester), batch.count,
                           task->predicted + at);
        }
        at += batch.count;
    }
    return FEDGE_OK;
}

static void work(worker *self)
{
    trainer_pool *pool = self->pool;
    uint_fast32_t at;
    /* One at a time; the caller has put the largest first, so that threads end nearly together. */
    while ((at = atomic_fetch_add(&pool->next, 1)) < pool->num_tasks) {
        fedge_sim_backend_task *task = &pool->tasks[at];
        fedge_error err;
        const uint64_t start_ns = fedge_os_monotonic_ns();
        task->status = task->work == FEDGE_SIM_BACKEND_TRAIN      ? train(self, task, &err)
                       : task->work == FEDGE_SIM_BACKEND_EVALUATE ? evaluate(self, task, &err)
                                                                  : test(self, task, &err);
        task->message[0] = '\0';
        if (task->status != FEDGE_OK)
            memcpy(task->message, err.message, sizeof(task->message));
        task->seconds = (double)(fedge_os_monotonic_ns() - start_ns) * 1e-9;
        const uint_fast32_t done = atomic_fetch_add(&pool->num_done, 1) + 1;
        /* Only on the caller's thread, which may draw a bar without a lock. */
        if (self == pool->workers && pool->config.on_done)
            pool->config.on_done(pool->config.user, (uint32_t)done);
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

/* The first worker is the caller's thread. */
static void work_on_thread(void *user, uint32_t thread)
{
    trainer_pool *pool = user;
    work(&pool->workers[thread + 1]);
}

static void run(void *state, uint32_t round, const int8_t *bounds_log2,
                fedge_sim_backend_task *tasks, uint32_t num_tasks)
{
    trainer_pool *pool = state;
    pool->round = round;
    pool->bounds_log2 = bounds_log2;
    pool->tasks = tasks;
    pool->num_tasks = num_tasks;
    atomic_store(&pool->next, 0);
    atomic_store(&pool->num_done, 0);
    /* Marks each model as not yet the global one, without touching it. */
    pool->num_calls++;
    fedge_worker_pool_begin(pool->threads, work_on_thread, pool);
    work(&pool->workers[0]);
    fedge_worker_pool_end(pool->threads);
}

/* ---- life ------------------------------------------------------------------------------------ */

static fedge_status no_memory(const worker *self, fedge_error *err)
{
    return fedge_fail(err, FEDGE_NO_MEMORY,
                      "no memory for a thread (%llu bytes so far): use fewer --threads, a smaller "
                      "batch-size or a smaller model",
                      (unsigned long long)self->total);
}

static fedge_status make_model(worker *self, const fedge_model_options *options, void **block,
                               fedge_model **model, fedge_error *err)
{
    fedge_model_memory memory;
    const fedge_model_spec *spec = &self->pool->plan->model;
    FEDGE_TRY(fedge_model_size(spec, options, &memory, err));
    *block = fedge_memory_allocate(memory.total, &self->total);
    fedge_os_large_pages(*block, memory.total);
    return *block ? fedge_model_new(model, spec, options, *block, memory.total, err)
                  : no_memory(self, err);
}

static fedge_status make_models(worker *self, fedge_error *err)
{
    const fedge_plan *plan = self->pool->plan;
    fedge_model_options options = fedge_plan_model_options(plan);
    FEDGE_TRY(make_model(self, &options, &self->block, &self->model, err));
    self->evaluator = self->model;
    if (fedge_plan_evaluation_options(plan, &options))
        FEDGE_TRY(make_model(self, &options, &self->evaluator_block, &self->evaluator, err));
    if (self->pool->config.max_evaluated == 0)
        return FEDGE_OK;
    options = (fedge_model_options){.max_batch = FEDGE_EVALUATOR_BATCH};
    return make_model(self, &options, &self->tester_block, &self->tester, err);
}

static size_t scratch_size(const fedge_sim_backend_config *config)
{
    const fedge_plan *plan = &config->job->plan;
    const uint32_t batch = plan->training.batch_size, largest = config->client_data->max_examples;
    return fedge_plan_scratch_size(
        plan, largest > config->max_evaluated ? largest : config->max_evaluated,
        batch > FEDGE_EVALUATOR_BATCH ? batch : FEDGE_EVALUATOR_BATCH);
}

static fedge_status make_worker(worker *self, fedge_error *err)
{
    const trainer_pool *pool = self->pool;
    FEDGE_TRY(make_models(self, err));
    self->scratch_size = scratch_size(&pool->config);
    self->scratch = fedge_memory_allocate(self->scratch_size, &self->total);
    if (!self->scratch)
        return no_memory(self, err);
    const fedge_status status = fedge_client_update_init(&self->update, &pool->config, self->lane,
                                                         !fedge_model_values(self->model), err);
    self->total += self->update.total;
    return status;
}

static fedge_status add_model(const fedge_plan *plan, const fedge_model_options *options,
                              uint64_t *bytes, fedge_error *err)
{
    fedge_model_memory memory;
    FEDGE_TRY(fedge_model_size(&plan->model, options, &memory, err));
    *bytes += memory.total;
    return FEDGE_OK;
}

/* The bytes that make_worker takes. */
static fedge_status size(const fedge_sim_backend_config *config, uint64_t *bytes, fedge_error *err)
{
    const fedge_plan *plan = &config->job->plan;
    const fedge_model_options tester = {.max_batch = FEDGE_EVALUATOR_BATCH};
    fedge_model_options options = fedge_plan_model_options(plan);
    const bool low_precision = options.weights != FEDGE_STORAGE_FP32;
    const bool needs_copy = low_precision || options.precision == FEDGE_PRECISION_INT8;
    *bytes = scratch_size(config) + fedge_client_update_size(config->job, needs_copy);
    FEDGE_TRY(add_model(plan, &options, bytes, err));
    if (fedge_plan_evaluation_options(plan, &options))
        FEDGE_TRY(add_model(plan, &options, bytes, err));
    return config->max_evaluated > 0 ? add_model(plan, &tester, bytes, err) : FEDGE_OK;
}

/* Checks that enough clients for a round can be trained. A client whose last batch is too small for
 * a layer cannot; it is replaced like any that fails. */
static fedge_status check_clients(const worker *self, fedge_error *err)
{
    const fedge_plan *plan = self->pool->plan;
    const fedge_client_data *client_data = self->pool->config.client_data;
    const fedge_rounds_spec *rounds = &self->pool->config.job->rounds;
    const uint32_t wanted =
        fedge_cohort_size_of(rounds, FEDGE_TASK_TRAIN, client_data->num_clients).wanted;
    const uint32_t needed = fedge_cohort_min_reports(rounds, wanted);
    fedge_error first = {.status = FEDGE_OK}, last = {.status = FEDGE_OK};
    uint32_t able = 0, client = 0, checked = 0;
    for (; client < client_data->num_clients && able < needed; client++) {
        const fedge_trainer_config config = fedge_plan_trainer_config(plan, 1, client, 0.0);
        const uint32_t count = fedge_client_data_train(client_data, client).count;
        /* The result depends on the number of examples only. */
        if (client == 0 || count != checked)
            last.status = fedge_trainer_check(self->model, count, &config, &last);
        checked = count;
        able += last.status == FEDGE_OK;
        if (last.status != FEDGE_OK && first.status == FEDGE_OK) {
            first = last;
            first.status = fedge_error_prefix(&first, last.status, "client %" PRIu32, client);
        }
    }
    if (able >= needed || first.status == FEDGE_OK) /* else there are simply too few clients */ {
        return FEDGE_OK;
    }
    return fedge_fail(err, first.status,
                      "%" PRIu32 " of %" PRIu32
                      " clients can be trained, and a round needs %" PRIu32 "; %s",
                      able, client_data->num_clients, needed, first.message);
}

static fedge_status start(trainer_pool *pool, fedge_error *err)
{
    const bool crowded = pool->config.num_threads > fedge_os_num_cpus();
    for (uint32_t i = 0; i < pool->config.num_threads; i++) {
        pool->workers[i].pool = pool;
        pool->workers[i].lane = i;
        FEDGE_TRY(make_worker(&pool->workers[i], err));
        /* Checked with the first model, before the other threads take memory. */
        if (i == 0 && !pool->config.trainers)
            FEDGE_TRY(check_clients(&pool->workers[0], err));
    }
    const fedge_worker_pool_config config = {
        .name = "thread",
        .thread = "trainer",
        .advice = "use fewer --threads",
        .num_workers = pool->config.num_threads - 1,
        .spin_ns = crowded ? 0 : SPIN_NS,
    };
    return fedge_worker_pool_new(&pool->threads, &config, err);
}

static void close_pool(void *state)
{
    trainer_pool *pool = state;
    if (!pool)
        return;
    fedge_worker_pool_free(pool->threads); /* The threads use the memory below. */
    for (uint32_t i = 0; i < pool->config.num_threads; i++) {
        worker *self = &pool->workers[i];
        free(self->block);
        free(self->evaluator_block);
        free(self->tester_block);
        free(self->scratch);
        fedge_client_update_fini(&self->update);
    }
    free(pool);
}

static fedge_status open_pool(const fedge_sim_backend_config *config, void **state,
                              fedge_error *err)
{
    *state = NULL;
    if (config->num_threads == 0 || config->num_threads > FEDGE_ACCUMULATOR_MAX_LANES) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "%u threads: 1 to %u", config->num_threads,
                          FEDGE_ACCUMULATOR_MAX_LANES);
    }
    trainer_pool *fresh = calloc(1, sizeof(*fresh) + config->num_threads * sizeof(worker));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u threads", config->num_threads);
    fresh->config = *config;
    fresh->plan = &config->job->plan;
    atomic_init(&fresh->next, 0);
    atomic_init(&fresh->num_done, 0);
    fedge_status status = start(fresh, err);
    if (status != FEDGE_OK) {
        close_pool(fresh);
        return status;
    }
    *state = fresh;
    return FEDGE_OK;
}

static uint64_t bytes_per_thread(const void *state)
{
    const trainer_pool *pool = state;
    return pool->workers[0].total;
}

static void describe(const void *state, char *text, size_t size)
{
    const trainer_pool *pool = state;
    (void)fedge_os_format(text, size, "CPU: %u clients at once, %llu bytes each",
                          (unsigned)pool->config.num_threads,
                          (unsigned long long)bytes_per_thread(state));
}

const fedge_sim_backend_ops fedge_sim_backend_cpu = {.name = "cpu",
                                                     .size = size,
                                                     .open = open_pool,
                                                     .close = close_pool,
                                                     .run = run,
                                                     .bytes_per_thread = bytes_per_thread,
                                                     .describe = describe};

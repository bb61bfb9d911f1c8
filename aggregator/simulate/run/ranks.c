/* Rank 0's side, and what all ranks use. */
#include "aggregator/simulate/run/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/distributed_accumulator.h"
#include "aggregator/simulate/run/ranks_internal.h"
#include "edge/core/bytes.h"
#include "edge/plan/client_hooks.h"

/* ---- dealing --------------------------------------------------------------------------------- */

size_t fedge_ranks_task_bytes(const fedge_collective *collective)
{
    return fedge_collective_is_alone(collective)
               ? 0
               : sizeof(ranks_task) + sizeof(fedge_sim_backend_task) +
                     sizeof(fedge_placement_work) + sizeof(uint32_t);
}

fedge_status ranks_deal(const fedge_sim_ranks *self, const ranks_task *tasks, uint32_t num_tasks,
                        uint32_t *rank_of, fedge_error *err)
{
    fedge_placement_work *work = malloc((num_tasks + 1) * sizeof(*work));
    if (!work)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to deal %u tasks", (unsigned)num_tasks);
    for (uint32_t i = 0; i < num_tasks; i++)
        work[i] = tasks[i].work;
    fedge_placement_deal(&self->placement, self->collective->num_ranks, work, num_tasks,
                         self->loads, rank_of);
    free(work);
    return FEDGE_OK;
}

/* Describes where a task's examples are and what it needs. */
static void describe_test(const fedge_sim_ranks *self, const fedge_sim_backend_task *task,
                          ranks_task *sent)
{
    const fedge_client_data *data = self->config.client_data;
    const uint32_t listed = data->first[data->num_clients] + data->num_validation;
    const uintptr_t at = (uintptr_t)task->view.indices, list = (uintptr_t)data->examples;
    sent->work.tests = at < list || at >= list + listed * sizeof(*data->examples);
    sent->first = sent->work.tests ? task->view.indices[0]
                                   : (uint32_t)((at - list) / sizeof(*data->examples));
    sent->wants_classes = task->predicted != NULL;
    sent->work.client =
        sent->work.tests ? FEDGE_PLACEMENT_ANYONE : fedge_client_data_client_at(data, sent->first);
    sent->work.size = task->view.count;
    sent->work.is_at_home = self->has_states && task->personal;
}

static void describe_task(const fedge_sim_ranks *self, const fedge_sim_backend_task *task,
                          ranks_task *sent)
{
    const fedge_client_data *data = self->config.client_data;
    const bool trains = task->work == FEDGE_SIM_BACKEND_TRAIN;
    sent->task = *task;
    if (task->work == FEDGE_SIM_BACKEND_TEST) {
        describe_test(self, task, sent);
        return;
    }
    const fedge_view view = trains ? fedge_client_data_train(data, task->client)
                                   : fedge_client_data_held_out(data, task->client);
    sent->work = (fedge_placement_work){
        .client = task->client,
        .is_at_home = self->config.trainers || (self->has_states && (trains || task->personal)),
        .size = view.count};
}

/* ---- work ------------------------------------------------------------------------------------ */

/* The buffers of one call of run. */
typedef struct shared_run {
    ranks_task *sent;                /* (num_tasks) */
    fedge_sim_backend_task *results; /* (num_tasks): results of one rank */
    uint32_t *rank_of;               /* (num_tasks) */
    fedge_buffer state;              /* the strategy's */
} shared_run;

static void free_run(shared_run *run)
{
    free(run->sent);
    free(run->results);
    free(run->rank_of);
    fedge_buffer_fini(&run->state);
}

static fedge_status make_run(const fedge_sim_ranks *self, const fedge_sim_backend_task *tasks,
                             uint32_t num_tasks, shared_run *run, fedge_error *err)
{
    const fedge_global_model *global = self->config.global;
    *run = (shared_run){.sent = calloc(num_tasks, sizeof(*run->sent)),
                        .results = calloc(num_tasks, sizeof(*run->results)),
                        .rank_of = calloc(num_tasks, sizeof(*run->rank_of))};
    fedge_buffer_init(&run->state, FEDGE_STRATEGY_MAX_STATE);
    if (!run->sent || !run->results || !run->rank_of)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u tasks", (unsigned)num_tasks);
    for (uint32_t i = 0; i < num_tasks; i++)
        describe_task(self, &tasks[i], &run->sent[i]);
    FEDGE_TRY(ranks_deal(self, run->sent, num_tasks, run->rank_of, err));
    return !self->has_sent_model && global->strategy->broadcast
               ? global->strategy->save(global->strategy_state, &run->state, err)
               : FEDGE_OK;
}

static void send_command(const fedge_sim_ranks *self, ranks_command *command)
{
    fedge_collective_broadcast(self->collective, command, sizeof(*command), 0);
}

static void send_run(fedge_sim_ranks *self, shared_run *run, uint32_t round,
                     const int8_t *bounds_log2, uint32_t num_tasks)
{
    const fedge_plan *plan = &self->config.job->plan;
    ranks_command command = {.kind = RANKS_RUN,
                             .round = round,
                             .num_tasks = num_tasks,
                             .state_size = run->state.size,
                             .has_model = !self->has_sent_model,
                             .has_bounds = bounds_log2 != NULL};
    if (bounds_log2)
        memcpy(command.bounds_log2, bounds_log2, plan->sent.schema.num_tensors);
    send_command(self, &command);
    const fedge_collective *all = self->collective;
    if (command.has_model) {
        fedge_collective_broadcast(all, self->config.global->values,
                                   plan->schema.num_elements * sizeof(float), 0);
        fedge_collective_broadcast(all, run->state.data, run->state.size, 0);
    }
    fedge_collective_broadcast(all, run->sent, num_tasks * sizeof(*run->sent), 0);
    self->has_sent_model = true;
}

/* Copies a result, except for the pointers. */
static void take_result(fedge_sim_backend_task *task, const fedge_sim_backend_task *result)
{
    const fedge_view view = task->view;
    int32_t *predicted = task->predicted;
    *task = *result;
    task->view = view;
    task->predicted = predicted;
}

static void receive(const fedge_sim_ranks *self, uint32_t rank, shared_run *run,
                    fedge_sim_backend_task *tasks, uint32_t num_tasks)
{
    uint32_t count = 0, next = 0;
    for (uint32_t i = 0; i < num_tasks; i++)
        count += run->rank_of[i] == rank;
    fedge_collective_receive(self->collective, run->results, count * sizeof(*run->results), rank);
    for (uint32_t i = 0; i < num_tasks; i++) {
        if (run->rank_of[i] != rank)
            continue;
        take_result(&tasks[i], &run->results[next++]);
        if (tasks[i].predicted) {
            fedge_collective_receive(self->collective, tasks[i].predicted,
                                     tasks[i].view.count * sizeof(*tasks[i].predicted), rank);
        }
    }
}

/* fedge_sim_backend_ops.run; the state is the ranks. */
static void run_shared(void *state, uint32_t round, const int8_t *bounds_log2,
                       fedge_sim_backend_task *tasks, uint32_t num_tasks)
{
    fedge_sim_ranks *self = state;
    shared_run run;
    fedge_error err;
    if (make_run(self, tasks, num_tasks, &run, &err) != FEDGE_OK) {
        /* No command is sent yet, so the other ranks still wait for one. */
        for (uint32_t i = 0; i < num_tasks; i++) {
            tasks[i].status = err.status;
            memcpy(tasks[i].message, err.message, sizeof(tasks[i].message));
        }
        free_run(&run);
        return;
    }
    send_run(self, &run, round, bounds_log2, num_tasks);
    uint32_t count = 0, next = 0;
    for (uint32_t i = 0; i < num_tasks; i++) {
        if (run.rank_of[i] == 0)
            run.results[count++] = tasks[i];
    }
    /* The other ranks work at the same time. */
    fedge_sim_backend_run(&self->local, round, bounds_log2, run.results, count);
    for (uint32_t i = 0; i < num_tasks; i++) {
        if (run.rank_of[i] == 0)
            take_result(&tasks[i], &run.results[next++]);
    }
    for (uint32_t rank = 1; rank < self->collective->num_ranks; rank++)
        receive(self, rank, &run, tasks, num_tasks);
    free_run(&run);
}

static void close_shared(void *state)
{
    fedge_sim_ranks *self = state;
    fedge_sim_backend_close(&self->local);
}

static uint64_t bytes_per_thread(const void *state)
{
    const fedge_sim_ranks *self = state;
    return self->local.ops ? self->local.ops->bytes_per_thread(self->local.state) : 0;
}

static void describe(const void *state, char *text, size_t size)
{
    const fedge_sim_ranks *self = state;
    self->local.ops->describe(self->local.state, text, size);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

void fedge_sim_ranks_model_changed(fedge_sim_ranks *ranks)
{
    ranks->has_sent_model = false;
}

fedge_status fedge_sim_ranks_join(fedge_sim_ranks *ranks, fedge_error *err)
{
    if (!ranks->collective)
        return FEDGE_OK;
    send_command(ranks, &(ranks_command){.kind = RANKS_JOIN});
    /* The step that follows moves the model. */
    ranks->has_sent_model = false;
    return fedge_distributed_join(&ranks->config.global->accumulator, FEDGE_OK, err);
}

void fedge_sim_ranks_commit(fedge_sim_ranks *ranks, uint32_t round)
{
    if (ranks->collective)
        send_command(ranks, &(ranks_command){.kind = RANKS_COMMIT, .round = round});
}

void fedge_sim_ranks_drop(fedge_sim_ranks *ranks)
{
    if (ranks->leads)
        send_command(ranks, &(ranks_command){.kind = RANKS_DROP});
}

/* ---- clients' states ------------------------------------------------------------------------- */

/* False: a state could not be read there or stored here, and is lost. */
static bool collect_from(const fedge_sim_ranks *self, uint32_t rank, float *values)
{
    fedge_client_states *states = self->config.states;
    uint32_t count = 0, sent = 0;
    bool whole = true;
    fedge_error err;
    fedge_collective_receive(self->collective, &count, sizeof(count), rank);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t client = 0;
        fedge_collective_receive(self->collective, &client, sizeof(client), rank);
        fedge_collective_receive(self->collective, values, states->num_values * sizeof(*values),
                                 rank);
        whole = fedge_client_states_set(states, client, values, &err) == FEDGE_OK && whole;
    }
    fedge_collective_receive(self->collective, &sent, sizeof(sent), rank);
    return whole && sent;
}

fedge_status fedge_sim_ranks_collect(fedge_sim_ranks *ranks, fedge_error *err)
{
    if (!ranks->collective || !ranks->has_states)
        return FEDGE_OK;
    float *values = malloc(ranks->config.states->num_values * sizeof(*values));
    /* A lost state stays lost, since a rank sends only states that changed since it last sent. */
    if (values && !ranks->lost_states) {
        send_command(ranks, &(ranks_command){.kind = RANKS_COLLECT});
        for (uint32_t rank = 1; rank < ranks->collective->num_ranks; rank++)
            ranks->lost_states = !collect_from(ranks, rank, values) || ranks->lost_states;
    }
    const bool whole = values && !ranks->lost_states;
    free(values);
    return whole ? FEDGE_OK
                 : fedge_fail(err, FEDGE_NO_MEMORY,
                              "no memory for the states of other ranks' clients: give rank 0 "
                              "more memory or disk (--client-state-memory), or use fewer clients "
                              "or another strategy");
}

fedge_status fedge_sim_ranks_spread(fedge_sim_ranks *ranks, fedge_error *err)
{
    if (!ranks->collective || !ranks->has_states)
        return FEDGE_OK;
    const fedge_client_states *states = ranks->config.states;
    const size_t size = states->num_values * sizeof(float);
    ranks_command command = {.kind = RANKS_SPREAD, .round = states->round};
    float *values = malloc(size);
    if (!values)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for clients' states");
    for (uint32_t i = 0; i < states->num_clients; i++)
        command.num_clients += fedge_client_states_has(states, i);
    send_command(ranks, &command);
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < states->num_clients; i++) {
        if (fedge_client_states_has(states, i)) {
            /* After a failure the values are arbitrary: the others expect this many messages, and
             * learn of the failure below. */
            status = status == FEDGE_OK ? fedge_client_states_get(states, i, values, err) : status;
            fedge_collective_broadcast(ranks->collective, &i, sizeof(i), 0);
            fedge_collective_broadcast(ranks->collective, values, size, 0);
        }
    }
    free(values);
    return fedge_collective_agree(ranks->collective, status, NULL, 0, err);
}

/* ---- life ------------------------------------------------------------------------------------ */

void fedge_sim_ranks_end(fedge_sim_ranks *ranks)
{
    if (ranks->leads)
        send_command(ranks, &(ranks_command){.kind = RANKS_END});
    ranks->leads = false;
}

void fedge_sim_ranks_lead(fedge_sim_ranks *ranks)
{
    ranks->leads = ranks->collective != NULL;
}

fedge_status fedge_sim_ranks_init(fedge_sim_ranks *ranks, const fedge_collective *collective,
                                  const fedge_sim_backend_config *config,
                                  const fedge_accumulator_config *sums, fedge_sim_backend *backend,
                                  fedge_error *err)
{
    *ranks = (fedge_sim_ranks){0};
    if (fedge_collective_is_alone(collective))
        return FEDGE_OK;
    FEDGE_TRY(fedge_distributed_wrap(&config->global->accumulator, collective,
                                     config->job->plan.sent.schema.num_elements, sums, err));
    *ranks = (fedge_sim_ranks){.collective = collective,
                               .config = *config,
                               .has_states = fedge_plan_has_client_state(&config->job->plan),
                               .local = *backend,
                               .shared = *backend->ops};
    ranks->shared.run = run_shared;
    ranks->shared.close = close_shared;
    ranks->shared.bytes_per_thread = bytes_per_thread;
    ranks->shared.describe = describe;
    *backend = (fedge_sim_backend){.ops = &ranks->shared, .state = ranks};
    if (config->client_data->placement)
        ranks->placement = *config->client_data->placement;
    ranks->loads = calloc(collective->num_ranks, sizeof(*ranks->loads));
    if (collective->rank > 0 && ranks->has_states)
        ranks->unsent = calloc(config->states->num_clients, sizeof(*ranks->unsent));
    return ranks->loads && (collective->rank == 0 || !ranks->has_states || ranks->unsent)
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the clients of a rank");
}

void fedge_sim_ranks_fini(fedge_sim_ranks *ranks)
{
    free(ranks->unsent);
    free(ranks->loads);
    *ranks = (fedge_sim_ranks){0};
}

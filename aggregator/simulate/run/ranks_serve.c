/* The side of the ranks after 0. */
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/distributed_accumulator.h"
#include "aggregator/simulate/run/ranks_internal.h"

static void receive(const fedge_sim_ranks *self, void *bytes, size_t size)
{
    fedge_collective_broadcast(self->collective, bytes, size, 0);
}

static fedge_status no_memory(fedge_error *err)
{
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a rank's tasks");
}

/* ---- work ------------------------------------------------------------------------------------ */

static fedge_status receive_model(const fedge_sim_ranks *self, const ranks_command *command,
                                  fedge_error *err)
{
    fedge_global_model *global = self->config.global;
    receive(self, global->values, self->config.job->plan.schema.num_elements * sizeof(float));
    if (command->state_size == 0)
        return FEDGE_OK;
    uint8_t *state = malloc(command->state_size);
    if (!state)
        return no_memory(err);
    receive(self, state, command->state_size);
    const fedge_status status =
        global->strategy->load(global->strategy_state, state, command->state_size, err);
    free(state);
    return status;
}

/* The buffers of one run of tasks on this rank. */
typedef struct local_run {
    ranks_task *sent;              /* (num_tasks): tasks of all ranks */
    uint32_t *rank_of;             /* (num_tasks) */
    fedge_sim_backend_task *tasks; /* (count) */
    uint32_t *indices;             /* (num_indices): examples of tests */
    int32_t *classes;              /* (num_indices) */
    uint32_t count;
} local_run;

static void free_run(local_run *run)
{
    free(run->sent);
    free(run->rank_of);
    free(run->tasks);
    free(run->indices);
    free(run->classes);
}

/* The examples of a test, listed in [indices]. */
static fedge_view view_of(const fedge_sim_ranks *self, const ranks_task *sent, uint32_t *indices)
{
    const fedge_client_data *data = self->config.client_data;
    const uint32_t count = sent->task.view.count;
    for (uint32_t i = 0; i < count; i++)
        indices[i] = sent->work.tests ? sent->first + i : data->examples[sent->first + i];
    return (fedge_view){sent->work.tests ? self->config.test_set : data->dataset, indices, count};
}

/* Makes this rank's tasks for its backend. */
static fedge_status unpack(const fedge_sim_ranks *self, uint32_t num_tasks, local_run *run,
                           fedge_error *err)
{
    size_t num_indices = 0, at = 0;
    FEDGE_TRY(ranks_deal(self, run->sent, num_tasks, run->rank_of, err));
    for (uint32_t i = 0; i < num_tasks; i++) {
        const bool local = run->rank_of[i] == self->collective->rank;
        const bool tests = run->sent[i].task.work == FEDGE_SIM_BACKEND_TEST;
        run->count += local;
        num_indices += local && tests ? run->sent[i].task.view.count : 0;
    }
    run->tasks = calloc((size_t)run->count + 1, sizeof(*run->tasks));
    run->indices = calloc(num_indices + 1, sizeof(*run->indices));
    run->classes = calloc(num_indices + 1, sizeof(*run->classes));
    if (!run->tasks || !run->indices || !run->classes)
        return no_memory(err);
    for (uint32_t i = 0, next = 0; i < num_tasks; i++) {
        if (run->rank_of[i] != self->collective->rank)
            continue;
        fedge_sim_backend_task *task = &run->tasks[next++];
        *task = run->sent[i].task;
        if (task->work == FEDGE_SIM_BACKEND_TEST) {
            task->view = view_of(self, &run->sent[i], run->indices + at);
            task->predicted = run->sent[i].wants_classes ? run->classes + at : NULL;
            at += task->view.count;
        }
    }
    return FEDGE_OK;
}

static void answer(const fedge_sim_ranks *self, const fedge_sim_backend_task *tasks, uint32_t count)
{
    fedge_collective_send(self->collective, tasks, count * sizeof(*tasks), 0);
    for (uint32_t i = 0; i < count; i++) {
        if (tasks[i].predicted) {
            fedge_collective_send(self->collective, tasks[i].predicted,
                                  tasks[i].view.count * sizeof(*tasks[i].predicted), 0);
        }
    }
}

static void work(fedge_sim_ranks *self, const ranks_command *command, const local_run *run)
{
    if (self->failed.status == FEDGE_OK) {
        fedge_sim_backend_run(&self->local, command->round,
                              command->has_bounds ? command->bounds_log2 : NULL, run->tasks,
                              run->count);
        return;
    }
    /* Rank 0 waits for each task, also after a failure. */
    for (uint32_t i = 0; i < run->count; i++) {
        run->tasks[i].status = self->failed.status;
        memcpy(run->tasks[i].message, self->failed.message, sizeof(run->tasks[i].message));
    }
}

static fedge_status run(fedge_sim_ranks *self, const ranks_command *command, fedge_error *err)
{
    const uint32_t num_tasks = command->num_tasks;
    local_run run = {.sent = calloc((size_t)num_tasks + 1, sizeof(*run.sent)),
                     .rank_of = calloc((size_t)num_tasks + 1, sizeof(*run.rank_of))};
    fedge_status status;
    FEDGE_TRY_OR(run.sent && run.rank_of ? FEDGE_OK : no_memory(err), done);
    if (command->has_model)
        FEDGE_TRY_OR(receive_model(self, command, err), done);
    receive(self, run.sent, num_tasks * sizeof(*run.sent));
    FEDGE_TRY_OR(unpack(self, num_tasks, &run, err), done);
    work(self, command, &run);
    answer(self, run.tasks, run.count);
done:
    free_run(&run);
    return status;
}

/* A failure here becomes rank 0's too. */
static void join(fedge_sim_ranks *self)
{
    fedge_error err = self->failed;
    const fedge_status known =
        fedge_distributed_join(&self->config.global->accumulator, err.status, &err);
    (void)known;
}

/* ---- clients' states ------------------------------------------------------------------------- */

/* Clears all sums. Rank 0 learns of a failure with the next tasks. */
static void clear_sums(fedge_sim_ranks *self)
{
    fedge_error err;
    if (fedge_global_model_reset(self->config.global, &err) != FEDGE_OK)
        self->failed = err;
}

static void commit(fedge_sim_ranks *self, uint32_t round)
{
    fedge_client_states *states = self->config.states;
    for (uint32_t i = 0; self->has_states && i < states->num_clients; i++)
        self->unsent[i] = self->unsent[i] || fedge_client_states_has_pending(states, i);
    if (self->has_states)
        fedge_client_states_commit(states, round);
    fedge_trainer_values_commit(self->config.values);
    clear_sums(self);
}

static void drop(fedge_sim_ranks *self)
{
    if (self->has_states)
        fedge_client_states_roll_back(self->config.states);
    clear_sums(self);
}

static void send_states(fedge_sim_ranks *self)
{
    const fedge_client_states *states = self->config.states;
    const size_t size = states->num_values * sizeof(float);
    float *values = malloc(size);
    uint32_t count = 0, whole = values != NULL;
    fedge_error err;
    for (uint32_t i = 0; i < states->num_clients; i++)
        count += whole && self->unsent[i];
    fedge_collective_send(self->collective, &count, sizeof(count), 0);
    for (uint32_t i = 0; values && i < states->num_clients; i++) {
        if (self->unsent[i]) {
            /* One that cannot be read is sent too, since it is in [count]; [whole] says so. */
            whole = fedge_client_states_get(states, i, values, &err) == FEDGE_OK && whole;
            fedge_collective_send(self->collective, &i, sizeof(i), 0);
            fedge_collective_send(self->collective, values, size, 0);
            self->unsent[i] = false;
        }
    }
    fedge_collective_send(self->collective, &whole, sizeof(whole), 0);
    free(values);
}

/* Receives the states of all clients and stores those of this rank's. */
static fedge_status receive_states(fedge_sim_ranks *self, const ranks_command *command,
                                   fedge_error *err)
{
    fedge_client_states *states = self->config.states;
    const size_t size = states->num_values * sizeof(float);
    float *values = malloc(size);
    fedge_status status = values ? FEDGE_OK : no_memory(err);
    for (uint32_t i = 0; values && i < command->num_clients; i++) {
        uint32_t client = 0;
        receive(self, &client, sizeof(client));
        receive(self, values, size);
        if (fedge_placement_home(&self->placement, self->collective->num_ranks, client) !=
            self->collective->rank)
            continue;
        status = status == FEDGE_OK ? fedge_client_states_set(states, client, values, err) : status;
    }
    states->round = command->round;
    free(values);
    if (values) { /* rank 0 learns the result too, and ends the run */
        const fedge_status known = fedge_collective_agree(self->collective, status, NULL, 0, err);
        (void)known;
    }
    /* Without memory the broadcasts cannot be received: this rank ends, and with it the job. */
    return values ? FEDGE_OK : status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

fedge_status fedge_sim_ranks_serve(fedge_sim_ranks *ranks, fedge_error *err)
{
    for (;;) {
        ranks_command command;
        receive(ranks, &command, sizeof(command));
        switch (command.kind) {
        case RANKS_RUN:
            FEDGE_TRY(run(ranks, &command, err));
            break;
        case RANKS_JOIN:
            join(ranks);
            break;
        case RANKS_COMMIT:
            commit(ranks, command.round);
            break;
        case RANKS_DROP:
            drop(ranks);
            break;
        case RANKS_COLLECT:
            send_states(ranks);
            break;
        case RANKS_SPREAD:
            FEDGE_TRY(receive_states(ranks, &command, err));
            break;
        case RANKS_END:
            return FEDGE_OK;
        }
    }
}

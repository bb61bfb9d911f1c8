/* Checks a job; makes, restores and frees a simulation. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/distributed_accumulator.h"
#include "aggregator/rounds/evaluator.h"
#include "aggregator/rounds/sampler.h"
#include "aggregator/simulate/cohort/memory.h"
#include "aggregator/simulate/run/simulation_internal.h"
#include "edge/core/os.h"
#include "edge/plan/client_hooks.h"

/* ---- checks ---------------------------------------------------------------------------------- */

static bool holds_out(const fedge_client_data *client_data)
{
    for (uint32_t c = 0; c < client_data->num_clients; c++) {
        if (fedge_client_data_held_out(client_data, c).count > 0)
            return true;
    }
    return false;
}

fedge_status fedge_simulation_check_clients(const fedge_rounds_spec *spec, uint32_t num_clients,
                                            fedge_error *err)
{
    const uint32_t needed = fedge_cohort_needed(spec, FEDGE_TASK_TRAIN);
    return needed <= num_clients
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "the job's rounds need %" PRIu32 " clients (min-available-nodes, "
                            "min-train-nodes), and there are %" PRIu32 ": lower them or raise "
                            "--clients",
                            needed, num_clients);
}

/* Is there something to evaluate on, and one model to evaluate? */
static fedge_status check_evaluation(const fedge_simulation_config *config, fedge_error *err)
{
    if (config->job->rounds.fraction_evaluate > 0 && !config->trainers &&
        !holds_out(config->client_data)) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT,
            "the job's fraction-evaluate is over 0, and no client holds out examples: "
            "set 'validation-fraction' in the clients' file, high enough for one "
            "example of a client, or fraction-evaluate to 0");
    }
    const char *why = fedge_plan_replaces(&config->job->plan)
                          ? "some of its layers belong to the clients"
                      : fedge_plan_is_clustered(&config->job->plan) ? "there are several"
                                                                    : NULL;
    if (why && fedge_client_data_validation(config->client_data).count > 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--validation-split evaluates the server's model, and with %s %s: use "
                          "rounds.fraction-evaluate",
                          config->job->strategy, why);
    }
    return FEDGE_OK;
}

fedge_status fedge_simulation_check_shared(const fedge_job *job, fedge_error *err)
{
    const fedge_strategy_ops *strategy = NULL;
    FEDGE_TRY(fedge_strategy_of(job, &strategy, err));
    if (strategy->collects) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s looks at a round's updates one by one, and each update stays with "
                          "the rank that made it: start this simulation without mpirun",
                          job->strategy);
    }
    if (job->rounds.buffer_size > 0) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s has clients train from several models, which other ranks do not "
                          "have: start this simulation without mpirun",
                          job->strategy);
    }
    return FEDGE_OK;
}

static fedge_status check_job(const fedge_simulation_config *config, fedge_error *err)
{
    const fedge_rounds_spec *spec = &config->job->rounds;
    const uint32_t clients = config->client_data->num_clients;
    if (config->job->plan.external && !config->trainers) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "the job's model is external, and there is no trainer for it");
    }
    FEDGE_TRY(fedge_simulation_check_clients(spec, clients, err));
    const fedge_strategy_ops *strategy = NULL;
    FEDGE_TRY(fedge_strategy_of(config->job, &strategy, err));
    if (!fedge_collective_is_alone(config->collective))
        FEDGE_TRY(fedge_simulation_check_shared(config->job, err));
    if (spec->buffer_size > 0 && config->profiles && config->profiles->availability) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "--availability does not go with %s, whose clients are always online: "
                          "remove it, and use --compute and --failure",
                          config->job->strategy);
    }
    if (config->replay && (spec->buffer_size == 0 || config->profiles)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          spec->buffer_size == 0
                              ? "--replay: the rounds of %s follow from the job alone: remove it"
                              : "--replay says what rounds of %s have, and needs no virtual "
                                "time: remove --compute, --failure and the like",
                          config->job->strategy);
    }
    if (fedge_attack_forges_updates(&config->attack) && !strategy->collects) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "--attack: malicious clients look at a round's updates, but %s sums "
                          "them as they come: use a robust rule (FedTrimmedAvg with \"beta\": 0 "
                          "is the plain mean), or the attack label-flip or backdoor",
                          config->job->strategy);
    }
    if (strategy->count_clients)
        FEDGE_TRY(strategy->count_clients(config->job->strategy_settings, clients, err));
    FEDGE_TRY(check_evaluation(config, err));
    if (config->evaluate_every == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "evaluate-every is 0: at least 1");
    return FEDGE_OK;
}

/* ---- set-up -----------------------------------------------------------------------------------
 */

static bool cancel(void *user)
{
    return fedge_simulation_is_cancelled(user);
}

/* Before its first task a client has the initial model only if the plan's seed makes all of it. */
static fedge_status make_model_rounds(fedge_simulation *self, bool from_seed, fedge_error *err)
{
    self->from_seed = from_seed;
    const uint32_t num_clients = self->config.client_data->num_clients;
    self->model_rounds = calloc(num_clients, sizeof(*self->model_rounds));
    if (!self->model_rounds)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the models of clients");
    for (uint32_t i = 0; from_seed && i < num_clients; i++)
        self->model_rounds[i] = 1;
    return FEDGE_OK;
}

static fedge_status list_test_set(fedge_simulation *self, fedge_error *err)
{
    if (!self->config.test_set)
        return FEDGE_OK;
    const uint32_t count = fedge_dataset_size(self->config.test_set);
    self->test_set = (fedge_view){self->config.test_set, calloc(count, sizeof(uint32_t)), count};
    if (!self->test_set.indices)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " test examples", count);
    for (uint32_t i = 0; i < count; i++)
        self->test_set.indices[i] = i;
    const bool measures =
        fedge_plugin_metrics(self->config.plugin) || fedge_plugin_evaluates(self->config.plugin);
    return measures && count > 0 ? fedge_evaluator_new_on(self->config.job, self->config.test_set,
                                                          &self->evaluator, err)
                                 : FEDGE_OK;
}

static uint32_t max_evaluated(const fedge_simulation_config *config)
{
    const bool tested = config->test_set && fedge_dataset_size(config->test_set) > 0;
    const bool validated = fedge_client_data_validation(config->client_data).count > 0;
    return config->rounds_only && !tested && !validated ? 0 : FEDGE_EVALUATION_CHUNK;
}

/* The configuration without global model and states. */
static fedge_sim_backend_config backend_config(const fedge_simulation_config *config)
{
    return (fedge_sim_backend_config){
        .job = config->job,
        .client_data = config->client_data,
        .trainers = config->trainers,
        .test_set = config->test_set,
        .max_evaluated = max_evaluated(config),
        .num_threads = config->num_threads,
        .num_gpus = config->sums.num_gpus,
        .gpus = config->sums.gpus,
        .shared = config->shared,
        .log = config->log,
    };
}

static const char *backend_name(const fedge_simulation_config *config)
{
    return config->trainers  ? fedge_sim_backend_process.name
           : config->backend ? config->backend
                             : "cpu";
}

static fedge_status demand_of(const fedge_simulation_config *config,
                              const fedge_sim_backend_ops *backend, fedge_memory_demand *demand,
                              fedge_error *err)
{
    const fedge_sim_backend_config wanted = backend_config(config);
    *demand = (fedge_memory_demand){
        .job = config->job,
        .num_clients = config->client_data->num_clients,
        .num_threads = config->num_threads,
        .task_bytes = sizeof(sent_task) + sizeof(batch_task) + sizeof(fedge_sim_backend_task) +
                      fedge_ranks_task_bytes(config->collective),
        .no_hashes = config->no_hashes,
        .is_distributed = !fedge_collective_is_alone(config->collective),
        .state_memory = config->states.memory,
        .robust_memory =
            config->sums.robust_memory > 0 ? config->sums.robust_memory : FEDGE_ROBUST_MEMORY};
    return backend->size(&wanted, &demand->thread_bytes, err);
}

fedge_status fedge_simulation_demand(const fedge_simulation_config *config,
                                     fedge_memory_demand *demand, fedge_error *err)
{
    const fedge_sim_backend_config wanted = backend_config(config);
    const fedge_sim_backend_ops *backend = NULL;
    FEDGE_TRY(fedge_sim_backend_choose(backend_name(config), &wanted, &backend, err));
    return demand_of(config, backend, demand, err);
}

/* Called before any memory is filled. */
static fedge_status check_memory(fedge_simulation *self, const fedge_sim_backend_ops *backend,
                                 fedge_error *err)
{
    fedge_memory memory;
    fedge_memory_demand demand;
    const uint64_t usable = fedge_os_usable_bytes(NULL);
    FEDGE_TRY(demand_of(&self->config, backend, &demand, err));
    demand.state_memory = self->states_memory;
    FEDGE_TRY(fedge_memory_count(&memory, &demand, err));
    if (demand.state_memory == 0) {
        self->states_memory = demand.state_memory = fedge_memory_state_budget(&memory, usable);
        if (demand.state_memory > 0)
            FEDGE_TRY(fedge_memory_count(&memory, &demand, err));
    }
    self->promised = memory.model + memory.threads + memory.states + memory.tasks;
    return fedge_memory_check(&memory, usable, err);
}

/* Called once, when the first state does not fit in memory. */
static void log_spill(void *user, const char *folder)
{
    const fedge_simulation *self = user;
    if (self->config.log) {
        FEDGE_LOG(self->config.log, FEDGE_LOG_WARN, "client-states-on-disk",
                  fedge_log_str("folder", folder),
                  fedge_log_str("because", self->config.states.memory > 0
                                               ? "--client-state-memory is full"
                                               : "memory has no room for all of it"),
                  fedge_log_int("bytes", (int64_t)self->states_memory));
    }
}

/* Unless the caller names an accumulator, sums are where clients are trained, so that GPUs send no
 * update to the host. */
static fedge_status open_global(fedge_simulation *self, const fedge_sim_backend_ops *backend,
                                fedge_error *err)
{
    const fedge_simulation_config *config = &self->config;
    const fedge_sim_backend_config wanted = backend_config(config);
    fedge_accumulator_config sums = config->sums;
    sums.num_lanes = config->num_threads; /* none waits for another while adding */
    sums.distributed = config->collective && !fedge_collective_is_alone(config->collective);
    sums.in_place = backend->adds_in_place && backend->adds_in_place(&wanted);
    const char *kind = config->accumulator ? config->accumulator : sums.in_place ? "auto" : "cpu";
    return fedge_global_model_init(&self->global, config->job, kind, &sums, err);
}

/* With "auto", opens another backend where memory taken since the choice is missing for [backend].
 */
static fedge_status open_backend(fedge_simulation *self, const fedge_sim_backend_ops *backend,
                                 const fedge_sim_backend_config *wanted, fedge_error *err)
{
    const fedge_status status = fedge_sim_backend_open(&self->backend, backend, wanted, err);
    if (status == FEDGE_OK)
        return FEDGE_OK;
    FEDGE_TRY(fedge_sim_backend_choose_fallback(backend_name(&self->config), wanted, &backend,
                                                status, err));
    FEDGE_TRY(check_memory(self, backend, err));
    return fedge_sim_backend_open(&self->backend, backend, wanted, err);
}

static fedge_status set_up(fedge_simulation *self, fedge_error *err)
{
    const fedge_simulation_config *config = &self->config;
    size_t broadcast = 0;
    uint8_t *file = NULL;
    const fedge_sim_backend_ops *backend = NULL;
    fedge_sim_backend_config wanted = backend_config(config);
    FEDGE_TRY(fedge_sim_backend_choose(backend_name(config), &wanted, &backend, err));
    FEDGE_TRY(check_memory(self, backend, err)); /* Comes before anything large is allocated. */
    FEDGE_TRY(list_test_set(self, err));
    FEDGE_TRY(
        fedge_evaluator_add_plugin(&self->evaluator, self->config.job, self->config.plugin, err));
    FEDGE_TRY(open_global(self, backend, err));
    FEDGE_TRY(fedge_global_model_begin(&self->global, err));
    /* Written only for its size, which is what each client downloads. */
    FEDGE_TRY(fedge_global_model_write(&self->global, &file, &self->model_bytes, &broadcast, err));
    self->model_bytes += broadcast;
    free(file);
    if (fedge_plan_has_client_state(self->plan)) {
        const fedge_client_states_limit limit = {self->states_memory, config->states.folder,
                                                 log_spill, self};
        FEDGE_TRY(fedge_client_states_init(&self->states, config->client_data->num_clients,
                                           fedge_plan_num_client_state(self->plan), &limit, err));
    }
    if (config->trainers)
        FEDGE_TRY(fedge_trainer_values_init(&self->values, config->client_data->num_clients, err));
    FEDGE_TRY(
        make_model_rounds(self, broadcast == 0 && config->job->initial_model[0] == '\0', err));
    wanted.global = &self->global;
    wanted.states = &self->states;
    wanted.values = &self->values;
    wanted.cancel = config->cancel ? cancel : NULL;
    wanted.on_done = fedge_simulation_report_progress;
    wanted.user = self;
    FEDGE_TRY(open_backend(self, backend, &wanted, err));
    fedge_accumulator_config sums = config->sums;
    sums.log = config->log;
    FEDGE_TRY(fedge_sim_ranks_init(&self->ranks, config->collective, &wanted, &sums, &self->backend,
                                   err));
    /* Without availability all clients join before the first round opens. */
    fedge_rounds_spec spec = config->job->rounds;
    if (!config->profiles || !config->profiles->availability)
        spec.min_available_nodes = config->client_data->num_clients;
    FEDGE_TRY(fedge_rounds_new(&spec, config->job->plan.seed, &self->rounds, err));
    fedge_rounds_draw_by(self->rounds, &self->global.clients);
    return FEDGE_OK;
}

fedge_status fedge_simulation_new(const fedge_simulation_config *config,
                                  fedge_simulation **simulation, fedge_error *err)
{
    *simulation = NULL;
    FEDGE_TRY(check_job(config, err));
    fedge_simulation *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a simulation");
    fresh->config = *config;
    fresh->states_memory = config->states.memory;
    fresh->plan = &config->job->plan;
    fresh->next_task_id = 1;
    fresh->last_round = config->job->rounds.num_server_rounds;
    const fedge_status status = set_up(fresh, err);
    if (status != FEDGE_OK) {
        fedge_simulation_free(fresh);
        return status;
    }
    *simulation = fresh;
    return FEDGE_OK;
}

void fedge_simulation_free(fedge_simulation *simulation)
{
    if (!simulation)
        return;
    /* Ends the other ranks before anything they need is freed. */
    fedge_sim_ranks_end(&simulation->ranks);
    fedge_sim_backend_close(&simulation->backend);
    fedge_sim_ranks_fini(&simulation->ranks);
    fedge_rounds_free(simulation->rounds);
    fedge_global_model_fini(&simulation->global);
    fedge_client_states_fini(&simulation->states);
    fedge_trainer_values_fini(&simulation->values);
    fedge_view_fini(&simulation->test_set);
    fedge_evaluator_free(simulation->evaluator);
    free(simulation->model_rounds);
    free(simulation->sent);
    free(simulation->batch);
    free(simulation->order);
    fedge_virtual_clock_fini(&simulation->virtual_clock);
    free(simulation);
}

fedge_status fedge_simulation_restore(fedge_simulation *simulation,
                                      const fedge_simulation_state *state, const uint8_t *file,
                                      size_t file_size, const uint8_t *strategy,
                                      size_t strategy_size, fedge_error *err)
{
    const uint32_t rounds = simulation->config.job->rounds.num_server_rounds;
    if (fedge_plan_has_client_state(simulation->plan) && state->rounds_closed < rounds &&
        state->rounds_closed != simulation->states.round) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s cannot go on after round %" PRIu32 " of %" PRIu32
                          " with its clients' %ss of round %" PRIu32,
                          fedge_plan_client_state_owner(simulation->plan), state->rounds_closed,
                          rounds, fedge_plan_client_state_name(simulation->plan),
                          simulation->states.round);
    }
    FEDGE_TRY(fedge_global_model_load(&simulation->global, file, file_size, strategy, strategy_size,
                                      err));
    if (state->evaluation_due && state->rounds_closed > 0) {
        fedge_rounds_restore_evaluation(simulation->rounds, state->rounds_closed,
                                        state->next_task_id);
    } else {
        FEDGE_TRY(
            fedge_rounds_restore(simulation->rounds,
                                 &(fedge_rounds_progress){.last_closed = state->rounds_closed,
                                                          .next_task_id = state->next_task_id},
                                 simulation->now_ms, err));
    }
    fedge_sim_ranks_model_changed(&simulation->ranks);
    simulation->rounds_closed = state->rounds_closed;
    simulation->next_task_id = state->next_task_id;
    simulation->evaluation_due = state->evaluation_due;
    simulation->clock_us = simulation->virtual_clock.now_us = state->clock_us;
    return FEDGE_OK;
}

fedge_simulation_state fedge_simulation_get_state(const fedge_simulation *simulation)
{
    return (fedge_simulation_state){simulation->rounds_closed, simulation->next_task_id,
                                    simulation->clock_us, simulation->evaluation_due};
}

void fedge_simulation_end_after(fedge_simulation *simulation, uint32_t round)
{
    simulation->last_round = round;
    fedge_rounds_end_after(simulation->rounds, round);
}

bool fedge_simulation_is_whole(const fedge_simulation *simulation)
{
    return !simulation->mid_step && (!fedge_plan_has_client_state(simulation->plan) ||
                                     simulation->states.round == simulation->rounds_closed);
}

const fedge_global_model *fedge_simulation_model(const fedge_simulation *simulation)
{
    return &simulation->global;
}

const fedge_client_states *fedge_simulation_states(const fedge_simulation *simulation)
{
    return fedge_plan_has_client_state(simulation->plan) ? &simulation->states : NULL;
}

const fedge_trainer_values *fedge_simulation_values(const fedge_simulation *simulation)
{
    const bool alone = fedge_collective_is_alone(simulation->config.collective);
    return simulation->config.trainers && alone ? &simulation->values : NULL;
}

fedge_status fedge_simulation_load_values(fedge_simulation *simulation, const char *path,
                                          fedge_error *err)
{
    return fedge_trainer_values_load(&simulation->values, path, err);
}

fedge_status fedge_simulation_load_states(fedge_simulation *simulation, const char *path,
                                          fedge_error *err)
{
    FEDGE_TRY(fedge_client_states_load(&simulation->states, path, err));
    return fedge_sim_ranks_spread(&simulation->ranks, err);
}

fedge_status fedge_simulation_collect_states(fedge_simulation *simulation, fedge_error *err)
{
    return fedge_sim_ranks_collect(&simulation->ranks, err);
}

void fedge_simulation_lead(fedge_simulation *simulation)
{
    fedge_sim_ranks_lead(&simulation->ranks);
}

fedge_status fedge_simulation_serve(fedge_simulation *simulation, fedge_error *err)
{
    return fedge_sim_ranks_serve(&simulation->ranks, err);
}

const char *fedge_simulation_accumulator(const fedge_simulation *simulation)
{
    return simulation->global.accumulator.ops->name;
}

uint64_t fedge_simulation_promised_bytes(const fedge_simulation *simulation)
{
    return simulation->promised;
}

const char *fedge_simulation_backend(const fedge_simulation *simulation)
{
    return simulation->backend.ops->name;
}

void fedge_simulation_plan(const fedge_simulation *simulation, char *text, size_t size)
{
    char trains[FEDGE_SIM_BACKEND_MAX_DESCRIPTION] = "";
    char sums[FEDGE_ACCUMULATOR_MAX_DESCRIPTION] = "";
    simulation->backend.ops->describe(simulation->backend.state, trains, sizeof(trains));
    fedge_accumulator_describe(&simulation->global.accumulator, sums, sizeof(sums));
    (void)fedge_os_format(text, size, "training\n%s\nsums\n%s", trains, sums);
}

uint64_t fedge_simulation_bytes_per_thread(const fedge_simulation *simulation)
{
    return simulation->backend.ops->bytes_per_thread(simulation->backend.state);
}

fedge_view fedge_simulation_test_set(const fedge_simulation *simulation)
{
    return simulation->test_set;
}

/* SCAFFOLD (Karimireddy et al., "SCAFFOLD: Stochastic controlled averaging for federated learning",
 * ICML 2020), with option II for the clients' variates (edge/io/hooks/scaffold.c):
 *
 *     x ← x + η_s · mean(Δy_i),   c ← c + |S| / N · mean(Δc_i)
 *
 * The means are plain ones, as in the paper: every update has weight 1. |S| / N is cut to 1.
 */
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/strategies/num_clients.h"

typedef struct settings {
    fedge_strategy_common common;
    fedge_num_clients clients;
} settings;

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_NUM_CLIENTS_FIELD(settings, clients),
    FEDGE_JSON_END,
};

static fedge_status settle(const fedge_json *json, fedge_job *job, void *of, fedge_error *err)
{
    return fedge_num_clients_settle(json, job, &((settings *)of)->clients, err);
}

static fedge_status count_clients(void *of, uint32_t num_clients, fedge_error *err)
{
    return fedge_num_clients_count(&((settings *)of)->clients, num_clients, err);
}

typedef struct scaffold {
    const settings *settings;
    size_t num_values;
    float variate[]; /* c: num_values */
} scaffold;

static fedge_status init(const fedge_strategy_config *config, void **state, fedge_error *err)
{
    const size_t count = config->schema->num_elements;
    scaffold *made = calloc(1, sizeof *made + count * sizeof made->variate[0]);
    if (made == NULL)
        return fedge_fail(err, FEDGE_NO_MEMORY, "SCAFFOLD: no memory for %zu control values",
                          count);
    made->settings = config->job->strategy_settings;
    made->num_values = count;
    *state = made;
    return FEDGE_OK;
}

static fedge_status step(void *state, const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    scaffold *self = state;
    fedge_status status = fedge_strategy_check_sum(sum, "SCAFFOLD", err);
    if (status == FEDGE_OK && sum->hooks.schema == NULL)
        status = fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "SCAFFOLD: round %u has no control section", (unsigned)sum->round);
    if (status != FEDGE_OK)
        return status;
    const double share = fedge_num_clients_share(&self->settings->clients, sum->num_updates);
    status = fedge_strategy_move(
        sum, &sum->delta, fedge_strategy_rate(&self->settings->common, sum->round), model, err);
    return status == FEDGE_OK ? fedge_strategy_move(sum, &sum->hooks, share, self->variate, err)
                              : status;
}

static fedge_status save(const void *state, fedge_buffer *out, fedge_error *err)
{
    const scaffold *self = state;
    return fedge_strategy_save_floats(self->variate, self->num_values, out, err);
}

static fedge_status load(void *state, const uint8_t *bytes, size_t size, fedge_error *err)
{
    scaffold *self = state;
    return fedge_strategy_load_floats(self->variate, self->num_values, bytes, size, "SCAFFOLD",
                                      err);
}

static const float *told(const void *state)
{
    return ((const scaffold *)state)->variate;
}

static void forget(void *state)
{
    scaffold *self = state;
    memset(self->variate, 0, self->num_values * sizeof self->variate[0]);
}

const fedge_strategy_ops fedge_strategy_scaffold = {
    .struct_size = sizeof(fedge_strategy_ops),
    .reader = {.name = "SCAFFOLD",
               .arguments = ARGUMENTS,
               .settings_size = sizeof(settings),
               .settle = settle},
    .weight = fedge_strategy_weigh_alike,
    .count_clients = count_clients,
    .init = init,
    .step = step,
    .save = save,
    .load = load,
    .free = free,
    .state_per_value = sizeof(float),
    .told = told,
    .forget = forget,
};

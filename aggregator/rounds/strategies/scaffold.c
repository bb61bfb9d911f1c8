/* SCAFFOLD (Karimireddy et al., "SCAFFOLD: Stochastic controlled averaging for federated learning",
 * ICML 2020), with option II for the clients' variates (edge/io/hooks/scaffold.c):
 *
 *     x ← x + η_s · mean(Δy_i),   c ← c + |S| / N · mean(Δc_i)
 *
 * The means are plain ones, as in the paper: every update has weight 1. |S| / N is cut to 1.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/strategy.h"
#include "edge/io/json.h"

typedef struct settings {
    fedge_strategy_common common;
    uint32_t num_clients; /* N; 0 until it is settled */
    bool counted;         /* the job says it */
} settings;

static const fedge_json_field ARGUMENTS[] = {
    {"num-clients", "num_clients", FEDGE_JSON_U32, FEDGE_JSON_AT(settings, num_clients), .min = 1,
     .max = UINT32_MAX},
    FEDGE_JSON_END,
};

static fedge_status settle(const fedge_json *json, fedge_job *job, void *of, fedge_error *err)
{
    settings *self = of;
    const uint32_t least = job->rounds.min_available_nodes;
    self->counted = self->num_clients != 0;
    if (!self->counted)
        self->num_clients = least;
    if (self->num_clients < least)
        return fedge_json_fail_at(json, "strategy.num-clients", err,
                                  "%" PRIu32 " is less than min-available-nodes %" PRIu32
                                  "; raise it",
                                  self->num_clients, least);
    return FEDGE_OK;
}

static fedge_status count_clients(void *of, uint32_t num_clients, fedge_error *err)
{
    settings *self = of;
    if (!self->counted)
        self->num_clients = num_clients;
    return self->num_clients == num_clients
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "strategy.num-clients, by which SCAFFOLD's control variates are "
                            "weighed, is %" PRIu32 ", and there are %" PRIu32
                            " clients: set it to %" PRIu32
                            " or leave it out, fedge-simulate counts them",
                            self->num_clients, num_clients, num_clients);
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
    /* |S| / N, at most 1 when more took part than there are said to be. */
    double share = (double)sum->num_updates / (double)self->settings->num_clients;
    share = share < 1.0 ? share : 1.0;
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

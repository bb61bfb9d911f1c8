/* SCAFFOLD (Karimireddy et al., "SCAFFOLD: Stochastic controlled averaging for federated learning",
 * ICML 2020), with option II for the clients' control variates (edge/plan/hooks/scaffold.c):
 *
 *     x ← x + η_s · mean(Δy_i),   c ← c + |S| / N · mean(Δc_i)
 *
 * The means are plain ones, as in the paper: every update has weight 1. |S| / N is at most 1. By
 * default η_s is 1 and N is min-available-nodes; in a simulation N is the number of clients.
 */
#include <stdlib.h>

#include "aggregator/rounds/strategies/common.h"
#include "aggregator/rounds/strategy.h"

typedef struct settings {
    fedge_strategy_common common;
    fedge_num_clients clients;
} settings;

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_NUM_CLIENTS_FIELD(settings, clients),
    FEDGE_JSON_END,
};

static fedge_status derive(const fedge_json *json, fedge_job *job, void *of, fedge_error *err)
{
    return fedge_num_clients_derive(json, job, &((settings *)of)->clients, err);
}

static fedge_status count_clients(void *of, uint32_t num_clients, fedge_error *err)
{
    return fedge_num_clients_count(&((settings *)of)->clients, num_clients, err);
}

static fedge_status step(void *state, const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    fedge_strategy_vectors *self = state;
    const settings *with = self->settings;
    FEDGE_TRY(fedge_strategy_check_sum(sum, "SCAFFOLD", err));
    if (!sum->hooks.schema) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "SCAFFOLD: round %u has no control section",
                          (unsigned)sum->round);
    }
    const double fraction = fedge_num_clients_fraction(&with->clients, sum->num_updates);
    FEDGE_TRY(fedge_strategy_move(sum, &sum->delta, fedge_strategy_rate(&with->common, sum->round),
                                  model, err));
    return fedge_strategy_move(sum, &sum->hooks, fraction, self->values, err);
}

const fedge_strategy_ops fedge_strategy_scaffold = {
    .reader = {.name = "SCAFFOLD",
               .arguments = ARGUMENTS,
               .settings_size = sizeof(settings),
               .derive = derive,
               .divides_by_rate = true},
    .weight = fedge_strategy_weigh_equally,
    .count_clients = count_clients,
    .init = fedge_strategy_vectors_init_one,
    .step = step,
    .save = fedge_strategy_vectors_save,
    .load = fedge_strategy_vectors_load,
    .free = free,
    .state_per_value = sizeof(float),
    .broadcast = fedge_strategy_broadcast_vectors,
    .forget = fedge_strategy_vectors_forget,
};

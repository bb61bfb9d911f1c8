#include "aggregator/rounds/strategies/common.h"

#include <inttypes.h>

/* ---- the argument num-clients ---------------------------------------------------------------- */

fedge_status fedge_num_clients_derive(const fedge_json *json, const fedge_job *job,
                                      fedge_num_clients *clients, fedge_error *err)
{
    const uint32_t least = job->rounds.min_available_nodes;
    clients->given = clients->count != 0;
    if (!clients->given)
        clients->count = least;
    return clients->count >= least
               ? FEDGE_OK
               : fedge_json_fail_at(json, "strategy.num-clients", err,
                                    "%" PRIu32 " is less than min-available-nodes %" PRIu32
                                    "; raise it",
                                    clients->count, least);
}

fedge_status fedge_num_clients_count(fedge_num_clients *clients, uint32_t num_clients,
                                     fedge_error *err)
{
    if (!clients->given)
        clients->count = num_clients;
    return clients->count == num_clients
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "strategy.num-clients, against which a round's clients are weighed, "
                            "is %" PRIu32 ", and there are %" PRIu32 " clients: set it to %" PRIu32
                            " or leave it out",
                            clients->count, num_clients, num_clients);
}

double fedge_num_clients_fraction(const fedge_num_clients *clients, uint32_t num_updates)
{
    const double fraction = (double)num_updates / (double)clients->count;
    return fraction < 1.0 ? fraction : 1.0;
}

/* ---- FedAdagrad, FedAdam and FedYogi --------------------------------------------------------- */

fedge_status fedge_adaptive_init(const fedge_strategy_config *config, void **state,
                                 fedge_error *err)
{
    const fedge_adaptive_settings *settings = config->job->strategy_settings;
    fedge_strategy_vectors *made = NULL;
    *state = NULL;
    FEDGE_TRY(fedge_strategy_vectors_new(config, 2, &made, err));
    /* v starts at τ², the minimum in the paper's algorithm 2. */
    for (size_t i = 0; i < made->num_values; i++)
        made->values[made->num_values + i] = (float)(settings->tau * settings->tau);
    *state = made;
    return FEDGE_OK;
}

fedge_status fedge_adaptive_step(void *state, const fedge_strategy_sum *sum, float *model,
                                 fedge_step_rule rule, fedge_error *err)
{
    fedge_strategy_vectors *self = state;
    const fedge_adaptive_settings *settings = self->settings;
    const fedge_optimizer_step optimizer = {.rule = rule,
                                            .num_moments = 2,
                                            .beta1 = settings->beta1,
                                            .beta2 = settings->beta2,
                                            .tau = settings->tau};
    float *const moments[2] = {self->values, self->values + self->num_values};
    FEDGE_TRY(fedge_strategy_check_sum(sum, self->name, err));
    return fedge_strategy_optimize(sum, &sum->delta,
                                   fedge_strategy_rate(&settings->common, sum->round), &optimizer,
                                   moments, model, err);
}

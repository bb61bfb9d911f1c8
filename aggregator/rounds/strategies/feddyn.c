/* FedDyn (Acar et al., "Federated learning based on dynamic regularization", ICLR 2021): clients
 * train on their loss with a linear and a quadratic term (edge/plan/hooks/feddyn.c), so that a
 * common model minimizes the loss of each; the server
 *
 *     h ← h − α |S| / N mean(Δ_i),   x ← x + η_s (mean(Δ_i) − h / α)
 *
 * The means are plain ones, as in the paper; η_s is 1 there. h is 0 at first, α is 0.01 by default.
 */
#include <stdlib.h>

#include "aggregator/rounds/strategies/common.h"
#include "aggregator/rounds/strategy.h"

typedef struct settings {
    fedge_strategy_common common;
    fedge_num_clients clients;
    float alpha;
} settings;

static const fedge_json_field ARGUMENTS[] = {
    {.key = "alpha",
     .kind = FEDGE_JSON_F32,
     FEDGE_JSON_AT(settings, alpha),
     .min = 1e-6,
     .max = 1e3,
     .fallback = 0.01},
    FEDGE_NUM_CLIENTS_FIELD(settings, clients),
    FEDGE_JSON_END,
};

/* The quadratic term is the trainer's proximal one. */
static fedge_status derive(const fedge_json *json, fedge_job *job, void *of, fedge_error *err)
{
    settings *self = of;
    fedge_optimizer *optimizer = &job->plan.training.optimizer;
    if (optimizer->proximal_mu != 0.0f) {
        return fedge_json_fail_at(
            json, "training.proximal-mu", err,
            "FedDyn has a proximal term of its own (strategy.alpha); remove this");
    }
    optimizer->proximal_mu = self->alpha;
    return fedge_num_clients_derive(json, job, &self->clients, err);
}

static fedge_status count_clients(void *of, uint32_t num_clients, fedge_error *err)
{
    return fedge_num_clients_count(&((settings *)of)->clients, num_clients, err);
}

static fedge_status step(void *state, const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    fedge_strategy_vectors *self = state;
    const settings *with = self->settings;
    const fedge_optimizer_step optimizer = {
        .rule = FEDGE_STEP_RULE_DYN,
        .num_moments = 1,
        .beta1 = (double)with->alpha,
        .beta2 = fedge_num_clients_fraction(&with->clients, sum->num_updates)};
    FEDGE_TRY(fedge_strategy_check_sum(sum, "FedDyn", err));
    return fedge_strategy_optimize(sum, &sum->delta, fedge_strategy_rate(&with->common, sum->round),
                                   &optimizer, (float *const[2]){self->values}, model, err);
}

const fedge_strategy_ops fedge_strategy_feddyn = {
    .reader = {.name = "FedDyn",
               .arguments = ARGUMENTS,
               .settings_size = sizeof(settings),
               .derive = derive},
    .weight = fedge_strategy_weigh_equally,
    .count_clients = count_clients,
    .init = fedge_strategy_vectors_init_one,
    .step = step,
    .save = fedge_strategy_vectors_save,
    .load = fedge_strategy_vectors_load,
    .free = free,
    .state_per_value = sizeof(float),
    .num_moments = 1,
    .forget = fedge_strategy_vectors_forget, /* forgotten gradients are 0, and h is their sum */
};

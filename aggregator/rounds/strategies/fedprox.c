/* FedProx (Li et al., "Federated optimization in heterogeneous networks", MLSys 2020): clients
 * add a proximal term towards the round's model x to their loss,
 *
 *     F_i(w) + μ / 2 · ‖w − x‖²                which adds μ · (w − x) to every gradient
 *
 * and the server steps as in FedAvg, x ← x + η_s · Σ w_i Δ_i / Σ w_i. The term is the trainer's
 * (training.proximal-mu of a plan), so there are no client hooks. μ has no default; η_s is 1.
 */
#include "aggregator/rounds/strategies/common.h"
#include "edge/json/json.h"

typedef struct settings {
    fedge_strategy_common common;
    float mu;
} settings;

static const fedge_json_field ARGUMENTS[] = {
    {"proximal-mu", "proximal_mu", FEDGE_JSON_F32, FEDGE_JSON_REQUIRED, FEDGE_JSON_AT(settings, mu),
     .min = 1e-9, .max = FEDGE_MAX_PROXIMAL_MU},
    FEDGE_JSON_END,
};

static fedge_status derive(const fedge_json *json, fedge_job *job, void *of, fedge_error *err)
{
    const settings *self = of;
    fedge_optimizer *optimizer = &job->plan.training.optimizer;
    if (optimizer->proximal_mu != 0.0f) {
        return fedge_json_fail_at(json, "training.proximal-mu", err,
                                  "is in strategy.proximal-mu already; remove one of them");
    }
    optimizer->proximal_mu = self->mu;
    return FEDGE_OK;
}

const fedge_strategy_ops fedge_strategy_fedprox = {
    .reader = {.name = "FedProx",
               .arguments = ARGUMENTS,
               .settings_size = sizeof(settings),
               .derive = derive},
    .init = fedge_strategy_init_settings,
    .step = fedge_fedavg_step,
    .save = fedge_strategy_save_nothing,
    .load = fedge_strategy_load_nothing,
    .free = fedge_strategy_free_nothing,
};

/* FedAdam (Reddi et al., "Adaptive federated optimization", ICLR 2021):
 *
 *     m ← β1 m + (1 − β1) Δ,   v ← β2 v + (1 − β2) Δ²,   x ← x + η_s m / (√v + τ)
 *
 * Defaults: η_s = 0.01, β1 = 0.9, β2 = 0.99, τ = 1e-3. common.h has the common steps.
 */
#include "aggregator/rounds/strategies/common.h"

#include <stdlib.h>

#include "aggregator/rounds/strategy.h"

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_ADAPTIVE_BETA1(0.9),
    FEDGE_ADAPTIVE_BETA2,
    FEDGE_ADAPTIVE_TAU,
    FEDGE_JSON_END,
};

static fedge_status step(void *state, const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    return fedge_adaptive_step(state, sum, model, FEDGE_STEP_RULE_ADAM, err);
}

const fedge_strategy_ops fedge_strategy_fedadam = {
    .reader = {.name = "FedAdam",
               .arguments = ARGUMENTS,
               .default_rate = FEDGE_ADAPTIVE_RATE,
               .settings_size = sizeof(fedge_adaptive_settings)},
    .init = fedge_adaptive_init,
    .step = step,
    .save = fedge_strategy_vectors_save,
    .load = fedge_strategy_vectors_load,
    .free = free,
    .state_per_value = 2 * sizeof(float),
    .num_moments = 2,
};

/* FedAvgM (Hsu, Qi, Brown, "Measuring the effects of non-identical data distribution for federated
 * visual classification", 2019): FedAvg with momentum on the server,
 *
 *     v ← β v + mean(Δ_i),   x ← x + η_s v
 *
 * β is 0.9 by default, v is 0 at first. For a constant change the steps sum to η_s / (1 − β) times
 * that change, so η_s should be smaller than FedAvg's.
 */
#include <stdlib.h>

#include "aggregator/rounds/strategy.h"
#include "edge/json/json.h"

typedef struct settings {
    fedge_strategy_common common;
    double momentum;
} settings;

static const fedge_json_field ARGUMENTS[] = {
    {"server-momentum", "server_momentum", FEDGE_JSON_F64, FEDGE_JSON_AT(settings, momentum),
     .min = 0, .max = 0.9999, .fallback = 0.9},
    FEDGE_JSON_END,
};

static fedge_status step(void *state, const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    fedge_strategy_vectors *self = state;
    const settings *with = self->settings;
    const fedge_optimizer_step optimizer = {
        .rule = FEDGE_STEP_RULE_MOMENTUM, .num_moments = 1, .beta1 = with->momentum};
    FEDGE_TRY(fedge_strategy_check_sum(sum, "FedAvgM", err));
    return fedge_strategy_optimize(sum, &sum->delta, fedge_strategy_rate(&with->common, sum->round),
                                   &optimizer, (float *const[2]){self->values}, model, err);
}

const fedge_strategy_ops fedge_strategy_fedavgm = {
    .reader = {.name = "FedAvgM", .arguments = ARGUMENTS, .settings_size = sizeof(settings)},
    .init = fedge_strategy_vectors_init_one,
    .step = step,
    .save = fedge_strategy_vectors_save,
    .load = fedge_strategy_vectors_load,
    .free = free,
    .state_per_value = sizeof(float),
    .num_moments = 1,
};

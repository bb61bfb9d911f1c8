/* FedAvg (McMahan et al., "Communication-efficient learning of deep networks from decentralized
 * data", AISTATS 2017), with a server learning rate η_s, 1 by default:
 *
 *     x ← x + η_s · Σ w_i Δ_i / Σ w_i          w_i: the client's examples
 */
#include "aggregator/rounds/strategies/common.h"

#include "edge/json/json.h"

fedge_status fedge_fedavg_step(void *state, const fedge_strategy_sum *sum, float *model,
                               fedge_error *err)
{
    const fedge_strategy_common *common = state;
    FEDGE_TRY(fedge_strategy_check_sum(sum, "FedAvg", err));
    return fedge_strategy_move(sum, &sum->delta, fedge_strategy_rate(common, sum->round), model,
                               err);
}

const fedge_strategy_ops fedge_strategy_fedavg = {
    .reader = {.name = "FedAvg", .settings_size = sizeof(fedge_strategy_common)},
    .init = fedge_strategy_init_settings,
    .step = fedge_fedavg_step,
    .save = fedge_strategy_save_nothing,
    .load = fedge_strategy_load_nothing,
    .free = fedge_strategy_free_nothing,
};

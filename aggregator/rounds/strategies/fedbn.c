/* FedBN (Li et al., "FedBN: Federated learning on non-IID features via local batch normalization",
 * ICLR 2021): BatchNorm's layers stay with the client (edge/plan/hooks/fedbn.c), and the server
 * averages the others:
 *
 *     x ← x + η_s · Σ w_i Δ_i / Σ w_i          of the layers that clients share
 *
 * By default η_s is 1.
 */
#include "aggregator/rounds/strategies/common.h"

const fedge_strategy_ops fedge_strategy_fedbn = {
    .reader = {.name = "FedBN",
               .settings_size = sizeof(fedge_strategy_common),
               .derive = fedge_refuse_test_set},
    .init = fedge_strategy_init_settings,
    .step = fedge_fedavg_step,
    .save = fedge_strategy_save_nothing,
    .load = fedge_strategy_load_nothing,
    .free = fedge_strategy_free_nothing,
};

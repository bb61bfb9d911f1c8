/* Ditto (Li et al., "Ditto: Fair and robust federated learning through personalization", ICML
 * 2021): the server does as in FedAvg,
 *
 *     x ← x + η_s · Σ w_i Δ_i / Σ w_i
 *
 * and each client also trains a personal model v, with λ (v − x) added to every gradient
 * (edge/plan/hooks/ditto.c). Clients evaluate v. λ is 0.1 by default.
 */
#include "aggregator/rounds/strategies/common.h"
#include "edge/json/json.h"
#include "edge/plan/client_hooks.h"

typedef struct settings {
    fedge_strategy_common common;
    fedge_hooks_arguments with;
} settings;

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_LAMBDA_FIELD(settings, with.lambda),
    FEDGE_JSON_END,
};

const fedge_strategy_ops fedge_strategy_ditto = {
    .reader = {.name = "Ditto", .arguments = ARGUMENTS, .settings_size = sizeof(settings)},
    .init = fedge_strategy_init_settings,
    .step = fedge_fedavg_step,
    .save = fedge_strategy_save_nothing,
    .load = fedge_strategy_load_nothing,
    .free = fedge_strategy_free_nothing,
};

/* FedRep (Collins et al., "Exploiting shared representations for personalized federated learning",
 * ICML 2021): the last layers stay with the client, which trains them first and then the others
 * (edge/io/hooks/fedrep.c), and the server averages the others:
 *
 *     x ← x + η_s · Σ w_i Δ_i / Σ w_i          of the layers that clients share
 *
 * personal-layers and head-epochs are 1 by default.
 */
#include "aggregator/rounds/strategies/fedavg.h"
#include "edge/io/client_hooks.h"
#include "edge/io/json.h"

typedef struct settings {
    fedge_strategy_common common;
    fedge_hooks_arguments with;
} settings;

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_PERSONAL_LAYERS_FIELD(settings, with.personal_layers),
    FEDGE_HEAD_EPOCHS_FIELD(settings, with.head_epochs),
    FEDGE_JSON_END,
};

const fedge_strategy_ops fedge_strategy_fedrep = {
    .reader = {.name = "FedRep",
               .arguments = ARGUMENTS,
               .settings_size = sizeof(settings),
               .derive = fedge_refuse_test_set},
    .init = fedge_fedavg_init,
    .step = fedge_fedavg_step,
    .save = fedge_strategy_save_nothing,
    .load = fedge_strategy_load_nothing,
    .free = fedge_fedavg_free,
};

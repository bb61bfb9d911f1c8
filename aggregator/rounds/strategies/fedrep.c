/* FedRep (Collins et al., "Exploiting shared representations for personalized federated learning",
 * ICML 2021): the last layers stay with the client, which trains them first and then the others
 * (edge/plan/hooks/fedrep.c), and the server averages the others:
 *
 *     x ← x + η_s · Σ w_i Δ_i / Σ w_i          of the layers that clients share
 *
 * personal-layers and head-epochs are 1 by default.
 */
#include "aggregator/rounds/strategies/common.h"

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_PERSONAL_LAYERS_FIELD(fedge_personal_settings, with.personal_layers),
    FEDGE_PERSONAL_TENSORS_FIELD(fedge_personal_settings, with.personal_tensors),
    FEDGE_HEAD_EPOCHS_FIELD(fedge_personal_settings, with.head_epochs),
    FEDGE_JSON_END,
};

const fedge_strategy_ops fedge_strategy_fedrep = FEDGE_PERSONAL_OPS("FedRep", ARGUMENTS);

/* FedPer (Arivazhagan et al., "Federated learning with personalization layers", 2019): the last
 * layers stay with the client (edge/plan/hooks/fedper.c), and the server averages the others:
 *
 *     x ← x + η_s · Σ w_i Δ_i / Σ w_i          of the layers that clients share
 *
 * personal-layers is 1 by default: the classifier.
 */
#include "aggregator/rounds/strategies/common.h"

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_PERSONAL_LAYERS_FIELD(fedge_personal_settings, with.personal_layers),
    FEDGE_PERSONAL_TENSORS_FIELD(fedge_personal_settings, with.personal_tensors),
    FEDGE_JSON_END,
};

const fedge_strategy_ops fedge_strategy_fedper = FEDGE_PERSONAL_OPS("FedPer", ARGUMENTS);

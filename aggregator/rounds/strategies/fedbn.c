/* FedBN (Li et al., "FedBN: Federated learning on non-IID features via local batch normalization",
 * ICLR 2021): BatchNorm's layers stay with the client (edge/plan/hooks/fedbn.c), and the server
 * averages the others:
 *
 *     x ← x + η_s · Σ w_i Δ_i / Σ w_i          of the layers that clients share
 *
 * By default η_s is 1.
 */
#include "aggregator/rounds/strategies/common.h"

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_PERSONAL_TENSORS_FIELD(fedge_personal_settings, with.personal_tensors),
    FEDGE_JSON_END,
};

const fedge_strategy_ops fedge_strategy_fedbn = FEDGE_PERSONAL_OPS("FedBN", ARGUMENTS);

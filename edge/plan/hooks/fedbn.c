/* The client side of FedBN (Li et al., "FedBN: Federated learning on non-IID features via local
 * batch normalization", ICLR 2021): parameters and statistics of BatchNorm layers stay on the
 * client. */
#include "edge/json/json.h"
#include "edge/plan/client_hooks.h"
#include "edge/train/layers/layer.h"

#ifndef FEDGE_SMALL
static const fedge_json_field ARGUMENTS[] = {
    FEDGE_PERSONAL_TENSORS_FIELD(fedge_hooks_arguments, personal_tensors),
    FEDGE_JSON_END,
};
#define ITS_ARGUMENTS ARGUMENTS
#else
#define ITS_ARGUMENTS NULL
#endif

static bool is_batch_norm(const fedge_plan *plan, uint32_t layer)
{
    return (fedge_layer_ops_of(plan->model.layers[layer].type)->flags & FEDGE_BATCH_NORM) != 0;
}

static fedge_status check(const fedge_json *json, const fedge_plan *plan, fedge_error *err)
{
    FEDGE_TRY(fedge_personal_check_tensors(json, plan, err));
    if (plan->external)
        return FEDGE_OK;
    for (uint32_t i = 0; i < plan->model.num_layers; i++) {
        if (is_batch_norm(plan, i))
            return FEDGE_OK;
    }
    return fedge_json_fail_at(json, "model.layers", err,
                              "have no BatchNorm2d, which FedBN leaves with the clients; take "
                              "FedAvg");
}

const fedge_client_hooks fedge_client_hooks_fedbn = {
    .name = "FedBN",
    .state_name = "own part of the model",
    .local_state = true,
    .arguments = ITS_ARGUMENTS,
    .check = check,
    .personal = is_batch_norm,
};

/* The client side of IFCA (Ghosh et al., "An efficient framework for clustered federated learning",
 * NeurIPS 2020): the client receives k models, trains the one that fits its examples best, and
 * reports which one. */
#include "edge/json/json.h"
#include "edge/plan/client_hooks.h"

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_NUM_CLUSTERS_FIELD(fedge_hooks_arguments, num_clusters),
    FEDGE_JSON_END,
};

static fedge_status check(const fedge_json *json, const fedge_plan *plan, fedge_error *err)
{
    const char *why = plan->num_parameters < plan->schema.num_elements
                          ? "has BatchNorm's statistics, which clusters do not have"
                          : NULL;
    for (uint32_t i = 0; !why && i < plan->model.num_layers; i++) {
        if (plan->model.layers[i].train != FEDGE_TRAIN_ALL)
            why = "has layers that are not trained, and so do not differ between clusters";
    }
    for (uint32_t i = 0; !why && i < plan->schema.num_tensors; i++) {
        if (plan->schema.tensors[i].frozen)
            why = "has tensors that are frozen, and so do not differ between clusters";
    }
    return why ? fedge_json_fail_at(json, "model", err, "%s, which IFCA needs; take FedAvg", why)
               : FEDGE_OK;
}

const fedge_client_hooks fedge_client_hooks_ifca = {
    .name = "IFCA",
    .broadcasts = true,
    .clustered = true,
    .arguments = ARGUMENTS,
    .check = check,
};

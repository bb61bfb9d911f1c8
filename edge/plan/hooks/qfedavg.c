/* The client side of q-FedAvg (Li et al., "Fair resource allocation in federated learning", ICLR
 * 2020): it reports the loss before training and the squared norm of its update. */
#include "edge/json/json.h"
#include "edge/plan/client_hooks.h"

static fedge_status check(const fedge_json *json, const fedge_plan *plan, fedge_error *err)
{
    return plan->external ? fedge_json_fail_at(json, "model", err,
                                               "is external, so its loss before training is not "
                                               "known, which QFedAvg needs; take FedAvg")
                          : FEDGE_OK;
}

const fedge_client_hooks fedge_client_hooks_qfedavg = {
    .name = "QFedAvg",
    .measures = true,
    .check = check,
};

/* The client side of Ditto (Li et al., "Ditto: Fair and robust federated learning through
 * personalization", ICML 2021). Beside the server's model w, it trains a personal model v on
 *
 *     F_i(v) + λ / 2 · ‖v − w‖², so every gradient gets λ · (v − w),
 *
 * starting from the previous task's v, on the same examples in the same order.
 */
#include "edge/json/json.h"
#include "edge/plan/client_hooks.h"

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_LAMBDA_FIELD(fedge_hooks_arguments, lambda),
    FEDGE_JSON_END,
};

static bool all(const fedge_plan *plan, uint32_t layer)
{
    (void)plan, (void)layer;
    return true;
}

const fedge_client_hooks fedge_client_hooks_ditto = {
    .name = "Ditto",
    .state_name = "own model",
    .local_state = true,
    .arguments = ARGUMENTS,
    .check = fedge_personal_check,
    .personal = all,
    .trains_both = true,
};

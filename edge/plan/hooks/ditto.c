/* Ditto's part of a client (Li et al., "Ditto: Fair and robust federated learning through
 * personalization", ICML 2021): beside the server's model w it trains one of its own, on
 *
 *     F_i(v) + λ / 2 · ‖v − w‖²               every gradient gets λ · (v − w)
 *
 * from where the task before left it, on the same examples in the same order.
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

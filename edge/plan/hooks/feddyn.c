/* The client side of FedDyn (Acar et al., "Federated learning based on dynamic regularization",
 * ICLR 2021). It trains on
 *
 *     F_i(w) − ⟨g_i, w⟩ + α / 2 · ‖w − x‖², so every gradient gets α · (w − x) − g_i;
 *
 *     after training: g_i ← g_i − α (w_i − x).
 *
 * α is the plan's proximal-mu, applied by the trainer. g_i starts at 0, is client state, and
 * changes by what the server decodes, so the server's h is the mean of all g_i.
 */
#include <math.h>

#include "edge/core/fixed.h"
#include "edge/json/json.h"
#include "edge/plan/client_hooks.h"

static fedge_status check(const fedge_json *json, const fedge_plan *plan, fedge_error *err)
{
    if (!(plan->training.optimizer.proximal_mu > 0)) {
        return fedge_json_fail_at(json, "training.proximal-mu", err,
                                  "is 0, and FedDyn needs it: alpha of its paper");
    }
    return FEDGE_OK;
}

static void begin(fedge_hooks_state *state)
{
    const fedge_schema *schema = &state->plan->sent.sections[0].schema;
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &schema->tensors[t];
        float *to = state->correction + state->plan->sent.model_offsets[t];
        for (size_t i = 0; i < tensor->count; i++)
            to[i] = -state->client_state[tensor->offset + i];
    }
}

static void move(const fedge_plan *plan, const int8_t *bounds_log2, const int32_t *v,
                 float *client_state)
{
    const fedge_schema *schema = &plan->sent.sections[0].schema;
    const double alpha = (double)plan->training.optimizer.proximal_mu;
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &schema->tensors[t];
        const double unit = ldexp(alpha, bounds_log2[t] - FEDGE_FIXED_VALUE_BITS);
        for (size_t i = 0; i < tensor->count; i++) {
            float *to = &client_state[tensor->offset + i];
            *to = (float)((double)*to - unit * (double)v[tensor->offset + i]);
        }
    }
}

const fedge_client_hooks fedge_client_hooks_feddyn = {
    .name = "FedDyn",
    .state_name = "gradient",
    .corrects = true,
    .check = check,
    .begin = begin,
    .move = move,
};

/* SCAFFOLD's control variate of a client (Karimireddy et al., "SCAFFOLD: Stochastic controlled
 * averaging for federated learning", ICML 2020):
 *
 *     every gradient   g ← g − c_i + c
 *     after K steps    c_i⁺ = c_i − c + (x − y_i) / (K · η)          option II of the paper
 *     the update has   Δc_i = c_i⁺ − c_i, in the section "control"
 *
 * The server sends c; the client stores c_i. c_i moves by what the server decodes, so that c stays
 * the mean of the c_i.
 */
#include <math.h>

#include "edge/core/fixed.h"
#include "edge/json/json.h"
#include "edge/plan/client_hooks.h"

/* (x − y) / (K · η) is the mean gradient only for plain SGD. */
static fedge_status check(const fedge_json *json, const fedge_plan *plan, fedge_error *err)
{
    const fedge_optimizer *optimizer = &plan->training.optimizer;
    if (optimizer->type != FEDGE_OPTIMIZER_SGD || optimizer->momentum != 0) {
        return fedge_json_fail_at(json, "training.optimizer", err,
                                  "SCAFFOLD's control variates hold for plain SGD only; take SGD "
                                  "without momentum, or FedAvg");
    }
    if (optimizer->proximal_mu != 0) {
        return fedge_json_fail_at(json, "training.proximal-mu", err,
                                  "SCAFFOLD corrects the drift that FedProx holds back; remove "
                                  "this, or take FedAvg");
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
            to[i] = state->broadcast[tensor->offset + i] - state->client_state[tensor->offset + i];
    }
}

static fedge_status end(const fedge_hooks_state *state, uint64_t num_steps, double learning_rate,
                        float *sent, fedge_error *err)
{
    const fedge_section *section = fedge_sections_find(&state->plan->sent, FEDGE_SECTION_HOOKS);
    const double length = (double)num_steps * (double)(float)learning_rate;
    if (!(length > 0)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "SCAFFOLD needs the trainer's number of steps and a learning rate: %llu "
                          "steps at %g",
                          (unsigned long long)num_steps, learning_rate);
    }
    float *change = sent + section->schema.tensors[0].offset;
    for (size_t i = 0; i < section->schema.num_elements; i++)
        change[i] = (float)(-(double)sent[i] / length - (double)state->broadcast[i]);
    return FEDGE_OK;
}

static void move(const fedge_plan *plan, const int8_t *bounds_log2, const int32_t *v,
                 float *client_state)
{
    const fedge_section *section = fedge_sections_find(&plan->sent, FEDGE_SECTION_HOOKS);
    for (uint32_t t = 0; t < section->schema.num_tensors; t++) {
        const fedge_tensor_spec *tensor = &section->schema.tensors[t];
        const int32_t *from = v + tensor->offset;
        float *to = client_state + (tensor->offset - section->schema.tensors[0].offset);
        const int shift = bounds_log2[section->first + t] - FEDGE_FIXED_VALUE_BITS;
        for (size_t i = 0; i < tensor->count; i++)
            to[i] = (float)((double)to[i] + ldexp((double)from[i], shift));
    }
}

const fedge_client_hooks fedge_client_hooks_scaffold = {
    .name = "SCAFFOLD",
    .plan_key = "scaffold",
    .section = "control",
    .state_name = "control variate",
    .broadcasts = true,
    .corrects = true,
    .check = check,
    .begin = begin,
    .end = end,
    .move = move,
};

/* The table of hooks, and what the rest of the tree asks about a plan. Answers depend on the flags
 * of the hooks, never on a strategy's name. Client state is either the strategy's or a residual:
 * fedge_plan_derive refuses a plan with both, so one array serves. */
#include "edge/plan/client_hooks.h"

#include <stdlib.h>
#include <string.h>

#include "edge/json/json.h"

#define DECLARE(name, feature) extern const fedge_client_hooks fedge_client_hooks_##name;
FEDGE_CLIENT_HOOKS_MAP(DECLARE)

#define ENTRY(name, feature) {&fedge_client_hooks_##name, feature},
static const struct {
    const fedge_client_hooks *hooks;
    const char *feature;
} TABLE[] = {FEDGE_CLIENT_HOOKS_MAP(ENTRY)};
#define NUM_HOOKS (sizeof(TABLE) / sizeof(TABLE[0]))

const fedge_client_hooks *fedge_client_hooks_find(const char *strategy)
{
    for (size_t i = 0; i < NUM_HOOKS; i++) {
        if (strcmp(TABLE[i].hooks->name, strategy) == 0)
            return TABLE[i].hooks;
    }
    return NULL;
}

const fedge_client_hooks *fedge_client_hooks_of_job(const char *strategy, bool external)
{
    const fedge_client_hooks *hooks = fedge_client_hooks_find(strategy);
    return hooks && hooks->only_external && !external ? NULL : hooks;
}

const fedge_client_hooks *fedge_client_hooks_at(size_t index)
{
    return index < NUM_HOOKS ? TABLE[index].hooks : NULL;
}

const fedge_client_hooks *fedge_client_hooks_of_feature(const char *feature)
{
    for (size_t i = 0; i < NUM_HOOKS; i++) {
        if (strcmp(TABLE[i].feature, feature) == 0)
            return TABLE[i].hooks;
    }
    return NULL;
}

static bool has_strategy_state(const fedge_plan *plan)
{
    return plan->hooks && plan->hooks->state_name;
}

bool fedge_plan_sparsifies(const fedge_plan *plan)
{
    bool sparsifies = plan->update.codec.sparsifier != NULL;
    for (uint32_t i = 0; i < plan->update.num_layers; i++)
        sparsifies = sparsifies || plan->update.layers[i].codec.sparsifier;
    return sparsifies;
}

bool fedge_plan_retains_residual(const fedge_plan *plan)
{
    const fedge_error_feedback feedback = plan->update.error_feedback;
    return feedback == FEDGE_ERROR_FEEDBACK_ON ||
           (feedback == FEDGE_ERROR_FEEDBACK_AUTO && fedge_plan_sparsifies(plan));
}

bool fedge_plan_makes_residual(const fedge_plan *plan)
{
    return fedge_plan_retains_residual(plan) || fedge_plan_sparsifies(plan);
}

bool fedge_plan_has_client_state(const fedge_plan *plan)
{
    return has_strategy_state(plan) || fedge_plan_retains_residual(plan);
}

size_t fedge_plan_num_client_state(const fedge_plan *plan)
{
    if (fedge_plan_is_personal(plan))
        return plan->personal.num_values + 1;
    /* The last value of a residual is its round, by which it decays. */
    return plan->sent.sections[0].schema.num_elements + fedge_plan_makes_residual(plan);
}

static bool needs_client_state(const fedge_plan *plan)
{
    return fedge_plan_has_client_state(plan) || fedge_plan_makes_residual(plan);
}

const char *fedge_plan_client_state_name(const fedge_plan *plan)
{
    return has_strategy_state(plan) ? plan->hooks->state_name : "residual";
}

const char *fedge_plan_client_state_owner(const fedge_plan *plan)
{
    return has_strategy_state(plan) ? plan->hooks->name : "error feedback";
}

bool fedge_plan_broadcasts(const fedge_plan *plan)
{
    return plan->hooks && plan->hooks->broadcasts;
}

bool fedge_plan_is_clustered(const fedge_plan *plan)
{
#ifdef FEDGE_SMALL
    (void)plan;
    return false;
#else
    return plan->hooks && plan->hooks->clustered;
#endif
}

uint32_t fedge_plan_num_broadcast(const fedge_plan *plan)
{
    return fedge_plan_is_clustered(plan) ? plan->hooks_arguments.num_clusters - 1
                                         : fedge_plan_broadcasts(plan);
}

bool fedge_plan_measures(const fedge_plan *plan)
{
    return plan->hooks && plan->hooks->measures;
}

bool fedge_plan_counts_steps(const fedge_plan *plan)
{
#ifdef FEDGE_SMALL
    (void)plan;
    return false;
#else
    return plan->hooks && plan->hooks->counts_steps;
#endif
}

bool fedge_plan_keeps_anchor(const fedge_plan *plan)
{
    const fedge_client_hooks *hooks = plan->hooks;
    return plan->training.optimizer.proximal_mu > 0 ||
           (hooks && (hooks->trains_both || hooks->personal_first));
}

bool fedge_plan_moves_client_state(const fedge_plan *plan)
{
    return plan->hooks && plan->hooks->move;
}

double fedge_squared_norm(const fedge_plan *plan, const float *sent)
{
    double sum = 0;
    for (size_t i = 0; i < plan->sent.sections[0].schema.num_elements; i++)
        sum += (double)sent[i] * (double)sent[i];
    return sum;
}

fedge_status fedge_hooks_read_arguments(const fedge_json *json, const cJSON *node, fedge_plan *plan,
                                        fedge_error *err)
{
    /* "strategy" also has the server's keys, which are unknown here. */
    fedge_json lenient = *json;
    lenient.options.strict = false;
    if (!plan->hooks || !plan->hooks->arguments)
        return FEDGE_OK;
    fedge_json_defaults(plan->hooks->arguments, &plan->hooks_arguments);
    return node ? fedge_json_read(&lenient, node, plan->hooks->arguments, &plan->hooks_arguments,
                                  err)
                : FEDGE_OK;
}

/* Allocates (count) floats at *to if [wanted]. Returns false without memory. */
static bool take(float **to, bool wanted, size_t count)
{
    *to = wanted ? calloc(count, sizeof(float)) : NULL;
    return *to || !wanted;
}

fedge_status fedge_hooks_state_init(fedge_hooks_state *state, const fedge_plan *plan,
                                    fedge_error *err)
{
    const bool corrects = plan->hooks && plan->hooks->corrects;
    const size_t trained = plan->sent.sections[0].schema.num_elements;
    *state = (fedge_hooks_state){.plan = plan,
                                 .num_trained = trained,
                                 .num_broadcast = fedge_plan_num_broadcast(plan),
                                 .num_client_state = fedge_plan_num_client_state(plan)};
    if (take(&state->broadcast, state->num_broadcast > 0, state->num_broadcast * trained) &&
        take(&state->client_state, needs_client_state(plan), state->num_client_state) &&
        take(&state->correction, corrects, plan->num_parameters))
        return FEDGE_OK;
    fedge_hooks_state_fini(state);
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for what %s has of %zu values",
                      plan->hooks ? plan->hooks->name : fedge_plan_client_state_owner(plan),
                      trained);
}

void fedge_hooks_state_fini(fedge_hooks_state *state)
{
    free(state->broadcast);
    free(state->client_state);
    free(state->correction);
    *state = (fedge_hooks_state){0};
}

uint64_t fedge_hooks_state_size(const fedge_plan *plan)
{
    const uint64_t trained = plan->sent.sections[0].schema.num_elements;
    const bool corrects = plan->hooks && plan->hooks->corrects;
    return (fedge_plan_num_broadcast(plan) * trained + (corrects ? plan->num_parameters : 0) +
            (needs_client_state(plan) ? (uint64_t)fedge_plan_num_client_state(plan) : 0)) *
           sizeof(float);
}

void fedge_hooks_begin(fedge_hooks_state *state)
{
    if (state->plan->hooks && state->plan->hooks->begin)
        state->plan->hooks->begin(state);
}

fedge_status fedge_hooks_end(const fedge_hooks_state *state, uint64_t num_steps,
                             double learning_rate, float *sent, fedge_error *err)
{
    const fedge_client_hooks *hooks = state->plan->hooks;
    return hooks->end ? hooks->end(state, num_steps, learning_rate, sent, err) : FEDGE_OK;
}

void fedge_hooks_move(const fedge_plan *plan, const int8_t *bounds_log2, const int32_t *v,
                      float *client_state)
{
    if (fedge_plan_moves_client_state(plan))
        plan->hooks->move(plan, bounds_log2, v, client_state);
}

/* The table of hooks, and the questions that the rest of the tree asks about a plan. They are asked
 * here by what the hooks are said to do, never by a strategy's name. Two things may be kept for a
 * client from round to round: what its strategy has it keep, and a residual. fedge_plan_derive
 * refuses a plan with both, hence one array (`own`) and one name for it serve. */
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

static bool keeps_for_strategy(const fedge_plan *plan)
{
    return plan->hooks && plan->hooks->keeps;
}

bool fedge_plan_chooses_values(const fedge_plan *plan)
{
    bool chooses = plan->update.codec.chooses != NULL;
    for (uint32_t i = 0; i < plan->update.num_layers; i++)
        chooses = chooses || plan->update.layers[i].codec.chooses;
    return chooses;
}

bool fedge_plan_keeps_residual(const fedge_plan *plan)
{
    const fedge_error_feedback feedback = plan->update.error_feedback;
    return feedback == FEDGE_ERROR_FEEDBACK_ON ||
           (feedback == FEDGE_ERROR_FEEDBACK_AUTO && fedge_plan_chooses_values(plan));
}

bool fedge_plan_makes_residual(const fedge_plan *plan)
{
    return fedge_plan_keeps_residual(plan) || fedge_plan_chooses_values(plan);
}

bool fedge_plan_keeps(const fedge_plan *plan)
{
    return keeps_for_strategy(plan) || fedge_plan_keeps_residual(plan);
}

size_t fedge_plan_num_kept(const fedge_plan *plan)
{
    if (fedge_plan_is_personal(plan))
        return plan->personal.num_values + 1;
    /* A residual has one value more: the round that it is of, by which it is halved as it ages. */
    return plan->sent.sections[0].schema.num_elements + fedge_plan_makes_residual(plan);
}

static bool has_own(const fedge_plan *plan)
{
    return fedge_plan_keeps(plan) || fedge_plan_makes_residual(plan);
}

const char *fedge_plan_kept_name(const fedge_plan *plan)
{
    return keeps_for_strategy(plan) ? plan->hooks->keeps : "residual";
}

const char *fedge_plan_keeper_name(const fedge_plan *plan)
{
    return keeps_for_strategy(plan) ? plan->hooks->name : "error feedback";
}

bool fedge_plan_tells(const fedge_plan *plan)
{
    return plan->hooks && plan->hooks->tells;
}

bool fedge_plan_chooses(const fedge_plan *plan)
{
#ifdef FEDGE_SMALL
    (void)plan;
    return false;
#else
    return plan->hooks && plan->hooks->chooses;
#endif
}

uint32_t fedge_plan_num_told(const fedge_plan *plan)
{
    return fedge_plan_chooses(plan) ? plan->hooks_arguments.num_clusters - 1
                                    : fedge_plan_tells(plan);
}

bool fedge_plan_measures(const fedge_plan *plan)
{
    return plan->hooks && plan->hooks->measures;
}

bool fedge_plan_moves(const fedge_plan *plan)
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
    /* "strategy" has keys for the server too, of which a client's hooks know nothing. */
    fedge_json lenient = *json;
    lenient.options.strict = false;
    if (!plan->hooks || !plan->hooks->arguments)
        return FEDGE_OK;
    fedge_json_defaults(plan->hooks->arguments, &plan->hooks_arguments);
    return node ? fedge_json_read(&lenient, node, plan->hooks->arguments, &plan->hooks_arguments,
                                  err)
                : FEDGE_OK;
}

/* Takes (count) floats at *to where they are wanted; false: there is no memory. */
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
                                 .num_told = fedge_plan_num_told(plan),
                                 .num_kept = fedge_plan_num_kept(plan)};
    if (take(&state->told, state->num_told > 0, state->num_told * trained) &&
        take(&state->own, has_own(plan), state->num_kept) &&
        take(&state->correction, corrects, plan->num_parameters))
        return FEDGE_OK;
    fedge_hooks_state_fini(state);
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for what %s has of %zu values",
                      plan->hooks ? plan->hooks->name : fedge_plan_keeper_name(plan), trained);
}

void fedge_hooks_state_fini(fedge_hooks_state *state)
{
    free(state->told);
    free(state->own);
    free(state->correction);
    *state = (fedge_hooks_state){0};
}

uint64_t fedge_hooks_state_size(const fedge_plan *plan)
{
    const uint64_t trained = plan->sent.sections[0].schema.num_elements;
    const bool corrects = plan->hooks && plan->hooks->corrects;
    return (fedge_plan_num_told(plan) * trained + (corrects ? plan->num_parameters : 0) +
            (has_own(plan) ? (uint64_t)fedge_plan_num_kept(plan) : 0)) *
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
                      float *own)
{
    if (fedge_plan_moves(plan))
        plan->hooks->move(plan, bounds_log2, v, own);
}

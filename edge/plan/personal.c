#include "edge/plan/personal.h"

#include <string.h>

#include "edge/core/text.h"
#include "edge/json/json.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/plan.h"
#include "edge/train/layers/layer.h"

bool fedge_plan_is_personal(const fedge_plan *plan)
{
    return plan->hooks && plan->hooks->personal;
}

bool fedge_plan_replaces(const fedge_plan *plan)
{
    return fedge_plan_is_personal(plan) && !plan->hooks->trains_both;
}

/* ---- whose a layer is ------------------------------------------------------------------------ */

static bool has_parameters(const fedge_layer_spec *layer)
{
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(layer, list);
    for (uint32_t t = 0; t < n; t++) {
        if (!list[t].buffer)
            return true;
    }
    return false;
}

/* Counts layers with parameters from this one on. */
static uint32_t count_from(const fedge_plan *plan, uint32_t layer)
{
    uint32_t count = 0;
    for (uint32_t i = layer; i < plan->model.num_layers; i++)
        count += has_parameters(&plan->model.layers[i]);
    return count;
}

bool fedge_personal_is_last(const fedge_plan *plan, uint32_t layer)
{
    return count_from(plan, layer) <= plan->hooks_arguments.personal_layers;
}

fedge_status fedge_personal_check(const fedge_json *json, const fedge_plan *plan, fedge_error *err)
{
    if (plan->training.weights != FEDGE_STORAGE_FP32) {
        return fedge_json_fail_at(json, "training.weights", err,
                                  "must be \"fp32\" with %s, whose clients keep what they have "
                                  "trained; remove it",
                                  plan->hooks->name);
    }
    return FEDGE_OK;
}

#ifdef FEDGE_SMALL
bool fedge_personal_is_tensor(const fedge_plan *plan, const char *name)
{
    (void)name;
    return plan->hooks->trains_both;
}

fedge_status fedge_personal_check_tensors(const fedge_json *json, const fedge_plan *plan,
                                          fedge_error *err)
{
    return fedge_personal_check(json, plan, err);
}
#else
/* The line of [text] at *at without its end, and *at behind it; false at the end. */
static bool next_line(const char **at, char line[FEDGE_MAX_TENSOR_NAME])
{
    const size_t length = strcspn(*at, "\n");
    if (length == 0 || length >= FEDGE_MAX_TENSOR_NAME)
        return false;
    memcpy(line, *at, length);
    line[length] = '\0';
    *at += length + ((*at)[length] == '\n');
    return true;
}

bool fedge_personal_is_tensor(const fedge_plan *plan, const char *name)
{
    char pattern[FEDGE_MAX_TENSOR_NAME];
    const char *at = plan->hooks_arguments.personal_tensors;
    bool is = plan->hooks->trains_both;
    while (!is && next_line(&at, pattern))
        is = fedge_glob_matches(pattern, name);
    return is;
}

static bool matches_any(const fedge_plan *plan, const char *pattern)
{
    for (uint32_t i = 0; i < plan->schema.num_tensors; i++) {
        if (fedge_glob_matches(pattern, plan->schema.tensors[i].name))
            return true;
    }
    return false;
}

fedge_status fedge_personal_check_tensors(const fedge_json *json, const fedge_plan *plan,
                                          fedge_error *err)
{
    const char *key = "strategy.personal-tensors";
    const char *at = plan->hooks_arguments.personal_tensors;
    char pattern[FEDGE_MAX_TENSOR_NAME];
    FEDGE_TRY(fedge_personal_check(json, plan, err));
    if (!plan->external && at[0] != '\0') {
        return fedge_json_fail_at(json, key, err,
                                  "is for external models; here the layers say it: remove it");
    }
    if (!plan->external)
        return FEDGE_OK;
    if (at[0] == '\0') {
        return fedge_json_fail_at(json, key, err,
                                  "is missing: give the names of the tensors that stay on the "
                                  "clients, such as [\"%s\"], or patterns with '*'",
                                  plan->schema.tensors[plan->schema.num_tensors - 1].name);
    }
    while (next_line(&at, pattern)) {
        if (!matches_any(plan, pattern)) {
            return fedge_json_fail_at(json, key, err,
                                      "has \"%s\", which no tensor of the model is named; the "
                                      "first is \"%s\"",
                                      pattern, plan->schema.tensors[0].name);
        }
    }
    for (uint32_t i = 0; i < plan->schema.num_tensors; i++) {
        if (!fedge_personal_is_tensor(plan, plan->schema.tensors[i].name))
            return FEDGE_OK;
    }
    return fedge_json_fail_at(json, key, err,
                              "names all tensors of the model: at least one must be the server's");
}
#endif

fedge_status fedge_personal_check_last(const fedge_json *json, const fedge_plan *plan,
                                       fedge_error *err)
{
    FEDGE_TRY(fedge_personal_check_tensors(json, plan, err));
    const uint32_t count = plan->external ? UINT32_MAX : count_from(plan, 0);
    if (plan->hooks_arguments.personal_layers >= count) {
        return fedge_json_fail_at(json, "strategy.personal-layers", err,
                                  "is %u, and the model has %u layers with parameters: at least "
                                  "one must be the server's; lower it",
                                  (unsigned)plan->hooks_arguments.personal_layers, (unsigned)count);
    }
    return FEDGE_OK;
}

/* ---- between a model and what is kept -------------------------------------------------------- */

/* Parameters and statistics of a model, which may be separate blocks. */
typedef struct state {
    float *parameters, *buffers;
} state;

static float *at(const fedge_plan *plan, const state *of, size_t offset)
{
    return offset < plan->num_parameters ? of->parameters + offset
                                         : of->buffers + (offset - plan->num_parameters);
}

static state state_of(const fedge_plan *plan, float *model)
{
    return (state){model, model + plan->num_parameters};
}

static void put(const fedge_plan *plan, const float *personal, const state *to)
{
    const fedge_personal *layout = &plan->personal;
    if (personal[layout->num_values] == 0.0f)
        return;
    for (uint32_t i = 0; i < layout->num_parts; i++) {
        memcpy(at(plan, to, layout->parts[i].offset), personal,
               layout->parts[i].count * sizeof(*personal));
        personal += layout->parts[i].count;
    }
}

static void take(const fedge_plan *plan, const state *from, float *personal)
{
    const fedge_personal *layout = &plan->personal;
    for (uint32_t i = 0; i < layout->num_parts; i++) {
        memcpy(personal, at(plan, from, layout->parts[i].offset),
               layout->parts[i].count * sizeof(*personal));
        personal += layout->parts[i].count;
    }
    *personal = 1.0f;
}

void fedge_personal_put(const fedge_plan *plan, const float *personal, float *model)
{
    const state to = state_of(plan, model);
    put(plan, personal, &to);
}

void fedge_personal_take(const fedge_plan *plan, const float *model, float *personal)
{
    const state from = {(float *)(uintptr_t)model,
                        (float *)(uintptr_t)model + plan->num_parameters};
    take(plan, &from, personal);
}

/* ---- passes ---------------------------------------------------------------------------------- */

static fedge_status run(const fedge_local_training *with, const fedge_trainer_config *config,
                        fedge_trainer_result *result, fedge_error *err)
{
    return fedge_trainer_run(with->model, with->examples, config, with->workspace, result, err);
}

/* A pass during which some parameters are reset after each step. */
typedef struct frozen_part {
    const fedge_plan *plan;
    const float *values;   /* model that shared layers are reset to, or NULL */
    const float *personal; /* then the client's own */
} frozen_part;

static void restore_frozen(void *user, fedge_model *model)
{
    const frozen_part *self = user;
    const fedge_plan *plan = self->plan;
    const state to = {fedge_model_values(model), fedge_model_buffers(model)};
    if (!self->values) {
        put(plan, self->personal, &to);
        return;
    }
    const fedge_section *shared = &plan->sent.sections[0];
    for (uint32_t i = 0; i < shared->schema.num_tensors; i++) {
        const size_t offset = plan->sent.model_offsets[shared->first + i];
        memcpy(to.parameters + offset, self->values + offset,
               shared->schema.tensors[i].count * sizeof(float));
    }
}

/* Trains the client's layers, then the others (Collins et al. 2021). */
static fedge_status train_in_turn(const fedge_local_training *with, const float *values,
                                  float *personal, fedge_trainer_result *result, fedge_error *err)
{
    const fedge_plan *plan = with->plan;
    frozen_part shared = {.plan = plan, .values = values};
    frozen_part trained = {.plan = plan, .personal = personal};
    fedge_trainer_config config = *with->config;
    config.local_steps = 0;
    config.local_epochs = plan->hooks_arguments.head_epochs;
    config.after_step = restore_frozen;
    config.after_step_user = &shared;
    FEDGE_TRY(run(with, &config, result, err));
    const state from = {fedge_model_values(with->model), fedge_model_buffers(with->model)};
    take(plan, &from, personal);
    fedge_model_reset_optimizer(with->model);
    config = *with->config;
    config.after_step = restore_frozen;
    config.after_step_user = &trained;
    return run(with, &config, result, err);
}

/* Trains a model beside the server's, with a penalty on their distance (Li et al. 2021). */
static fedge_status train_beside(const fedge_local_training *with, const float *values,
                                 float *personal, fedge_error *err)
{
    const fedge_plan *plan = with->plan;
    const state model = {fedge_model_values(with->model), fedge_model_buffers(with->model)};
    fedge_trainer_config config = *with->config;
    fedge_trainer_result result;
    config.optimizer.proximal_mu = plan->hooks_arguments.lambda;
    put(plan, personal, &model);
    FEDGE_TRY(run(with, &config, &result, err));
    take(plan, &model, personal);
    fedge_model_set_state(with->model, values);
    fedge_model_reset_optimizer(with->model);
    return FEDGE_OK;
}

fedge_status fedge_personal_train(const fedge_local_training *with, float *values, float *personal,
                                  fedge_trainer_result *result, fedge_error *err)
{
    const fedge_client_hooks *hooks = with->plan->hooks;
    fedge_model_set_state(with->model, values);
    fedge_model_reset_optimizer(with->model);
    if (hooks->trains_both)
        FEDGE_TRY(train_beside(with, values, personal, err));
    FEDGE_TRY(hooks->personal_first ? train_in_turn(with, values, personal, result, err)
                                    : run(with, with->config, result, err));
    fedge_model_get_trained(with->model, values);
    return FEDGE_OK;
}

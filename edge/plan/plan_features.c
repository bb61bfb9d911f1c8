/* The features that plans may require, and which plans require them. Layers, losses, codecs and
 * hooks are enumerated from their tables; none is named here. */
#include <assert.h>
#include <string.h>

#include "edge/core/words.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/plan.h"
#include "edge/train/layers/layer.h"
#include "edge/train/losses/losses.h"
#include "edge/wire/protocol.h"

#define FIRST_NORMALISED 16 /* values of mean that every client supports */
#define FIRST_TENSORS 1024  /* tensors that every client supports */

/* FEATURE(name, condition on [plan]). A plan of an external model needs only those of EVERY_PLAN.
 * Append only: the order matters. */
#define CODEC_FEATURE(name) EVERY_PLAN("codec:" #name, has_codec(plan, #name))
#define LAYER_FEATURE(upper, lower, class)                                                         \
    FEATURE("layer:" #class, has_layer(plan, FEDGE_LAYER_##upper))
#define LOSS_FEATURE(upper, lower, class)                                                          \
    FEATURE("loss:" #class, plan->model.loss == FEDGE_LOSS_##upper)
#define OPTIMIZER_FEATURE(upper, lower, class)                                                     \
    FEATURE("optimizer:" #class, plan->training.optimizer.type == FEDGE_OPTIMIZER_##upper)
#define HOOKS_FEATURE(name, feature)                                                               \
    EVERY_PLAN(feature, plan->hooks && plan->hooks == fedge_client_hooks_of_feature(feature))
#define MODEL_FEATURE(name) FEATURE(name, model_asks(plan, name))

/* Of external models, which small builds have no trainer for. */
#ifdef FEDGE_SMALL
#define TENSOR_FEATURES
#else
#define TENSOR_FEATURES                                                                            \
    EVERY_PLAN("tensor:F16", any_tensor(plan, FEDGE_F16))                                          \
    EVERY_PLAN("tensor:BF16", any_tensor(plan, FEDGE_BF16))                                        \
    EVERY_PLAN("tensor:I64", any_tensor(plan, FEDGE_I64))                                          \
    EVERY_PLAN("tensor:frozen", is_frozen_in_part(plan))                                           \
    EVERY_PLAN("many-tensors", plan->schema.num_tensors > FIRST_TENSORS)
#endif

#if FEDGE_WITH_TARGETS
#define TARGETS_FEATURES                                                                           \
    EVERY_PLAN("targets", learns(plan, FEDGE_TARGETS_NUMBERS))                                     \
    EVERY_PLAN("targets:input", learns(plan, FEDGE_TARGETS_INPUT))
#else
#define TARGETS_FEATURES
#endif

#define FEATURES                                                                                   \
    FEDGE_CODEC_MAP(CODEC_FEATURE)                                                                 \
    EVERY_PLAN("deflate", plan->update.deflate || plan->update.down_deflate)                       \
    EVERY_PLAN("external", plan->external)                                                         \
    FEDGE_FIRST_LAYER_MAP(LAYER_FEATURE)                                                           \
    FEDGE_LOSS_MAP(LOSS_FEATURE)                                                                   \
    FEDGE_FIRST_OPTIMIZER_MAP(OPTIMIZER_FEATURE)                                                   \
    FEATURE("optimizer:nesterov", plan->training.optimizer.nesterov)                               \
    FEATURE("clip-norm", plan->training.optimizer.clip_norm > 0)                                   \
    FEATURE("proximal-mu", plan->training.optimizer.proximal_mu > 0)                               \
    FEATURE("train", any_layer(plan, trains_in_part))                                              \
    FEATURE("precision:bf16", plan->training.precision == FEDGE_PRECISION_BF16)                    \
    FEATURE("precision:tf32", plan->training.precision == FEDGE_PRECISION_TF32)                    \
    FEATURE("train-channels", any_layer(plan, trains_some_channels))                               \
    FEATURE("evaluation:int8", plan->training.evaluation == FEDGE_EVALUATION_INT8)                 \
    FEATURE("buffers", plan->num_parameters < plan->schema.num_elements)                           \
    FEATURE("activations", plan->training.activations != FEDGE_STORAGE_FP32)                       \
    FEDGE_CLIENT_HOOKS_MAP(HOOKS_FEATURE)                                                          \
    FEATURE("weights", plan->training.weights != FEDGE_STORAGE_FP32)                               \
    EVERY_PLAN("normalisation", is_normalised(plan))                                               \
    EVERY_PLAN("normalisation:features",                                                           \
               plan->has_data && plan->data.num_channels > FIRST_NORMALISED)                       \
    FEATURE("augmentation:horizontal-flip",                                                        \
            plan->data.has_augmentation && plan->data.horizontal_flip > 0)                         \
    FEATURE("augmentation:crop", plan->data.has_augmentation && plan->data.has_crop)               \
    FEDGE_MODEL_FEATURE_MAP(MODEL_FEATURE)                                                         \
    EVERY_PLAN("error-feedback", plan->update.error_feedback != FEDGE_ERROR_FEEDBACK_AUTO)         \
    EVERY_PLAN("codec-by-layer", plan->update.num_layers > 0)                                      \
    EVERY_PLAN("down-by-layer", plan->update.down.tensors)                                         \
    EVERY_PLAN("codec-by-section", plan->update.control.values || plan->update.buffers.values)     \
    EVERY_PLAN("config", plan->config)                                                             \
    EVERY_PLAN("external:strategy",                                                                \
               plan->external && (plan->hooks || plan->training.optimizer.proximal_mu > 0))        \
    TENSOR_FEATURES                                                                                \
    FEDGE_MORE_LAYER_MAP(LAYER_FEATURE)                                                            \
    TARGETS_FEATURES                                                                               \
    FEDGE_MORE_OPTIMIZER_MAP(OPTIMIZER_FEATURE)

/* --- their names: all that a client needs ----------------------------------------------------- */

const char *fedge_plan_feature(unsigned index)
{
    static const char NAMES[] =
#define FEATURE(name, when) name "\0"
#define EVERY_PLAN FEATURE
        FEATURES
#undef FEATURE
#undef EVERY_PLAN
        ;
    enum {
#define FEATURE(name, when) +1
#define EVERY_PLAN FEATURE
        COUNT = FEATURES,
#undef FEATURE
#undef EVERY_PLAN
        NAMES_SIZE = (int)sizeof(NAMES) - 1 + 2 * COUNT /* with quotes and commas */
    };
    static_assert(COUNT <= FEDGE_MAX_FEATURES, "servers read them all");
    static_assert(NAMES_SIZE <= FEDGE_MAX_FEATURES_SIZE, "a HELLO has room for them all");
    return fedge_word_at(NAMES, index);
}

bool fedge_plan_lacks_feature(const char *name)
{
    static const char LAYER[] = "layer:";
    int type = FEDGE_LAYER_COUNT;
    if (strncmp(name, LAYER, sizeof(LAYER) - 1) == 0) {
        for (type = 0;
             strcmp(fedge_layer_type_name((fedge_layer_type)type), name + sizeof(LAYER) - 1) != 0;)
            type++;
    }
    return type < FEDGE_LAYER_COUNT && !fedge_layer_ops_of((fedge_layer_type)type);
}

/* --- which plans need them -------------------------------------------------------------------- */

static bool is_normalised(const fedge_plan *plan)
{
    return plan->has_data && (plan->data.num_channels > 0 || plan->data.divide_by != 1);
}

/* Whether updates or model deltas use this codec stage for any tensor. */
static bool has_codec(const fedge_plan *plan, const char *name)
{
    const fedge_update_spec *update = &plan->update;
    bool has = fedge_codec_has(&update->codec, name) || fedge_codec_has(&update->down, name);
    for (uint32_t i = 0; i < update->num_layers; i++) {
        has = has || fedge_codec_has(&update->layers[i].codec, name) ||
              fedge_codec_has(&update->layers[i].down, name);
    }
    return has || fedge_codec_has(&update->control, name) ||
           fedge_codec_has(&update->buffers, name);
}

static bool has_layer(const fedge_plan *plan, fedge_layer_type type)
{
    for (uint32_t i = 0; i < plan->model.num_layers; i++) {
        if (plan->model.layers[i].type == type)
            return true;
    }
    return false;
}

static bool any_layer(const fedge_plan *plan, bool (*is)(const fedge_layer_spec *layer))
{
    for (uint32_t i = 0; i < plan->model.num_layers; i++) {
        if (is(&plan->model.layers[i]))
            return true;
    }
    return false;
}

static bool trains_in_part(const fedge_layer_spec *layer)
{
    return layer->train != FEDGE_TRAIN_ALL;
}

static bool trains_some_channels(const fedge_layer_spec *layer)
{
    return layer->num_train_channels != 0;
}

#if FEDGE_WITH_TARGETS
static bool learns(const fedge_plan *plan, fedge_targets_kind kind)
{
    return plan->has_data && plan->data.targets.kind == kind;
}
#endif

#ifndef FEDGE_SMALL
static bool any_tensor(const fedge_plan *plan, fedge_dtype dtype)
{
    for (uint32_t i = 0; i < plan->schema.num_tensors; i++) {
        if (plan->schema.tensors[i].dtype == dtype)
            return true;
    }
    return false;
}

static bool is_frozen_in_part(const fedge_plan *plan)
{
    for (uint32_t i = 0; i < plan->schema.num_tensors; i++) {
        if (plan->schema.tensors[i].frozen)
            return true;
    }
    return false;
}
#endif

/* Whether a layer or the loss needs the feature. */
static bool model_asks(const fedge_plan *plan, const char *word)
{
    const fedge_model_spec *model = &plan->model;
    const fedge_loss_ops *loss = fedge_loss_ops_of(model->loss);
    const char *asked = loss->feature ? loss->feature(model) : NULL;
    bool asks = asked && strcmp(asked, word) == 0;
    for (uint32_t i = 0; i < model->num_layers && !asks; i++) {
        const fedge_layer_ops *ops = fedge_layer_ops_of(model->layers[i].type);
        asked = ops->feature ? ops->feature(&model->layers[i]) : NULL;
        asks = asked && strcmp(asked, word) == 0;
    }
    return asks;
}

void fedge_plan_needs(const fedge_plan *plan, bool needed[FEDGE_MAX_FEATURES])
{
    const bool needs[] = {
#define FEATURE(name, when) !plan->external && (when),
#define EVERY_PLAN(name, when) (when),
        FEATURES
#undef FEATURE
#undef EVERY_PLAN
    };
    memset(needed, 0, FEDGE_MAX_FEATURES * sizeof(*needed));
    memcpy(needed, needs, sizeof(needs));
}

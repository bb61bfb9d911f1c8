/* Plans: the part of a job that clients receive, its tables of fields, and the rules between them.
 *
 * Jobs and plans are read by the same tables (FEDGE_PLAN_FIELDS), jobs strictly and plans
 * leniently: a user's typing error is reported, while a newer aggregator's additions are ignored
 * unless "must" lists them. Therefore everything that changes what a client computes needs a
 * feature (plan_features.c); otherwise an older client would silently train something else.
 *
 * Derived values (sections, offsets, sizes) are never sent; each reader of a plan computes them, so
 * that no client allocates by an unchecked number from the network.
 */
#include "edge/plan/plan.h"

#include <assert.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/version.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/plan_fields.h"
#include "edge/train/losses/losses.h"
#include "edge/wire/protocol.h"

#define REQUIRED FEDGE_JSON_REQUIRED
#define LIST FEDGE_JSON_LIST
#define AT FEDGE_JSON_AT
#define MAX_FLOAT 3.4028235e38
#define DEFAULT_BUFFER_BOUND_LOG2 8   /* resolution of statistics: 2^-22 */
#define DEFAULT_RESIDUAL_HALF_LIFE 64 /* rounds */
#define MAX_LABELS 1000000
#define PLAN_VERSION 1
#define EVALUATION_BATCH 8 /* batch of a model that only evaluates; its activations are small */

/* --- fields ----------------------------------------------------------------------------------- */

static const char *stored_type_name(unsigned value)
{
    return value == FEDGE_U8 ? "u8" : value == FEDGE_F32 ? "f32" : NULL;
}

const fedge_json_field fedge_normalisation_fields[] = {
    {"divide-by", "divide_by", FEDGE_JSON_F32, AT(fedge_data_spec, divide_by), .min = FLT_MIN,
     .max = MAX_FLOAT, .fallback = 1},
    {.key = "mean",
     .kind = FEDGE_JSON_F32,
     .flags = LIST | FEDGE_JSON_HEAP,
     FEDGE_JSON_HEAP_ARRAY(fedge_data_spec, mean, num_channels, FEDGE_MAX_NORMALISED)},
    {.key = "std",
     .kind = FEDGE_JSON_F32,
     .flags = LIST | FEDGE_JSON_HEAP | FEDGE_JSON_SAME_COUNT,
     FEDGE_JSON_HEAP_ARRAY(fedge_data_spec, std, num_channels, FEDGE_MAX_NORMALISED),
     .min = FLT_MIN,
     .max = MAX_FLOAT},
    FEDGE_JSON_END,
};

const fedge_json_field fedge_data_fields[] = {
    {.key = "name",
     .kind = FEDGE_JSON_TEXT,
     .flags = REQUIRED,
     AT(fedge_data_spec, name),
     .min = 1},
    {.key = "shape",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED | LIST,
     FEDGE_JSON_ARRAY(fedge_data_spec, shape, rank),
     .min_count = 1,
     .min = 1,
     .max = UINT32_MAX},
    {.key = "dtype",
     .kind = FEDGE_JSON_ENUM,
     .flags = REQUIRED,
     AT(fedge_data_spec, dtype),
     .name_of = stored_type_name,
     .num_names = FEDGE_DTYPE_COUNT},
    {.key = "labels",
     .kind = FEDGE_JSON_U32,
     .flags = FEDGE_WITH_TARGETS ? FEDGE_JSON_SPARSE : REQUIRED,
     AT(fedge_data_spec, num_labels),
     .min = 1,
     .max = MAX_LABELS},
#if FEDGE_WITH_TARGETS
    {.key = "targets",
     .kind = FEDGE_JSON_CUSTOM,
     AT(fedge_data_spec, targets),
     .read = fedge_targets_read,
     .write = FEDGE_PLAN_WRITER(fedge_targets_write)},
#endif
    {"normalisation", "normalization", FEDGE_JSON_OBJECT, .fields = fedge_normalisation_fields},
    {.key = "augmentation",
     .kind = FEDGE_JSON_OBJECT,
     .flags = FEDGE_JSON_PRESENCE,
     .extra = offsetof(fedge_data_spec, has_augmentation),
     .fields = fedge_augmentation_fields},
    FEDGE_JSON_END,
};

static const char *optimizer_name(unsigned type)
{
    return fedge_optimizer_type_name((fedge_optimizer_type)type);
}

static fedge_status read_optimizer(const fedge_json *json, const cJSON *node, void *record,
                                   fedge_error *err)
{
    fedge_optimizer *optimizer = &((fedge_training_spec *)record)->optimizer;
    fedge_argument_fields table;
    unsigned type = 0;
    FEDGE_TRY(fedge_argument_type(json, node, "an optimizer", FEDGE_OPTIMIZER_COUNT, optimizer_name,
                                  &type, err));
    optimizer->type = (fedge_optimizer_type)type;
    fedge_optimizer_fields(optimizer->type, &table);
    FEDGE_TRY(fedge_json_read(json, node, table.fields, optimizer, err));
    if (optimizer->nesterov && optimizer->momentum == 0)
        return fedge_json_fail(json, node, "nesterov", err, "needs a momentum above 0");
    return FEDGE_OK;
}

static fedge_status write_optimizer(const void *record, const char *key, cJSON *object,
                                    fedge_error *err)
{
    const fedge_optimizer *optimizer = &((const fedge_training_spec *)record)->optimizer;
    fedge_argument_fields table;
    cJSON *item = cJSON_AddObjectToObject(object, key);
    if (!item)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    fedge_optimizer_fields(optimizer->type, &table);
    return fedge_json_write(table.fields, optimizer, item, err);
}

static const char *precision_name(unsigned precision)
{
    return fedge_precision_name((fedge_precision)precision);
}

static const char *storage_name(unsigned storage)
{
    return fedge_storage_name((fedge_storage)storage);
}

static const char *evaluation_name(unsigned evaluation)
{
    static const char *const NAMES[] = {"as-trained", "int8"};
    return evaluation < FEDGE_EVALUATION_COUNT ? NAMES[evaluation] : NULL;
}

const fedge_json_field fedge_training_fields[] = {
    {"local-epochs", "local_epochs", FEDGE_JSON_U32, AT(fedge_training_spec, local_epochs),
     .min = 1, .max = FEDGE_MAX_EPOCHS, .fallback = 1},
    {"local-steps", "local_steps", FEDGE_JSON_U32, AT(fedge_training_spec, local_steps), .min = 0,
     .max = 1e9},
    {"batch-size", "batch_size", FEDGE_JSON_U32, AT(fedge_training_spec, batch_size), .min = 1,
     .max = FEDGE_MAX_BATCH, .fallback = 32},
    {"micro-batch-size", "micro_batch_size", FEDGE_JSON_U32, FEDGE_JSON_SPARSE,
     AT(fedge_training_spec, micro_batch_size), .min = 0, .max = FEDGE_MAX_BATCH},
#ifndef FEDGE_SMALL
    {"accumulation-steps", "accumulation_steps", FEDGE_JSON_U32, FEDGE_JSON_SPARSE,
     AT(fedge_training_spec, accumulation_steps), .min = 1, .max = FEDGE_MAX_BATCH, .fallback = 1},
#endif
    {"learning-rate", "learning_rate lr", FEDGE_JSON_F32, AT(fedge_training_spec, learning_rate),
     .min = 0, .max = FEDGE_MAX_LEARNING_RATE},
    {.key = "optimizer",
     .kind = FEDGE_JSON_CUSTOM,
     .read = read_optimizer,
     .write = FEDGE_PLAN_WRITER(write_optimizer)},
    {"clip-norm", "clip_norm", FEDGE_JSON_F32, FEDGE_JSON_SPARSE,
     AT(fedge_training_spec, optimizer.clip_norm), .min = 0, .max = FEDGE_MAX_CLIP_NORM},
    {"proximal-mu", "proximal_mu", FEDGE_JSON_F32, FEDGE_JSON_SPARSE,
     AT(fedge_training_spec, optimizer.proximal_mu), .min = 0, .max = FEDGE_MAX_PROXIMAL_MU},
#ifdef FEDGE_SMALL /* a task has its rate */
    {.key = "schedule", .kind = FEDGE_JSON_IGNORED},
#else
    {.key = "schedule",
     .kind = FEDGE_JSON_OBJECT,
     AT(fedge_training_spec, schedule),
     .fields = fedge_schedule_fields},
#endif
    {.key = "precision",
     .kind = FEDGE_JSON_ENUM,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_training_spec, precision),
     .name_of = precision_name,
     .num_names = FEDGE_PRECISION_INT8}, /* INT8 only evaluates */
    {.key = "evaluation",
     .kind = FEDGE_JSON_ENUM,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_training_spec, evaluation),
     .name_of = evaluation_name,
     .num_names = FEDGE_EVALUATION_COUNT},
    {.key = "activations",
     .kind = FEDGE_JSON_ENUM,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_training_spec, activations),
     .name_of = storage_name,
     .num_names = FEDGE_STORAGE_COUNT},
    {.key = "weights",
     .kind = FEDGE_JSON_ENUM,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_training_spec, weights),
     .name_of = storage_name,
     .num_names = FEDGE_STORAGE_COUNT},
    FEDGE_JSON_END,
};

static const char *error_feedback_name(unsigned feedback)
{
    static const char *const NAMES[] = {"auto", "on", "off"};
    return feedback < FEDGE_ERROR_FEEDBACK_COUNT ? NAMES[feedback] : NULL;
}

/* "up" in a job means "codec" and "deflate" in a plan. */
static fedge_status read_up(const fedge_json *json, const cJSON *node, void *record,
                            fedge_error *err)
{
    fedge_update_spec *update = record;
    return fedge_codec_read_pipeline(json, node, &update->codec, &update->deflate, err);
}

static fedge_status read_down(const fedge_json *json, const cJSON *node, void *record,
                              fedge_error *err)
{
    fedge_update_spec *update = record;
    return fedge_codec_read_pipeline(json, node, &update->down, &update->down_deflate, err);
}

static fedge_status write_down(const void *record, const char *key, cJSON *object, fedge_error *err)
{
    const fedge_update_spec *update = record;
    return !update->down.values
               ? FEDGE_OK
               : fedge_codec_write_pipeline(&update->down, update->down_deflate, key, object, err);
}

static fedge_status write_nothing(const void *record, const char *key, cJSON *object,
                                  fedge_error *err)
{
    (void)record, (void)key, (void)object, (void)err;
    return FEDGE_OK;
}

static const fedge_json_field layer_codec_fields[] = {
    {.key = "tensors",
     .kind = FEDGE_JSON_TEXT,
     .flags = FEDGE_JSON_REQUIRED,
     AT(fedge_layer_codec, tensors),
     .min = 1},
    {.key = "codec", .flags = FEDGE_JSON_REQUIRED, FEDGE_JSON_CODEC(fedge_layer_codec, codec)},
    {.key = "down", FEDGE_JSON_CODEC(fedge_layer_codec, down)},
    FEDGE_JSON_END,
};

const fedge_json_field fedge_update_fields[] = {
    {.key = "codec", FEDGE_JSON_CODEC(fedge_update_spec, codec)},
    {.key = "deflate", .kind = FEDGE_JSON_BOOL, AT(fedge_update_spec, deflate), .fallback = 1},
    {.key = "up",
     .kind = FEDGE_JSON_CUSTOM,
     .read = read_up,
     .write = FEDGE_PLAN_WRITER(write_nothing)},
    {.key = "layers",
     .kind = FEDGE_JSON_OBJECT,
     .flags = FEDGE_JSON_LIST,
     FEDGE_JSON_ARRAY(fedge_update_spec, layers, num_layers),
     .fields = layer_codec_fields},
    {.key = "down",
     .kind = FEDGE_JSON_CUSTOM,
     .read = read_down,
     .write = FEDGE_PLAN_WRITER(write_down)},
    {.key = "control", FEDGE_JSON_CODEC(fedge_update_spec, control)},
    {.key = "buffers", FEDGE_JSON_CODEC(fedge_update_spec, buffers)},
    {.key = "error-feedback",
     .kind = FEDGE_JSON_ENUM,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_update_spec, error_feedback),
     .name_of = error_feedback_name,
     .num_names = FEDGE_ERROR_FEEDBACK_COUNT},
    {"residual-half-life", "residual_half_life", FEDGE_JSON_U32, FEDGE_JSON_SPARSE,
     AT(fedge_update_spec, residual_half_life), .min = 0, .max = 1e6,
     .fallback = DEFAULT_RESIDUAL_HALF_LIFE},
    {"bound-log2", "bound_log2", FEDGE_JSON_I32, AT(fedge_update_spec, bound_log2),
     .min = FEDGE_FIXED_MIN_BOUND_LOG2, .max = FEDGE_FIXED_MAX_BOUND_LOG2,
     .fallback = FEDGE_FIXED_DEFAULT_BOUND_LOG2},
    {"buffer-bound-log2", "buffer_bound_log2", FEDGE_JSON_I32, FEDGE_JSON_SPARSE,
     AT(fedge_update_spec, buffer_bound_log2), .min = FEDGE_FIXED_MIN_BOUND_LOG2,
     .max = FEDGE_FIXED_MAX_BOUND_LOG2, .fallback = DEFAULT_BUFFER_BOUND_LOG2},
    {"control-bound-log2", "control_bound_log2", FEDGE_JSON_I32, FEDGE_JSON_SPARSE,
     AT(fedge_update_spec, control_bound_log2), .min = FEDGE_FIXED_MIN_BOUND_LOG2,
     .max = FEDGE_FIXED_MAX_BOUND_LOG2, .fallback = FEDGE_FIXED_DEFAULT_BOUND_LOG2},
    FEDGE_JSON_END,
};

/* Reads the client side of the strategy; read_hooks_flags reads hooks that have a separate key. */
static fedge_status read_hooks(const fedge_json *json, const cJSON *node, void *record,
                               fedge_error *err)
{
    const cJSON *type = fedge_json_get(node, "type");
    if (!cJSON_IsString(type))
        return fedge_json_fail(json, node, "type", err, "is missing, or not a text");
    ((fedge_plan *)record)->hooks = fedge_client_hooks_find(type->valuestring);
    return fedge_hooks_read_arguments(json, node, record, err);
}

/* SCAFFOLD is older than "strategy" in plans. Its key, true, serves the first clients and has
 * precedence over "strategy". */
static fedge_status read_hooks_flags(const fedge_json *json, fedge_plan *plan, fedge_error *err)
{
    const fedge_client_hooks *hooks = NULL;
    for (size_t i = 0; (hooks = fedge_client_hooks_at(i)) != NULL; i++) {
        const cJSON *node = hooks->plan_key ? fedge_json_get(json->root, hooks->plan_key) : NULL;
        if (node && !cJSON_IsBool(node))
            return fedge_json_fail(json, node, NULL, err, "must be true or false");
        if (cJSON_IsTrue(node))
            plan->hooks = hooks;
    }
    return FEDGE_OK;
}

static fedge_status write_hooks(const void *record, const char *key, cJSON *object,
                                fedge_error *err)
{
    const fedge_plan *plan = record;
    const fedge_client_hooks *hooks = plan->hooks;
    if (!hooks)
        return FEDGE_OK;
    cJSON *item = hooks->plan_key ? cJSON_AddTrueToObject(object, hooks->plan_key)
                                  : cJSON_AddObjectToObject(object, key);
    cJSON *within = item;
    if (item && !hooks->plan_key)
        item = cJSON_AddStringToObject(item, "type", hooks->name);
    if (!item)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    return hooks->arguments
               ? fedge_json_write(hooks->arguments, &plan->hooks_arguments, within, err)
               : FEDGE_OK;
}

static const fedge_json_field PLAN[] = {
    FEDGE_PLAN_FIELDS,
    {.key = "strategy",
     .kind = FEDGE_JSON_CUSTOM,
     .read = read_hooks,
     .write = FEDGE_PLAN_WRITER(write_hooks)},
    FEDGE_JSON_END,
};

static_assert(sizeof(fedge_dtype) == sizeof(unsigned), "the tables store enums as unsigned");

/* --- what has to hold between the parts ------------------------------------------------------- */

/* A model with one output: the label is the target. */
static fedge_status validate_one_output(const fedge_json *json, const fedge_plan *plan,
                                        fedge_error *err)
{
    const fedge_loss_ops *loss = fedge_loss_ops_of(plan->model.loss);
    const char *name = fedge_loss_type_name(plan->model.loss);
    if (loss->min_outputs > 1) {
        return fedge_json_fail_at(json, "model.loss", err,
                                  "%s of one output is always 0; give the last layer "
                                  "one for each label, or take another loss",
                                  name);
    }
    if (loss->labels_of_one > 0 && plan->data.num_labels != loss->labels_of_one) {
        return fedge_json_fail_at(json, "data.labels", err,
                                  "is %u, but %s of one output has the labels 0 to %u; set it to "
                                  "%u",
                                  plan->data.num_labels, name, (unsigned)loss->labels_of_one - 1,
                                  (unsigned)loss->labels_of_one);
    }
    return FEDGE_OK;
}

/* The number of labels, or the targets. */
static fedge_status validate_outputs(const fedge_json *json, const fedge_plan *plan,
                                     fedge_error *err)
{
    const uint32_t outputs = plan->external ? 0 : fedge_model_num_classes(&plan->model);
#if FEDGE_WITH_TARGETS
    const cJSON *data = fedge_json_get(json->root, "data");
    if (plan->data.targets.kind != FEDGE_TARGETS_CLASSES)
        return fedge_targets_check(json, plan, err);
    if (plan->data.num_labels == 0)
        return fedge_json_fail(json, data, "labels", err, "is missing");
#endif
    if (plan->external)
        return FEDGE_OK;
    if (outputs == 1)
        return validate_one_output(json, plan, err);
    if (plan->data.num_labels != outputs) {
        return fedge_json_fail_at(json, "data.labels", err,
                                  "is %u, but the model's last layer has %u outputs",
                                  plan->data.num_labels, outputs);
    }
    return FEDGE_OK;
}

static fedge_status validate_data(const fedge_json *json, const fedge_plan *plan, fedge_error *err)
{
    const fedge_data_spec *data = &plan->data;
    char is[FEDGE_SHAPE_TEXT_SIZE], wanted[FEDGE_SHAPE_TEXT_SIZE];
    if (data->num_channels > 1 && data->num_channels != data->shape[0]) {
        return fedge_json_fail_at(json, "data.normalisation.mean", err,
                                  "has %u elements; give 1 for all or %u, one for each channel or "
                                  "feature",
                                  data->num_channels, data->shape[0]);
    }
    if (plan->external)
        return validate_outputs(json, plan, err);
    const fedge_model_spec *model = &plan->model;
    if (data->rank != model->input_rank ||
        memcmp(data->shape, model->input_shape, data->rank * sizeof(data->shape[0])) != 0) {
        return fedge_json_fail_at(json, "data.shape", err, "is %s, but model.input-shape is %s",
                                  fedge_shape_text(data->rank, data->shape, is),
                                  fedge_shape_text(model->input_rank, model->input_shape, wanted));
    }
    return validate_outputs(json, plan, err);
}

void fedge_plan_initial_values(const fedge_plan *plan, float *values)
{
    if (plan->external) {
        memset(values, 0, plan->schema.num_elements * sizeof(*values));
        return;
    }
    fedge_model_init_buffers(&plan->model, values + plan->num_parameters);
    fedge_model_init_values(&plan->model, plan->seed, values);
}

fedge_model_options fedge_plan_model_options(const fedge_plan *plan)
{
    const fedge_optimizer *optimizer = &plan->training.optimizer;
    fedge_model_options options = {.max_batch = plan->training.batch_size,
                                   .micro_batch = plan->training.micro_batch_size,
                                   .training = true,
                                   .momentum = optimizer->momentum,
                                   .optimizer = optimizer->type,
                                   .nesterov = optimizer->nesterov,
                                   .centered = optimizer->centered,
                                   .clip = optimizer->clip_norm > 0,
                                   .proximal =
                                       optimizer->proximal_mu > 0 ||
                                       (fedge_plan_is_personal(plan) && plan->hooks->trains_both),
                                   .activations = plan->training.activations,
                                   .correction = plan->hooks && plan->hooks->corrects,
                                   .weights = plan->training.weights,
                                   .precision = plan->training.precision};
    if (options.micro_batch == 0 && !plan->external)
        options.micro_batch = fedge_model_micro_batch(&plan->model, &options);
    return options;
}

fedge_trainer_config fedge_plan_trainer_config(const fedge_plan *plan, uint32_t round,
                                               uint32_t client_index, double learning_rate)
{
    const fedge_training_spec *training = &plan->training;
    fedge_trainer_config config = {.seed = plan->seed,
                                   .round = round,
                                   .client_index = client_index,
                                   .local_epochs = training->local_epochs,
                                   .local_steps = training->local_steps,
                                   .batch_size = training->batch_size,
                                   .optimizer = training->optimizer};
    config.optimizer.learning_rate = (float)learning_rate;
    return config;
}

double fedge_plan_learning_rate(const fedge_plan *plan, uint32_t round)
{
    return fedge_schedule_rate(&plan->training.schedule, (double)plan->training.learning_rate,
                               round);
}

bool fedge_plan_evaluation_options(const fedge_plan *plan, fedge_model_options *options)
{
    const uint32_t batch = plan->training.batch_size;
    *options =
        (fedge_model_options){.max_batch = batch < EVALUATION_BATCH ? batch : EVALUATION_BATCH,
                              .precision = FEDGE_PRECISION_INT8};
    return plan->training.evaluation == FEDGE_EVALUATION_INT8;
}

static fedge_status validate_update(const fedge_json *json, fedge_error *err)
{
    const cJSON *update = fedge_json_get(json->root, "update");
    const bool up = update && fedge_json_get(update, "up");
    if (up && (fedge_json_get(update, "codec") || fedge_json_get(update, "deflate"))) {
        return fedge_json_fail_at(json, "update.up", err,
                                  "says what \"codec\" and \"deflate\" say, which are given too: "
                                  "keep one of the two");
    }
    return FEDGE_OK;
}

static fedge_status validate(const fedge_json *json, const fedge_plan *plan, fedge_error *err)
{
    if (!plan->external && !plan->has_data) {
        return fedge_json_fail_at(json, "data", err,
                                  "is missing; only an external model does without");
    }
    if (!plan->external && plan->training.learning_rate == 0) {
        return fedge_json_fail_at(json, "training.learning-rate", err,
                                  "is missing or 0; give e.g. 0.05");
    }
    if (plan->training.micro_batch_size > plan->training.batch_size) {
        return fedge_json_fail_at(json, "training.micro-batch-size", err,
                                  "is %u, over batch-size %u, of which it is a part: lower it",
                                  (unsigned)plan->training.micro_batch_size,
                                  (unsigned)plan->training.batch_size);
    }
    FEDGE_TRY(validate_update(json, err));
    if (fedge_plan_broadcasts(plan) && plan->update.down.values) {
        return fedge_json_fail_at(json, "update.down", err,
                                  "does not go with %s, which tells clients more than the model: "
                                  "leave it away, and models travel whole",
                                  plan->hooks->name);
    }
    /* Client state is either the strategy's or a residual (client_hooks.c). */
    if (plan->hooks && plan->hooks->state_name && fedge_plan_makes_residual(plan)) {
        return fedge_json_fail_at(
            json, "update", err,
            "leaves a residual, and with %s clients keep their %s instead: take a codec that "
            "does not choose, such as int8, without error-feedback, or FedAvg",
            plan->hooks->name, plan->hooks->state_name);
    }
    if (plan->hooks && plan->hooks->check)
        FEDGE_TRY(plan->hooks->check(json, plan, err));
#ifndef FEDGE_SMALL
    if (json->options.strict)
        FEDGE_TRY(fedge_schedule_check(json, "training.schedule", &plan->training.schedule, err));
#endif
    if (plan->has_data)
        FEDGE_TRY(validate_data(json, plan, err));
    return plan->has_data ? fedge_augmentation_check(json, plan, err) : FEDGE_OK;
}

/* Makes one batch of those that are accumulated. Clients of every release train it in parts. */
#ifdef FEDGE_SMALL
#define accumulate(json, plan, err) FEDGE_OK
#else
static fedge_status accumulate(const fedge_json *json, fedge_plan *plan, fedge_error *err)
{
    fedge_training_spec *training = &plan->training;
    const uint32_t steps = training->accumulation_steps, size = training->batch_size;
    if (steps <= 1)
        return FEDGE_OK;
    if (plan->external) {
        return fedge_json_fail_at(json, "training.accumulation-steps", err,
                                  "is for models that fedge trains; remove it, and let your own "
                                  "trainer accumulate");
    }
    if (steps > FEDGE_MAX_BATCH / size) {
        return fedge_json_fail_at(
            json, "training.accumulation-steps", err,
            "is %u, which with batch-size %u makes steps of over %u examples: "
            "lower one of them",
            (unsigned)steps, (unsigned)size, (unsigned)FEDGE_MAX_BATCH);
    }
    training->micro_batch_size = training->micro_batch_size > 0 ? training->micro_batch_size : size;
    training->batch_size = size * steps;
    training->accumulation_steps = 1;
    return FEDGE_OK;
}
#endif

/* --- "config" --------------------------------------------------------------------------------- */

fedge_status fedge_config_read(const fedge_json *json, const cJSON *node, void *record,
                               fedge_error *err)
{
    fedge_plan *plan = record;
    if (!cJSON_IsObject(node))
        return fedge_json_fail(json, node, NULL, err, "must be an object, {…}");
    plan->config = fedge_json_print_tree(node);
    return plan->config ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
}

fedge_status fedge_config_write(const void *record, const char *key, cJSON *object,
                                fedge_error *err)
{
    const fedge_plan *plan = record;
    cJSON *item = plan->config ? cJSON_Parse(plan->config) : NULL;
    if (!plan->config || (item && cJSON_AddItemToObject(object, key, item)))
        return FEDGE_OK;
    cJSON_Delete(item);
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
}

fedge_status fedge_plan_derive(const fedge_json *json, fedge_plan *plan, fedge_error *err)
{
    fedge_error cause = {0};
    if (!plan->update.codec.values) { /* the key is absent */
        plan->update.codec = fedge_codec_default();
    }
    plan->data.targets.is_fraction =
        !plan->external && fedge_loss_ops_of(plan->model.loss)->target_max > 0;
    const char *key = NULL;
    FEDGE_TRY(validate(json, plan, err));
    FEDGE_TRY(accumulate(json, plan, err));
    return fedge_sections_make(plan, &key, &cause) == FEDGE_OK
               ? FEDGE_OK
               : fedge_json_fail_at(json, key, err, "%s", cause.message);
}

/* --- "must" ---------------------------------------------------------------------------------- */

static fedge_status check_must(const fedge_json *json, fedge_error *err)
{
    /* FEDGE_CORRUPT (invalid bytes) differs from FEDGE_UNSUPPORTED (an unknown feature), which a
     * newer release of the client fixes. */
    fedge_json asked = *json;
    asked.options.status = FEDGE_UNSUPPORTED;
    const cJSON *version = fedge_json_get(json->root, "fedge-plan");
    const cJSON *must = fedge_json_get(json->root, "must"), *child = NULL;
    if (!cJSON_IsNumber(version))
        return fedge_json_fail_at(json, "fedge-plan", err, "is missing, or not a number");
    if (version->valuedouble != PLAN_VERSION) {
        return fedge_json_fail_at(&asked, "fedge-plan", err, "is %g; this release knows %d",
                                  version->valuedouble, PLAN_VERSION);
    }
    if (must && !cJSON_IsArray(must))
        return fedge_json_fail(json, must, NULL, err, "must be a list, […]");
    cJSON_ArrayForEach(child, must)
    {
        unsigned i = 0;
        const char *known = NULL;
        if (!cJSON_IsString(child))
            return fedge_json_fail(json, child, NULL, err, "must be a text in quotes");
        while ((known = fedge_plan_feature(i)) && strcmp(known, child->valuestring) != 0)
            i++;
        if (!known) {
            return fedge_json_fail(&asked, child, NULL, err,
                                   "this release (" FEDGE_VERSION ") cannot do \"%.64s\"; "
                                   "a newer one may",
                                   child->valuestring);
        }
        if (fedge_plan_lacks_feature(known)) {
            return fedge_json_fail(&asked, child, NULL, err,
                                   "this build has no \"%s\": add it to FEDGE_LAYERS", known);
        }
    }
    return FEDGE_OK;
}

/* --- plans as text ---------------------------------------------------------------------------- */

static fedge_status write_plan(const fedge_plan *plan, cJSON *object, fedge_error *err)
{
    cJSON *version = cJSON_AddNumberToObject(object, "fedge-plan", PLAN_VERSION);
    cJSON *must = version ? cJSON_AddArrayToObject(object, "must") : NULL;
    if (!must)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    bool needed[FEDGE_MAX_FEATURES];
    const char *name = NULL;
    fedge_plan_needs(plan, needed);
    for (unsigned i = 0; (name = fedge_plan_feature(i)) != NULL; i++) {
        if (!needed[i])
            continue;
        cJSON *item = cJSON_CreateString(name);
        if (!item || !cJSON_AddItemToArray(must, item)) {
            cJSON_Delete(item);
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
        }
    }
    FEDGE_TRY(fedge_json_write(PLAN, plan, object, err));
    /* Older clients do not know the newer types, and none needs them: a task has its rate. */
    if (plan->training.schedule.type > FEDGE_SCHEDULE_COSINE) {
        cJSON_DeleteItemFromObjectCaseSensitive(
            cJSON_GetObjectItemCaseSensitive(object, "training"), "schedule");
    }
    return FEDGE_OK;
}

fedge_status fedge_plan_write(const fedge_plan *plan, char **text, size_t *size, fedge_error *err)
{
    *text = NULL;
    cJSON *object = cJSON_CreateObject();
    fedge_status status = object ? write_plan(plan, object, err)
                                 : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    char *printed = status == FEDGE_OK ? fedge_json_print_tree(object) : NULL;
    cJSON_Delete(object);
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "plan");
    if (!printed)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the text of a plan");
    size_t length = strlen(printed);
    if (length > FEDGE_PLAN_MAX_SIZE) {
        free(printed);
        return fedge_fail(err, FEDGE_TOO_BIG, "the plan has %zu bytes, the limit is %zu", length,
                          FEDGE_PLAN_MAX_SIZE);
    }
    *text = printed;
    *size = length;
    return FEDGE_OK;
}

fedge_status fedge_plan_parse(const char *text, size_t size, fedge_plan **plan, fedge_error *err)
{
    *plan = NULL;
    const fedge_json_options options = {.name = "plan",
                                        .status = FEDGE_CORRUPT,
                                        .max_size = FEDGE_PLAN_MAX_SIZE,
                                        .max_depth = FEDGE_JSON_MAX_DEPTH,
                                        .max_values = FEDGE_PLAN_MAX_VALUES};
    fedge_json json;
    FEDGE_TRY(fedge_json_open(&json, text, size, &options, err));
    fedge_status status = FEDGE_OK;
    fedge_plan *made = calloc(1, sizeof(*made));
    if (!made)
        FEDGE_TRY_OR(fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a plan"), done);
    /* Checked first, so that an old client reports its age rather than an unknown key. */
    FEDGE_TRY_OR(check_must(&json, err), done);
    FEDGE_TRY_OR(fedge_json_read(&json, json.root, PLAN, made, err), done);
    FEDGE_TRY_OR(read_hooks_flags(&json, made, err), done);
    FEDGE_TRY_OR(fedge_plan_derive(&json, made, err), done);
    *plan = made;
    made = NULL;
done:
    fedge_json_close(&json);
    fedge_plan_free(made);
    return status;
}

void fedge_plan_fini(fedge_plan *plan)
{
    free(plan->data.mean);
    free(plan->data.std);
    free(plan->data.targets.mean);
    free(plan->data.targets.std);
    free(plan->config);
}

void fedge_plan_free(fedge_plan *plan)
{
    if (plan)
        fedge_plan_fini(plan);
    free(plan);
}

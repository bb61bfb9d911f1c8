#include "edge/io/plan.h"

#include <assert.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "edge/io/plan_fields.h"
#include "edge/io/protocol.h"

#define REQUIRED FEDGE_JSON_REQUIRED
#define LIST FEDGE_JSON_LIST
#define AT FEDGE_JSON_AT
#define MAX_FLOAT 3.4028235e38
#define MAX_LABELS 1000000
#define PLAN_VERSION 1

/* --- fields ----------------------------------------------------------------------------------- */

static const char *stored_type_name(unsigned value)
{
    return value == FEDGE_U8 ? "u8" : value == FEDGE_F32 ? "f32" : NULL;
}

static const char *codec_name(unsigned value)
{
    return value < FEDGE_CODEC_COUNT ? fedge_codec_name((fedge_codec)value) : NULL;
}

static const fedge_json_field NORMALISATION[] = {
    {"divide-by", "divide_by", FEDGE_JSON_F32, AT(fedge_data_spec, divide_by), .min = FLT_MIN,
     .max = MAX_FLOAT, .fallback = 1},
    {.key = "mean",
     .kind = FEDGE_JSON_F32,
     .flags = LIST,
     FEDGE_JSON_ARRAY(fedge_data_spec, mean, num_channels)},
    {.key = "std",
     .kind = FEDGE_JSON_F32,
     .flags = LIST | FEDGE_JSON_SAME_COUNT,
     FEDGE_JSON_ARRAY(fedge_data_spec, std, num_channels),
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
     .flags = REQUIRED,
     AT(fedge_data_spec, num_labels),
     .min = 1,
     .max = MAX_LABELS},
    {"normalisation", "normalization", FEDGE_JSON_OBJECT, .fields = NORMALISATION},
    FEDGE_JSON_END,
};

static const fedge_json_field OPTIMIZER[] = {
    {.key = "type",
     .kind = FEDGE_JSON_NAME,
     .flags = REQUIRED,
     .choices = (const char *const[]){"SGD", NULL}},
    {.key = "momentum",
     .kind = FEDGE_JSON_F32,
     AT(fedge_training_spec, momentum),
     .min = 0,
     .max = 1},
    {"weight_decay", "weight-decay", FEDGE_JSON_F32, AT(fedge_training_spec, weight_decay),
     .min = 0, .max = 1e6},
    FEDGE_JSON_END,
};

const fedge_json_field fedge_training_fields[] = {
    {"local-epochs", "local_epochs", FEDGE_JSON_U32, AT(fedge_training_spec, local_epochs),
     .min = 1, .max = 100000, .fallback = 1},
    {"local-steps", "local_steps", FEDGE_JSON_U32, AT(fedge_training_spec, local_steps), .min = 0,
     .max = 1e9},
    {"batch-size", "batch_size", FEDGE_JSON_U32, AT(fedge_training_spec, batch_size), .min = 1,
     .max = FEDGE_MAX_BATCH, .fallback = 32},
    {"learning-rate", "learning_rate lr", FEDGE_JSON_F32, AT(fedge_training_spec, learning_rate),
     .min = 0, .max = FEDGE_MAX_LEARNING_RATE},
    {.key = "optimizer", .kind = FEDGE_JSON_OBJECT, .fields = OPTIMIZER},
    FEDGE_JSON_END,
};

const fedge_json_field fedge_update_fields[] = {
    {.key = "codec",
     .kind = FEDGE_JSON_ENUM,
     AT(fedge_update_spec, codec),
     .name_of = codec_name,
     .num_names = FEDGE_CODEC_COUNT,
     .fallback = FEDGE_CODEC_INT8},
    {.key = "deflate", .kind = FEDGE_JSON_BOOL, AT(fedge_update_spec, deflate), .fallback = 1},
    {"bound-log2", "bound_log2", FEDGE_JSON_I32, AT(fedge_update_spec, bound_log2),
     .min = FEDGE_FIXED_MIN_BOUND_LOG2, .max = FEDGE_FIXED_MAX_BOUND_LOG2,
     .fallback = FEDGE_FIXED_DEFAULT_BOUND_LOG2},
    FEDGE_JSON_END,
};

static const fedge_json_field PLAN[] = {FEDGE_PLAN_FIELDS, FEDGE_JSON_END};

_Static_assert(sizeof(fedge_dtype) == sizeof(unsigned), "the tables store enums as unsigned");

/* --- what has to hold between the parts ------------------------------------------------------- */

static fedge_status validate_data(const fedge_json *json, const fedge_plan *plan, fedge_error *err)
{
    const fedge_data_spec *data = &plan->data;
    char is[FEDGE_SHAPE_TEXT_SIZE], wanted[FEDGE_SHAPE_TEXT_SIZE];
    if (data->num_channels > 1 && data->num_channels != data->shape[0])
        return fedge_json_fail_at(json, "data.normalisation.mean", err,
                                  "has %u elements; give 1 for all or %u, one for each channel",
                                  data->num_channels, data->shape[0]);
    if (plan->external)
        return FEDGE_OK;
    const fedge_model_spec *model = &plan->model;
    if (data->rank != model->input_rank ||
        memcmp(data->shape, model->input_shape, data->rank * sizeof data->shape[0]) != 0)
        return fedge_json_fail_at(json, "data.shape", err, "is %s, but model.input-shape is %s",
                                  fedge_shape_text(data->rank, data->shape, is),
                                  fedge_shape_text(model->input_rank, model->input_shape, wanted));
    if (data->num_labels != fedge_model_num_classes(model))
        return fedge_json_fail_at(json, "data.labels", err,
                                  "is %u, but the model's last layer has %u outputs",
                                  data->num_labels, fedge_model_num_classes(model));
    return FEDGE_OK;
}

fedge_status fedge_plan_validate(const fedge_json *json, const fedge_plan *plan, fedge_error *err)
{
    if (!plan->external && !plan->has_data)
        return fedge_json_fail_at(json, "data", err,
                                  "is missing; only an external model does without");
    if (!plan->external && plan->training.learning_rate == 0)
        return fedge_json_fail_at(json, "training.learning-rate", err,
                                  "is missing or 0; give e.g. 0.05");
    return plan->has_data ? validate_data(json, plan, err) : FEDGE_OK;
}

/* --- features --------------------------------------------------------------------------------- */

/* What a plan may ask of a client: all that this release can do. */
static const char *const FEATURES[] = {
    "codec:none",    "codec:int8",      "deflate",    "external",      "layer:Linear",
    "layer:Conv2d",  "layer:MaxPool2d", "layer:ReLU", "layer:Flatten", "loss:CrossEntropyLoss",
    "optimizer:SGD", "normalisation",
};
#define NUM_FEATURES (sizeof FEATURES / sizeof FEATURES[0])

_Static_assert(FEDGE_CODEC_COUNT == 2 && FEDGE_LAYER_COUNT == 5, "each has a feature");

const char *fedge_plan_feature(unsigned index)
{
    return index < NUM_FEATURES ? FEATURES[index] : NULL;
}

/* Is "kind:name" the feature? */
static bool is_feature(const char *feature, const char *kind, const char *name)
{
    size_t length = strlen(kind);
    return strncmp(feature, kind, length) == 0 && feature[length] == ':' &&
           strcmp(feature + length + 1, name) == 0;
}

static bool has_layer(const fedge_model_spec *model, const char *feature)
{
    for (uint32_t i = 0; i < model->num_layers; i++) {
        if (is_feature(feature, "layer", fedge_layer_type_name(model->layers[i].type)))
            return true;
    }
    return false;
}

/* Does [plan] need [feature]? */
static bool needs(const fedge_plan *plan, const char *feature)
{
    if (is_feature(feature, "codec", fedge_codec_name(plan->update.codec)))
        return true;
    if (strcmp(feature, "deflate") == 0)
        return plan->update.deflate;
    if (strcmp(feature, "external") == 0)
        return plan->external;
    if (strcmp(feature, "normalisation") == 0)
        return plan->has_data && (plan->data.num_channels > 0 || plan->data.divide_by != 1);
    if (plan->external)
        return false;
    return strncmp(feature, "loss:", 5) == 0 || strncmp(feature, "optimizer:", 10) == 0 ||
           has_layer(&plan->model, feature);
}

static fedge_status check_must(const fedge_json *json, fedge_error *err)
{
    fedge_json asked = *json;
    asked.options.status = FEDGE_UNSUPPORTED;
    const cJSON *version = fedge_json_get(json->root, "fedge-plan");
    const cJSON *must = fedge_json_get(json->root, "must"), *child = NULL;
    if (!cJSON_IsNumber(version))
        return fedge_json_fail_at(json, "fedge-plan", err, "is missing, or not a number");
    if (version->valuedouble != PLAN_VERSION)
        return fedge_json_fail_at(&asked, "fedge-plan", err, "is %g; this release knows %d",
                                  version->valuedouble, PLAN_VERSION);
    if (must != NULL && !cJSON_IsArray(must))
        return fedge_json_fail(json, must, NULL, err, "must be a list, […]");
    cJSON_ArrayForEach(child, must)
    {
        size_t i = 0;
        if (!cJSON_IsString(child))
            return fedge_json_fail(json, child, NULL, err, "must be a text in quotes");
        while (i < NUM_FEATURES && strcmp(FEATURES[i], child->valuestring) != 0)
            i++;
        if (i == NUM_FEATURES)
            return fedge_json_fail(&asked, child, NULL, err,
                                   "this release (" FEDGE_RELEASE ") cannot do \"%.64s\"; "
                                   "a newer one may",
                                   child->valuestring);
    }
    return FEDGE_OK;
}

/* --- plans as text ---------------------------------------------------------------------------- */

static fedge_status write_plan(const fedge_plan *plan, cJSON *object, fedge_error *err)
{
    cJSON *version = cJSON_AddNumberToObject(object, "fedge-plan", PLAN_VERSION);
    cJSON *must = version != NULL ? cJSON_AddArrayToObject(object, "must") : NULL;
    if (must == NULL)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    for (size_t i = 0; i < NUM_FEATURES; i++) {
        if (!needs(plan, FEATURES[i]))
            continue;
        cJSON *item = cJSON_CreateString(FEATURES[i]);
        if (item == NULL || !cJSON_AddItemToArray(must, item)) {
            cJSON_Delete(item);
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
        }
    }
    return fedge_json_write(PLAN, plan, object, err);
}

fedge_status fedge_plan_write(const fedge_plan *plan, char **text, size_t *size, fedge_error *err)
{
    cJSON *object = cJSON_CreateObject();
    fedge_status st = object != NULL
                          ? write_plan(plan, object, err)
                          : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    char *printed = st == FEDGE_OK ? cJSON_PrintUnformatted(object) : NULL;
    cJSON_Delete(object);
    if (st != FEDGE_OK)
        return fedge_error_prefix(err, st, "plan");
    if (printed == NULL)
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
    const fedge_json_options options = {.name = "plan",
                                        .status = FEDGE_CORRUPT,
                                        .max_size = FEDGE_PLAN_MAX_SIZE,
                                        .max_depth = FEDGE_JSON_MAX_DEPTH,
                                        .max_values = FEDGE_PLAN_MAX_VALUES};
    fedge_json json;
    fedge_status st = fedge_json_open(&json, text, size, &options, err);
    if (st != FEDGE_OK)
        return st;
    fedge_plan *made = calloc(1, sizeof *made);
    st = made == NULL ? fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a plan") : FEDGE_OK;
    if (st == FEDGE_OK)
        st = check_must(&json, err);
    if (st == FEDGE_OK)
        st = fedge_json_read(&json, json.root, PLAN, made, err);
    if (st == FEDGE_OK)
        st = fedge_plan_validate(&json, made, err);
    fedge_json_close(&json);
    if (st != FEDGE_OK) {
        free(made);
        return st;
    }
    *plan = made;
    return FEDGE_OK;
}

void fedge_plan_free(fedge_plan *plan)
{
    free(plan);
}

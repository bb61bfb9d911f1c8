/* Models as JSON: a list of layers with PyTorch's names, or the schema of somebody else's model. */
#include <stdio.h>
#include <string.h>

#include "edge/io/plan_fields.h"

#define REQUIRED FEDGE_JSON_REQUIRED
#define AT FEDGE_JSON_AT
#define MAX_SIDE 65536.0   /* of a kernel, stride or padding */
#define MAX_WIDTH 16777216 /* features and channels */

/* --- layers ----------------------------------------------------------------------------------- */

#define LAYER(text)                                                                                \
    {.key = "type",                                                                                \
     .kind = FEDGE_JSON_NAME,                                                                      \
     .flags = REQUIRED,                                                                            \
     .choices = (const char *const[]){text, NULL}},                                                \
    {                                                                                              \
        "name", .kind = FEDGE_JSON_TEXT, AT(fedge_layer_spec, name), .min = 1                      \
    }

static const fedge_json_field LINEAR[] = {
    LAYER("Linear"),
    {.key = "in_features",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED,
     AT(fedge_layer_spec, u.linear.in_features),
     .min = 1,
     .max = MAX_WIDTH},
    {.key = "out_features",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED,
     AT(fedge_layer_spec, u.linear.out_features),
     .min = 1,
     .max = MAX_WIDTH},
    {.key = "bias", .kind = FEDGE_JSON_BOOL, AT(fedge_layer_spec, u.linear.bias), .fallback = 1},
    FEDGE_JSON_END,
};

static const fedge_json_field CONV2D[] = {
    LAYER("Conv2d"),
    {.key = "in_channels",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED,
     AT(fedge_layer_spec, u.conv2d.in_channels),
     .min = 1,
     .max = MAX_WIDTH},
    {.key = "out_channels",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED,
     AT(fedge_layer_spec, u.conv2d.out_channels),
     .min = 1,
     .max = MAX_WIDTH},
    {.key = "kernel_size",
     .kind = FEDGE_JSON_PAIR,
     .flags = REQUIRED,
     AT(fedge_layer_spec, u.conv2d.kernel_size),
     .min = 1,
     .max = MAX_SIDE},
    {.key = "stride",
     .kind = FEDGE_JSON_PAIR,
     AT(fedge_layer_spec, u.conv2d.stride),
     .min = 1,
     .max = MAX_SIDE,
     .fallback = 1},
    {.key = "padding",
     .kind = FEDGE_JSON_PAIR,
     AT(fedge_layer_spec, u.conv2d.padding),
     .min = 0,
     .max = MAX_SIDE},
    {.key = "bias", .kind = FEDGE_JSON_BOOL, AT(fedge_layer_spec, u.conv2d.bias), .fallback = 1},
    FEDGE_JSON_END,
};

static const fedge_json_field MAXPOOL2D[] = {
    LAYER("MaxPool2d"),
    {.key = "kernel_size",
     .kind = FEDGE_JSON_PAIR,
     .flags = REQUIRED,
     AT(fedge_layer_spec, u.maxpool2d.kernel_size),
     .min = 1,
     .max = MAX_SIDE},
    {.key = "stride",
     .kind = FEDGE_JSON_PAIR,
     AT(fedge_layer_spec, u.maxpool2d.stride),
     .min = 1,
     .max = MAX_SIDE,
     .fallback = 0},
    {.key = "padding",
     .kind = FEDGE_JSON_PAIR,
     AT(fedge_layer_spec, u.maxpool2d.padding),
     .min = 0,
     .max = MAX_SIDE},
    FEDGE_JSON_END,
};

static const fedge_json_field RELU[] = {LAYER("ReLU"), FEDGE_JSON_END};

static const fedge_json_field FLATTEN[] = {LAYER("Flatten"), FEDGE_JSON_END};

const fedge_json_field *const fedge_layer_fields[FEDGE_LAYER_COUNT] = {
    [FEDGE_LAYER_LINEAR] = LINEAR,       [FEDGE_LAYER_CONV2D] = CONV2D,
    [FEDGE_LAYER_MAXPOOL2D] = MAXPOOL2D, [FEDGE_LAYER_RELU] = RELU,
    [FEDGE_LAYER_FLATTEN] = FLATTEN,
};

/* The type of the layer at [node]. */
static fedge_status read_layer_type(const fedge_json *json, const cJSON *node,
                                    fedge_layer_type *type, fedge_error *err)
{
    const char *names[FEDGE_LAYER_COUNT];
    const cJSON *item = fedge_json_get(node, "type");
    if (!cJSON_IsObject(node))
        return fedge_json_fail(json, node, NULL, err, "must be an object, {…}");
    if (!cJSON_IsString(item))
        return fedge_json_fail(json, node, "type", err, "is missing, or not a text");
    for (unsigned i = 0; i < FEDGE_LAYER_COUNT; i++) {
        names[i] = fedge_layer_type_name((fedge_layer_type)i);
        if (strcmp(names[i], item->valuestring) == 0) {
            *type = (fedge_layer_type)i;
            return FEDGE_OK;
        }
    }
    const char *nearest = fedge_json_nearest(item->valuestring, names, FEDGE_LAYER_COUNT);
    return fedge_json_fail(json, item, NULL, err,
                           "\"%.64s\" is not a layer of this release%s%s%s (it has Linear, Conv2d, "
                           "MaxPool2d, ReLU and Flatten)",
                           item->valuestring, nearest != NULL ? "; did you mean \"" : "",
                           nearest != NULL ? nearest : "", nearest != NULL ? "\"?" : "");
}

static fedge_status read_layers(const fedge_json *json, const cJSON *node, void *record,
                                fedge_error *err)
{
    fedge_model_spec *model = &((fedge_plan *)record)->model;
    int count = cJSON_GetArraySize(node);
    if (!cJSON_IsArray(node) || count < 1 || count > FEDGE_MAX_LAYERS)
        return fedge_json_fail(json, node, NULL, err, "must be a list of 1 to %d layers",
                               FEDGE_MAX_LAYERS);
    fedge_status st = FEDGE_OK;
    const cJSON *child = NULL;
    model->num_layers = 0;
    cJSON_ArrayForEach(child, node)
    {
        fedge_layer_spec *layer = &model->layers[model->num_layers];
        st = read_layer_type(json, child, &layer->type, err);
        if (st == FEDGE_OK)
            st = fedge_json_read(json, child, fedge_layer_fields[layer->type], layer, err);
        if (st != FEDGE_OK)
            return st;
        if (layer->type == FEDGE_LAYER_MAXPOOL2D && layer->u.maxpool2d.stride[0] == 0)
            memcpy(layer->u.maxpool2d.stride, layer->u.maxpool2d.kernel_size,
                   sizeof layer->u.maxpool2d.stride);
        model->num_layers++;
    }
    return FEDGE_OK;
}

static fedge_status write_layers(const void *record, const char *key, cJSON *object,
                                 fedge_error *err)
{
    const fedge_model_spec *model = &((const fedge_plan *)record)->model;
    cJSON *array = cJSON_AddArrayToObject(object, key);
    fedge_status st = FEDGE_OK;
    for (uint32_t i = 0; i < model->num_layers && st == FEDGE_OK; i++) {
        const fedge_layer_spec *layer = &model->layers[i];
        cJSON *item = cJSON_CreateObject();
        if (array == NULL || item == NULL || !cJSON_AddItemToArray(array, item)) {
            cJSON_Delete(item);
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
        }
        st = fedge_json_write(fedge_layer_fields[layer->type], layer, item, err);
    }
    return st;
}

static const fedge_json_field LOSS[] = {
    {.key = "type",
     .kind = FEDGE_JSON_NAME,
     .flags = REQUIRED,
     .choices = (const char *const[]){"CrossEntropyLoss", NULL}},
    FEDGE_JSON_END,
};

const fedge_json_field fedge_model_fields[] = {
    {"input-shape", NULL, FEDGE_JSON_U32, REQUIRED | FEDGE_JSON_LIST,
     FEDGE_JSON_ARRAY(fedge_plan, model.input_shape, model.input_rank), .min_count = 1, .min = 1,
     .max = UINT32_MAX},
    {.key = "layers",
     .kind = FEDGE_JSON_CUSTOM,
     .flags = REQUIRED,
     .read = read_layers,
     .write = write_layers},
    {.key = "loss", .kind = FEDGE_JSON_OBJECT, .fields = LOSS},
    FEDGE_JSON_END,
};

/* --- external models -------------------------------------------------------------------------- */

static const char *parameter_type_name(unsigned value)
{
    return value == FEDGE_F32 ? fedge_dtype_name(FEDGE_F32) : NULL;
}

const fedge_json_field fedge_tensor_fields[] = {
    {.key = "name",
     .kind = FEDGE_JSON_TEXT,
     .flags = REQUIRED,
     AT(fedge_tensor_spec, name),
     .min = 1},
    {.key = "shape",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED | FEDGE_JSON_LIST,
     FEDGE_JSON_ARRAY(fedge_tensor_spec, shape, rank),
     .min = 1,
     .max = UINT32_MAX},
    {.key = "dtype",
     .kind = FEDGE_JSON_ENUM,
     AT(fedge_tensor_spec, dtype),
     .fallback = FEDGE_F32,
     .name_of = parameter_type_name,
     .num_names = 1},
    FEDGE_JSON_END,
};

_Static_assert(FEDGE_F32 == 0, "the one name of parameter_type_name");

static fedge_status read_tensors(const fedge_json *json, const cJSON *node, void *record,
                                 fedge_error *err)
{
    fedge_plan *plan = record;
    int count = cJSON_GetArraySize(node);
    if (!cJSON_IsArray(node) || count < 1 || count > FEDGE_MAX_TENSORS)
        return fedge_json_fail(json, node, NULL, err, "must be a list of 1 to %d tensors",
                               FEDGE_MAX_TENSORS);
    const cJSON *child = NULL;
    cJSON_ArrayForEach(child, node)
    {
        fedge_tensor_spec tensor;
        fedge_error cause = {0};
        fedge_status st = fedge_json_read(json, child, fedge_tensor_fields, &tensor, err);
        if (st != FEDGE_OK)
            return st;
        st = fedge_schema_add(&plan->schema, tensor.name, tensor.dtype, tensor.rank, tensor.shape,
                              &cause);
        if (st != FEDGE_OK)
            return fedge_json_fail(json, child, NULL, err, "%s", cause.message);
    }
    return FEDGE_OK;
}

static fedge_status write_tensors(const void *record, const char *key, cJSON *object,
                                  fedge_error *err)
{
    const fedge_plan *plan = record;
    cJSON *array = cJSON_AddArrayToObject(object, key);
    fedge_status st = FEDGE_OK;
    for (uint32_t i = 0; i < plan->schema.num_tensors && st == FEDGE_OK; i++) {
        cJSON *item = cJSON_CreateObject();
        if (array == NULL || item == NULL || !cJSON_AddItemToArray(array, item)) {
            cJSON_Delete(item);
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
        }
        st = fedge_json_write(fedge_tensor_fields, &plan->schema.tensors[i], item, err);
    }
    return st;
}

const fedge_json_field fedge_external_fields[] = {
    {.key = "type",
     .kind = FEDGE_JSON_NAME,
     .flags = REQUIRED,
     .choices = (const char *const[]){"external", NULL}},
    {.key = "tensors",
     .kind = FEDGE_JSON_CUSTOM,
     .flags = REQUIRED,
     .read = read_tensors,
     .write = write_tensors},
    FEDGE_JSON_END,
};

/* --- models ----------------------------------------------------------------------------------- */

/* The line of the first layer that does not fit: the shortest model with the same complaint ends in
 * it. The plan is not used after this. */
static const cJSON *find_misfit(const cJSON *node, fedge_plan *plan, const char *complaint)
{
    const uint32_t num_layers = plan->model.num_layers;
    const cJSON *layer = fedge_json_get(node, "layers")->child;
    for (uint32_t n = 1; n < num_layers; n++, layer = layer->next) {
        fedge_error err = {0};
        plan->model.num_layers = n;
        fedge_schema_init(&plan->schema, plan->tensors, FEDGE_MAX_TENSORS);
        if (fedge_model_schema(&plan->model, &plan->schema, &err) != FEDGE_OK &&
            strcmp(err.message, complaint) == 0)
            break;
    }
    return layer;
}

static fedge_status make_schema(const fedge_json *json, const cJSON *node, fedge_plan *plan,
                                fedge_error *err)
{
    fedge_error cause = {0};
    if (fedge_model_schema(&plan->model, &plan->schema, &cause) == FEDGE_OK)
        return FEDGE_OK;
    return fedge_json_fail(json, find_misfit(node, plan, cause.message), NULL, err, "%s",
                           cause.message);
}

fedge_status fedge_model_read(const fedge_json *json, const cJSON *node, void *record,
                              fedge_error *err)
{
    fedge_plan *plan = record;
    fedge_schema_init(&plan->schema, plan->tensors, FEDGE_MAX_TENSORS);
    plan->external = fedge_json_get(node, "type") != NULL;
    if (plan->external)
        return fedge_json_read(json, node, fedge_external_fields, plan, err);
    fedge_status st = fedge_json_read(json, node, fedge_model_fields, plan, err);
    return st == FEDGE_OK ? make_schema(json, node, plan, err) : st;
}

fedge_status fedge_model_write(const void *record, const char *key, cJSON *object, fedge_error *err)
{
    const fedge_plan *plan = record;
    cJSON *item = cJSON_AddObjectToObject(object, key);
    if (item == NULL)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    return fedge_json_write(plan->external ? fedge_external_fields : fedge_model_fields, plan, item,
                            err);
}

/* Models as JSON: a list of layers with PyTorch's names, or the schema of an external model. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "edge/plan/plan_fields.h"
#include "edge/train/layers/layer.h"

#define REQUIRED FEDGE_JSON_REQUIRED
#define AT FEDGE_JSON_AT

/* --- layers ----------------------------------------------------------------------------------- */

static const char *layer_name(unsigned type)
{
    return fedge_layer_type_name((fedge_layer_type)type);
}

static const char *loss_name(unsigned type)
{
    return fedge_loss_type_name((fedge_loss_type)type);
}

/* The name that "inputs" use for layer [index]: its name, or its position. */
static const char *label_of(const fedge_model_spec *model, uint32_t index, char text[16])
{
    const char *name = model->layers[index].name;
    (void)snprintf(text, 16, "%u", (unsigned)index);
    return name[0] != '\0' ? name : text;
}

/* Reads "inputs" of the layer being read, the last of [model]. */
static fedge_status read_inputs(const fedge_json *json, const cJSON *node, fedge_model_spec *model,
                                fedge_error *err)
{
    fedge_layer_spec *layer = &model->layers[model->num_layers];
    const cJSON *inputs = fedge_json_get(node, "inputs"), *child = NULL;
    layer->num_inputs = 0;
    if (!inputs)
        return FEDGE_OK;
    int count = cJSON_GetArraySize(inputs);
    if (!cJSON_IsArray(inputs) || count < 1 || count > FEDGE_MAX_LAYER_INPUTS) {
        return fedge_json_fail(json, inputs, NULL, err, "must be a list of 1 to %d layers",
                               FEDGE_MAX_LAYER_INPUTS);
    }
    cJSON_ArrayForEach(child, inputs)
    {
        char text[16];
        uint32_t i = 0;
        if (!cJSON_IsString(child))
            return fedge_json_fail(json, child, NULL, err, "must be a text in quotes");
        while (i < model->num_layers && strcmp(label_of(model, i, text), child->valuestring) != 0)
            i++;
        if (i == model->num_layers && strcmp(child->valuestring, "input") != 0) {
            return fedge_json_fail(json, child, NULL, err,
                                   "\"%.64s\" is not the name (or, without one, the position) of a "
                                   "layer before this one, and not \"input\"",
                                   child->valuestring);
        }
        layer->inputs[layer->num_inputs++] =
            (uint16_t)(i == model->num_layers ? FEDGE_INPUT_MODEL : i);
    }
    return FEDGE_OK;
}

/* PyTorch's modules are named with dots. */
static bool is_dotted(const char *name)
{
    return name[0] != '.' && name[strlen(name) - 1] != '.' && !strstr(name, "..");
}

/* Names must be unique in a job: "inputs" refer to layers by name, or by position if they have
 * none. */
static fedge_status check_name(const fedge_json *json, const cJSON *node,
                               const fedge_model_spec *model, fedge_error *err)
{
    char text[16], other[16];
    const uint32_t last = model->num_layers;
    const char *name = label_of(model, last, text);
    /* Only jobs are checked by these rules: a plan comes from a checked job, and a newer aggregator
     * may have other rules. */
    if (json->options.strict && !is_dotted(name)) {
        return fedge_json_fail(json, node, "name", err,
                               "\"%s\" has a dot without a name on both sides; write e.g. \"a.b\"",
                               name);
    }
    if (json->options.strict && strcmp(name, "input") == 0) {
        return fedge_json_fail(json, node, "name", err,
                               "\"input\" is what \"inputs\" call the model's; give another");
    }
    for (uint32_t i = 0; json->options.strict && i < last; i++) {
        if (strcmp(label_of(model, i, other), name) == 0) {
            return fedge_json_fail(json, node, model->layers[last].name[0] != '\0' ? "name" : NULL,
                                   err,
                                   "layers %u and %u are both called \"%s\"; give one another name",
                                   (unsigned)i, (unsigned)last, name);
        }
    }
    return FEDGE_OK;
}

static fedge_status write_inputs(const fedge_model_spec *model, uint32_t index, cJSON *item,
                                 fedge_error *err)
{
    const fedge_layer_spec *layer = &model->layers[index];
    if (layer->num_inputs == 0)
        return FEDGE_OK;
    cJSON *array = cJSON_AddArrayToObject(item, "inputs");
    for (uint32_t k = 0; k < layer->num_inputs; k++) {
        char text[16];
        const uint16_t from = layer->inputs[k];
        cJSON *name =
            cJSON_CreateString(from == FEDGE_INPUT_MODEL ? "input" : label_of(model, from, text));
        if (!array || !name || !cJSON_AddItemToArray(array, name)) {
            cJSON_Delete(name);
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
        }
    }
    return FEDGE_OK;
}

/* PyTorch's words for padding; a plan has the numbers. */
static fedge_status read_padding(const fedge_json *json, const cJSON *node, fedge_layer_spec *layer,
                                 fedge_error *err)
{
    const char *word = fedge_json_get(node, "padding")->valuestring;
    const bool same = strcmp(word, "same") == 0;
    fedge_error cause = {0};
    if (!same && strcmp(word, "valid") != 0) {
        return fedge_json_fail(json, node, "padding", err,
                               "\"%.64s\" is not known here; valid: same, valid, or numbers", word);
    }
    if (same && fedge_layer_ops_of(layer->type)->pad_same(layer, &cause) != FEDGE_OK)
        return fedge_json_fail(json, node, "padding", err, "%s", cause.message);
    return FEDGE_OK;
}

static fedge_status read_arguments(const fedge_json *json, const cJSON *node,
                                   fedge_layer_spec *layer, fedge_error *err)
{
    const fedge_layer_ops *ops = fedge_layer_ops_of(layer->type);
    fedge_argument_fields table;
    const bool in_words = ops->pad_same && cJSON_IsString(fedge_json_get(node, "padding"));
    fedge_layer_fields(layer->type, &table);
    for (fedge_json_field *field = table.fields; in_words && field->key; field++) {
        if (strcmp(field->key, "padding") == 0)
            field->kind = FEDGE_JSON_IGNORED;
    }
    FEDGE_TRY(fedge_json_read(json, node, table.fields, layer, err));
    if (in_words)
        FEDGE_TRY(read_padding(json, node, layer, err));
    if (ops->complete)
        ops->complete(layer);
    return FEDGE_OK;
}

static fedge_status read_layers(const fedge_json *json, const cJSON *node, void *record,
                                fedge_error *err)
{
    fedge_model_spec *model = &((fedge_plan *)record)->model;
    int count = cJSON_GetArraySize(node);
    if (!cJSON_IsArray(node) || count < 1 || count > FEDGE_MAX_LAYERS) {
        return fedge_json_fail(json, node, NULL, err, "must be a list of 1 to %d layers",
                               FEDGE_MAX_LAYERS);
    }
    const cJSON *child = NULL;
    model->num_layers = 0;
    cJSON_ArrayForEach(child, node)
    {
        fedge_layer_spec *layer = &model->layers[model->num_layers];
        unsigned type = 0;
        FEDGE_TRY(
            fedge_argument_type(json, child, "a layer", FEDGE_LAYER_COUNT, layer_name, &type, err));
        layer->type = (fedge_layer_type)type;
        if (!fedge_layer_ops_of(layer->type)) {
            return fedge_json_fail(json, child, "type", err,
                                   "this build has no %s: add it to FEDGE_LAYERS",
                                   layer_name(type));
        }
        FEDGE_TRY(read_arguments(json, child, layer, err));
        FEDGE_TRY(read_inputs(json, child, model, err));
        FEDGE_TRY(check_name(json, child, model, err));
        model->num_layers++;
    }
    return FEDGE_OK;
}

static fedge_status write_layers(const void *record, const char *key, cJSON *object,
                                 fedge_error *err)
{
    const fedge_model_spec *model = &((const fedge_plan *)record)->model;
    cJSON *array = cJSON_AddArrayToObject(object, key);
    for (uint32_t i = 0; i < model->num_layers; i++) {
        const fedge_layer_spec *layer = &model->layers[i];
        cJSON *item = cJSON_CreateObject();
        if (!array || !item || !cJSON_AddItemToArray(array, item)) {
            cJSON_Delete(item);
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
        }
        fedge_argument_fields table;
        fedge_layer_fields(layer->type, &table);
        FEDGE_TRY(fedge_json_write(table.fields, layer, item, err));
        FEDGE_TRY(write_inputs(model, i, item, err));
    }
    return FEDGE_OK;
}

static fedge_status read_loss(const fedge_json *json, const cJSON *node, void *record,
                              fedge_error *err)
{
    fedge_plan *plan = record;
    fedge_argument_fields table;
    unsigned type = 0;
    FEDGE_TRY(fedge_argument_type(json, node, "a loss", FEDGE_LOSS_COUNT, loss_name, &type, err));
    plan->model.loss = (fedge_loss_type)type;
    fedge_loss_fields(plan->model.loss, &table);
    return fedge_json_read(json, node, table.fields, plan, err);
}

static fedge_status write_loss(const void *record, const char *key, cJSON *object, fedge_error *err)
{
    const fedge_plan *plan = record;
    fedge_argument_fields table;
    cJSON *item = cJSON_AddObjectToObject(object, key);
    if (!item)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    fedge_loss_fields(plan->model.loss, &table);
    return fedge_json_write(table.fields, plan, item, err);
}

const fedge_json_field fedge_model_fields[] = {
    {"input-shape", NULL, FEDGE_JSON_U32, REQUIRED | FEDGE_JSON_LIST,
     FEDGE_JSON_ARRAY(fedge_plan, model.input_shape, model.input_rank), .min_count = 1, .min = 1,
     .max = UINT32_MAX},
    {.key = "layers",
     .kind = FEDGE_JSON_CUSTOM,
     .flags = REQUIRED,
     .read = read_layers,
     .write = FEDGE_PLAN_WRITER(write_layers)},
    {.key = "loss",
     .kind = FEDGE_JSON_CUSTOM,
     .read = read_loss,
     .write = FEDGE_PLAN_WRITER(write_loss)},
    {"train-last", "train_last", FEDGE_JSON_U32, FEDGE_JSON_SPARSE, AT(fedge_plan, train_last),
     .min = 0, .max = FEDGE_MAX_LAYERS},
    FEDGE_JSON_END,
};

/* --- external models -------------------------------------------------------------------------- */

/* Small builds are for fedge's own trainer. */
#ifdef FEDGE_SMALL
#define NUM_DTYPES (FEDGE_F32 + 1)
#else
#define NUM_DTYPES (FEDGE_I64 + 1)
#endif

static const char *tensor_type_name(unsigned value)
{
    const fedge_dtype dtype = (fedge_dtype)value;
    return dtype == FEDGE_F32 || dtype == FEDGE_I64 || fedge_dtype_is_half(dtype)
               ? fedge_dtype_name(dtype)
               : NULL;
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
     .name_of = tensor_type_name,
     .num_names = NUM_DTYPES},
#ifndef FEDGE_SMALL
    {.key = "frozen",
     .kind = FEDGE_JSON_BOOL,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_tensor_spec, frozen)},
#endif
    FEDGE_JSON_END,
};

#ifndef FEDGE_SMALL
/* The nearest name of a known type, I64, would not help. */
static fedge_status refuse_f64(const fedge_json *json, const cJSON *node, fedge_error *err)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(node, "dtype");
    return cJSON_IsString(type) && strcmp(type->valuestring, "F64") == 0
               ? fedge_json_fail(
                     json, type, NULL, err,
                     "\"F64\": models of 64-bit floats are not exchanged, since updates "
                     "have 32 bits: write \"F32\", and convert the tensor (PyTorch: "
                     ".float(), NumPy: .astype(np.float32))")
               : FEDGE_OK;
}
#endif

static fedge_status read_tensors(const fedge_json *json, const cJSON *node, void *record,
                                 fedge_error *err)
{
    fedge_plan *plan = record;
    int count = cJSON_GetArraySize(node);
    if (!cJSON_IsArray(node) || count < 1 || count > FEDGE_MAX_TENSORS) {
        return fedge_json_fail(json, node, NULL, err, "must be a list of 1 to %d tensors",
                               FEDGE_MAX_TENSORS);
    }
    const cJSON *child = NULL;
    cJSON_ArrayForEach(child, node)
    {
        fedge_tensor_spec tensor = {0};
        fedge_error cause = {0};
#ifndef FEDGE_SMALL
        FEDGE_TRY(refuse_f64(json, child, err));
#endif
        FEDGE_TRY(fedge_json_read(json, child, fedge_tensor_fields, &tensor, err));
        if (fedge_schema_add(&plan->schema, tensor.name, tensor.dtype, tensor.rank, tensor.shape,
                             &cause) != FEDGE_OK)
            return fedge_json_fail(json, child, NULL, err, "%s", cause.message);
        /* Sums are of floats. */
        plan->schema.tensors[plan->schema.num_tensors - 1].frozen =
            tensor.frozen || tensor.dtype == FEDGE_I64;
    }
    return FEDGE_OK;
}

static fedge_status write_tensors(const void *record, const char *key, cJSON *object,
                                  fedge_error *err)
{
    const fedge_plan *plan = record;
    cJSON *array = cJSON_AddArrayToObject(object, key);
    for (uint32_t i = 0; i < plan->schema.num_tensors; i++) {
        cJSON *item = cJSON_CreateObject();
        if (!array || !item || !cJSON_AddItemToArray(array, item)) {
            cJSON_Delete(item);
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
        }
        FEDGE_TRY(fedge_json_write(fedge_tensor_fields, &plan->schema.tensors[i], item, err));
    }
    return FEDGE_OK;
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
     .write = FEDGE_PLAN_WRITER(write_tensors)},
    FEDGE_JSON_END,
};

/* --- models ----------------------------------------------------------------------------------- */

/* Finds the line of the first bad layer, since edge/train knows no lines: the shortest prefix of
 * the model with the same error ends in it. Only bad jobs pay for these attempts. The plan is not
 * used afterwards. */
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
    fedge_shape input;
    if (fedge_shape_input(&plan->model, &input, &cause) != FEDGE_OK)
        return fedge_json_fail(json, node, "input-shape", err, "%s", cause.message);
    if (fedge_model_schema(&plan->model, &plan->schema, &cause) != FEDGE_OK) {
        return fedge_json_fail(json, find_misfit(node, plan, cause.message), NULL, err, "%s",
                               cause.message);
    }
    plan->num_parameters = plan->schema.num_elements;
    if (fedge_model_buffer_schema(&plan->model, &plan->schema, &cause) != FEDGE_OK)
        return fedge_json_fail(json, node, "layers", err, "%s", cause.message);
    return FEDGE_OK;
}

static bool has_parameters(const fedge_layer_spec *layer)
{
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(layer, list);
    for (uint32_t i = 0; i < n; i++) {
        if (!list[i].buffer)
            return true;
    }
    return false;
}

/* "train-last": k freezes all layers but the last k with parameters. Plans set "train" in each
 * layer instead, so that clients which do not know this key train the same layers. */
static fedge_status freeze_first(const fedge_json *json, const cJSON *node, fedge_plan *plan,
                                 fedge_error *err)
{
    uint32_t left = plan->train_last, found = 0;
    if (left == 0)
        return FEDGE_OK;
    for (uint32_t i = plan->model.num_layers; i-- > 0;) {
        fedge_layer_spec *layer = &plan->model.layers[i];
        if (!has_parameters(layer))
            continue;
        found++;
        if (left == 0 && layer->num_train_channels == 0) {
            layer->train = FEDGE_TRAIN_NONE;
        } else if (left == 0) {
            return fedge_json_fail(json, node, "train-last", err,
                                   "%u freezes layer %u, which has \"train-channels\"; remove one "
                                   "of the two",
                                   (unsigned)plan->train_last, (unsigned)i);
        } else {
            left--;
        }
    }
    if (left > 0) {
        return fedge_json_fail(json, node, "train-last", err,
                               "is %u, but the model has %u layers with parameters",
                               (unsigned)plan->train_last, (unsigned)found);
    }
    plan->train_last = 0;
    return FEDGE_OK;
}

fedge_status fedge_model_read(const fedge_json *json, const cJSON *node, void *record,
                              fedge_error *err)
{
    fedge_plan *plan = record;
    fedge_schema_init(&plan->schema, plan->tensors, FEDGE_MAX_TENSORS);
    plan->external = fedge_json_get(node, "type") != NULL;
    if (plan->external) {
        fedge_status read = fedge_json_read(json, node, fedge_external_fields, plan, err);
        plan->num_parameters = plan->schema.num_elements;
        return read;
    }
    FEDGE_TRY(fedge_json_read(json, node, fedge_model_fields, plan, err));
    FEDGE_TRY(make_schema(json, node, plan, err));
    return freeze_first(json, node, plan, err);
}

fedge_status fedge_model_write(const void *record, const char *key, cJSON *object, fedge_error *err)
{
    const fedge_plan *plan = record;
    cJSON *item = cJSON_AddObjectToObject(object, key);
    if (!item)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    return fedge_json_write(plan->external ? fedge_external_fields : fedge_model_fields, plan, item,
                            err);
}

/* "targets" of a job's data: numbers to learn in place of classes. */
#include <string.h>

#include "edge/plan/plan_fields.h"
#include "edge/train/losses/losses.h"

#if FEDGE_WITH_TARGETS

#define AT FEDGE_JSON_AT

static const char *const WORDS[] = {"classes", "input"};

static const char *dtype_name(unsigned value)
{
    return value == FEDGE_F32 ? "f32" : NULL;
}

const fedge_json_field fedge_targets_fields[] = {
    {.key = "shape",
     .kind = FEDGE_JSON_U32,
     .flags = FEDGE_JSON_LIST,
     FEDGE_JSON_ARRAY(fedge_targets_spec, shape, rank),
     .min = 1,
     .max = UINT32_MAX},
    {.key = "dtype",
     .kind = FEDGE_JSON_ENUM,
     AT(fedge_targets_spec, dtype),
     .name_of = dtype_name,
     .num_names = FEDGE_DTYPE_COUNT,
     .fallback = FEDGE_F32},
    {.key = "columns",
     .kind = FEDGE_JSON_LINES,
     AT(fedge_targets_spec, columns),
     .max = FEDGE_MAX_TARGET_NAME},
    {.key = "mean",
     .kind = FEDGE_JSON_F32,
     .flags = FEDGE_JSON_LIST | FEDGE_JSON_HEAP,
     FEDGE_JSON_HEAP_ARRAY(fedge_targets_spec, mean, num_scales, FEDGE_MAX_NORMALISED)},
    {.key = "std",
     .kind = FEDGE_JSON_F32,
     .flags = FEDGE_JSON_LIST | FEDGE_JSON_HEAP | FEDGE_JSON_SAME_COUNT,
     FEDGE_JSON_HEAP_ARRAY(fedge_targets_spec, std, num_scales, FEDGE_MAX_NORMALISED),
     .min = 1e-30,
     .max = 1e30},
    FEDGE_JSON_END,
};

static uint32_t count_lines(const char *text)
{
    uint32_t count = *text != '\0';
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

/* Reads a list of column names, which is short for {"columns": […]}. */
static fedge_status read_columns(const fedge_json *json, const cJSON *node,
                                 fedge_targets_spec *targets, fedge_error *err)
{
    fedge_json_defaults(fedge_targets_fields, targets);
    const cJSON *item = NULL;
    size_t used = 0;
    cJSON_ArrayForEach(item, node)
    {
        if (used + FEDGE_MAX_TARGET_NAME + 2 > sizeof(targets->columns)) {
            return fedge_json_fail(json, node, NULL, err, "has more than the limit of %zu bytes",
                                   sizeof(targets->columns) - 1);
        }
        if (used > 0)
            targets->columns[used++] = '\n';
        FEDGE_TRY(fedge_json_text(json, item, 1, targets->columns + used, FEDGE_MAX_TARGET_NAME + 1,
                                  err));
        used += strlen(targets->columns + used);
    }
    return used > 0 ? FEDGE_OK
                    : fedge_json_fail(json, node, NULL, err, "must name at least one column");
}

fedge_status fedge_targets_read(const fedge_json *json, const cJSON *node, void *record,
                                fedge_error *err)
{
    fedge_targets_spec *targets = record;
    if (cJSON_IsString(node)) {
        if (strcmp(node->valuestring, WORDS[0]) == 0)
            return FEDGE_OK;
        targets->kind = FEDGE_TARGETS_INPUT;
        return strcmp(node->valuestring, WORDS[1]) == 0
                   ? FEDGE_OK
                   : fedge_json_fail_name(json, node, node->valuestring, WORDS, 2, err);
    }
    targets->kind = FEDGE_TARGETS_NUMBERS;
    if (cJSON_IsArray(node))
        FEDGE_TRY(read_columns(json, node, targets, err));
    else
        FEDGE_TRY(fedge_json_read(json, node, fedge_targets_fields, targets, err));
    const uint32_t columns = count_lines(targets->columns);
    if (targets->rank == 0 && columns == 0)
        return fedge_json_fail(json, node, "shape", err, "is missing; give e.g. [1], or columns");
    if (targets->rank == 0) {
        targets->rank = 1;
        targets->shape[0] = columns;
    }
    return FEDGE_OK;
}

fedge_status fedge_targets_write(const void *value, const char *key, cJSON *object,
                                 fedge_error *err)
{
    const fedge_targets_spec *targets = value;
    if (targets->kind == FEDGE_TARGETS_CLASSES)
        return FEDGE_OK;
    if (targets->kind == FEDGE_TARGETS_INPUT) {
        return cJSON_AddStringToObject(object, key, WORDS[1])
                   ? FEDGE_OK
                   : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    }
    cJSON *item = cJSON_AddObjectToObject(object, key);
    if (!item)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    return fedge_json_write(fedge_targets_fields, targets, item, err);
}

/* What does not depend on the model. */
static fedge_status check_numbers(const fedge_json *json, const fedge_targets_spec *targets,
                                  uint32_t count, fedge_error *err)
{
    const uint32_t columns = count_lines(targets->columns);
    if (columns > 0 && columns != count) {
        return fedge_json_fail_at(json, "data.targets.columns", err,
                                  "are %u, but the shape has %u targets", (unsigned)columns,
                                  (unsigned)count);
    }
    if (targets->num_scales > 1 && targets->num_scales != count) {
        return fedge_json_fail_at(json, "data.targets.mean", err,
                                  "has %u elements; give 1 for all or %u, one for each target",
                                  (unsigned)targets->num_scales, (unsigned)count);
    }
    return FEDGE_OK;
}

fedge_status fedge_targets_check(const fedge_json *json, const fedge_plan *plan, fedge_error *err)
{
    const fedge_targets_spec *targets = &plan->data.targets;
    const uint32_t count = fedge_data_num_targets(&plan->data);
    if (plan->data.num_labels > 0) {
        return fedge_json_fail_at(json, "data.labels", err,
                                  "are for classes, and data.targets for numbers: keep one of the "
                                  "two");
    }
    if (count == 0)
        return fedge_json_fail_at(json, "data.targets.shape", err, "has too many targets");
    FEDGE_TRY(check_numbers(json, targets, count, err));
    if (plan->external)
        return FEDGE_OK;
    const fedge_loss_ops *loss = fedge_loss_ops_of(plan->model.loss);
    const char *name = fedge_loss_type_name(plan->model.loss);
    const uint32_t outputs = fedge_model_num_classes(&plan->model);
    if (loss->needs_labels) {
        return fedge_json_fail_at(json, "model.loss", err,
                                  "%s learns classes, and data.targets are numbers: take MSELoss, "
                                  "L1Loss, SmoothL1Loss, HuberLoss or BCEWithLogitsLoss, or give "
                                  "data.labels in place of data.targets",
                                  name);
    }
    if (loss->target_max > 0 && targets->num_scales > 0) {
        return fedge_json_fail_at(json, "data.targets.mean", err,
                                  "does not go with %s, whose targets are 0 to 1: leave mean and "
                                  "std out",
                                  name);
    }
    if (count != outputs) {
        return fedge_json_fail_at(json, "data.targets", err,
                                  "are %u numbers, but the model's last layer has %u outputs",
                                  (unsigned)count, (unsigned)outputs);
    }
    return FEDGE_OK;
}

#endif

uint32_t fedge_data_num_targets(const fedge_data_spec *data)
{
    const fedge_targets_spec *targets = &data->targets;
    const bool input = targets->kind == FEDGE_TARGETS_INPUT;
    const uint32_t rank = input ? data->rank : targets->rank;
    uint64_t count = 1;
    if (!FEDGE_WITH_TARGETS || targets->kind == FEDGE_TARGETS_CLASSES)
        return 0;
    for (uint32_t i = 0; i < rank && count <= FEDGE_MAX_TARGETS; i++)
        count *= input ? data->shape[i] : targets->shape[i];
    return count <= FEDGE_MAX_TARGETS ? (uint32_t)count : 0;
}

bool fedge_plan_has_errors(const fedge_plan *plan)
{
    return !plan->external && fedge_data_num_targets(&plan->data) > 0 &&
           !plan->data.targets.is_fraction;
}

size_t fedge_plan_scratch_size(const fedge_plan *plan, uint32_t num_examples, uint32_t batch_size)
{
    const size_t size = fedge_trainer_scratch_size(&plan->model, num_examples, batch_size);
    const uint32_t count = fedge_data_num_targets(&plan->data);
    const size_t targets = count > 0 ? fedge_trainer_targets_size(count, batch_size) : 0;
    return size <= SIZE_MAX - targets ? size + targets : SIZE_MAX;
}

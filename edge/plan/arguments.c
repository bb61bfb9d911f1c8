#include "edge/plan/arguments.h"

#include <assert.h>
#include <string.h>

#include "edge/plan/plan.h"
#include "edge/train/losses/losses.h"
#include "edge/train/optimizers/optimizers.h"

#define MAX_TYPES 64

static fedge_json_field make_field(const fedge_argument *from, size_t base)
{
    static const fedge_json_kind KINDS[] = {
        [FEDGE_ARGUMENT_U32] = FEDGE_JSON_U32,   [FEDGE_ARGUMENT_PAIR] = FEDGE_JSON_PAIR,
        [FEDGE_ARGUMENT_BOOL] = FEDGE_JSON_BOOL, [FEDGE_ARGUMENT_F32] = FEDGE_JSON_F32,
        [FEDGE_ARGUMENT_F32S] = FEDGE_JSON_F32,  [FEDGE_ARGUMENT_CHOICE] = FEDGE_JSON_ENUM,
        [FEDGE_ARGUMENT_U32S] = FEDGE_JSON_U32,  [FEDGE_ARGUMENT_I32] = FEDGE_JSON_I32,
    };
    static const uint8_t SIZES[] = {
        [FEDGE_ARGUMENT_U32] = sizeof(uint32_t),  [FEDGE_ARGUMENT_PAIR] = 2 * sizeof(uint32_t),
        [FEDGE_ARGUMENT_BOOL] = sizeof(bool),     [FEDGE_ARGUMENT_F32] = sizeof(float),
        [FEDGE_ARGUMENT_F32S] = sizeof(float),    [FEDGE_ARGUMENT_CHOICE] = sizeof(unsigned),
        [FEDGE_ARGUMENT_U32S] = sizeof(uint32_t), [FEDGE_ARGUMENT_I32] = sizeof(int32_t),
    };
    const bool shown = from->kind == FEDGE_ARGUMENT_BOOL && from->fallback != 0;
    fedge_json_field field = {.key = from->name,
                              .kind = KINDS[from->kind],
                              .flags = from->required ? FEDGE_JSON_REQUIRED
                                       : shown        ? 0
                                                      : FEDGE_JSON_SPARSE,
                              .num_names = (uint16_t)from->num_choices,
                              .offset = (uint32_t)(base + from->offset),
                              .size = SIZES[from->kind],
                              .min = from->min,
                              .max = from->max,
                              .fallback = from->fallback,
                              .name_of = from->choice_name};
    if (from->kind == FEDGE_ARGUMENT_F32S || from->kind == FEDGE_ARGUMENT_U32S) {
        const bool pair = from->kind == FEDGE_ARGUMENT_F32S;
        field.flags = FEDGE_JSON_LIST | (from->required ? FEDGE_JSON_REQUIRED : 0);
        field.extra = (uint32_t)(base + from->extra);
        field.min_count = pair ? 2 : 1;
        field.max_count = pair ? 2 : 3;
    }
    return field;
}

/* "type", then [arguments], which lie in a struct at [base]. */
static void make_fields(const char *type, const fedge_argument *arguments, size_t base,
                        fedge_argument_fields *out)
{
    unsigned n = 0;
    *out = (fedge_argument_fields){.type = {type, NULL}};
    out->fields[n++] = (fedge_json_field){
        .key = "type", .kind = FEDGE_JSON_NAME, .flags = FEDGE_JSON_REQUIRED, .choices = out->type};
    for (; arguments && arguments->name; arguments++) {
        assert(n + 6 < FEDGE_MAX_ARGUMENT_FIELDS); /* five more of a layer, and the end */
        out->fields[n++] = make_field(arguments, base);
    }
}

static const char *train_mode_name(unsigned value)
{
    static const char *const NAMES[FEDGE_TRAIN_MODE_COUNT] = {
        [FEDGE_TRAIN_ALL] = "all", [FEDGE_TRAIN_NONE] = "none", [FEDGE_TRAIN_BIAS] = "bias"};
    return value < FEDGE_TRAIN_MODE_COUNT ? NAMES[value] : NULL;
}

void fedge_layer_fields(fedge_layer_type type, fedge_argument_fields *out)
{
    make_fields(fedge_layer_type_name(type), fedge_layer_ops_of(type)->arguments, 0, out);
    unsigned n = 0;
    while (out->fields[n].key)
        n++;
    memmove(&out->fields[2], &out->fields[1], (n - 1) * sizeof(out->fields[0]));
    out->fields[1] = (fedge_json_field){
        .key = "name", .kind = FEDGE_JSON_TEXT, FEDGE_JSON_AT(fedge_layer_spec, name), .min = 1};
    out->fields[n + 1] = (fedge_json_field){.key = "inputs", .kind = FEDGE_JSON_IGNORED};
    out->fields[n + 2] = (fedge_json_field){.key = "train",
                                            .kind = FEDGE_JSON_ENUM,
                                            .flags = FEDGE_JSON_SPARSE,
                                            FEDGE_JSON_AT(fedge_layer_spec, train),
                                            .name_of = train_mode_name,
                                            .num_names = FEDGE_TRAIN_MODE_COUNT};
    out->fields[n + 3] =
        (fedge_json_field){.key = "train-channels",
                           .kind = FEDGE_JSON_U32,
                           .flags = FEDGE_JSON_LIST,
                           FEDGE_JSON_ARRAY(fedge_layer_spec, train_channels, num_train_channels),
                           .min_count = 2,
                           .min = 0,
                           .max = UINT32_MAX};
    out->fields[n + 4] = (fedge_json_field){.key = "recompute",
                                            .kind = FEDGE_JSON_BOOL,
                                            .flags = FEDGE_JSON_SPARSE,
                                            FEDGE_JSON_AT(fedge_layer_spec, recompute)};
}

void fedge_loss_fields(fedge_loss_type type, fedge_argument_fields *out)
{
    make_fields(fedge_loss_type_name(type), fedge_loss_ops_of(type)->arguments,
                offsetof(fedge_plan, model), out);
}

void fedge_optimizer_fields(fedge_optimizer_type type, fedge_argument_fields *out)
{
    make_fields(fedge_optimizer_type_name(type), fedge_optimizer_ops_of(type)->arguments, 0, out);
}

/* What PyTorch has and fedge has in another way. */
static const char *other_way(const char *type)
{
    if (strstr(type, "Softmax"))
        return "leave it out: the loss takes logits";
    if (strncmp(type, "BatchNorm", 9) == 0)
        return "BatchNorm2d takes [channels, height, width]; else take LayerNorm or GroupNorm";
    return strcmp(type, "NLLLoss") == 0 ? "CrossEntropyLoss takes logits" : NULL;
}

fedge_status fedge_argument_type(const fedge_json *json, const cJSON *node, const char *what,
                                 unsigned count, const char *(*name_of)(unsigned), unsigned *type,
                                 fedge_error *err)
{
    const char *names[MAX_TYPES];
    const cJSON *item = fedge_json_get(node, "type");
    assert(count <= MAX_TYPES);
    if (!cJSON_IsObject(node))
        return fedge_json_fail(json, node, NULL, err, "must be an object, {…}");
    if (!cJSON_IsString(item))
        return fedge_json_fail(json, node, "type", err, "is missing, or not a text");
    for (*type = 0; *type < count; ++*type) {
        names[*type] = name_of(*type);
        if (strcmp(names[*type], item->valuestring) == 0)
            return FEDGE_OK;
    }
    const char *other = other_way(item->valuestring);
    const char *nearest = other ? NULL : fedge_json_nearest(item->valuestring, names, count);
    return fedge_json_fail(json, item, NULL, err, "\"%.64s\" is not %s of this release%s%s%s; %s",
                           item->valuestring, what, nearest ? "; did you mean \"" : "",
                           nearest ? nearest : "", nearest ? "\"?" : "",
                           other ? other : "docs/jobs.md lists them");
}

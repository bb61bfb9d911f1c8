#include "edge/plan/plan_fields.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "edge/plan/plan.h"
#include "edge/train/layers/layer.h"
#include "edge/train/losses/losses.h"
#include "edge/train/optimizers/optimizers.h"

#define MAX_TYPES 64
#define AT FEDGE_JSON_AT
#define REQUIRED FEDGE_JSON_REQUIRED
#define MAX_PADDING 65535

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

/* Makes "type", then [arguments], which are members of a struct at [base]. */
static void make_fields(const char *type, const fedge_argument *arguments, size_t base,
                        fedge_argument_fields *out)
{
    unsigned n = 0;
    *out = (fedge_argument_fields){.type = {type, NULL}};
    out->fields[n++] = (fedge_json_field){
        .key = "type", .kind = FEDGE_JSON_NAME, .flags = FEDGE_JSON_REQUIRED, .choices = out->type};
    for (; arguments && arguments->name; arguments++) {
        assert(n + 6 < FEDGE_MAX_ARGUMENT_FIELDS); /* "type", four others of a layer, and the end */
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

/* PyTorch's arguments that fedge expresses in another way. */
static const char *other_way(const char *type)
{
    if (strstr(type, "Softmax"))
        return "leave it out: the loss takes logits";
    if (strncmp(type, "BatchNorm", 9) == 0)
        return "take BatchNorm1d or BatchNorm2d";
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
                           other ? other : "docs/reference/job.md lists them");
}

/* ---- schedules ------------------------------------------------------------------------------- */

/* Schedules of learning rates in jobs and plans. */

static const char *schedule_name(unsigned type)
{
    return fedge_schedule_type_name((fedge_schedule_type)type);
}

static const char *anneal_name(unsigned strategy)
{
    return fedge_anneal_strategy_name((fedge_anneal_strategy)strategy);
}

const fedge_json_field fedge_schedule_fields[] = {
    {.key = "type",
     .kind = FEDGE_JSON_ENUM,
     AT(fedge_schedule, type),
     .name_of = schedule_name,
     .num_names = FEDGE_SCHEDULE_COUNT},
    {.key = "step_size",
     .kind = FEDGE_JSON_U32,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_schedule, step_size),
     .min = 1,
     .max = 1e9,
     .fallback = 1},
    {.key = "gamma",
     .kind = FEDGE_JSON_F32,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_schedule, gamma),
     .min = 0,
     .max = 1e6,
     .fallback = 0.1},
    {.key = "T_max",
     .kind = FEDGE_JSON_U32,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_schedule, t_max),
     .min = 1,
     .max = 1e9,
     .fallback = 1},
    {.key = "eta_min",
     .kind = FEDGE_JSON_F32,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_schedule, eta_min),
     .min = 0,
     .max = 1e6},
    {"warmup-rounds", "warmup_rounds", FEDGE_JSON_U32, FEDGE_JSON_SPARSE,
     AT(fedge_schedule, warmup_rounds), .min = 0, .max = 1e9},
    {.key = "total_steps",
     .kind = FEDGE_JSON_U32,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_schedule, total_steps),
     .min = 1,
     .max = 1e9,
     .fallback = 1},
    {.key = "pct_start",
     .kind = FEDGE_JSON_F32,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_schedule, pct_start),
     .min = 0,
     .max = 1,
     .fallback = 0.3},
    {.key = "anneal_strategy",
     .kind = FEDGE_JSON_ENUM,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_schedule, anneal_strategy),
     .name_of = anneal_name,
     .num_names = FEDGE_ANNEAL_COUNT},
    {.key = "div_factor",
     .kind = FEDGE_JSON_F32,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_schedule, div_factor),
     .min = 1,
     .max = 1e9,
     .fallback = 25},
    {.key = "final_div_factor",
     .kind = FEDGE_JSON_F32,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_schedule, final_div_factor),
     .min = 1,
     .max = 1e9,
     .fallback = 1e4},
    {.key = "three_phase",
     .kind = FEDGE_JSON_BOOL,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_schedule, three_phase)},
    FEDGE_JSON_END,
};

/* The member at a path such as "training.schedule", or NULL. */
static const cJSON *find_node(const fedge_json *json, const char *path)
{
    const cJSON *node = json->root;
    while (node && *path != '\0') {
        char key[64];
        const size_t length = strcspn(path, ".");
        (void)snprintf(key, sizeof(key), "%.*s", (int)length, path);
        node = fedge_json_get(node, key);
        path += length + (path[length] == '.');
    }
    return node;
}

#define OF_ONE_CYCLE                                                                               \
    "total_steps, pct_start, anneal_strategy, div_factor, final_div_factor, three_phase and "

fedge_status fedge_schedule_check(const fedge_json *json, const char *path,
                                  const fedge_schedule *schedule, fedge_error *err)
{
    enum {
        STEP = 1 << FEDGE_SCHEDULE_STEP,
        COSINE = 1 << FEDGE_SCHEDULE_COSINE,
        CYCLE = 1 << FEDGE_SCHEDULE_ONE_CYCLE
    };
    static const struct {
        const char *key;
        unsigned of; /* a bit for each type that has it */
    } keys[] = {{"step_size", STEP},         {"gamma", STEP | 1 << FEDGE_SCHEDULE_EXPONENTIAL},
                {"T_max", COSINE},           {"eta_min", COSINE},
                {"total_steps", CYCLE},      {"pct_start", CYCLE},
                {"anneal_strategy", CYCLE},  {"div_factor", CYCLE},
                {"final_div_factor", CYCLE}, {"three_phase", CYCLE}};
    static const char *const TAKES[] = {[FEDGE_SCHEDULE_CONSTANT] = "",
                                        [FEDGE_SCHEDULE_STEP] = "step_size, gamma and ",
                                        [FEDGE_SCHEDULE_EXPONENTIAL] = "gamma and ",
                                        [FEDGE_SCHEDULE_COSINE] = "T_max, eta_min and ",
                                        [FEDGE_SCHEDULE_ONE_CYCLE] = OF_ONE_CYCLE};
    const cJSON *node = find_node(json, path);
    for (size_t i = 0; node && i < sizeof(keys) / sizeof(keys[0]); i++) {
        char at[FEDGE_JSON_MAX_PATH];
        (void)snprintf(at, sizeof(at), "%s.%s", path, keys[i].key);
        if (fedge_json_get(node, keys[i].key) && !(keys[i].of >> schedule->type & 1)) {
            return fedge_json_fail_at(json, at, err,
                                      "is not an argument of %s, which takes %swarmup-rounds; "
                                      "remove it, or change the type",
                                      schedule_name(schedule->type), TAKES[schedule->type]);
        }
    }
    if (schedule->type == FEDGE_SCHEDULE_ONE_CYCLE && !fedge_json_get(node, "total_steps")) {
        return fedge_json_fail_at(json, path, err,
                                  "has no total_steps, which OneCycleLR needs: give the number of "
                                  "rounds, such as num-server-rounds");
    }
    return FEDGE_OK;
}

/* ---- augmentation ---------------------------------------------------------------------------- */

static const fedge_json_field CROP[] = {
    {.key = "padding",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED,
     AT(fedge_data_spec, crop_padding),
     .min = 1,
     .max = MAX_PADDING},
    FEDGE_JSON_END,
};

const fedge_json_field fedge_augmentation_fields[] = {
    {"horizontal-flip", "horizontal_flip", FEDGE_JSON_F32, FEDGE_JSON_SPARSE,
     AT(fedge_data_spec, horizontal_flip), .min = 0, .max = 1},
    {.key = "crop",
     .kind = FEDGE_JSON_OBJECT,
     .flags = FEDGE_JSON_PRESENCE,
     .extra = offsetof(fedge_data_spec, has_crop),
     .fields = CROP},
    FEDGE_JSON_END,
};

/* Whether examples of two dimensions are [steps, features] rather than [channels, length]. */
static bool reads_steps(const fedge_model_spec *model)
{
    return (fedge_layer_ops_of(model->layers[0].type)->flags & FEDGE_X_IS_STEPS) != 0;
}

float fedge_data_normalise(const fedge_data_spec *spec, uint32_t channel, float v)
{
    const float x = v / spec->divide_by;
    return spec->num_channels == 0 ? x : (x - spec->mean[channel]) / spec->std[channel];
}

fedge_status fedge_augmentation_check(const fedge_json *json, const fedge_plan *plan,
                                      fedge_error *err)
{
    const fedge_data_spec *data = &plan->data;
    const char *path = "data.augmentation";
    if (!data->has_augmentation)
        return FEDGE_OK;
    if (plan->external) {
        return fedge_json_fail_at(json, path, err,
                                  "is for models that fedge trains; remove it, and let your own "
                                  "trainer augment");
    }
    if (data->rank == 1 || (data->rank == 2 && reads_steps(&plan->model))) {
        return fedge_json_fail_at(json, path, err,
                                  "is for [channels, height, width] and [channels, length], not "
                                  "for %s; remove it",
                                  data->rank == 1 ? "[features]" : "[steps, features]");
    }
    if (data->has_crop && data->num_channels > FEDGE_AUGMENT_MAX_FILL) {
        return fedge_json_fail_at(json, "data.augmentation.crop", err,
                                  "is for a mean of up to %d values, not of %u; give one for all",
                                  FEDGE_AUGMENT_MAX_FILL, (unsigned)data->num_channels);
    }
    for (uint32_t i = 1; data->has_crop && i < data->rank; i++) {
        if (data->crop_padding >= data->shape[i]) {
            return fedge_json_fail_at(json, "data.augmentation.crop.padding", err,
                                      "is %u, but examples have a side of %u; lower it",
                                      (unsigned)data->crop_padding, (unsigned)data->shape[i]);
        }
    }
    return FEDGE_OK;
}

fedge_examples fedge_plan_augment(const fedge_plan *plan, const fedge_trainer_config *config,
                                  const fedge_examples *examples, fedge_augmented *augmented)
{
    const fedge_data_spec *data = &plan->data;
    if (!data->has_augmentation)
        return *examples;
    fedge_augmentation how = {
        .channels = data->shape[0],
        .height = data->rank == 3 ? data->shape[1] : 1,
        .width = data->shape[data->rank - 1],
        .horizontal_flip = data->horizontal_flip,
        .crop_padding = data->has_crop ? data->crop_padding : 0,
        .num_fill = data->has_crop && data->num_channels > 1 ? data->num_channels : 1};
    for (uint32_t c = 0; c < how.num_fill; c++)
        how.fill[c] = fedge_data_normalise(data, c, 0.0f);
    return fedge_augment(augmented, &how, examples, config);
}

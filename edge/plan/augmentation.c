#include "edge/plan/plan_fields.h"
#include "edge/train/layers/layer.h"

#define REQUIRED FEDGE_JSON_REQUIRED
#define AT FEDGE_JSON_AT
#define MAX_PADDING 65535

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

/* Are examples of two dimensions [steps, features] rather than [channels, length]? */
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

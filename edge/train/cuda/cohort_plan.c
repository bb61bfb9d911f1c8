#include "edge/train/cuda/cohort_plan.h"

#include <string.h>

#include "edge/train/layer.h"
#include "edge/train/optimizers.h"

#define ALIGNMENT 256                    /* bytes; of arrays, as cudaMalloc's */
#define MOST_PADDING 16383               /* of a crop: moves are of 16 bits */
#define LINE 32                          /* floats; of a slot's parameters */
#define MOST_TOLD ((size_t)8 << 20)      /* bytes of the steps that are told at a time */
#define MOST_VALUES ((size_t)UINT32_MAX) /* of a slot's array: kernels count them in 32 bits */

/* ---- what it can do
 * -------------------------------------------------------------------------- */

static fedge_status refuse(const char *what, fedge_error *err)
{
    return fedge_fail(err, FEDGE_UNSUPPORTED,
                      "%s: GPUs do not train with it yet: take --engine cpu", what);
}

static fedge_status check_options(const fedge_cohort_config *config, fedge_error *err)
{
    const fedge_model_options *options = config->options;
    if (config->model->loss != FEDGE_LOSS_CROSS_ENTROPY) {
        return refuse(fedge_loss_type_name(config->model->loss), err);
    }
    if (options->precision != FEDGE_PRECISION_FP32) {
        return refuse(fedge_precision_name(options->precision), err);
    }
    if (options->weights != FEDGE_STORAGE_FP32 || options->activations != FEDGE_STORAGE_FP32) {
        return refuse("storage of 16 bits", err);
    }
    if (config->augmentation && config->augmentation->crop_padding > MOST_PADDING) {
        return refuse("a crop's padding of over 16383", err);
    }
    return FEDGE_OK;
}

/* Does layer [index] read what the one before it makes? */
static bool follows(const fedge_layer_spec *layer, uint32_t index)
{
    const uint16_t before = index == 0 ? FEDGE_INPUT_MODEL : (uint16_t)(index - 1);
    return layer->num_inputs == 0 || (layer->num_inputs == 1 && layer->inputs[0] == before);
}

static fedge_status check_layer(const fedge_model_spec *spec, uint32_t index, fedge_error *err)
{
    const fedge_layer_spec *layer = &spec->layers[index];
    const fedge_cohort_layer_ops *ops = fedge_cohort_layer_ops_of(layer->type);
    const char *why = ops && ops->refuse ? ops->refuse(layer) : NULL;
    if (ops && !follows(layer, index)) {
        why = "its inputs";
    }
    if (ops && !why) {
        return FEDGE_OK;
    }
    const fedge_status status =
        why ? refuse(why, err)
            : fedge_fail(err, FEDGE_UNSUPPORTED, "GPUs do not train it yet: take --engine cpu");
    return fedge_layer_fail(spec, index, status, err);
}

fedge_status fedge_cohort_check(const fedge_cohort_config *config, fedge_error *err)
{
    fedge_status status = check_options(config, err);
    for (uint32_t i = 0; i < config->model->num_layers && status == FEDGE_OK; i++) {
        status = check_layer(config->model, i, err);
    }
    return status;
}

/* ---- sizes
 * -----------------------------------------------------------------------------------
 */

static size_t parameters_of(const fedge_layer_spec *layer)
{
    fedge_layer_tensor tensors[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(layer, tensors);
    size_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        count += fedge_layer_tensor_count(&tensors[i]);
    }
    return count;
}

/* Adds the layer's values that are trained, from value [first] on. False: too many pieces. */
static bool add_ranges(fedge_cohort_plan *plan, const fedge_layer_spec *layer, size_t first)
{
    fedge_layer_tensor tensors[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(layer, tensors);
    for (uint32_t t = 0; t < n; t++) {
        const size_t count = fedge_layer_tensor_count(&tensors[t]);
        uint32_t begin = 0, end = 0;
        fedge_layer_trained_rows(layer, &tensors[t], &begin, &end);
        const size_t row = count / tensors[t].shape[0], at = first + begin * row;
        uint32_t *last = plan->num_ranges > 0 ? plan->ranges[plan->num_ranges - 1] : NULL;
        if (end > begin && last && last[0] + last[1] == at) {
            last[1] += (uint32_t)((end - begin) * row);
        } else if (end > begin && plan->num_ranges == FEDGE_COHORT_MAX_RANGES) {
            return false;
        } else if (end > begin) {
            plan->ranges[plan->num_ranges][0] = (uint32_t)at;
            plan->ranges[plan->num_ranges++][1] = (uint32_t)((end - begin) * row);
        }
        first += count;
    }
    return true;
}

/* One layer; [shape] becomes its output's. */
static fedge_status add_layer(fedge_cohort_plan *plan, const fedge_model_spec *spec, uint32_t index,
                              fedge_shape *shape, fedge_error *err)
{
    fedge_cohort_layer *layer = &plan->layers[index];
    const bool first = plan->num_ranges == 0;
    *layer = (fedge_cohort_layer){.ops = fedge_cohort_layer_ops_of(spec->layers[index].type),
                                  .spec = spec->layers[index],
                                  .in = *shape,
                                  .first_value = plan->num_values};
    const fedge_status status = fedge_shape_advance(spec, index, shape, err);
    layer->out = *shape;
    const size_t values = fedge_shape_count(shape);
    plan->most = values > plan->most ? values : plan->most;
    if (status == FEDGE_OK && !add_ranges(plan, &layer->spec, plan->num_values)) {
        return refuse("training so many parts of layers", err);
    }
    plan->lowest = first && plan->num_ranges > 0 ? index : plan->lowest;
    plan->num_values += parameters_of(&layer->spec);
    return status;
}

fedge_status fedge_cohort_plan_make(fedge_cohort_plan *plan, const fedge_cohort_config *config,
                                    fedge_error *err)
{
    const fedge_model_spec *spec = config->model;
    fedge_shape shape = {0};
    *plan = (fedge_cohort_plan){.options = config->options,
                                .augments = config->augmentation != NULL,
                                .num_layers = spec->num_layers,
                                .batch = config->options->max_batch,
                                .num_states = fedge_optimizer_states(config->options),
                                .smoothing = spec->label_smoothing};
    fedge_status status = fedge_cohort_check(config, err);
    if (status == FEDGE_OK) {
        status = fedge_shape_input(spec, &shape, err);
    }
    plan->input = plan->most = fedge_shape_count(&shape);
    for (uint32_t i = 0; i < spec->num_layers && status == FEDGE_OK; i++) {
        status = add_layer(plan, spec, i, &shape, err);
    }
    plan->classes = shape.dims[0];
    plan->stride = (plan->num_values + LINE - 1) / LINE * LINE;
    if (status == FEDGE_OK &&
        (plan->num_values > MOST_VALUES || plan->most > MOST_VALUES / plan->batch)) {
        status = fedge_fail(err, FEDGE_UNSUPPORTED,
                            "a batch of %u examples of %zu values: GPUs take up to %zu in all: use "
                            "a smaller batch-size or --engine cpu",
                            (unsigned)plan->batch, plan->most, MOST_VALUES);
    }
    return status;
}

/* ---- places
 * ----------------------------------------------------------------------------------
 */

typedef struct places {
    char *block;
    size_t used;
} places;

static void *take(places *from, size_t count, size_t size)
{
    char *at = from->block ? from->block + from->used : NULL;
    from->used += (count * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

size_t fedge_cohort_place_slots(fedge_cohort_plan *plan, fedge_cohort_arrays *arrays, char *block,
                                uint32_t slots, uint32_t run)
{
    places from = {.block = block};
    const size_t parameters = slots * plan->stride, examples = (size_t)slots * plan->batch;
    const bool training = plan->options->training;
    arrays->values = take(&from, training ? parameters : 0, sizeof(float));
    arrays->gradients = take(&from, training ? parameters : 0, sizeof(float));
    for (uint32_t i = 0; i < 2; i++) {
        const bool kept = i < plan->num_states;
        void *state = take(&from, kept ? parameters : 0, sizeof(float));
        arrays->states[i] = kept ? state : NULL;
        arrays->between[i] = take(&from, examples * plan->most, sizeof(float));
    }
    void *corrections = take(&from, plan->options->correction ? parameters : 0, sizeof(float));
    arrays->corrections = plan->options->correction ? corrections : NULL;
    arrays->squares = take(&from, plan->options->clip ? (size_t)slots * FEDGE_COHORT_NORM_PARTS : 0,
                           sizeof(double));
    arrays->tallies = take(&from, slots, sizeof(*arrays->tallies));
    arrays->turns = take(&from, (size_t)run * slots, sizeof(*arrays->turns));
    arrays->indices = take(&from, run * examples, sizeof(*arrays->indices));
    void *moves = take(&from, plan->augments ? run * examples : 0, sizeof(*arrays->moves));
    arrays->moves = plan->augments ? moves : NULL;
    arrays->predicted = take(&from, run * examples, sizeof(*arrays->predicted));
    arrays->input = take(&from, examples * plan->input, sizeof(float));
    float *x = arrays->input;
    for (uint32_t i = 0; i < plan->num_layers; i++) {
        fedge_cohort_layer *layer = &plan->layers[i];
        layer->x = x;
        layer->y = layer->ops->in_place
                       ? x
                       : take(&from, examples * fedge_shape_count(&layer->out), sizeof(float));
        layer->saved =
            take(&from, layer->ops->saved ? examples * layer->ops->saved(&layer->out) : 0, 1);
        x = layer->y;
    }
    return from.used;
}

size_t fedge_cohort_place_shared(const fedge_cohort_plan *plan, const fedge_cohort_config *config,
                                 fedge_cohort_arrays *arrays, char *block)
{
    places from = {.block = block};
    const size_t value = config->dtype == FEDGE_U8 ? 1 : sizeof(float);
    arrays->start = take(&from, plan->num_values, sizeof(float));
    arrays->pieces = take(&from, config->num_pieces, sizeof(*arrays->pieces));
    arrays->mean = take(&from, config->num_channels, sizeof(float));
    arrays->std = take(&from, config->num_channels, sizeof(float));
    for (uint32_t i = 0; i < FEDGE_COHORT_SETS; i++) {
        const size_t count = config->sets[i].count;
        arrays->sets[i].values = take(&from, count * plan->input, value);
        arrays->sets[i].labels = take(&from, count, sizeof(int32_t));
    }
    return from.used;
}

/* Bytes that are told of an example. */
static size_t example_told(const fedge_cohort_plan *plan)
{
    return sizeof(uint32_t) + (plan->augments ? sizeof(fedge_cohort_move) : 0);
}

uint32_t fedge_cohort_run_of(const fedge_cohort_plan *plan, uint32_t slots)
{
    const size_t step = slots * (sizeof(fedge_cohort_turn) + plan->batch * example_told(plan));
    const size_t run = MOST_TOLD / step;
    return run > FEDGE_COHORT_MAX_RUN ? FEDGE_COHORT_MAX_RUN : run > 0 ? (uint32_t)run : 1;
}

size_t fedge_cohort_host_bytes(const fedge_cohort_plan *plan, uint32_t slots)
{
    const size_t told =
        (size_t)fedge_cohort_run_of(plan, slots) * slots *
        (sizeof(fedge_cohort_turn) + plan->batch * (example_told(plan) + sizeof(int32_t)));
    return 2 * told + (FEDGE_COHORT_RING + 3) * (plan->stride * sizeof(float)) +
           FEDGE_COHORT_RING * sizeof(fedge_cohort_tally);
}

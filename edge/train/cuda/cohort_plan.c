#include "edge/train/cuda/cohort_plan.h"

#include <string.h>

#include "edge/train/layers/layer.h"
#include "edge/train/optimizers/optimizers.h"

#define ALIGNMENT 256                    /* bytes; cudaMalloc's alignment, kept for every array */
#define MOST_PADDING 16383               /* padding of a crop; fedge_cohort_move has 16 bits */
#define LINE 32                          /* floats; a slot's stride is a multiple of it */
#define MOST_BUFFERED ((size_t)8 << 20)  /* bytes per upload of steps */
#define MOST_VALUES ((size_t)UINT32_MAX) /* values of a slot's array; kernels index by 32 bits */

/* ---- support --------------------------------------------------------------------------------- */

static fedge_status refuse(const char *what, fedge_error *err)
{
    return fedge_fail(err, FEDGE_UNSUPPORTED,
                      "%s: GPUs do not train with it yet: take --engine cpu", what);
}

static fedge_status check_options(const fedge_cohort_config *config, fedge_error *err)
{
    const fedge_model_options *options = config->options;
    if (options->precision == FEDGE_PRECISION_INT8)
        return refuse(fedge_precision_name(options->precision), err);
    if (options->weights != FEDGE_STORAGE_FP32 || options->activations != FEDGE_STORAGE_FP32)
        return refuse("storage of 16 bits", err);
    if (options->optimizer > FEDGE_OPTIMIZER_ADAMW)
        return refuse(fedge_optimizer_type_name(options->optimizer), err);
    if (config->augmentation && config->augmentation->crop_padding > MOST_PADDING)
        return refuse("a crop's padding of over 16383", err);
    return FEDGE_OK;
}

static uint32_t loss_of(fedge_loss_type loss)
{
    static const uint32_t FUNCTIONS[FEDGE_LOSS_COUNT] = {
        [FEDGE_LOSS_CROSS_ENTROPY] = FEDGE_COHORT_CROSS_ENTROPY,
        [FEDGE_LOSS_BCE_WITH_LOGITS] = FEDGE_COHORT_BCE_WITH_LOGITS,
        [FEDGE_LOSS_MSE] = FEDGE_COHORT_MSE,
        [FEDGE_LOSS_L1] = FEDGE_COHORT_L1,
        [FEDGE_LOSS_HUBER] = FEDGE_COHORT_HUBER,
        [FEDGE_LOSS_SMOOTH_L1] = FEDGE_COHORT_SMOOTH_L1,
    };
    return FUNCTIONS[loss];
}

static float loss_argument(const fedge_model_spec *spec)
{
    return spec->loss == FEDGE_LOSS_CROSS_ENTROPY ? spec->label_smoothing
           : spec->loss_delta == 0.0f             ? 1.0f
                                                  : spec->loss_delta;
}

static bool reads_model(const fedge_layer_spec *layer, uint32_t index)
{
    return layer->num_inputs == 0 ? index == 0 : layer->inputs[0] == FEDGE_INPUT_MODEL;
}

static fedge_status check_layer(const fedge_cohort_config *config, uint32_t index, fedge_error *err)
{
    const fedge_model_spec *spec = config->model;
    const fedge_layer_spec *layer = &spec->layers[index];
    const fedge_cohort_layer_ops *ops = fedge_cohort_layer_ops_of(layer->type);
    const char *why = ops && ops->refuse ? ops->refuse(layer) : NULL;
    /* Only indices that are examples' values have been checked. */
    if (layer->type == FEDGE_LAYER_EMBEDDING && !reads_model(layer, index))
        why = "its inputs";
    if (ops && ops->batch_coupled && ops->batch_coupled(layer) && config->options->micro_batch > 0)
        why = "micro-batches of its batch";
    if (ops && !why)
        return FEDGE_OK;
    const fedge_status status =
        why ? refuse(why, err)
            : fedge_fail(err, FEDGE_UNSUPPORTED, "GPUs do not train it yet: take --engine cpu");
    return fedge_layer_fail(spec, index, status, err);
}

fedge_status fedge_cohort_check(const fedge_cohort_config *config, fedge_error *err)
{
    FEDGE_TRY(check_options(config, err));
    for (uint32_t i = 0; i < config->model->num_layers; i++)
        FEDGE_TRY(check_layer(config, i, err));
    return FEDGE_OK;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* The number of a layer's parameters, or with [buffers] of its statistics. */
static size_t values_of(const fedge_layer_spec *layer, bool buffers)
{
    fedge_layer_tensor tensors[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(layer, tensors);
    size_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += tensors[i].buffer == buffers ? fedge_layer_tensor_count(&tensors[i]) : 0;
    return count;
}

/* Adds the ranges of the layer's trained values; its parameters begin at value [first]. False:
 * there are too many ranges. */
static bool add_ranges(fedge_cohort_plan *plan, const fedge_layer_spec *layer, size_t first)
{
    fedge_layer_tensor tensors[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(layer, tensors);
    for (uint32_t t = 0; t < n; t++) {
        const size_t count = fedge_layer_tensor_count(&tensors[t]);
        uint32_t begin = 0, end = 0;
        if (tensors[t].buffer)
            continue;
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

bool fedge_cohort_batch_coupled(const fedge_model_spec *model)
{
    bool batch_coupled = false;
    for (uint32_t i = 0; i < model->num_layers; i++) {
        const fedge_cohort_layer_ops *ops = fedge_cohort_layer_ops_of(model->layers[i].type);
        batch_coupled |= ops && ops->batch_coupled && ops->batch_coupled(&model->layers[i]);
    }
    return batch_coupled;
}

/* Finds a layer's inputs and its shapes. The model's input has plan->shape. */
static fedge_status connect(fedge_cohort_plan *plan, const fedge_model_spec *spec, uint32_t index,
                            fedge_error *err)
{
    fedge_cohort_layer *layer = &plan->layers[index];
    fedge_shape in[FEDGE_MAX_LAYER_INPUTS];
    FEDGE_TRY(fedge_layer_sources(spec, index, layer->inputs, &layer->num_inputs, err));
    for (uint32_t k = 0; k < layer->num_inputs; k++) {
        const uint16_t from = layer->inputs[k];
        in[k] = from == FEDGE_INPUT_MODEL ? plan->shape : plan->layers[from].out;
        layer->wants |= from != FEDGE_INPUT_MODEL && plan->layers[from].wants;
        plan->is_chain &= from == (index == 0 ? FEDGE_INPUT_MODEL : index - 1);
    }
    layer->in = in[0];
    return fedge_shape_infer(spec, index, in, layer->num_inputs, &layer->out, err);
}

/* Sets each layer's offset of statistics, which follow all parameters, and of random words. */
static void finish_offsets(fedge_cohort_plan *plan)
{
    uint64_t all = 0;
    plan->num_state += plan->num_values;
    for (uint32_t i = 0; i < plan->num_layers; i++) {
        fedge_cohort_layer *layer = &plan->layers[i];
        layer->first_buffer += plan->num_values;
        layer->drawn_before = all;
        all += layer->ops->draws ? layer->ops->draws(layer) : 0;
    }
    for (uint32_t i = 0; i < plan->num_layers; i++)
        plan->layers[i].drawn_all = all;
}

static fedge_status add_layer(fedge_cohort_plan *plan, const fedge_model_spec *spec, uint32_t index,
                              fedge_error *err)
{
    fedge_cohort_layer *layer = &plan->layers[index];
    const uint32_t before = plan->num_ranges;
    const uint32_t tail = before > 0 ? plan->ranges[before - 1][1] : 0;
    *layer = (fedge_cohort_layer){.ops = fedge_cohort_layer_ops_of(spec->layers[index].type),
                                  .spec = spec->layers[index],
                                  .first_value = plan->num_values};
    FEDGE_TRY(connect(plan, spec, index, err));
    const size_t values = fedge_shape_count(&layer->out);
    plan->most = values > plan->most ? values : plan->most;
    if (!add_ranges(plan, &layer->spec, plan->num_values)) {
        const fedge_status refused =
            fedge_fail(err, FEDGE_UNSUPPORTED,
                       "with it over %d stretches of values are trained that "
                       "frozen ones part, and GPUs take no more: freeze "
                       "neighbours alike, or take --engine cpu",
                       FEDGE_COHORT_MAX_RANGES);
        return fedge_layer_fail(spec, index, refused, err);
    }
    layer->trains = plan->num_ranges > before || (before > 0 && plan->ranges[before - 1][1] > tail);
    layer->wants |= layer->trains;
    layer->first_buffer = plan->num_state; /* relative to the end of all parameters */
    plan->num_values += values_of(&layer->spec, false);
    plan->num_state += values_of(&layer->spec, true);
    return FEDGE_OK;
}

/* Counts the readers of each layer's output. Returns the readers of the model's input. */
static uint32_t count_readers(const fedge_cohort_plan *plan, uint32_t readers[FEDGE_MAX_LAYERS])
{
    uint32_t of_model = 0;
    for (uint32_t i = 0; i < plan->num_layers; i++) {
        for (uint32_t k = 0; k < plan->layers[i].num_inputs; k++) {
            const uint16_t from = plan->layers[i].inputs[k];
            ++*(from == FEDGE_INPUT_MODEL ? &of_model : &readers[from]);
        }
    }
    return of_model;
}

static bool reads(const fedge_cohort_layer *layer, uint32_t from)
{
    bool is_input = false;
    for (uint32_t k = 0; k < layer->num_inputs; k++)
        is_input |= layer->inputs[k] == from;
    return is_input;
}

/* A layer with "recompute" is recomputed if only the next layer reads it. */
static void choose_recomputed(fedge_cohort_plan *plan)
{
    uint32_t readers[FEDGE_MAX_LAYERS] = {0};
    (void)count_readers(plan, readers);
    for (uint32_t i = 0; i + 1 < plan->num_layers; i++) {
        plan->layers[i].recompute =
            plan->layers[i].spec.recompute && readers[i] == 1 && reads(&plan->layers[i + 1], i);
    }
}

/* A layer may overwrite its input if no other layer and no backward pass reads that array. A ReLU
 * after a product is then fused: its backward needs only its output. */
static fedge_status choose_over_input(fedge_cohort_plan *plan, fedge_error *err)
{
    uint32_t readers[FEDGE_MAX_LAYERS] = {0};
    bool output_read[FEDGE_MAX_LAYERS] = {false};
    const uint32_t of_model = count_readers(plan, readers);
    for (uint32_t i = 0; i < plan->num_layers; i++) {
        fedge_cohort_layer *layer = &plan->layers[i];
        const uint16_t from = layer->inputs[0];
        const bool model = from == FEDGE_INPUT_MODEL, in_use = !model && output_read[from];
        const bool alike = layer->recompute == (!model && plan->layers[from].recompute);
        layer->over_input = layer->ops->in_place && alike &&
                            (model ? of_model : readers[from]) == 1 &&
                            !(layer->ops->changes && in_use);
        output_read[i] = layer->ops->keeps_y || (layer->over_input && in_use);
        layer->is_done = layer->over_input && !model && layer->spec.type == FEDGE_LAYER_RELU &&
                         plan->layers[from].ops->may_fuse_relu;
        if (layer->is_done)
            plan->layers[from].fuses_relu = true;
        if (readers[i] == 0 && i + 1 < plan->num_layers)
            return refuse("a layer whose output nobody reads", err);
    }
    return FEDGE_OK;
}

fedge_status fedge_cohort_plan_make(fedge_cohort_plan *plan, const fedge_cohort_config *config,
                                    fedge_error *err)
{
    const fedge_model_spec *spec = config->model;
    *plan = (fedge_cohort_plan){.options = config->options,
                                .augments = config->augmentation != NULL,
                                .num_layers = spec->num_layers,
                                .is_chain = true,
                                .batch = config->options->max_batch,
                                .num_states = fedge_optimizer_states(config->options),
                                .loss = loss_of(spec->loss),
                                .argument = loss_argument(spec),
                                .split = config->split};
    FEDGE_TRY(fedge_cohort_check(config, err));
    FEDGE_TRY(fedge_shape_input(spec, &plan->shape, err));
    plan->input = plan->most = fedge_shape_count(&plan->shape);
    for (uint32_t i = 0; i < spec->num_layers; i++)
        FEDGE_TRY(add_layer(plan, spec, i, err));
    finish_offsets(plan);
    choose_recomputed(plan);
    FEDGE_TRY(choose_over_input(plan, err));
    plan->classes = (uint32_t)fedge_shape_count(&plan->layers[spec->num_layers - 1].out);
    const size_t line = LINE * (plan->split.num_parts > 0 ? (size_t)plan->split.num_gpus : 1);
    plan->stride = (plan->num_state + line - 1) / line * line;
    plan->batch = plan->split.num_parts > 0 ? plan->split.part : plan->batch;
    if (plan->num_state > MOST_VALUES || plan->most > MOST_VALUES / plan->batch) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "a batch of %u examples of %zu values: GPUs take up to %zu in all: use "
                          "a smaller batch-size or --engine cpu",
                          (unsigned)plan->batch, plan->most, MOST_VALUES);
    }
    return FEDGE_OK;
}

/* ---- layout of arrays ------------------------------------------------------------------------ */

typedef struct arena {
    char *block;
    size_t used;
} arena;

static void *take(arena *from, size_t count, size_t size)
{
    char *at = from->block ? from->block + from->used : NULL;
    from->used += (count * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

/* Bytes of the layer's output array; 0 if it overwrites its input. */
static size_t output_bytes(const fedge_cohort_layer *layer, size_t examples)
{
    const size_t size = examples * fedge_shape_count(&layer->out) * sizeof(float);
    return layer->over_input ? 0 : (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Bytes for outputs of recomputed layers. Consecutive ones form a group whose outputs exist at the
 * same time; all groups use the same memory. */
static size_t recomputed_bytes(const fedge_cohort_plan *plan, size_t examples)
{
    size_t most = 0, group = 0;
    for (uint32_t i = 0; i < plan->num_layers; i++) {
        group = plan->layers[i].recompute ? group + output_bytes(&plan->layers[i], examples) : 0;
        most = group > most ? group : most;
    }
    return most;
}

static void lay_out_layer(fedge_cohort_plan *plan, const fedge_cohort_arrays *arrays, arena *from,
                          arena *group, uint32_t index, size_t examples)
{
    fedge_cohort_layer *layer = &plan->layers[index];
    layer->examples = examples;
    for (uint32_t k = 0; k < layer->num_inputs; k++) {
        const uint16_t input = layer->inputs[k];
        layer->x[k] = input == FEDGE_INPUT_MODEL ? arrays->input : plan->layers[input].y;
    }
    group->used = layer->recompute ? group->used : 0;
    layer->y = layer->over_input
                   ? layer->x[0]
                   : take(layer->recompute ? group : from, output_bytes(layer, examples), 1);
    layer->saved = take(from, layer->ops->saved ? examples * layer->ops->saved(layer) : 0, 1);
}

/* Sets the array for the gradient of each layer's output. */
static void lay_out_gradients(fedge_cohort_plan *plan, const fedge_cohort_arrays *arrays,
                              arena *from, size_t examples)
{
    uint32_t chain = 0;
    for (uint32_t i = 0; i < plan->num_layers; i++)
        plan->layers[i].dy = NULL;
    for (uint32_t i = plan->num_layers; i-- > 0;) {
        fedge_cohort_layer *layer = &plan->layers[i];
        if (!layer->dy && plan->is_chain)
            layer->dy = arrays->between[chain++ % 2];
        else if (!layer->dy)
            layer->dy = take(from, examples * fedge_shape_count(&layer->out), sizeof(float));
        if (layer->over_input && layer->inputs[0] != FEDGE_INPUT_MODEL)
            plan->layers[layer->inputs[0]].dy = layer->dy;
    }
}

size_t fedge_cohort_lay_out_slots(fedge_cohort_plan *plan, fedge_cohort_arrays *arrays, char *block,
                                  uint32_t slots, uint32_t run)
{
    arena from = {.block = block};
    const size_t parameters = slots * plan->stride, examples = (size_t)slots * plan->batch;
    const bool training = plan->options->training;
    const bool is_split = plan->split.num_parts > 0;
    const size_t models = is_split ? plan->stride : parameters;
    const size_t sums = is_split && training ? plan->stride : 0;
    arrays->values = take(&from, training ? models : 0, sizeof(float));
    arrays->gradients = take(&from, training ? parameters : 0, sizeof(float));
    for (uint32_t i = 0; i < 2; i++) {
        const bool on_gpu = i < plan->num_states && !(is_split && plan->split.states_on_host);
        const size_t each = (is_split ? 1 : slots) * fedge_cohort_num_state_values(plan);
        void *state = take(&from, on_gpu ? each : 0, fedge_cohort_state_size(plan));
        arrays->states[i] = on_gpu ? state : NULL;
        const size_t between = plan->is_chain || i == 0 ? examples * plan->most : 0;
        arrays->between[i] = take(&from, between, sizeof(float));
    }
    void *corrections = take(&from, plan->options->correction ? models : 0, sizeof(float));
    arrays->sums = take(&from, sums, sizeof(*arrays->sums));
    arrays->reduced =
        take(&from, sums / (is_split && plan->split.num_gpus > 1 ? plan->split.num_gpus : 1),
             sizeof(*arrays->reduced));
    arrays->reduced = is_split && plan->split.num_gpus == 1 ? arrays->sums : arrays->reduced;
    arrays->corrections = plan->options->correction ? corrections : NULL;
    arrays->squares = take(&from, plan->options->clip ? (size_t)slots * FEDGE_COHORT_NORM_PARTS : 0,
                           sizeof(double));
    arrays->tallies = take(&from, is_split ? (size_t)run * slots : slots, sizeof(*arrays->tallies));
    arrays->slot_steps = take(&from, (size_t)run * slots, sizeof(*arrays->slot_steps));
    arrays->indices = take(&from, run * examples, sizeof(*arrays->indices));
    void *moves = take(&from, plan->augments ? run * examples : 0, sizeof(*arrays->moves));
    arrays->moves = plan->augments ? moves : NULL;
    arrays->predicted = take(&from, run * examples, sizeof(*arrays->predicted));
    const size_t stepping = training && !is_split ? slots : 0;
    arrays->steps_taken = take(&from, stepping, sizeof(*arrays->steps_taken));
    arrays->slot_step = take(&from, stepping, sizeof(*arrays->slot_step));
    arrays->batch = take(&from, stepping * plan->batch, sizeof(*arrays->batch));
    void *step_moves =
        take(&from, plan->augments ? stepping * plan->batch : 0, sizeof(*arrays->step_moves));
    arrays->step_moves = plan->augments ? step_moves : NULL;
    arrays->input = take(&from, examples * plan->input, sizeof(float));
    arena group = {.block = take(&from, recomputed_bytes(plan, examples), 1)};
    for (uint32_t i = 0; i < plan->num_layers; i++)
        lay_out_layer(plan, arrays, &from, &group, i, examples);
    lay_out_gradients(plan, arrays, &from, examples);
    return from.used;
}

size_t fedge_cohort_lay_out_shared(const fedge_cohort_plan *plan, const fedge_cohort_config *config,
                                   fedge_cohort_arrays *arrays, char *block)
{
    arena from = {.block = block};
    const size_t value = config->dtype == FEDGE_U8 ? 1 : sizeof(float);
    const size_t members = fedge_cohort_members(config);
    arrays->start = take(&from, members * plan->stride, sizeof(float));
    arrays->chunks = take(&from, members * config->num_chunks, sizeof(*arrays->chunks));
    arrays->mean = take(&from, config->num_channels, sizeof(float));
    arrays->std = take(&from, config->num_channels, sizeof(float));
    for (uint32_t i = 0; i < FEDGE_COHORT_SETS; i++) {
        const size_t count = config->sets[i].count;
        arrays->sets[i].values = take(&from, count * plan->input, value);
        arrays->sets[i].labels = take(&from, count, sizeof(int32_t));
    }
    return from.used;
}

uint32_t fedge_cohort_members(const fedge_cohort_config *config)
{
    return config->num_members > 0 ? config->num_members : 1;
}

/* Bytes of an upload for each example. */
static size_t upload_bytes_of_example(const fedge_cohort_plan *plan)
{
    return sizeof(uint32_t) + (plan->augments ? sizeof(fedge_cohort_move) : 0);
}

uint32_t fedge_cohort_dropped_bits(const fedge_cohort_plan *plan)
{
    const fedge_precision precision = plan->options->precision;
    return precision == FEDGE_PRECISION_TF32   ? FEDGE_COHORT_TF32
           : precision == FEDGE_PRECISION_BF16 ? FEDGE_COHORT_BF16
                                               : 0;
}

size_t fedge_cohort_num_stepped(const fedge_cohort_plan *plan)
{
    return plan->split.num_parts > 0 ? plan->stride / plan->split.num_gpus : plan->stride;
}

uint32_t fedge_cohort_clip_range(const fedge_cohort_plan *plan, const uint32_t range[2],
                                 size_t from, uint32_t *first)
{
    const size_t end = from + fedge_cohort_num_stepped(plan), last = (size_t)range[0] + range[1];
    const size_t cut = last < end ? last : end;
    *first = range[0] > from ? range[0] : (uint32_t)from;
    return *first < cut ? (uint32_t)(cut - *first) : 0;
}

size_t fedge_cohort_num_state_values(const fedge_cohort_plan *plan)
{
    const size_t each = fedge_cohort_num_stepped(plan);
    const uint32_t gpus = plan->split.num_parts > 0 ? plan->split.num_gpus : 1;
    size_t most = 0;
    for (uint32_t g = 0; g < gpus; g++) {
        size_t count = 0;
        uint32_t unused = 0;
        for (uint32_t i = 0; i < plan->num_ranges; i++)
            count += fedge_cohort_clip_range(plan, plan->ranges[i], g * each, &unused);
        most = count > most ? count : most;
    }
    return (most + LINE - 1) / LINE * LINE;
}

size_t fedge_cohort_state_size(const fedge_cohort_plan *plan)
{
    return plan->split.states_bf16 ? sizeof(uint16_t) : sizeof(float);
}

uint32_t fedge_cohort_run_of(const fedge_cohort_plan *plan, uint32_t slots)
{
    const size_t step =
        slots * (sizeof(fedge_cohort_slot_step) + plan->batch * upload_bytes_of_example(plan));
    const size_t run = MOST_BUFFERED / step;
    if (plan->split.num_parts > 0)
        return (plan->split.num_parts + slots - 1) / slots + 1;
    return run > FEDGE_COHORT_MAX_RUN ? FEDGE_COHORT_MAX_RUN : run > 0 ? (uint32_t)run : 1;
}

size_t fedge_cohort_host_bytes(const fedge_cohort_plan *plan, uint32_t slots)
{
    const size_t upload = (size_t)fedge_cohort_run_of(plan, slots) * slots *
                          (sizeof(fedge_cohort_slot_step) +
                           plan->batch * (upload_bytes_of_example(plan) + sizeof(int32_t)));
    const bool is_split = plan->split.num_parts > 0; /* it copies back one model at a time */
    const size_t states =
        plan->split.states_on_host ? plan->num_states * fedge_cohort_num_state_values(plan) : 0;
    return 2 * upload + ((is_split ? 1u : FEDGE_COHORT_RING) + 3) * (plan->stride * sizeof(float)) +
           states * fedge_cohort_state_size(plan) + FEDGE_COHORT_RING * sizeof(fedge_cohort_tally);
}

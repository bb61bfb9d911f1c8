#include "edge/train/model.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/train/kernels/half.h"
#include "edge/train/model/internals.h"

/* A table in the model's block, whose products are in bf16. */
typedef struct bf16_kernels {
    fedge_kernels table;
    char name[40];
} bf16_kernels;

/* The kernels for the options. A bf16 table is allocated in the model's block; [counted] replaces
 * it while bytes are only counted. */
static const fedge_kernels *choose_kernels(fedge_model_layout *layout, bf16_kernels *counted)
{
    const fedge_model_options *options = layout->options;
    if (options->precision != FEDGE_PRECISION_BF16)
        return fedge_kernels_choose(fedge_model_features(options));
    bf16_kernels *made =
        fedge_arena_take(&layout->arena, 1, sizeof(*made), &layout->memory->scratch);
    made = !made ? counted : made;
    made->table = fedge_kernels_for(options);
    fedge_os_format(made->name, sizeof(made->name), "%s %s", made->table.name, made->table.in_bf16);
    made->table.name = made->name;
    return &made->table;
}

/* Allocates the states per parameter (fedge_states_per_parameter) and stored gradients. */
static void take_states(fedge_model_layout *layout)
{
    fedge_model *self = layout->model;
    const fedge_model_options *options = layout->options;
    fedge_arena *arena = &layout->arena;
    const size_t n = self->num_values;
    size_t *account = &layout->memory->velocity;
    const uint32_t num_states = fedge_optimizer_states(options);
    for (uint32_t i = 0; i < num_states; i++)
        self->states[i] = fedge_arena_take(arena, n, sizeof(float), account);
    if (options->training && options->proximal)
        self->anchor = fedge_arena_take(arena, n, sizeof(float), account);
    if (options->training && options->correction)
        self->correction = fedge_arena_take(arena, n, sizeof(float), account);
    if (fedge_stores_gradients(options))
        self->gradients = fedge_arena_take(arena, n, sizeof(float), &layout->memory->gradients);
}

/* Lays a model out in [block], or counts its bytes if [block] is NULL. One function does both, so
 * that the count is exact; fedge_model_new calls it twice.
 *
 * A model is either fused (fused/: a chain of common layers, whose backward pass includes the
 * optimizer's step) or a graph (graph.c: any layers). Both survey the layers first, to know the
 * sizes of the arrays allocated here, and then lay out their own memory. */
static fedge_status lay_out(const fedge_model_spec *spec, const fedge_model_options *options,
                            void *block, fedge_model **model, fedge_model_memory *memory,
                            fedge_error *err)
{
    fedge_model counted = {0};
    bf16_kernels counted_kernels;
    *memory = (fedge_model_memory){0};
    FEDGE_TRY(fedge_model_check_options(spec, options, err));
    fedge_model_layout layout = {
        .arena = {.block = block}, .spec = spec, .options = options, .memory = memory};
    const bool fused = fedge_fused_fits(spec, options);
    fedge_model *self = fedge_arena_take(&layout.arena, 1, sizeof(*self), &memory->scratch);
    *model = self;
    self = !self ? &counted : self;
    layout.model = self;
    self->options = *options;
    layout.kernels = choose_kernels(&layout, &counted_kernels);
    FEDGE_TRY(fused ? fedge_fused_survey(&layout, err) : fedge_graph_survey(&layout, err));
    if (options->weights != FEDGE_STORAGE_FP32) {
        self->half = fedge_arena_take(&layout.arena, self->num_values, sizeof(*self->half),
                                      &memory->parameters);
    } else {
        self->values =
            fedge_arena_take(&layout.arena, self->num_floats, sizeof(float), &memory->parameters);
    }
    self->buffers =
        fedge_arena_take(&layout.arena, self->num_buffers, sizeof(float), &memory->parameters);
    take_states(&layout);
    if (fedge_micro_batch(options) < options->max_batch) {
        self->all_outputs =
            fedge_arena_take(&layout.arena, fedge_arena_product(options->max_batch, self->outputs),
                             sizeof(float), &memory->activations);
    }
    FEDGE_TRY(fused ? fedge_fused_lay_out(&layout, err) : fedge_graph_lay_out(&layout, err));
    memory->total = layout.arena.used;
    if (layout.arena.overflow) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "the model needs more bytes than this machine can address, for batches "
                          "of %u: lower the batch size",
                          (unsigned)options->max_batch);
    }
    self->kernels = layout.kernels;
    self->loss = fedge_loss_ops_of(spec->loss);
    self->loss_type = spec->loss;
    self->first_layer_type = spec->layers[0].type;
    self->loss_argument = spec->loss == FEDGE_LOSS_CROSS_ENTROPY ? spec->label_smoothing
                          : spec->loss_delta == 0.0f             ? 1.0f
                                                                 : spec->loss_delta;
    return FEDGE_OK;
}

fedge_status fedge_model_size(const fedge_model_spec *spec, const fedge_model_options *options,
                              fedge_model_memory *memory, fedge_error *err)
{
    fedge_model *none;
    return lay_out(spec, options, NULL, &none, memory, err);
}

/* The bytes of every layer. */
static fedge_status sum_layers(const fedge_model_spec *spec, const fedge_model_options *options,
                               fedge_memory_sink *sink, fedge_error *err)
{
    const fedge_kernels kernels = fedge_kernels_for(options);
    return fedge_fused_fits(spec, options)
               ? fedge_fused_layer_memory(spec, options, &kernels, sink, err)
               : fedge_graph_layer_memory(spec, options, &kernels, sink, err);
}

fedge_status fedge_model_layer_memory(const fedge_model_spec *spec,
                                      const fedge_model_options *options,
                                      fedge_layer_memory *layers, fedge_error *err)
{
    fedge_model_memory memory;
    FEDGE_TRY(fedge_model_size(spec, options, &memory, err));
    return sum_layers(spec, options, &(fedge_memory_sink){.layers = layers}, err);
}

/* FEDGE_TOO_BIG, with the name of the layer that has most bytes. The model is valid. */
static fedge_status fail_block(const fedge_model_spec *spec, const fedge_model_options *options,
                               size_t needed, size_t given, fedge_error *err)
{
    fedge_memory_sink all = {0};
    char label[FEDGE_MAX_LAYER_NAME];
    FEDGE_TRY(sum_layers(spec, options, &all, err));
    return fedge_fail(
        err, FEDGE_TOO_BIG,
        "the model needs a block of %zu bytes but was given %zu; layer %u (%s \"%s\") "
        "takes the most, %zu, not all at once",
        needed, given, (unsigned)all.largest, fedge_layer_type_name(spec->layers[all.largest].type),
        fedge_layer_label(&spec->layers[all.largest], all.largest, label), all.largest_bytes);
}

fedge_status fedge_model_new(fedge_model **model, const fedge_model_spec *spec,
                             const fedge_model_options *options, void *block, size_t block_size,
                             fedge_error *err)
{
    *model = NULL;
    fedge_model_memory memory;
    FEDGE_TRY(fedge_model_size(spec, options, &memory, err));
    if (block_size < memory.total)
        return fail_block(spec, options, memory.total, block_size, err);
    if (!block || (uintptr_t)block % FEDGE_BLOCK_ALIGNMENT != 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the model's block must be aligned to %d bytes", FEDGE_BLOCK_ALIGNMENT);
    }
    /* Optimizers' states and gradients start at zero, and old contents of the block must not
     * influence a run. */
    memset(block, 0, memory.total);
    fedge_model *made = NULL;
    FEDGE_TRY(lay_out(spec, options, block, &made, &memory, err));
    assert(made); /* taken from the block */
    if (made->num_buffers > 0)
        fedge_model_init_buffers(spec, made->buffers);
    *model = made;
    return FEDGE_OK;
}

float *fedge_model_values(fedge_model *model)
{
    return model->options.precision == FEDGE_PRECISION_INT8 ? NULL : model->values;
}

void fedge_model_load(fedge_model *model, const float *values)
{
    if (model->options.precision == FEDGE_PRECISION_INT8)
        fedge_graph_load(model, values);
    else if (model->half)
        fedge_half_from_floats(model->options.weights, values, model->num_values, model->half);
    else
        memcpy(model->values, values, model->num_values * sizeof(*values));
}

void fedge_model_store(const fedge_model *model, float *values)
{
    if (model->options.precision == FEDGE_PRECISION_INT8)
        memset(values, 0, model->num_values * sizeof(*values));
    else if (model->half)
        fedge_half_to_floats(model->options.weights, model->half, model->num_values, values);
    else
        memcpy(values, model->values, model->num_values * sizeof(*values));
}

size_t fedge_model_num_values(const fedge_model *model)
{
    return model->num_values;
}

float *fedge_model_buffers(fedge_model *model)
{
    return model->buffers;
}

size_t fedge_model_num_buffers(const fedge_model *model)
{
    return model->num_buffers;
}

void fedge_model_set_state(fedge_model *model, const float *state)
{
    fedge_model_load(model, state);
    if (model->num_buffers > 0)
        memcpy(model->buffers, state + model->num_values, model->num_buffers * sizeof(*state));
}

void fedge_model_get_state(const fedge_model *model, float *state)
{
    fedge_model_store(model, state);
    if (model->num_buffers > 0)
        memcpy(state + model->num_values, model->buffers, model->num_buffers * sizeof(*state));
}

void fedge_model_get_trained(const fedge_model *model, float *state)
{
    if (!model->half) {
        fedge_model_get_state(model, state);
        return;
    }
    const fedge_storage weights = model->options.weights;
    /* Adds only the change made by training: the rounding of the start to 16 bits must not look
     * like an update. */
    for (size_t i = 0; i < model->num_values; i++) {
        uint16_t start;
        float before, after;
        fedge_half_from_floats(weights, &state[i], 1, &start);
        fedge_half_to_floats(weights, &start, 1, &before);
        fedge_half_to_floats(weights, &model->half[i], 1, &after);
        state[i] += after - before;
    }
    if (model->num_buffers > 0)
        memcpy(state + model->num_values, model->buffers, model->num_buffers * sizeof(*state));
}

const float *fedge_model_outputs(const fedge_model *model)
{
    return model->last_outputs;
}

float *fedge_model_correction(fedge_model *model)
{
    return model->correction;
}

size_t fedge_model_example_size(const fedge_model *model)
{
    return model->example_size;
}

uint32_t fedge_model_max_batch(const fedge_model *model)
{
    return model->options.max_batch;
}

const char *fedge_model_kernels(const fedge_model *model)
{
    return model->kernels->name;
}

void fedge_model_reset_optimizer(fedge_model *model)
{
    const size_t bytes = model->num_values * sizeof(float);
    for (int i = 0; i < FEDGE_MAX_OPTIMIZER_STATES; i++) {
        if (model->states[i])
            memset(model->states[i], 0, bytes);
    }
    if (model->anchor)
        fedge_model_store(model, model->anchor);
    model->num_steps = 0;
}

void fedge_model_set_random(fedge_model *model, uint64_t seed, uint32_t round,
                            uint32_t client_index)
{
    model->seed = seed;
    model->round = round;
    model->client_index = client_index;
}

/* Refuses numbers that are not finite. values: (examples, each). */
static fedge_status check_finite(const fedge_model *model, const char *what, const float *values,
                                 uint32_t examples, size_t each, fedge_error *err)
{
    const size_t n = examples * each, i = fedge_find_not_finite(model->kernels, values, n);
    if (i < n) {
        return fedge_fail(
            err, FEDGE_NOT_FINITE,
            "%s %u of example %u in the batch is %g, which is not finite: clean the data, or mend "
            "its normalisation",
            what, (unsigned)(i % each), (unsigned)(i / each), fedge_printable((double)values[i]));
    }
    return FEDGE_OK;
}

static fedge_status check_labels(const fedge_model *model, const fedge_batch *batch,
                                 fedge_error *err)
{
    const bool binary = model->outputs == 1 && model->loss_type == FEDGE_LOSS_BCE_WITH_LOGITS;
    const bool one_hot = model->loss->needs_labels || model->outputs > 1;
    const uint32_t classes = binary ? 2 : model->outputs;
    for (uint32_t i = 0; batch->labels && (one_hot || binary) && i < batch->size; i++) {
        if (batch->labels[i] < 0 || (uint32_t)batch->labels[i] >= classes) {
            return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                              "%s: label %d of example %u in the batch is not in 0 to %u",
                              fedge_loss_type_name(model->loss_type), (int)batch->labels[i],
                              (unsigned)i, (unsigned)classes - 1);
        }
    }
    return FEDGE_OK;
}

fedge_status fedge_model_check_size(const fedge_model *model, uint32_t size, bool training,
                                    fedge_error *err)
{
    const uint32_t max = fedge_micro_batch(&model->options);
    if (size == 0 || size > model->options.max_batch) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "a batch of %u examples: this model was made for 1 to %u", (unsigned)size,
                          (unsigned)model->options.max_batch);
    }
    if (!model->graph)
        return FEDGE_OK;
    const uint32_t left = size % max;
    if (size >= max)
        FEDGE_TRY(fedge_graph_check(model->graph, max, training, err));
    return left > 0 ? fedge_graph_check(model->graph, left, training, err) : FEDGE_OK;
}

static fedge_status check_batch(const fedge_model *model, const fedge_batch *batch, bool training,
                                fedge_error *err)
{
    FEDGE_TRY(fedge_model_check_size(model, batch->size, training, err));
    if (!batch->labels && (!batch->targets || model->loss->needs_labels)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s needs %s",
                          fedge_loss_type_name(model->loss_type),
                          model->loss->needs_labels ? "labels" : "labels or targets");
    }
    FEDGE_TRY(check_labels(model, batch, err));
    if (batch->finite)
        return FEDGE_OK;
    fedge_status status =
        check_finite(model, "value", batch->x, batch->size, model->example_size, err);
    if (status != FEDGE_OK) {
        return fedge_error_prefix(err, status, "layer 0 (%s)",
                                  fedge_layer_type_name(model->first_layer_type));
    }
    if (batch->targets)
        status = check_finite(model, "target", batch->targets, batch->size, model->outputs, err);
    return status == FEDGE_OK
               ? FEDGE_OK
               : fedge_error_prefix(err, status, "%s", fedge_loss_type_name(model->loss_type));
}

static const char *missing(const fedge_model *model, const fedge_optimizer *optimizer)
{
    const fedge_model_options *has = &model->options;
    if (!has->training)
        return "training";
    if (optimizer->type != has->optimizer)
        return "this optimizer";
    if (optimizer->momentum != 0.0f && FEDGE_HAS_MOMENTUM(optimizer->type) && has->momentum == 0.0f)
        return "momentum";
    if (optimizer->centered && FEDGE_HAS_CENTERED(optimizer->type) && !has->centered)
        return "centered";
    if (optimizer->nesterov && (!has->nesterov || !model->states[0]))
        return "nesterov and momentum";
    if (optimizer->clip_norm != 0.0f && !has->clip)
        return "clip";
    return optimizer->proximal_mu != 0.0f && !has->proximal ? "proximal" : NULL;
}

/* Examples [first, first + size) of a batch. */
static fedge_batch part_of(const fedge_model *model, const fedge_batch *batch, uint32_t first,
                           uint32_t size)
{
    return (fedge_batch){
        .x = batch->x + first * model->example_size,
        .labels = !batch->labels ? NULL : batch->labels + first,
        .targets = !batch->targets ? NULL : batch->targets + (size_t)first * model->outputs,
        .size = size};
}

/* Outputs and loss, and in training the gradient of the mean loss over [whole] examples. */
static fedge_status pass(fedge_model *model, const fedge_batch *batch, uint32_t whole, bool train,
                         double *loss_sum, uint32_t *correct, fedge_error *err)
{
    fedge_loss_run loss = {.argument = model->loss_argument,
                           .labels = batch->labels,
                           .targets = batch->targets,
                           .batch = batch->size,
                           .outputs = model->outputs};
    FEDGE_TRY(model->fused ? fedge_fused_forward(model, batch->x, batch->size, &loss.y, &loss.dy)
                           : fedge_graph_forward(model, batch->x, batch->size, train, &loss.y,
                                                 &loss.dy, err));
    model->last_outputs = loss.y;
    loss.dy = train ? loss.dy : NULL;
    *loss_sum = model->loss->run(&loss, correct);
    /* Before the backward pass, so that a diverged batch leaves no NaN in the parameters. */
    if (!isfinite(*loss_sum)) {
        return fedge_fail(err, FEDGE_NOT_FINITE,
                          "%s: the loss of a batch of %u examples is %g: lower the learning rate, "
                          "clip the gradients' norm, or normalise the data",
                          fedge_loss_type_name(model->loss_type), (unsigned)batch->size,
                          fedge_printable(*loss_sum));
    }
    /* The loss averages over its part of the batch. Weighted by the part's size, the gradients of
     * all parts add up to those of the whole batch. */
    const float weight = (float)batch->size / (float)whole;
    const size_t n = (size_t)batch->size * model->outputs;
    for (size_t i = 0; loss.dy && batch->size < whole && i < n; i++)
        loss.dy[i] *= weight;
    return FEDGE_OK;
}

/* Passes a batch part by part; with an optimizer, each part backward too. */
static fedge_status pass_parts(fedge_model *model, const fedge_batch *batch,
                               const fedge_optimizer *optimizer, double *loss_sum,
                               uint32_t *correct, fedge_error *err)
{
    const uint32_t max = fedge_micro_batch(&model->options);
    *loss_sum = 0.0;
    *correct = 0;
    for (uint32_t first = 0; first < batch->size; first += max) {
        const uint32_t left = batch->size - first;
        const fedge_batch part = part_of(model, batch, first, left < max ? left : max);
        double loss = 0.0;
        uint32_t part_correct = 0;
        const fedge_status status =
            pass(model, &part, batch->size, optimizer != NULL, &loss, &part_correct, err);
        if (status != FEDGE_OK) {
            return fedge_error_prefix(err, status, "examples %u to %u of the batch",
                                      (unsigned)first, (unsigned)(first + part.size - 1));
        }
        *loss_sum += loss;
        *correct += part_correct;
        if (optimizer)
            fedge_graph_backward(model, optimizer);
        /* The next part overwrites these outputs. */
        memcpy(model->all_outputs + (size_t)first * model->outputs, model->last_outputs,
               (size_t)part.size * model->outputs * sizeof(float));
    }
    model->last_outputs = model->all_outputs;
    return FEDGE_OK;
}

fedge_status fedge_model_train(fedge_model *model, const fedge_batch *batch,
                               const fedge_optimizer *optimizer, double *loss_sum,
                               uint32_t *correct, fedge_error *err)
{
    const char *what = missing(model, optimizer);
    if (what) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the model was made without %s: set it in fedge_model_options", what);
    }
    FEDGE_TRY(fedge_optimizer_check(optimizer, err));
    FEDGE_TRY(check_batch(model, batch, true, err));
    if (model->graph)
        fedge_graph_begin(model);
    FEDGE_TRY(model->all_outputs ? pass_parts(model, batch, optimizer, loss_sum, correct, err)
                                 : pass(model, batch, batch->size, true, loss_sum, correct, err));
    /* Counted before the step is taken, since Adam counts steps from 1. */
    model->num_steps++;
    if (model->fused) {
        fedge_fused_backward(model, batch->x, optimizer);
        return FEDGE_OK;
    }
    if (!model->all_outputs)
        fedge_graph_backward(model, optimizer);
    fedge_graph_finish(model, optimizer);
    return FEDGE_OK;
}

fedge_status fedge_model_test(fedge_model *model, const fedge_batch *batch, double *loss_sum,
                              uint32_t *correct, fedge_error *err)
{
    FEDGE_TRY(check_batch(model, batch, false, err));
    return model->all_outputs ? pass_parts(model, batch, NULL, loss_sum, correct, err)
                              : pass(model, batch, batch->size, false, loss_sum, correct, err);
}

fedge_status fedge_model_step(fedge_model *model, const float *x, const int32_t *labels,
                              uint32_t batch, const fedge_optimizer *optimizer, double *loss_sum,
                              uint32_t *correct, fedge_error *err)
{
    const fedge_batch examples = {.x = x, .labels = labels, .size = batch};
    return fedge_model_train(model, &examples, optimizer, loss_sum, correct, err);
}

fedge_status fedge_model_evaluate(fedge_model *model, const float *x, const int32_t *labels,
                                  uint32_t batch, double *loss_sum, uint32_t *correct,
                                  fedge_error *err)
{
    const fedge_batch examples = {.x = x, .labels = labels, .size = batch};
    return fedge_model_test(model, &examples, loss_sum, correct, err);
}

/* ---- finding numbers that are not finite ---- */

#define WIDE 256u /* values converted from 16 bits at a time */

size_t fedge_find_not_finite(const fedge_kernels *kernels, const float *values, size_t n)
{
    size_t first = kernels->all_finite(values, n) ? n : 0;
    while (first < n && isfinite(values[first]))
        first++;
    return first;
}

/* As fedge_find_not_finite, for parameters in any storage. *value: the value at the index. */
static size_t find_parameter(const fedge_model *model, float *value)
{
    const size_t n = model->num_values;
    if (!model->half) {
        const size_t first = fedge_find_not_finite(model->kernels, model->values, n);
        *value = first < n ? model->values[first] : 0.0f;
        return first;
    }
    for (size_t i = 0; i < n; i += WIDE) {
        float wide[WIDE];
        const size_t part = n - i < WIDE ? n - i : WIDE;
        fedge_half_to_floats(model->options.weights, model->half + i, part, wide);
        const size_t first = fedge_find_not_finite(model->kernels, wide, part);
        if (first < part) {
            *value = wide[first];
            return i + first;
        }
    }
    return n;
}

static fedge_status fail_at(const fedge_value_owner *owner, float value, fedge_error *err)
{
    return fedge_fail(err, FEDGE_NOT_FINITE,
                      "layer %u (%s): after training, value %zu of its \"%s\" is %g: lower the "
                      "learning rate, or clip the gradients' norm",
                      (unsigned)owner->layer, fedge_layer_type_name(owner->type), owner->index,
                      owner->tensor, fedge_printable((double)value));
}

fedge_status fedge_model_check(const fedge_model *model, fedge_error *err)
{
    if (model->options.precision == FEDGE_PRECISION_INT8)
        return FEDGE_OK;
    float value = 0.0f;
    size_t first = find_parameter(model, &value);
    if (first < model->num_values) {
        const fedge_value_owner owner =
            model->fused ? fedge_fused_owner(model, first) : fedge_graph_owner(model, false, first);
        return fail_at(&owner, value, err);
    }
    first = fedge_find_not_finite(model->kernels, model->buffers, model->num_buffers);
    if (first < model->num_buffers) {
        const fedge_value_owner owner = fedge_graph_owner(model, true, first);
        return fail_at(&owner, model->buffers[first], err);
    }
    return FEDGE_OK;
}

/* The fused stages of a model: their memory and their passes. */
#include <string.h>

#include "edge/train/fused/stages.h"
#include "edge/train/model/graph_plan.h"
#include "edge/train/model/internals.h"

struct fedge_fused {
    fedge_layer_context context; /* batch is set by each pass */
    fedge_stage *stages;
    uint32_t num_stages;
    float *gradients[2]; /* gradients of the outputs of even and of odd stages */
};

static bool is_one(const uint32_t pair[2])
{
    return pair[0] <= 1 && pair[1] <= 1;
}

static bool layer_fits(const fedge_layer_spec *layer)
{
    if (layer->num_inputs > 0 || layer->train != FEDGE_TRAIN_ALL || layer->num_train_channels > 0 ||
        layer->recompute)
        return false;
    switch (layer->type) {
    case FEDGE_LAYER_LINEAR:
        return layer->u.linear.r == 0;
    case FEDGE_LAYER_RELU:
    case FEDGE_LAYER_FLATTEN:
        return true;
    case FEDGE_LAYER_MAXPOOL2D:
        return is_one(layer->u.maxpool2d.dilation) && !layer->u.maxpool2d.ceil_mode &&
               (uint64_t)layer->u.maxpool2d.kernel_size[0] * layer->u.maxpool2d.kernel_size[1] <=
                   FEDGE_STAGE_MAX_WINDOW;
    case FEDGE_LAYER_CONV2D:
        return layer->u.conv2d.groups <= 1 && is_one(layer->u.conv2d.dilation);
    default:
        return false;
    }
}

bool fedge_fused_fits(const fedge_model_spec *spec, const fedge_model_options *options)
{
    bool flat = spec->input_rank == 1;
    if (!fedge_multiplies_fp32(options) || options->weights != FEDGE_STORAGE_FP32 ||
        options->activations != FEDGE_STORAGE_FP32)
        return false;
    /* A stage steps its parameters during its backward pass. The graph runs what needs the whole
     * gradient first (clip), or more states than SGD with momentum. */
    if (options->general || options->unshared || fedge_micro_batch(options) < options->max_batch ||
        spec->loss != FEDGE_LOSS_CROSS_ENTROPY ||
        (options->training && (options->optimizer != FEDGE_OPTIMIZER_SGD || options->nesterov ||
                               options->clip || options->proximal || options->correction)))
        return false;
    for (uint32_t i = 0; i < spec->num_layers && i < FEDGE_MAX_LAYERS; i++) {
        flat = flat || spec->layers[i].type == FEDGE_LAYER_FLATTEN;
        if (!layer_fits(&spec->layers[i]) || (spec->layers[i].type == FEDGE_LAYER_LINEAR && !flat))
            return false;
    }
    return true;
}

fedge_status fedge_fused_survey(fedge_model_layout *layout, fedge_error *err)
{
    fedge_fused_needs *out = &layout->fused;
    const bool training = layout->options->training;
    *out = (fedge_fused_needs){0};
    fedge_stage_walk plan;
    FEDGE_TRY(
        fedge_stage_walk_begin(&plan, layout->spec, layout->options, layout->kernels->lanes, err));
    layout->model->example_size = fedge_shape_count(&plan.shape);
    for (bool more = true;;) {
        fedge_stage stage;
        FEDGE_TRY(fedge_stage_walk_next(&plan, &stage, &more, err));
        if (!more)
            break;
        size_t *buffers = out->buffers;
        const uint32_t i = out->num_stages++;
        if (!training)
            fedge_raise_to(&buffers[i % 2], stage.out.size);
        else if (stage.pass_gradient && !stage.in_place)
            fedge_raise_to(&buffers[(i + 1) % 2], stage.in.size);
        fedge_plan_scratch(&stage, training, &out->scratch);
    }
    if (training && out->num_stages > 0) { /* the last output */
        fedge_raise_to(&out->buffers[(out->num_stages - 1) % 2], plan.grid.size);
    }
    layout->model->outputs = plan.grid.channels;
    layout->model->num_values = layout->model->num_floats = plan.num_parameters;
    return FEDGE_OK;
}

static void assign_parameters(fedge_stage *stage, float **values, float **velocity)
{
    stage->weight = *values;
    stage->bias_values = stage->bias ? *values + stage->num_weights : NULL;
    *values += stage->num_parameters;
    if (*velocity) {
        stage->weight_velocity = *velocity;
        stage->bias_velocity = stage->bias ? *velocity + stage->num_weights : NULL;
        *velocity += stage->num_parameters;
    }
}

/* The tables of segments; see kernels.h. */
static void fill_segments(const fedge_stage *stage, uint32_t *offsets)
{
    const fedge_window *conv = &stage->windows->conv;
    const uint32_t width = conv->in[1] + 2 * conv->pad[1];
    const uint32_t height = conv->in[0] + 2 * conv->pad[0];
    for (uint32_t s = 0; s < stage->windows->shape.num_segments; s++) {
        offsets[s] = stage->planar ? (s / conv->kernel[0] * height + s % conv->kernel[0]) * width
                                   : s * width * stage->in.padded_channels;
    }
}

/* Allocates a stage's windows, the indices of maxima (of one example without training), and the
 * segments. */
static void take_windows(fedge_arena *arena, fedge_stage *stage, const fedge_model_options *options,
                         fedge_model_memory *memory)
{
    const size_t batch = options->training ? options->max_batch : 1;
    fedge_stage_windows *windows = fedge_arena_take(arena, 1, sizeof(*windows), &memory->scratch);
    if (windows) {
        *windows = *stage->windows;
        stage->windows = windows;
    }
    if (stage->kind == FEDGE_STAGE_MAXPOOL2D || stage->pooled) {
        stage->argmax =
            fedge_arena_take(arena, fedge_arena_product(batch, fedge_stage_pool_size(stage)), 1,
                             &memory->activations);
        stage->argmax_stride = options->training ? fedge_stage_pool_size(stage) : 0;
    }
    if (stage->kind == FEDGE_STAGE_CONV2D) {
        uint32_t *offsets = fedge_arena_take(arena, stage->windows->shape.num_segments,
                                             sizeof(*offsets), &memory->scratch);
        if (offsets) {
            fill_segments(stage, offsets);
            stage->windows->shape.segment_offsets = offsets;
        }
    }
}

/* Allocates one stage except its parameters. Without training, activations use two buffers
 * alternately. */
static void take_stage(fedge_arena *arena, fedge_stage *stage, const fedge_model_options *options,
                       float *shared, fedge_model_memory *memory)
{
    stage->activation = shared;
    if (options->training) {
        stage->activation =
            fedge_arena_take(arena, fedge_arena_product(options->max_batch, stage->out.size),
                             sizeof(*stage->activation), &memory->activations);
    }
    if (stage->kind == FEDGE_STAGE_CONV2D || stage->kind == FEDGE_STAGE_MAXPOOL2D)
        take_windows(arena, stage, options, memory);
    else
        stage->windows = NULL;
}

static void take_scratch(fedge_arena *arena, const fedge_scratch_counts *counts,
                         fedge_scratch *scratch, fedge_model_memory *memory)
{
    const size_t real = sizeof(float);
    scratch->packed = fedge_arena_take(arena, counts->packed, real, &memory->scratch);
    scratch->bias = fedge_arena_take(arena, counts->bias, real, &memory->scratch);
    scratch->band = fedge_arena_take(arena, counts->band, real, &memory->scratch);
    scratch->input = fedge_arena_take(arena, counts->input, real, &memory->scratch);
    scratch->weight_gradient =
        fedge_arena_take(arena, counts->weight_gradient, real, &memory->gradients);
    scratch->bias_gradient =
        fedge_arena_take(arena, counts->bias_gradient, real, &memory->gradients);
    scratch->entries =
        fedge_arena_take(arena, counts->entries, sizeof(*scratch->entries), &memory->scratch);
    scratch->entry_counts = fedge_arena_take(arena, counts->entry_counts,
                                             sizeof(*scratch->entry_counts), &memory->scratch);
}

static size_t scratch_bytes(const fedge_stage *stage, bool training)
{
    fedge_scratch_counts counts = {0};
    fedge_scratch scratch;
    fedge_model_memory memory = {0};
    fedge_arena arena = {0};
    fedge_plan_scratch(stage, training, &counts);
    take_scratch(&arena, &counts, &scratch, &memory);
    return memory.scratch + memory.gradients;
}

fedge_status fedge_fused_lay_out(fedge_model_layout *layout, fedge_error *err)
{
    const fedge_model_options *options = layout->options;
    fedge_model_memory *memory = layout->memory;
    fedge_arena *arena = &layout->arena;
    const fedge_fused_needs *sizes = &layout->fused;
    union { /* used one after the other while bytes are only counted */
        fedge_fused fused;
        fedge_stage stage;
    } counted = {.fused = {.num_stages = 0}};
    fedge_fused *self = fedge_arena_take(arena, 1, sizeof(*self), &memory->scratch);
    layout->model->fused = self;
    self = !self ? &counted.fused : self;
    self->num_stages = sizes->num_stages;
    self->context.kernels = layout->kernels;
    self->stages =
        fedge_arena_take(arena, sizes->num_stages, sizeof(*self->stages), &memory->scratch);
    float *shared[2];
    for (int i = 0; i < 2; i++) {
        shared[i] = fedge_arena_take(
            arena, fedge_arena_product(options->max_batch, sizes->buffers[i]), sizeof(*shared[i]),
            options->training ? &memory->gradients : &memory->activations);
        self->gradients[i] = options->training ? shared[i] : NULL;
    }
    take_scratch(arena, &sizes->scratch, &self->context.scratch, memory);

    float *values = layout->model->values, *velocity = layout->model->states[0];
    fedge_stage_walk plan;
    FEDGE_TRY(
        fedge_stage_walk_begin(&plan, layout->spec, layout->options, layout->kernels->lanes, err));
    for (uint32_t i = 0; i < sizes->num_stages; i++) {
        fedge_stage *stage = !arena->block ? &counted.stage : &self->stages[i];
        bool more;
        FEDGE_TRY(fedge_stage_walk_next(&plan, stage, &more, err));
        stage->from_relu = i > 0 && arena->block && self->stages[i - 1].relu;
        take_stage(arena, stage, options, shared[i % 2], memory);
        if (arena->block)
            assign_parameters(stage, &values, &velocity);
    }
    return FEDGE_OK;
}

/* Runs every stage; returns the logits, (batch, classes). */
static const float *forward(const fedge_fused *model, const float *x)
{
    for (uint32_t i = 0; i < model->num_stages; i++) {
        const fedge_stage *stage = &model->stages[i];
        switch (stage->kind) {
        case FEDGE_STAGE_IMPORT:
            fedge_import_forward(&model->context, stage, x);
            break;
        case FEDGE_STAGE_CONV2D:
            fedge_conv2d_forward(&model->context, stage, x);
            break;
        case FEDGE_STAGE_MAXPOOL2D:
            fedge_maxpool2d_forward(&model->context, stage, x);
            break;
        case FEDGE_STAGE_FLATTEN:
            fedge_flatten_forward(&model->context, stage, x);
            break;
        case FEDGE_STAGE_LINEAR:
            fedge_linear_forward(&model->context, stage, x);
            break;
        }
        x = stage->activation;
    }
    return model->stages[model->num_stages - 1].activation;
}

fedge_status fedge_fused_forward(fedge_model *model, const float *x, uint32_t batch,
                                 const float **outputs, float **gradient)
{
    fedge_fused *self = model->fused;
    self->context.batch = batch;
    *outputs = forward(self, x);
    /* The last stage's backward pass reads this buffer. */
    *gradient = self->gradients[(self->num_stages - 1) % 2];
    return FEDGE_OK;
}

/* The gradient of stage [i]'s output. */
static float *gradient_of(const fedge_fused *self, uint32_t i)
{
    return i + 1 < self->num_stages && self->stages[i + 1].in_place ? self->stages[i].activation
                                                                    : self->gradients[i % 2];
}

void fedge_fused_backward(fedge_model *model, const float *x, const fedge_optimizer *optimizer)
{
    const fedge_fused *self = model->fused;
    for (uint32_t i = self->num_stages; i-- > 0;) {
        const fedge_stage *stage = &self->stages[i];
        float *dy = gradient_of(self, i);
        float *dx = stage->pass_gradient ? gradient_of(self, i - 1) : NULL;
        const float *in = i == 0 ? x : self->stages[i - 1].activation;
        switch (stage->kind) {
        case FEDGE_STAGE_CONV2D:
            fedge_conv2d_backward(&self->context, stage, in, dy, optimizer, dx);
            break;
        case FEDGE_STAGE_LINEAR:
            fedge_linear_backward(&self->context, stage, in, dy, optimizer, dx);
            break;
        case FEDGE_STAGE_MAXPOOL2D:
            if (dx)
                fedge_maxpool2d_backward(&self->context, stage, dy, dx);
            break;
        case FEDGE_STAGE_FLATTEN:
            if (dx)
                fedge_flatten_backward(&self->context, stage, dy, dx);
            break;
        case FEDGE_STAGE_IMPORT:
            break;
        }
    }
}

fedge_value_owner fedge_fused_owner(const fedge_model *model, size_t index)
{
    const fedge_stage *stage = model->fused->stages;
    while (index >= stage->num_parameters) {
        index -= stage->num_parameters;
        stage++;
    }
    const bool conv = stage->kind == FEDGE_STAGE_CONV2D, bias = index >= stage->num_weights;
    return (fedge_value_owner){.layer = stage->layer,
                               .type = conv ? FEDGE_LAYER_CONV2D : FEDGE_LAYER_LINEAR,
                               .tensor = bias ? "bias" : "weight",
                               .index = bias ? index - stage->num_weights : index};
}

/* ---- bytes of each layer ---- */

/* Bytes of a batch of [size] floats per example. */
static size_t batch_bytes(const fedge_model_options *options, size_t size)
{
    return (size_t)fedge_graph_aligned((uint64_t)size * options->max_batch * sizeof(float));
}

/* A walk over the layers, in parallel to that over the stages. */
typedef struct fused_layers {
    const fedge_model_spec *spec;
    const fedge_model_options *options;
    fedge_memory_sink *sink;
    uint32_t next;          /* index of the next layer */
    fedge_shape shape;      /* shape of its input */
    fedge_layer_memory now; /* memory of the layer before; stages add to it */
} fused_layers;

static fedge_status walk_to(fused_layers *self, uint32_t end, fedge_error *err)
{
    for (; self->next < end; self->next++) {
        if (self->next > 0)
            fedge_memory_put(self->sink, &self->now);
        FEDGE_TRY(fedge_shape_advance(self->spec, self->next, &self->shape, err));
        self->now = fedge_describe_layer(&self->spec->layers[self->next], self->options,
                                         self->shape.rank, self->shape.dims);
    }
    return FEDGE_OK;
}

/* A stage's bytes belong to the last of its layers, the copy of the input to the first. */
fedge_status fedge_fused_layer_memory(const fedge_model_spec *spec,
                                      const fedge_model_options *options,
                                      const fedge_kernels *kernels, fedge_memory_sink *sink,
                                      fedge_error *err)
{
    const size_t examples = options->training ? options->max_batch : 1;
    fused_layers self = {.spec = spec, .options = options, .sink = sink};
    fedge_layer_memory *now = &self.now;
    fedge_stage_walk walk;
    FEDGE_TRY(fedge_shape_input(spec, &self.shape, err));
    FEDGE_TRY(fedge_stage_walk_begin(&walk, spec, options, kernels->lanes, err));
    for (;;) {
        fedge_stage stage;
        bool more = true;
        FEDGE_TRY(fedge_stage_walk_next(&walk, &stage, &more, err));
        if (!more)
            break;
        if (options->training && stage.pass_gradient && !stage.in_place)
            now->gradient = batch_bytes(options, stage.in.size); /* gradient of the stage before */
        const bool pools = stage.kind == FEDGE_STAGE_MAXPOOL2D || stage.pooled;
        FEDGE_TRY(walk_to(&self, walk.layer == 0 ? 1 : walk.layer, err));
        now->output += batch_bytes(options, stage.out.size);
        now->saved +=
            pools ? (size_t)fedge_graph_aligned(fedge_stage_pool_size(&stage) * examples) : 0;
        now->scratch += scratch_bytes(&stage, options->training);
    }
    now->gradient = options->training ? batch_bytes(options, walk.grid.size) : 0;
    FEDGE_TRY(walk_to(&self, spec->num_layers, err));
    fedge_memory_put(sink, now);
    return FEDGE_OK;
}

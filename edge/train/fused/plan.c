#include "edge/train/fused/stages.h"

#include <string.h>

static uint32_t round_up(uint32_t n, uint32_t lanes)
{
    return (n + lanes - 1) / lanes * lanes;
}

static void set_grid(fedge_grid *grid, const fedge_shape *shape, bool image, uint32_t lanes)
{
    *grid = (fedge_grid){.channels = (uint32_t)fedge_shape_count(shape), .height = 1, .width = 1};
    grid->padded_channels = grid->channels;
    if (image) {
        grid->channels = shape->dims[0];
        grid->height = shape->dims[1];
        grid->width = shape->dims[2];
        grid->padded_channels = round_up(shape->dims[0], lanes);
    }
    grid->size = (size_t)grid->height * grid->width * grid->padded_channels;
}

static void set_border(fedge_grid *grid, uint32_t pad_h, uint32_t pad_w)
{
    grid->pad_h = pad_h;
    grid->pad_w = pad_w;
    grid->size = ((size_t)grid->height + 2 * pad_h) * ((size_t)grid->width + 2 * pad_w) *
                 grid->padded_channels;
}

fedge_status fedge_stage_walk_begin(fedge_stage_walk *plan, const fedge_model_spec *spec,
                                    const fedge_model_options *options, uint32_t lanes,
                                    fedge_error *err)
{
    *plan = (fedge_stage_walk){.spec = spec, .options = options, .lanes = lanes};
    FEDGE_TRY(fedge_shape_input(spec, &plan->shape, err));
    set_grid(&plan->grid, &plan->shape, false, lanes);
    return FEDGE_OK;
}

static const fedge_layer_spec *peek(const fedge_stage_walk *plan)
{
    return plan->layer < plan->spec->num_layers ? &plan->spec->layers[plan->layer] : NULL;
}

static bool next_is(const fedge_stage_walk *plan, fedge_layer_type type)
{
    const fedge_layer_spec *layer = peek(plan);
    return layer && layer->type == type;
}

static fedge_status take_layer(fedge_stage_walk *plan, fedge_error *err)
{
    FEDGE_TRY(fedge_shape_advance(plan->spec, plan->layer, &plan->shape, err));
    plan->layer++;
    return FEDGE_OK;
}

/* Flattening what is flat already moves nothing. */
static bool next_moves_nothing(const fedge_stage_walk *plan)
{
    return !plan->image && next_is(plan, FEDGE_LAYER_FLATTEN);
}

static fedge_status take_relus(fedge_stage_walk *plan, fedge_stage *stage, fedge_error *err)
{
    while (next_is(plan, FEDGE_LAYER_RELU) || next_moves_nothing(plan)) {
        stage->relu = stage->relu || next_is(plan, FEDGE_LAYER_RELU);
        FEDGE_TRY(take_layer(plan, err));
    }
    return FEDGE_OK;
}

static void set_window(fedge_window *window, const uint32_t kernel[2], const uint32_t stride[2],
                       const uint32_t pad[2], const uint32_t in[2], const uint32_t out[2])
{
    for (int i = 0; i < 2; i++) {
        window->kernel[i] = kernel[i];
        window->stride[i] = stride[i] == 0 ? kernel[i] : stride[i];
        window->pad[i] = pad[i];
        window->in[i] = in[i];
        window->out[i] = out[i];
    }
}

static fedge_status take_pool(fedge_stage_walk *plan, fedge_stage *stage, fedge_error *err)
{
    const fedge_layer_spec *layer = peek(plan);
    const uint32_t in[2] = {plan->shape.dims[1], plan->shape.dims[2]};
    FEDGE_TRY(take_layer(plan, err));
    set_window(&stage->windows->pool, layer->u.maxpool2d.kernel_size, layer->u.maxpool2d.stride,
               layer->u.maxpool2d.padding, in, &plan->shape.dims[1]);
    return FEDGE_OK;
}

/* Sets the segments of the convolution's input; see kernels.h. */
static void set_conv_shape(fedge_stage *stage, uint32_t lanes, uint32_t out_channels)
{
    const fedge_window *conv = &stage->windows->conv;
    const uint32_t padded_w = conv->in[1] + 2 * conv->pad[1];
    const uint32_t pixel = stage->planar ? 1 : stage->in.padded_channels;
    stage->windows->shape.num_segments = conv->kernel[0] * (stage->planar ? stage->in.channels : 1);
    stage->windows->shape.segment_length = conv->kernel[1] * pixel;
    stage->windows->shape.segment_stride = round_up(stage->windows->shape.segment_length, lanes);
    stage->windows->shape.out_channels = round_up(out_channels, lanes);
    stage->windows->shape.out_w = conv->out[1];
    stage->windows->shape.pixel_stride = conv->stride[1] * pixel;
    stage->windows->row_stride = conv->stride[0] * padded_w * pixel;
}

/* Sets the numbers of weights and biases: [outputs] units with [fan_in] weights each. */
static fedge_status set_parameters(const fedge_stage_walk *plan, fedge_stage *stage,
                                   uint64_t outputs, uint64_t fan_in, bool bias, fedge_error *err)
{
    const uint64_t weights = outputs * fan_in; /* < 2^60: both are within an example's limit */
    if (weights + outputs > FEDGE_MAX_ELEMENTS) {
        const fedge_status status = fedge_fail(
            err, FEDGE_TOO_BIG, "%llu × %llu weights are over the limit of %zu parameters",
            (unsigned long long)outputs, (unsigned long long)fan_in, FEDGE_MAX_ELEMENTS);
        return fedge_layer_fail(plan->spec, stage->layer, status, err);
    }
    stage->bias = bias;
    stage->num_weights = (size_t)weights;
    stage->num_parameters = (size_t)(bias ? weights + outputs : weights);
    return FEDGE_OK;
}

static fedge_status take_conv(fedge_stage_walk *plan, fedge_stage *stage, fedge_error *err)
{
    const fedge_layer_spec *layer = peek(plan);
    const uint32_t in[2] = {plan->shape.dims[1], plan->shape.dims[2]};
    stage->kind = FEDGE_STAGE_CONV2D;
    stage->layer = (uint16_t)plan->layer;
    stage->planar = !plan->started;
    FEDGE_TRY(take_layer(plan, err));
    if (stage->planar)
        stage->in.channels = layer->u.conv2d.in_channels;
    set_window(&stage->windows->conv, layer->u.conv2d.kernel_size, layer->u.conv2d.stride,
               layer->u.conv2d.padding, in, &plan->shape.dims[1]);
    set_conv_shape(stage, plan->lanes, layer->u.conv2d.out_channels);
    plan->image = true;
    FEDGE_TRY(set_parameters(plan, stage, layer->u.conv2d.out_channels,
                             (uint64_t)layer->u.conv2d.in_channels *
                                 stage->windows->conv.kernel[0] * stage->windows->conv.kernel[1],
                             layer->u.conv2d.bias, err));
    FEDGE_TRY(take_relus(plan, stage, err));
    stage->pooled = next_is(plan, FEDGE_LAYER_MAXPOOL2D);
    return stage->pooled ? take_pool(plan, stage, err) : FEDGE_OK;
}

static fedge_status take_linear(fedge_stage_walk *plan, fedge_stage *stage, fedge_error *err)
{
    const fedge_layer_spec *layer = peek(plan);
    stage->kind = FEDGE_STAGE_LINEAR;
    stage->layer = (uint16_t)plan->layer;
    FEDGE_TRY(take_layer(plan, err));
    return set_parameters(plan, stage, layer->u.linear.out_features, layer->u.linear.in_features,
                          layer->u.linear.bias, err);
}

/* True if the caller's example must be copied before [layer] can use it. A Linear reads it in
 * place, a Conv2d with few channels makes a padded copy itself. */
static bool needs_import(const fedge_stage_walk *plan, const fedge_layer_spec *layer)
{
    switch (layer->type) {
    case FEDGE_LAYER_RELU:
    case FEDGE_LAYER_MAXPOOL2D:
        return true;
    case FEDGE_LAYER_CONV2D:
        return plan->lanes > 1 && layer->u.conv2d.in_channels > plan->lanes / 2;
    case FEDGE_LAYER_LINEAR:
    case FEDGE_LAYER_FLATTEN:
    case FEDGE_LAYER_COUNT:
    default:
        return false;
    }
}

static fedge_status take_stage(fedge_stage_walk *plan, fedge_stage *stage, fedge_error *err)
{
    const fedge_layer_spec *layer = peek(plan);
    if (!plan->started && needs_import(plan, layer)) {
        stage->kind = FEDGE_STAGE_IMPORT;
        plan->image = plan->shape.rank == 3;
        return FEDGE_OK;
    }
    switch (layer->type) {
    case FEDGE_LAYER_CONV2D:
        return take_conv(plan, stage, err);
    case FEDGE_LAYER_MAXPOOL2D:
        stage->kind = FEDGE_STAGE_MAXPOOL2D;
        return take_pool(plan, stage, err);
    case FEDGE_LAYER_FLATTEN:
        stage->kind = FEDGE_STAGE_FLATTEN;
        plan->image = false;
        return take_layer(plan, err);
    case FEDGE_LAYER_LINEAR:
        return take_linear(plan, stage, err);
    case FEDGE_LAYER_RELU: /* taken by the stage before */
    case FEDGE_LAYER_COUNT:
    default:
        return fedge_layer_fail(
            plan->spec, plan->layer,
            fedge_fail(err, FEDGE_INTERNAL, "no fused stage takes it: report this"), err);
    }
}

/* These stages do not read their input after computing its gradient. In place costs scratch for one
 * example, so it does not pay for batches of one. A Linear reads its input until the end. */
static bool is_in_place(const fedge_stage *stage, const fedge_model_options *options)
{
    return options->training && options->max_batch > 1 && stage->pass_gradient &&
           (stage->kind == FEDGE_STAGE_CONV2D || stage->kind == FEDGE_STAGE_FLATTEN);
}

/* Sets the output's grid, with the border that a convolution after it needs. */
static fedge_status set_output(fedge_stage_walk *plan, fedge_stage *stage, fedge_error *err)
{
    set_grid(&stage->out, &plan->shape, plan->image, plan->lanes);
    if (plan->image && next_is(plan, FEDGE_LAYER_CONV2D)) {
        const fedge_layer_spec *next = peek(plan);
        if (next->u.conv2d.padding[0] <= FEDGE_MAX_SPATIAL &&
            next->u.conv2d.padding[1] <= FEDGE_MAX_SPATIAL) { /* else the next stage refuses it */
            set_border(&stage->out, next->u.conv2d.padding[0], next->u.conv2d.padding[1]);
        }
    }
    stage->image = plan->image;
    if (stage->out.size > FEDGE_MAX_EXAMPLE_FLOATS) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "the values before layer %u take %zu floats per example with padding, "
                          "over the limit of %zu",
                          (unsigned)plan->layer, stage->out.size, FEDGE_MAX_EXAMPLE_FLOATS);
    }
    return FEDGE_OK;
}

fedge_status fedge_stage_walk_next(fedge_stage_walk *plan, fedge_stage *stage, bool *more,
                                   fedge_error *err)
{
    *more = false;
    while (next_moves_nothing(plan))
        FEDGE_TRY(take_layer(plan, err));
    if (!peek(plan))
        return fedge_shape_output(&plan->shape, plan->num_parameters, err);
    memset(stage, 0, sizeof(*stage));
    memset(&plan->windows, 0, sizeof(plan->windows));
    stage->windows = &plan->windows;
    stage->in = plan->grid;
    /* Stages before the first parameters need no gradient. */
    stage->pass_gradient = plan->num_parameters > 0;
    FEDGE_TRY(take_stage(plan, stage, err));
    FEDGE_TRY(take_relus(plan, stage, err));
    FEDGE_TRY(set_output(plan, stage, err));
    stage->in_place = is_in_place(stage, plan->options);
    plan->started = true;
    plan->grid = stage->out;
    plan->num_parameters += stage->num_parameters;
    if (plan->num_parameters > FEDGE_MAX_ELEMENTS) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "the model has %zu parameters or more, over the limit of %zu",
                          plan->num_parameters, FEDGE_MAX_ELEMENTS);
    }
    *more = true;
    return FEDGE_OK;
}

size_t fedge_stage_pool_size(const fedge_stage *stage)
{
    return (size_t)stage->windows->pool.out[0] * stage->windows->pool.out[1] *
           stage->out.padded_channels;
}

uint32_t fedge_stage_band_rows(const fedge_stage *stage)
{
    /* Windows that do not overlap need only their own rows of the convolution, band by band. */
    const bool disjoint = stage->windows->pool.stride[0] >= stage->windows->pool.kernel[0] &&
                          stage->windows->pool.pad[0] == 0;
    return disjoint ? stage->windows->pool.kernel[0] : stage->windows->conv.out[0];
}

void fedge_plan_scratch(const fedge_stage *stage, bool training, fedge_scratch_counts *counts)
{
    if (stage->in_place)
        fedge_raise_to(&counts->input, stage->in.size);
    if (stage->kind != FEDGE_STAGE_CONV2D)
        return;
    const fedge_conv_shape *shape = &stage->windows->shape;
    const size_t patch = (size_t)shape->num_segments * shape->segment_length;
    const size_t gradient = (size_t)shape->num_segments * shape->segment_stride;
    const size_t channels = stage->out.channels;
    fedge_raise_to(&counts->packed, patch * shape->out_channels);
    fedge_raise_to(&counts->bias, shape->out_channels);
    if (stage->pooled) {
        fedge_raise_to(&counts->band, (size_t)fedge_stage_band_rows(stage) *
                                          stage->windows->conv.out[1] * shape->out_channels);
    }
    if (stage->planar) {
        /* Weight gradients read whole vectors: up to lanes − 1 floats after the last segment. */
        fedge_raise_to(
            &counts->input,
            (size_t)stage->in.channels *
                    ((size_t)stage->windows->conv.in[0] + 2 * stage->windows->conv.pad[0]) *
                    ((size_t)stage->windows->conv.in[1] + 2 * stage->windows->conv.pad[1]) +
                shape->segment_stride);
    }
    if (training) {
        const uint32_t *out = stage->pooled ? stage->windows->pool.out : stage->windows->conv.out;
        fedge_raise_to(&counts->packed, gradient * channels);
        fedge_raise_to(&counts->weight_gradient, gradient * channels);
        fedge_raise_to(&counts->bias_gradient, channels);
        fedge_raise_to(&counts->entries, channels * out[0] * out[1]);
        fedge_raise_to(&counts->entry_counts, channels);
    }
}

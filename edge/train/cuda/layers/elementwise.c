/* Layers of single values, and layers that remove a dimension. */
#include "edge/train/cuda/layer.h"

/* ---- ReLU and the other functions of one number ---- */

static fedge_cohort_activation describe_activation(const fedge_cohort_layer *layer,
                                                   const fedge_cohort_pass *pass)
{
    static const uint32_t FUNCTIONS[FEDGE_LAYER_COUNT] = {
        [FEDGE_LAYER_RELU] = FEDGE_COHORT_RELU,           [FEDGE_LAYER_RELU6] = FEDGE_COHORT_RELU6,
        [FEDGE_LAYER_LEAKYRELU] = FEDGE_COHORT_LEAKYRELU, [FEDGE_LAYER_GELU] = FEDGE_COHORT_GELU,
        [FEDGE_LAYER_SIGMOID] = FEDGE_COHORT_SIGMOID,     [FEDGE_LAYER_TANH] = FEDGE_COHORT_TANH,
        [FEDGE_LAYER_SILU] = FEDGE_COHORT_SILU,
    };
    const fedge_layer_spec *spec = &layer->spec;
    const bool by_tanh = spec->type == FEDGE_LAYER_GELU && spec->u.gelu.approximate != 0;
    return (fedge_cohort_activation){
        .function = by_tanh ? FEDGE_COHORT_GELU_TANH : FUNCTIONS[spec->type],
        .values = (uint32_t)fedge_shape_count(&layer->out),
        .slope = spec->type == FEDGE_LAYER_LEAKYRELU ? spec->u.leakyrelu.negative_slope : 0.0f,
        .x = layer->x[0],
        .y = layer->y,
        .dy = layer->dy,
        .dx = pass->dx};
}

static cudaError_t activation_forward(const fedge_cohort_layer *layer,
                                      const fedge_cohort_pass *pass)
{
    const fedge_cohort_activation args = describe_activation(layer, pass);
    return layer->is_done ? cudaSuccess : fedge_cohort_launch_activation(&pass->shape, &args);
}

static cudaError_t activation_backward(const fedge_cohort_layer *layer,
                                       const fedge_cohort_pass *pass)
{
    const fedge_cohort_activation args = describe_activation(layer, pass);
    return pass->dx ? fedge_cohort_launch_activation_backward(&pass->shape, &args) : cudaSuccess;
}

const fedge_cohort_layer_ops fedge_cohort_layer_relu = {.in_place = true,
                                                        .changes = true,
                                                        .keeps_y = true,
                                                        .forward = activation_forward,
                                                        .backward = activation_backward};

/* The backward pass of some functions reads x, that of others y. */
const fedge_cohort_layer_ops fedge_cohort_layer_activation = {
    .keeps_y = true, .forward = activation_forward, .backward = activation_backward};

/* ---- Add ---- */

static cudaError_t add_forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    cudaError_t error = cudaSuccess;
    for (uint32_t k = 0; k < layer->num_inputs && error == cudaSuccess; k++) {
        const fedge_cohort_add args = {.from = layer->x[k],
                                       .to = layer->y,
                                       .values = (uint32_t)fedge_shape_count(&layer->out),
                                       .adds = k > 0};
        error = fedge_cohort_launch_add(&pass->shape, &args);
    }
    return error;
}

const fedge_cohort_layer_ops fedge_cohort_layer_add = {.forward = add_forward};

/* ---- Flatten ---- */

static cudaError_t flatten_forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_add copy = {
        .from = layer->x[0], .to = layer->y, .values = (uint32_t)fedge_shape_count(&layer->out)};
    return layer->over_input ? cudaSuccess : fedge_cohort_launch_add(&pass->shape, &copy);
}

const fedge_cohort_layer_ops fedge_cohort_layer_flatten = {.in_place = true,
                                                           .forward = flatten_forward};

/* ---- Dropout ---- */

static uint64_t draws(const fedge_cohort_layer *layer)
{
    return fedge_shape_count(&layer->out);
}

static cudaError_t drop(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass,
                        const float *from, float *to)
{
    const uint32_t values = (uint32_t)fedge_shape_count(&layer->out);
    fedge_cohort_dropout args = {.values = values, .x = from, .y = to};
    args.drop = fedge_cohort_drop_of(layer, pass, layer->spec.u.dropout.p);
    args.drop.words = values;
    return fedge_cohort_launch_dropout(&pass->shape, &args);
}

static cudaError_t dropout_forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_add copy = {
        .from = layer->x[0], .to = layer->y, .values = (uint32_t)fedge_shape_count(&layer->out)};
    return pass->training      ? drop(layer, pass, layer->x[0], layer->y)
           : layer->over_input ? cudaSuccess
                               : fedge_cohort_launch_add(&pass->shape, &copy);
}

static cudaError_t dropout_backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    return pass->dx ? drop(layer, pass, layer->dy, pass->dx) : cudaSuccess;
}

const fedge_cohort_layer_ops fedge_cohort_layer_dropout = {.in_place = true,
                                                           .changes = true,
                                                           .draws = draws,
                                                           .forward = dropout_forward,
                                                           .backward = dropout_backward};

/* ---- Select and Mean ---- */

static fedge_cohort_axis describe_axis(const fedge_cohort_layer *layer,
                                       const fedge_cohort_pass *pass)
{
    const bool mean = layer->spec.type == FEDGE_LAYER_MEAN;
    const int32_t index = layer->spec.u.select.index;
    fedge_axis axis = {0};
    /* The model's shapes have passed. */
    (void)!fedge_shape_axis(&layer->in, mean ? layer->spec.u.mean.dim : layer->spec.u.select.dim,
                            &axis, NULL);
    const int32_t length = (int32_t)axis.length;
    return (fedge_cohort_axis){.outer = (uint32_t)axis.outer,
                               .length = (uint32_t)axis.length,
                               .inner = (uint32_t)axis.inner,
                               .first = mean ? 0 : (uint32_t)(index < 0 ? length + index : index),
                               .count = mean ? (uint32_t)axis.length : 1,
                               .x = layer->x[0],
                               .y = layer->y,
                               .dy = layer->dy,
                               .dx = pass->dx};
}

static cudaError_t axis_forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_axis args = describe_axis(layer, pass);
    return fedge_cohort_launch_axis(&pass->shape, &args);
}

static cudaError_t axis_backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_axis args = describe_axis(layer, pass);
    return pass->dx ? fedge_cohort_launch_axis_backward(&pass->shape, &args) : cudaSuccess;
}

const fedge_cohort_layer_ops fedge_cohort_layer_select = {.forward = axis_forward,
                                                          .backward = axis_backward};
const fedge_cohort_layer_ops fedge_cohort_layer_mean = {.forward = axis_forward,
                                                        .backward = axis_backward};

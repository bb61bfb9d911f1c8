/* ReLU and the other functions of one number. */
#include "edge/train/cuda/layer.h"

static fedge_cohort_activation describe(const fedge_cohort_layer *layer,
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

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_activation args = describe(layer, pass);
    return layer->is_done ? cudaSuccess : fedge_cohort_launch_activation(&pass->shape, &args);
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_activation args = describe(layer, pass);
    return pass->dx ? fedge_cohort_launch_activation_backward(&pass->shape, &args) : cudaSuccess;
}

const fedge_cohort_layer_ops fedge_cohort_layer_relu = {
    .in_place = true, .changes = true, .keeps_y = true, .forward = forward, .backward = backward};

/* Some need x and some need y going back: both stay. */
const fedge_cohort_layer_ops fedge_cohort_layer_activation = {
    .keeps_y = true, .forward = forward, .backward = backward};

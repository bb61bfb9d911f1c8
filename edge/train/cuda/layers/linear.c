#include "edge/train/cuda/layer.h"

static const char *refuse(const fedge_layer_spec *spec)
{
    return spec->u.linear.r > 0 ? "its low-rank adaptation (r)" : NULL;
}

static fedge_cohort_linear tensors_of(const fedge_cohort_layer *layer,
                                      const fedge_cohort_pass *pass)
{
    const uint32_t in = layer->spec.u.linear.in_features, out = layer->spec.u.linear.out_features;
    const bool bias = layer->spec.u.linear.bias;
    const size_t first = layer->first_value, behind = first + (size_t)in * out;
    const float *values = pass->values.values;
    return (fedge_cohort_linear){
        .weight = {values + first, pass->values.stride},
        .bias = {bias ? values + behind : NULL, pass->values.stride},
        .in = in,
        .out = out,
        .steps = (uint32_t)(fedge_shape_count(&layer->in) / in),
        .x = layer->x[0],
        .y = layer->y,
        .dy = layer->dy,
        .dx = pass->dx,
        .dropped = pass->dropped,
        .dweight = pass->gradients ? pass->gradients + first : NULL,
        .dbias = pass->gradients && bias ? pass->gradients + behind : NULL,
        .gradient_stride = pass->gradient_stride,
    };
}

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_linear tensors = tensors_of(layer, pass);
    return fedge_cohort_launch_linear(&pass->shape, &tensors);
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_linear tensors = tensors_of(layer, pass);
    return fedge_cohort_launch_linear_backward(&pass->shape, &tensors);
}

const fedge_cohort_layer_ops fedge_cohort_layer_linear = {
    .refuse = refuse, .forward = forward, .backward = backward};

#include "edge/train/cuda/layer.h"

static uint32_t values_of(const fedge_cohort_layer *layer)
{
    return (uint32_t)fedge_shape_count(&layer->out);
}

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    return fedge_cohort_launch_relu(&pass->shape, layer->y, values_of(layer));
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    return pass->dx ? fedge_cohort_launch_relu_backward(&pass->shape, layer->y, pass->dx,
                                                        values_of(layer))
                    : cudaSuccess;
}

const fedge_cohort_layer_ops fedge_cohort_layer_relu = {
    .in_place = true, .forward = forward, .backward = backward};

/* Select and Mean, which take a dimension away. */
#include "edge/train/cuda/layer.h"

static fedge_cohort_axis describe(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
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

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_axis args = describe(layer, pass);
    return fedge_cohort_launch_axis(&pass->shape, &args);
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_axis args = describe(layer, pass);
    return pass->dx ? fedge_cohort_launch_axis_backward(&pass->shape, &args) : cudaSuccess;
}

const fedge_cohort_layer_ops fedge_cohort_layer_select = {.forward = forward, .backward = backward};
const fedge_cohort_layer_ops fedge_cohort_layer_mean = {.forward = forward, .backward = backward};

/* Images lie flat already. */
#include "edge/train/cuda/layer.h"

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_add copy = {
        .from = layer->x[0], .to = layer->y, .values = (uint32_t)fedge_shape_count(&layer->out)};
    return layer->over_input ? cudaSuccess : fedge_cohort_launch_add(&pass->shape, &copy);
}

const fedge_cohort_layer_ops fedge_cohort_layer_flatten = {.in_place = true, .forward = forward};

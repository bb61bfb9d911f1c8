#include "edge/train/cuda/layer.h"

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
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

const fedge_cohort_layer_ops fedge_cohort_layer_add = {.forward = forward};

#include "edge/train/cuda/layer.h"

static size_t saved(const fedge_cohort_layer *layer)
{
    return fedge_shape_count(&layer->out) * sizeof(uint16_t);
}

static fedge_cohort_maxpool2d pool_of(const fedge_cohort_layer *layer,
                                      const fedge_cohort_pass *pass)
{
    fedge_cohort_maxpool2d pool = {.channels = layer->in.dims[0],
                                   .x = layer->x[0],
                                   .y = layer->y,
                                   .places = layer->saved,
                                   .dy = layer->dy,
                                   .dx = pass->dx};
    for (int axis = 0; axis < 2; axis++) {
        const uint32_t kernel = layer->spec.u.maxpool2d.kernel_size[axis];
        const uint32_t stride = layer->spec.u.maxpool2d.stride[axis];
        const uint32_t dilation = layer->spec.u.maxpool2d.dilation[axis];
        pool.in_size[axis] = layer->in.dims[1 + axis];
        pool.out_size[axis] = layer->out.dims[1 + axis];
        pool.kernel[axis] = kernel;
        pool.stride[axis] = stride > 0 ? stride : kernel;
        pool.padding[axis] = layer->spec.u.maxpool2d.padding[axis];
        pool.dilation[axis] = dilation > 0 ? dilation : 1;
    }
    return pool;
}

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_maxpool2d pool = pool_of(layer, pass);
    return fedge_cohort_launch_maxpool2d(&pass->shape, &pool);
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_maxpool2d pool = pool_of(layer, pass);
    return pass->dx ? fedge_cohort_launch_maxpool2d_backward(&pass->shape, &pool) : cudaSuccess;
}

const fedge_cohort_layer_ops fedge_cohort_layer_maxpool2d = {
    .saved = saved, .forward = forward, .backward = backward};

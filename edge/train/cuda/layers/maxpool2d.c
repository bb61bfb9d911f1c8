/* MaxPool2d, and MaxPool1d as images of height 1. */
#include "edge/train/cuda/layer.h"

static size_t saved(const fedge_cohort_layer *layer)
{
    return fedge_shape_count(&layer->out) * sizeof(uint16_t);
}

static uint32_t or_else(uint32_t value, uint32_t fallback)
{
    return value > 0 ? value : fallback;
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
    const fedge_layer_spec *spec = &layer->spec;
    fedge_shape_sides(&layer->in, pool.in_size);
    fedge_shape_sides(&layer->out, pool.out_size);
    for (int axis = 0; axis < 2; axis++) {
        pool.kernel[axis] = pool.stride[axis] = pool.dilation[axis] = 1;
        if (spec->type == FEDGE_LAYER_MAXPOOL2D) {
            pool.kernel[axis] = spec->u.maxpool2d.kernel_size[axis];
            pool.stride[axis] = or_else(spec->u.maxpool2d.stride[axis], pool.kernel[axis]);
            pool.padding[axis] = spec->u.maxpool2d.padding[axis];
            pool.dilation[axis] = or_else(spec->u.maxpool2d.dilation[axis], 1);
        } else if (axis == 1) {
            pool.kernel[axis] = spec->u.maxpool1d.kernel_size;
            pool.stride[axis] = or_else(spec->u.maxpool1d.stride, pool.kernel[axis]);
            pool.padding[axis] = spec->u.maxpool1d.padding;
            pool.dilation[axis] = or_else(spec->u.maxpool1d.dilation, 1);
        }
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

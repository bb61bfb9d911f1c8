/* AvgPool2d, and AvgPool1d as images of height 1. */
#include "edge/train/cuda/layer.h"

static fedge_cohort_averages pool_of(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_layer_spec *spec = &layer->spec;
    const bool line = spec->type == FEDGE_LAYER_AVGPOOL1D;
    fedge_cohort_averages pool = {.channels = layer->in.dims[0],
                                  .kernel = {1, 1},
                                  .count_pad = line ? spec->u.avgpool1d.count_include_pad
                                                    : spec->u.avgpool2d.count_include_pad,
                                  .divisor = line ? 0 : spec->u.avgpool2d.divisor_override,
                                  .x = layer->x[0],
                                  .y = layer->y,
                                  .dy = layer->dy,
                                  .dx = pass->dx};
    fedge_shape_sides(&layer->in, pool.in_size);
    fedge_shape_sides(&layer->out, pool.out_size);
    for (int axis = 0; axis < 2; axis++) {
        uint32_t stride = 0;
        if (!line) {
            pool.kernel[axis] = spec->u.avgpool2d.kernel_size[axis];
            pool.padding[axis] = spec->u.avgpool2d.padding[axis];
            stride = spec->u.avgpool2d.stride[axis];
        } else if (axis == 1) {
            pool.kernel[axis] = spec->u.avgpool1d.kernel_size;
            pool.padding[axis] = spec->u.avgpool1d.padding;
            stride = spec->u.avgpool1d.stride;
        }
        pool.stride[axis] = stride > 0 ? stride : pool.kernel[axis];
    }
    return pool;
}

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_averages pool = pool_of(layer, pass);
    return fedge_cohort_launch_avgpool2d(&pass->shape, &pool);
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_averages pool = pool_of(layer, pass);
    return pass->dx ? fedge_cohort_launch_avgpool2d_backward(&pass->shape, &pool) : cudaSuccess;
}

const fedge_cohort_layer_ops fedge_cohort_layer_avgpool2d = {.forward = forward,
                                                             .backward = backward};

/* Layers whose outputs are the maximum or the mean of a window. */
#include "edge/train/cuda/layer.h"

/* ---- MaxPool1d, MaxPool2d ---- */

static size_t saved_max(const fedge_cohort_layer *layer)
{
    return fedge_shape_count(&layer->out) * sizeof(uint16_t);
}

static uint32_t or_else(uint32_t value, uint32_t fallback)
{
    return value > 0 ? value : fallback;
}

static fedge_cohort_maxpool2d max_pool_of(const fedge_cohort_layer *layer,
                                          const fedge_cohort_pass *pass)
{
    fedge_cohort_maxpool2d pool = {.channels = layer->in.dims[0],
                                   .x = layer->x[0],
                                   .y = layer->y,
                                   .argmax = layer->saved,
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

static cudaError_t max_forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_maxpool2d pool = max_pool_of(layer, pass);
    return fedge_cohort_launch_maxpool2d(&pass->shape, &pool);
}

static cudaError_t max_backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_maxpool2d pool = max_pool_of(layer, pass);
    return pass->dx ? fedge_cohort_launch_maxpool2d_backward(&pass->shape, &pool) : cudaSuccess;
}

const fedge_cohort_layer_ops fedge_cohort_layer_maxpool2d = {
    .saved = saved_max, .forward = max_forward, .backward = max_backward};

/* ---- AvgPool1d, AvgPool2d ---- */

static fedge_cohort_avgpool2d average_pool_of(const fedge_cohort_layer *layer,
                                              const fedge_cohort_pass *pass)
{
    const fedge_layer_spec *spec = &layer->spec;
    const bool line = spec->type == FEDGE_LAYER_AVGPOOL1D;
    fedge_cohort_avgpool2d pool = {.channels = layer->in.dims[0],
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

static cudaError_t average_forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_avgpool2d pool = average_pool_of(layer, pass);
    return fedge_cohort_launch_avgpool2d(&pass->shape, &pool);
}

static cudaError_t average_backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_avgpool2d pool = average_pool_of(layer, pass);
    return pass->dx ? fedge_cohort_launch_avgpool2d_backward(&pass->shape, &pool) : cudaSuccess;
}

const fedge_cohort_layer_ops fedge_cohort_layer_avgpool2d = {.forward = average_forward,
                                                             .backward = average_backward};

/* ---- AdaptiveAvgPool2d ---- */

static fedge_cohort_adaptiveavgpool2d adaptive_pool_of(const fedge_cohort_layer *layer,
                                                       const fedge_cohort_pass *pass)
{
    return (fedge_cohort_adaptiveavgpool2d){.channels = layer->in.dims[0],
                                            .in_size = {layer->in.dims[1], layer->in.dims[2]},
                                            .out_size = {layer->out.dims[1], layer->out.dims[2]},
                                            .x = layer->x[0],
                                            .y = layer->y,
                                            .dy = layer->dy,
                                            .dx = pass->dx};
}

static cudaError_t adaptive_forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_adaptiveavgpool2d pool = adaptive_pool_of(layer, pass);
    return fedge_cohort_launch_adaptiveavgpool2d(&pass->shape, &pool);
}

static cudaError_t adaptive_backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_adaptiveavgpool2d pool = adaptive_pool_of(layer, pass);
    return pass->dx ? fedge_cohort_launch_adaptiveavgpool2d_backward(&pass->shape, &pool)
                    : cudaSuccess;
}

const fedge_cohort_layer_ops fedge_cohort_layer_adaptiveavgpool2d = {.forward = adaptive_forward,
                                                                     .backward = adaptive_backward};

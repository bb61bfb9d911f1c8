#include "edge/train/cuda/layer.h"

static fedge_cohort_avgpool pool_of(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    return (fedge_cohort_avgpool){.channels = layer->in.dims[0],
                                  .in_size = {layer->in.dims[1], layer->in.dims[2]},
                                  .out_size = {layer->out.dims[1], layer->out.dims[2]},
                                  .x = layer->x[0],
                                  .y = layer->y,
                                  .dy = layer->dy,
                                  .dx = pass->dx};
}

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_avgpool pool = pool_of(layer, pass);
    return fedge_cohort_launch_adaptiveavgpool2d(&pass->shape, &pool);
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_avgpool pool = pool_of(layer, pass);
    return pass->dx ? fedge_cohort_launch_adaptiveavgpool2d_backward(&pass->shape, &pool)
                    : cudaSuccess;
}

const fedge_cohort_layer_ops fedge_cohort_layer_adaptiveavgpool2d = {.forward = forward,
                                                                     .backward = backward};

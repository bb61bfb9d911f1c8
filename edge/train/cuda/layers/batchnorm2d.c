#include "edge/train/cuda/layer.h"

/* Without running statistics an evaluation would depend on its division into batches. */
static const char *refuse(const fedge_layer_spec *spec)
{
    return spec->u.batchnorm2d.track_running_stats ? NULL
                                                   : "evaluation by the batch's statistics "
                                                     "(track_running_stats false)";
}

static bool batch_coupled(const fedge_layer_spec *spec)
{
    return !spec->u.batchnorm2d.frozen;
}

/* Mean and 1 / deviation of each channel of a slot, which has memory for at least one example. */
static size_t saved(const fedge_cohort_layer *layer)
{
    return (size_t)layer->in.dims[0] * 2 * sizeof(float);
}

static fedge_cohort_batchnorm describe(const fedge_cohort_layer *layer,
                                       const fedge_cohort_pass *pass)
{
    const uint32_t channels = layer->in.dims[0];
    const bool affine = layer->spec.u.batchnorm2d.affine;
    const bool by_batch = pass->training && !layer->spec.u.batchnorm2d.frozen;
    const size_t first = layer->first_value;
    const float *values = pass->values.values;
    return (fedge_cohort_batchnorm){
        .weight = {affine ? values + first : NULL, pass->values.stride},
        .bias = {affine ? values + first + channels : NULL, pass->values.stride},
        .running = {values + layer->first_buffer, pass->values.stride},
        .tracked = by_batch && pass->tracked ? pass->tracked + layer->first_buffer : NULL,
        .channels = channels,
        .spatial = layer->in.dims[1] * layer->in.dims[2],
        .by_batch = by_batch,
        .momentum = layer->spec.u.batchnorm2d.momentum,
        .eps = layer->spec.u.batchnorm2d.eps,
        .x = layer->x[0],
        .y = layer->y,
        .moments = layer->saved,
        .dy = layer->dy,
        .dx = pass->dx,
        .dweight = pass->gradients && affine ? pass->gradients + first : NULL,
        .dbias = pass->gradients && affine ? pass->gradients + first + channels : NULL,
        .gradient_stride = pass->gradient_stride};
}

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_batchnorm args = describe(layer, pass);
    return fedge_cohort_launch_batchnorm(&pass->shape, &args);
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_batchnorm args = describe(layer, pass);
    return fedge_cohort_launch_batchnorm_backward(&pass->shape, &args);
}

const fedge_cohort_layer_ops fedge_cohort_layer_batchnorm2d = {.refuse = refuse,
                                                               .batch_coupled = batch_coupled,
                                                               .saved = saved,
                                                               .forward = forward,
                                                               .backward = backward};

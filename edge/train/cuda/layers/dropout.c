#include "edge/train/cuda/layer.h"

static uint64_t draws(const fedge_cohort_layer *layer)
{
    return fedge_shape_count(&layer->out);
}

static cudaError_t drop(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass,
                        const float *from, float *to)
{
    const uint32_t values = (uint32_t)fedge_shape_count(&layer->out);
    fedge_cohort_dropout args = {.values = values, .x = from, .y = to};
    args.drop = fedge_cohort_drop_of(layer, pass, layer->spec.u.dropout.p);
    args.drop.words = values;
    return fedge_cohort_launch_dropout(&pass->shape, &args);
}

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_add copy = {
        .from = layer->x[0], .to = layer->y, .values = (uint32_t)fedge_shape_count(&layer->out)};
    return pass->training      ? drop(layer, pass, layer->x[0], layer->y)
           : layer->over_input ? cudaSuccess
                               : fedge_cohort_launch_add(&pass->shape, &copy);
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    return pass->dx ? drop(layer, pass, layer->dy, pass->dx) : cudaSuccess;
}

const fedge_cohort_layer_ops fedge_cohort_layer_dropout = {
    .in_place = true, .changes = true, .draws = draws, .forward = forward, .backward = backward};

/* GroupNorm and LayerNorm. */
#include "edge/train/cuda/layer.h"

static bool is_groups(const fedge_cohort_layer *layer)
{
    return layer->spec.type == FEDGE_LAYER_GROUPNORM;
}

/* The rows of an example, and the layout of its weights. */
static fedge_cohort_norm rows_of(const fedge_cohort_layer *layer)
{
    const uint32_t values = (uint32_t)fedge_shape_count(&layer->in);
    if (is_groups(layer)) {
        const uint32_t groups = layer->spec.u.groupnorm.num_groups;
        const uint32_t channels = layer->spec.u.groupnorm.num_channels;
        return (fedge_cohort_norm){.rows = groups,
                                   .groups = groups,
                                   .channels = channels / groups,
                                   .spatial = values / channels,
                                   .eps = layer->spec.u.groupnorm.eps};
    }
    uint32_t width = 1;
    for (uint32_t k = 0; k < layer->spec.u.layernorm.rank; k++)
        width *= layer->spec.u.layernorm.normalized_shape[k];
    return (fedge_cohort_norm){.rows = values / width,
                               .groups = 1,
                               .channels = width,
                               .spatial = 1,
                               .eps = layer->spec.u.layernorm.eps};
}

static size_t saved(const fedge_cohort_layer *layer)
{
    return rows_of(layer).rows * 2 * sizeof(float);
}

static fedge_cohort_norm describe(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    fedge_cohort_norm norm = rows_of(layer);
    const bool weight = is_groups(layer) ? layer->spec.u.groupnorm.affine
                                         : layer->spec.u.layernorm.elementwise_affine;
    const bool bias = weight && (is_groups(layer) || layer->spec.u.layernorm.bias);
    const float *values = pass->values.values + layer->first_value;
    const size_t weights = (size_t)norm.groups * norm.channels;
    norm.weight = (fedge_cohort_weights){weight ? values : NULL, pass->values.stride};
    norm.bias = (fedge_cohort_weights){bias ? values + weights : NULL, pass->values.stride};
    norm.x = layer->x[0];
    norm.y = layer->y;
    norm.moments = layer->saved;
    norm.dy = layer->dy;
    norm.dx = pass->dx;
    norm.dweight = pass->gradients && weight ? pass->gradients + layer->first_value : NULL;
    norm.dbias = norm.dweight && bias ? norm.dweight + weights : NULL;
    norm.gradient_stride = pass->gradient_stride;
    return norm;
}

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_norm norm = describe(layer, pass);
    return fedge_cohort_launch_norm(&pass->shape, &norm);
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_norm norm = describe(layer, pass);
    return fedge_cohort_launch_norm_backward(&pass->shape, &norm);
}

const fedge_cohort_layer_ops fedge_cohort_layer_groupnorm = {
    .saved = saved, .forward = forward, .backward = backward};
const fedge_cohort_layer_ops fedge_cohort_layer_layernorm = {
    .saved = saved, .forward = forward, .backward = backward};

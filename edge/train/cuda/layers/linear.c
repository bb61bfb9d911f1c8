/* Linear. With low-rank adaptation y = x Wᵀ + b + u Bᵀ, u = lora_alpha / r · x Aᵀ, and A and B are
 * trained (edge/train/layers/linear.c). */
#include "edge/train/cuda/layer.h"

static uint32_t rows_of(const fedge_cohort_layer *layer)
{
    return (uint32_t)(fedge_shape_count(&layer->in) / layer->spec.u.linear.in_features);
}

/* Low-rank adaptation saves u and the gradient of x Aᵀ. */
static size_t saved(const fedge_cohort_layer *layer)
{
    return (size_t)2 * rows_of(layer) * layer->spec.u.linear.r * sizeof(float);
}

/* The product with the weight that begins at value [at] of the model. */
static fedge_cohort_linear product(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass,
                                   uint32_t in, uint32_t out, size_t at)
{
    return (fedge_cohort_linear){
        .weight = {pass->values.values + at, pass->values.stride},
        .in = in,
        .out = out,
        .steps = rows_of(layer),
        .dropped = pass->dropped,
        .dweight = pass->gradients ? pass->gradients + at : NULL,
        .gradient_stride = pass->gradient_stride,
    };
}

static fedge_cohort_linear whole_of(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const uint32_t in = layer->spec.u.linear.in_features, out = layer->spec.u.linear.out_features;
    const size_t behind = layer->first_value + (size_t)in * out;
    fedge_cohort_linear whole = product(layer, pass, in, out, layer->first_value);
    if (layer->spec.u.linear.bias) {
        whole.bias = (fedge_cohort_weights){pass->values.values + behind, pass->values.stride};
        whole.dbias = pass->gradients ? pass->gradients + behind : NULL;
    }
    whole.relu = layer->fuses_relu && layer->spec.u.linear.r == 0;
    if (layer->spec.u.linear.r > 0)
        whole.dweight = whole.dbias = NULL;
    whole.x = layer->x[0];
    whole.y = layer->y;
    whole.dy = layer->dy;
    whole.dx = pass->dx;
    return whole;
}

/* The products of low-rank adaptation: down by A, up by B. */
typedef struct factors {
    fedge_cohort_linear down, up;
} factors;

static factors factors_of(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const uint32_t in = layer->spec.u.linear.in_features, out = layer->spec.u.linear.out_features;
    const uint32_t r = layer->spec.u.linear.r;
    const float factor = layer->spec.u.linear.lora_alpha / (float)r;
    const size_t a = layer->first_value + (size_t)in * out + (layer->spec.u.linear.bias ? out : 0);
    float *u = layer->saved, *v = u + (size_t)rows_of(layer) * r * layer->examples;
    factors made = {product(layer, pass, in, r, a),
                    product(layer, pass, r, out, a + (size_t)r * in)};
    made.down.x = layer->x[0];
    made.down.y = u;
    made.down.y_factor = factor;
    made.down.dy = v;
    made.down.dx = pass->dx;
    made.down.dx_adds = 1;
    made.up.x = u;
    made.up.y = layer->y;
    made.up.y_adds = 1;
    made.up.relu = layer->fuses_relu; /* the sum is complete here */
    made.up.dy = layer->dy;
    made.up.dx = v;
    made.up.dx_factor = factor;
    return made;
}

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_linear whole = whole_of(layer, pass);
    cudaError_t error = fedge_cohort_launch_linear(&pass->shape, &whole);
    if (layer->spec.u.linear.r == 0)
        return error;
    const factors low = factors_of(layer, pass);
    if (error == cudaSuccess)
        error = fedge_cohort_launch_linear(&pass->shape, &low.down);
    return error == cudaSuccess ? fedge_cohort_launch_linear(&pass->shape, &low.up) : error;
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_linear whole = whole_of(layer, pass);
    cudaError_t error = fedge_cohort_launch_linear_backward(&pass->shape, &whole);
    if (layer->spec.u.linear.r == 0)
        return error;
    const factors low = factors_of(layer, pass);
    if (error == cudaSuccess)
        error = fedge_cohort_launch_linear_backward(&pass->shape, &low.up);
    return error == cudaSuccess ? fedge_cohort_launch_linear_backward(&pass->shape, &low.down)
                                : error;
}

const fedge_cohort_layer_ops fedge_cohort_layer_linear = {
    .may_fuse_relu = true, .saved = saved, .forward = forward, .backward = backward};

/* Self-attention, with the parts of edge/train/layers/multiheadattention.c. */
#include "edge/train/cuda/layer.h"

/* Arrays are (slots, batch, steps, …). */
typedef struct parts {
    fedge_cohort_linear in, out;
    fedge_cohort_attention core;
} parts;

static uint64_t draws(const fedge_cohort_layer *layer)
{
    const bool drops = layer->spec.u.multiheadattention.dropout > 0.0f;
    return drops ? fedge_cohort_attention_words(layer->in.dims[0],
                                                layer->spec.u.multiheadattention.num_heads,
                                                layer->spec.u.multiheadattention.is_causal)
                 : 0;
}

/* Saves for each step: q, k, v and their gradients; context and its gradient; the attention weights
 * and the gradients of scores. */
static size_t saved(const fedge_cohort_layer *layer)
{
    const size_t steps = layer->in.dims[0], dim = layer->in.dims[1];
    return steps * (8 * dim + 2 * layer->spec.u.multiheadattention.num_heads * steps) *
           sizeof(float);
}

/* The next array, of [floats] for each step. */
static float *take(const fedge_cohort_layer *layer, float **next, size_t floats)
{
    float *at = *next;
    *next += floats * layer->in.dims[0] * layer->examples;
    return at;
}

static void give(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass, size_t *next,
                 fedge_cohort_linear *to)
{
    to->in = layer->in.dims[1];
    to->steps = layer->in.dims[0];
    to->dropped = pass->dropped;
    to->gradient_stride = pass->gradient_stride;
    to->weight = (fedge_cohort_weights){pass->values.values + *next, pass->values.stride};
    to->dweight = pass->gradients ? pass->gradients + *next : NULL;
    *next += (size_t)to->in * to->out;
    if (layer->spec.u.multiheadattention.bias) {
        to->bias = (fedge_cohort_weights){pass->values.values + *next, pass->values.stride};
        to->dbias = pass->gradients ? pass->gradients + *next : NULL;
        *next += to->out;
    }
}

static parts parts_of(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const uint32_t steps = layer->in.dims[0], dim = layer->in.dims[1];
    const uint32_t heads = layer->spec.u.multiheadattention.num_heads;
    float *next = layer->saved;
    size_t value = layer->first_value;
    parts made = {.core = {.steps = steps,
                           .dim = dim,
                           .heads = heads,
                           .causal = layer->spec.u.multiheadattention.is_causal}};
    float *const qkv = take(layer, &next, (size_t)3 * dim);
    float *const dqkv = take(layer, &next, (size_t)3 * dim);
    float *const context = take(layer, &next, dim), *const dcontext = take(layer, &next, dim);
    made.core.qkv = qkv;
    made.core.dqkv = dqkv;
    made.core.context = context;
    made.core.dcontext = dcontext;
    made.core.att = take(layer, &next, (size_t)heads * steps);
    made.core.dscores = take(layer, &next, (size_t)heads * steps);
    made.core.drop = fedge_cohort_drop_of(layer, pass, layer->spec.u.multiheadattention.dropout);
    made.core.drop.words = draws(layer);
    made.in = (fedge_cohort_linear){
        .out = 3 * dim, .x = layer->x[0], .y = qkv, .dy = dqkv, .dx = pass->dx};
    made.out = (fedge_cohort_linear){
        .out = dim, .x = context, .y = layer->y, .dy = layer->dy, .dx = dcontext};
    give(layer, pass, &value, &made.in);
    give(layer, pass, &value, &made.out);
    return made;
}

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const parts self = parts_of(layer, pass);
    cudaError_t error = fedge_cohort_launch_linear(&pass->shape, &self.in);
    if (error == cudaSuccess)
        error = fedge_cohort_launch_attention(&pass->shape, &self.core);
    return error == cudaSuccess ? fedge_cohort_launch_linear(&pass->shape, &self.out) : error;
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const parts self = parts_of(layer, pass);
    cudaError_t error = fedge_cohort_launch_linear_backward(&pass->shape, &self.out);
    if (error == cudaSuccess)
        error = fedge_cohort_launch_attention_backward(&pass->shape, &self.core);
    return error == cudaSuccess ? fedge_cohort_launch_linear_backward(&pass->shape, &self.in)
                                : error;
}

const fedge_cohort_layer_ops fedge_cohort_layer_multiheadattention = {
    .draws = draws, .saved = saved, .forward = forward, .backward = backward};

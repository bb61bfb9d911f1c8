/* TransformerEncoderLayer, with the parts of edge/train/layers/transformerencoderlayer.c:
 *
 *   m = x + out(attention(in(norm1(x))))   y = m + linear2(activation(linear1(norm2(m))))
 *
 * Dropout applies to the attention weights, the outputs of out and linear2, and the activation's
 * values, for a chunk of examples at a time.
 */
#include "edge/train/cuda/layer.h"
#include "edge/train/layers/attention.h"

/* Arrays are (slots, batch, steps, …). */
typedef struct parts {
    uint32_t steps, dim, hidden, heads;
    fedge_cohort_norm norm1, norm2;
    fedge_cohort_linear in, out, linear1, linear2;
    fedge_cohort_attention attention;
    fedge_cohort_activation activation;
    float *residual, *dresidual;
    float *after, *dhidden;
    float *dropped; /* dim floats for each step: a gradient after dropout; a part of dqkv that is
                       not in use yet */
    fedge_cohort_drop drop;
} parts;

static parts sizes_of(const fedge_cohort_layer *layer)
{
    return (parts){.steps = layer->in.dims[0],
                   .dim = layer->in.dims[1],
                   .hidden = layer->spec.u.transformerencoderlayer.dim_feedforward,
                   .heads = layer->spec.u.transformerencoderlayer.nhead};
}

/* Words that the attention draws for an example; the other arrays' words follow. */
static uint64_t attention_words(const fedge_cohort_layer *layer)
{
    return fedge_cohort_attention_words(layer->in.dims[0],
                                        layer->spec.u.transformerencoderlayer.nhead,
                                        layer->spec.u.transformerencoderlayer.is_causal);
}

static uint64_t draws(const fedge_cohort_layer *layer)
{
    const parts self = sizes_of(layer);
    return layer->spec.u.transformerencoderlayer.dropout > 0.0f
               ? attention_words(layer) +
                     (uint64_t)self.steps * (2 * (uint64_t)self.dim + self.hidden)
               : 0;
}

/* Bytes of an example. For each step, dim floats: both norms' outputs, context, residual and its
 * gradient, one more gradient; 3 · dim: q, k, v, and their gradients; hidden: before and after the
 * activation, and a gradient; then attention weights, the scores' gradients and moments. */
static size_t saved(const fedge_cohort_layer *layer)
{
    const parts self = sizes_of(layer);
    const size_t steps = self.steps;
    return steps * (12 * (size_t)self.dim + 3 * (size_t)self.hidden + 2 * self.heads * steps + 4) *
           sizeof(float);
}

/* The next array, of [floats] for each step. */
static float *take(const fedge_cohort_layer *layer, float **next, size_t floats)
{
    float *at = *next;
    *next += floats * layer->in.dims[0] * layer->examples;
    return at;
}

static void lay_out(const fedge_cohort_layer *layer, parts *self)
{
    float *next = layer->saved;
    float *const normal1 = take(layer, &next, self->dim), *const normal2 =
                                                              take(layer, &next, self->dim);
    float *const context = take(layer, &next, self->dim), *const gradient =
                                                              take(layer, &next, self->dim);
    float *const qkv = take(layer, &next, 3 * self->dim), *const dqkv =
                                                              take(layer, &next, 3 * self->dim);
    float *const before = take(layer, &next, self->hidden), *const after =
                                                                take(layer, &next, self->hidden);
    float *const dhidden = take(layer, &next, self->hidden);
    self->after = after;
    self->dhidden = dhidden;
    self->dropped = dqkv;
    self->residual = take(layer, &next, self->dim);
    self->dresidual = take(layer, &next, self->dim);
    const size_t att = (size_t)self->heads * self->steps;
    self->attention =
        (fedge_cohort_attention){.steps = self->steps,
                                 .dim = self->dim,
                                 .heads = self->heads,
                                 .causal = layer->spec.u.transformerencoderlayer.is_causal,
                                 .qkv = qkv,
                                 .context = context,
                                 .dcontext = gradient,
                                 .dqkv = dqkv};
    self->attention.att = take(layer, &next, att);
    self->attention.dscores = take(layer, &next, att);
    self->norm1 = (fedge_cohort_norm){.x = layer->x[0], .y = normal1, .dy = gradient};
    self->norm2 = (fedge_cohort_norm){
        .x = self->residual, .y = normal2, .dy = gradient, .dx = self->dresidual};
    self->norm1.moments = take(layer, &next, 2);
    self->norm2.moments = take(layer, &next, 2);
    self->in = (fedge_cohort_linear){.x = normal1, .y = qkv, .dy = dqkv, .dx = gradient};
    self->out = (fedge_cohort_linear){
        .x = context, .y = self->residual, .dy = self->dresidual, .dx = gradient};
    self->linear1 = (fedge_cohort_linear){.x = normal2, .y = before, .dy = dhidden, .dx = gradient};
    self->linear2 =
        (fedge_cohort_linear){.x = after, .y = layer->y, .dy = layer->dy, .dx = dhidden};
    self->activation = (fedge_cohort_activation){
        .function = layer->spec.u.transformerencoderlayer.activation != 0 ? FEDGE_COHORT_GELU
                                                                          : FEDGE_COHORT_RELU,
        .values = self->steps * self->hidden,
        .x = before,
        .y = after,
        .dy = dhidden,
        .dx = dhidden};
}

/* The layer's tensors, one after another. */
typedef struct tensors {
    const fedge_cohort_pass *pass;
    size_t next;
    bool bias;
} tensors;

static fedge_cohort_weights value_at(const tensors *from, size_t count, float **gradient,
                                     size_t *next)
{
    *gradient = from->pass->gradients ? from->pass->gradients + *next : NULL;
    const fedge_cohort_weights at = {from->pass->values.values + *next, from->pass->values.stride};
    *next += count;
    return at;
}

static void give_linear(tensors *from, uint32_t in, uint32_t out, uint32_t steps,
                        fedge_cohort_linear *to)
{
    to->in = in;
    to->out = out;
    to->steps = steps;
    to->dropped = from->pass->dropped;
    to->gradient_stride = from->pass->gradient_stride;
    to->weight = value_at(from, (size_t)in * out, &to->dweight, &from->next);
    if (from->bias)
        to->bias = value_at(from, out, &to->dbias, &from->next);
}

static void give_norm(tensors *from, const parts *self, float eps, fedge_cohort_norm *to)
{
    to->rows = self->steps;
    to->groups = to->spatial = 1;
    to->channels = self->dim;
    to->eps = eps;
    to->gradient_stride = from->pass->gradient_stride;
    to->weight = value_at(from, self->dim, &to->dweight, &from->next);
    if (from->bias)
        to->bias = value_at(from, self->dim, &to->dbias, &from->next);
}

static parts parts_of(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    parts self = sizes_of(layer);
    tensors from = {pass, layer->first_value, layer->spec.u.transformerencoderlayer.bias};
    const float eps = layer->spec.u.transformerencoderlayer.layer_norm_eps;
    lay_out(layer, &self);
    give_linear(&from, self.dim, 3 * self.dim, self.steps, &self.in);
    give_linear(&from, self.dim, self.dim, self.steps, &self.out);
    give_linear(&from, self.dim, self.hidden, self.steps, &self.linear1);
    give_linear(&from, self.hidden, self.dim, self.steps, &self.linear2);
    give_norm(&from, &self, eps, &self.norm1);
    give_norm(&from, &self, eps, &self.norm2);
    self.norm1.dx = pass->dx;
    self.drop = fedge_cohort_drop_of(layer, pass, layer->spec.u.transformerencoderlayer.dropout);
    self.drop.chunk = fedge_attention_chunk(self.steps, UINT32_MAX);
    self.attention.drop = self.drop;
    self.attention.drop.words = attention_words(layer);
    if (self.drop.p > 0.0f) {
        self.linear2.dy = self.dropped;
        self.out.dy = self.dropped;
    }
    return self;
}

static cudaError_t add(const fedge_cohort_pass *pass, const parts *self, const float *from,
                       float *to)
{
    const fedge_cohort_add args = {
        .from = from, .to = to, .values = self->steps * self->dim, .adds = true};
    return fedge_cohort_launch_add(&pass->shape, &args);
}

/* Arrays that are dropped, in the order of their draws. */
enum { DROP_RESIDUAL, DROP_HIDDEN, DROP_Y };

/* Writes [from] after dropout to [to]; does nothing when nothing is dropped. */
static cudaError_t drop(const fedge_cohort_pass *pass, const parts *self, int what,
                        const float *from, float *to)
{
    const uint32_t residual = self->steps * self->dim, hidden = self->steps * self->hidden;
    fedge_cohort_dropout args = {
        .drop = self->drop, .values = what == DROP_HIDDEN ? hidden : residual, .x = from, .y = to};
    args.drop.words = args.values;
    args.drop.earlier = self->attention.drop.words + (what > DROP_RESIDUAL ? residual : 0) +
                        (what > DROP_HIDDEN ? hidden : 0);
    return self->drop.p > 0.0f ? fedge_cohort_launch_dropout(&pass->shape, &args) : cudaSuccess;
}

/* Launches unless an earlier launch failed. */
#define LAUNCH(error, call) ((error) == cudaSuccess ? (call) : (error))

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const parts self = parts_of(layer, pass);
    const fedge_cohort_shape *shape = &pass->shape;
    cudaError_t error = fedge_cohort_launch_norm(shape, &self.norm1);
    error = LAUNCH(error, fedge_cohort_launch_linear(shape, &self.in));
    error = LAUNCH(error, fedge_cohort_launch_attention(shape, &self.attention));
    error = LAUNCH(error, fedge_cohort_launch_linear(shape, &self.out));
    error = LAUNCH(error, drop(pass, &self, DROP_RESIDUAL, self.residual, self.residual));
    error = LAUNCH(error, add(pass, &self, layer->x[0], self.residual));
    error = LAUNCH(error, fedge_cohort_launch_norm(shape, &self.norm2));
    error = LAUNCH(error, fedge_cohort_launch_linear(shape, &self.linear1));
    error = LAUNCH(error, fedge_cohort_launch_activation(shape, &self.activation));
    error = LAUNCH(error, drop(pass, &self, DROP_HIDDEN, self.after, self.after));
    error = LAUNCH(error, fedge_cohort_launch_linear(shape, &self.linear2));
    error = LAUNCH(error, drop(pass, &self, DROP_Y, layer->y, layer->y));
    return LAUNCH(error, add(pass, &self, self.residual, layer->y));
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const parts self = parts_of(layer, pass);
    const fedge_cohort_shape *shape = &pass->shape;
    cudaError_t error = drop(pass, &self, DROP_Y, layer->dy, self.dropped);
    error = LAUNCH(error, fedge_cohort_launch_linear_backward(shape, &self.linear2));
    error = LAUNCH(error, drop(pass, &self, DROP_HIDDEN, self.dhidden, self.dhidden));
    error = LAUNCH(error, fedge_cohort_launch_activation_backward(shape, &self.activation));
    error = LAUNCH(error, fedge_cohort_launch_linear_backward(shape, &self.linear1));
    error = LAUNCH(error, fedge_cohort_launch_norm_backward(shape, &self.norm2));
    error = LAUNCH(error, add(pass, &self, layer->dy, self.dresidual));
    error = LAUNCH(error, drop(pass, &self, DROP_RESIDUAL, self.dresidual, self.dropped));
    error = LAUNCH(error, fedge_cohort_launch_linear_backward(shape, &self.out));
    error = LAUNCH(error, fedge_cohort_launch_attention_backward(shape, &self.attention));
    error = LAUNCH(error, fedge_cohort_launch_linear_backward(shape, &self.in));
    error = LAUNCH(error, fedge_cohort_launch_norm_backward(shape, &self.norm1));
    return pass->dx ? LAUNCH(error, add(pass, &self, self.dresidual, pass->dx)) : error;
}

const fedge_cohort_layer_ops fedge_cohort_layer_transformerencoderlayer = {
    .draws = draws, .saved = saved, .forward = forward, .backward = backward};

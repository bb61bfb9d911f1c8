/* TransformerEncoderLayer, of the same parts as edge/train/layers/transformerencoderlayer.c:
 *
 *   m = x + out(attention(in(norm1(x))))   y = m + linear2(activation(linear1(norm2(m))))
 */
#include "edge/train/cuda/layer.h"

/* Arrays are (slots, batch, steps, …). */
typedef struct parts {
    uint32_t steps, dim, hidden, heads;
    fedge_cohort_norm norm1, norm2;
    fedge_cohort_linear in, out, linear1, linear2;
    fedge_cohort_attention attention;
    fedge_cohort_activation activation;
    float *middle, *dmiddle;
} parts;

static const char *refuse(const fedge_layer_spec *spec)
{
    return spec->u.transformerencoderlayer.dropout > 0.0f ? "its dropout" : NULL;
}

static parts sizes_of(const fedge_cohort_layer *layer)
{
    return (parts){.steps = layer->in.dims[0],
                   .dim = layer->in.dims[1],
                   .hidden = layer->spec.u.transformerencoderlayer.dim_feedforward,
                   .heads = layer->spec.u.transformerencoderlayer.nhead};
}

/* Of an example. Steps of dim: both norms' outputs, context, middle and its gradient, one more
 * gradient; of 3 · dim: q, k and v, and their gradient; of hidden: before and after the activation,
 * and a gradient; shares and scores' gradients; moments. */
static size_t saved(const fedge_cohort_layer *layer)
{
    const parts self = sizes_of(layer);
    const size_t steps = self.steps;
    return steps * (12 * (size_t)self.dim + 3 * (size_t)self.hidden + 2 * self.heads * steps + 4) *
           sizeof(float);
}

/* The next array of so many floats a step. */
static float *take(const fedge_cohort_layer *layer, float **next, size_t floats)
{
    float *at = *next;
    *next += floats * layer->in.dims[0] * layer->examples;
    return at;
}

static void place(const fedge_cohort_layer *layer, parts *self)
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
    self->middle = take(layer, &next, self->dim);
    self->dmiddle = take(layer, &next, self->dim);
    const size_t shares = (size_t)self->heads * self->steps;
    self->attention =
        (fedge_cohort_attention){.steps = self->steps,
                                 .dim = self->dim,
                                 .heads = self->heads,
                                 .causal = layer->spec.u.transformerencoderlayer.is_causal,
                                 .qkv = qkv,
                                 .context = context,
                                 .dcontext = gradient,
                                 .dqkv = dqkv};
    self->attention.shares = take(layer, &next, shares);
    self->attention.dscores = take(layer, &next, shares);
    self->norm1 = (fedge_cohort_norm){.x = layer->x[0], .y = normal1, .dy = gradient};
    self->norm2 =
        (fedge_cohort_norm){.x = self->middle, .y = normal2, .dy = gradient, .dx = self->dmiddle};
    self->norm1.moments = take(layer, &next, 2);
    self->norm2.moments = take(layer, &next, 2);
    self->in = (fedge_cohort_linear){.x = normal1, .y = qkv, .dy = dqkv, .dx = gradient};
    self->out =
        (fedge_cohort_linear){.x = context, .y = self->middle, .dy = self->dmiddle, .dx = gradient};
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
    place(layer, &self);
    give_linear(&from, self.dim, 3 * self.dim, self.steps, &self.in);
    give_linear(&from, self.dim, self.dim, self.steps, &self.out);
    give_linear(&from, self.dim, self.hidden, self.steps, &self.linear1);
    give_linear(&from, self.hidden, self.dim, self.steps, &self.linear2);
    give_norm(&from, &self, eps, &self.norm1);
    give_norm(&from, &self, eps, &self.norm2);
    self.norm1.dx = pass->dx;
    return self;
}

static cudaError_t add(const fedge_cohort_pass *pass, const parts *self, const float *from,
                       float *to)
{
    const fedge_cohort_add args = {
        .from = from, .to = to, .values = self->steps * self->dim, .adds = true};
    return fedge_cohort_launch_add(&pass->shape, &args);
}

/* Each launch, while those before it went well. */
#define LAUNCH(error, call) ((error) == cudaSuccess ? (call) : (error))

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const parts self = parts_of(layer, pass);
    const fedge_cohort_shape *shape = &pass->shape;
    cudaError_t error = fedge_cohort_launch_norm(shape, &self.norm1);
    error = LAUNCH(error, fedge_cohort_launch_linear(shape, &self.in));
    error = LAUNCH(error, fedge_cohort_launch_attention(shape, &self.attention));
    error = LAUNCH(error, fedge_cohort_launch_linear(shape, &self.out));
    error = LAUNCH(error, add(pass, &self, layer->x[0], self.middle));
    error = LAUNCH(error, fedge_cohort_launch_norm(shape, &self.norm2));
    error = LAUNCH(error, fedge_cohort_launch_linear(shape, &self.linear1));
    error = LAUNCH(error, fedge_cohort_launch_activation(shape, &self.activation));
    error = LAUNCH(error, fedge_cohort_launch_linear(shape, &self.linear2));
    return LAUNCH(error, add(pass, &self, self.middle, layer->y));
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const parts self = parts_of(layer, pass);
    const fedge_cohort_shape *shape = &pass->shape;
    cudaError_t error = fedge_cohort_launch_linear_backward(shape, &self.linear2);
    error = LAUNCH(error, fedge_cohort_launch_activation_backward(shape, &self.activation));
    error = LAUNCH(error, fedge_cohort_launch_linear_backward(shape, &self.linear1));
    error = LAUNCH(error, fedge_cohort_launch_norm_backward(shape, &self.norm2));
    error = LAUNCH(error, add(pass, &self, layer->dy, self.dmiddle));
    error = LAUNCH(error, fedge_cohort_launch_linear_backward(shape, &self.out));
    error = LAUNCH(error, fedge_cohort_launch_attention_backward(shape, &self.attention));
    error = LAUNCH(error, fedge_cohort_launch_linear_backward(shape, &self.in));
    error = LAUNCH(error, fedge_cohort_launch_norm_backward(shape, &self.norm1));
    return pass->dx ? LAUNCH(error, add(pass, &self, self.dmiddle, pass->dx)) : error;
}

const fedge_cohort_layer_ops fedge_cohort_layer_transformerencoderlayer = {
    .refuse = refuse, .saved = saved, .forward = forward, .backward = backward};

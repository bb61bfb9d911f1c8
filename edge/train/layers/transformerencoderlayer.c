/* TransformerEncoderLayer with its norms first (Xiong et al. 2020):
 *
 *   m = x + dropout(self_attn(norm1(x)))
 *   y = m + dropout(linear2(dropout(activation(linear1(norm2(m))))))
 *
 * x, m, y: (steps, d_model). Names, initialisers and defaults are PyTorch's, except for batch_first
 * and norm_first. The backward pass recomputes the norms, the attention's weights and GELU. Forward
 * saves q, k and v, the context, m and linear1's output, 5 · d_model + dim_feedforward floats per
 * step, and a bit for each value that dropout may drop.
 */
#include "edge/train/layers/affine.h"
#include "edge/train/layers/attention.h"
#include "edge/train/layers/norm.h"

#define AT(member) offsetof(fedge_layer_spec, u.transformerencoderlayer.member)

enum { RELU, GELU, ACTIVATIONS };

/* The layer's arguments and sizes, for a chunk of examples. */
typedef struct layout {
    size_t steps, dim, heads, hidden, examples, rows;
    bool gelu, bias, causal;
    float dropout, eps;
} layout;

static layout layout_of(const fedge_layer_run *run, size_t examples)
{
    const fedge_layer_spec *spec = run->spec;
    return (layout){.steps = run->in[0].dims[0],
                    .dim = run->in[0].dims[1],
                    .heads = spec->u.transformerencoderlayer.nhead,
                    .hidden = spec->u.transformerencoderlayer.dim_feedforward,
                    .examples = examples,
                    .rows = examples * run->in[0].dims[0],
                    .gelu = spec->u.transformerencoderlayer.activation == GELU,
                    .bias = spec->u.transformerencoderlayer.bias,
                    .causal = spec->u.transformerencoderlayer.is_causal,
                    .dropout = spec->u.transformerencoderlayer.dropout,
                    .eps = spec->u.transformerencoderlayer.layer_norm_eps};
}

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    const uint32_t hidden = layer->u.transformerencoderlayer.dim_feedforward;
    if (!layer->u.transformerencoderlayer.batch_first) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "batch_first is false, but sequences are always [batch, steps, "
                          "features] here: set it to true");
    }
    if (!layer->u.transformerencoderlayer.norm_first) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "norm_first is false, but only the pre-norm layer is built, which "
                          "trains without warm-up: set it to true");
    }
    if (hidden == 0 || hidden > FEDGE_ARGUMENT_MAX_COUNT) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "dim_feedforward %u must be 1 to %d",
                          (unsigned)hidden, (int)FEDGE_ARGUMENT_MAX_COUNT);
    }
    *out = *in;
    return fedge_attention_check(in, layer->u.transformerencoderlayer.d_model,
                                 layer->u.transformerencoderlayer.nhead, "d_model", "nhead", err);
}

static uint32_t add_linear(fedge_layer_tensor *list, const char *weight, const char *bias,
                           uint32_t in, uint32_t out)
{
    const float bound = fedge_init_bound(in);
    list[0] = (fedge_layer_tensor){
        .name = weight, .rank = 2, .shape = {out, in}, .init = FEDGE_INIT_UNIFORM, .scale = bound};
    list[1] = (fedge_layer_tensor){
        .name = bias, .rank = 1, .shape = {out}, .init = FEDGE_INIT_UNIFORM, .scale = bound};
    return !bias ? 1 : 2;
}

static uint32_t add_norm(fedge_layer_tensor *list, const char *weight, const char *bias,
                         uint32_t dim)
{
    fedge_norm_tensors(1, &dim, list);
    list[0].name = weight;
    list[1].name = bias;
    return !bias ? 1 : 2;
}

static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
{
    const uint32_t dim = layer->u.transformerencoderlayer.d_model;
    const uint32_t hidden = layer->u.transformerencoderlayer.dim_feedforward;
    const bool bias = layer->u.transformerencoderlayer.bias;
    uint32_t n = fedge_attention_tensors(dim, bias, true, list);
    n += add_linear(list + n, "linear1.weight", bias ? "linear1.bias" : NULL, dim, hidden);
    n += add_linear(list + n, "linear2.weight", bias ? "linear2.bias" : NULL, hidden, dim);
    n += add_norm(list + n, "norm1.weight", bias ? "norm1.bias" : NULL, dim);
    n += add_norm(list + n, "norm2.weight", bias ? "norm2.bias" : NULL, dim);
    return n;
}

/* ---- saved by forward for one chunk ---- */

typedef struct record {
    float *qkv, *context, *softmax, *residual, *hidden; /* hidden: after ReLU (and dropout), before
                                                      GELU */
    float *moments1, *moments2;
    uint8_t *attention_mask, *mask1, *mask2; /* NULL without dropout */
    uint8_t *hidden_mask;                    /* used by GELU; else NULL */
} record;

/* Bytes per example of each mask. */
typedef struct masks {
    uint64_t attention, residual, hidden;
} masks;

static masks masks_of(const layout *self)
{
    if (!(self->dropout > 0.0f))
        return (masks){0};
    const uint64_t values = (uint64_t)self->steps * self->hidden;
    return (masks){.attention = FEDGE_ATTENTION_MASK(self->steps, self->heads),
                   .residual = ((uint64_t)self->steps * self->dim + 7) / 8,
                   .hidden = self->gelu ? (values + 7) / 8 : 0};
}

/* Bytes per example, a multiple of 4. */
static uint64_t record_bytes(const layout *self)
{
    const masks bits = masks_of(self);
    const uint64_t steps = self->steps;
    const uint64_t floats = steps * (5 * (uint64_t)self->dim + self->hidden + 4) +
                            FEDGE_ATTENTION_SOFTMAX(steps, self->heads);
    return floats * sizeof(float) + (bits.attention + 2 * bits.residual + bits.hidden + 3) / 4 * 4;
}

static record record_at(const layout *self, void *base)
{
    const size_t rows = self->rows, dim = self->dim, n = self->examples;
    const masks bits = masks_of(self);
    record made = {.qkv = base};
    made.context = made.qkv + rows * 3 * dim;
    made.residual = made.context + rows * dim;
    made.hidden = made.residual + rows * dim;
    made.moments1 = made.hidden + rows * self->hidden;
    made.moments2 = made.moments1 + rows * 2;
    made.softmax = made.moments2 + rows * 2;
    if (self->dropout > 0.0f) {
        made.attention_mask = (uint8_t *)(made.softmax + rows * self->heads * 2);
        made.mask1 = made.attention_mask + n * (size_t)bits.attention;
        made.mask2 = made.mask1 + n * (size_t)bits.residual;
        made.hidden_mask = self->gelu ? made.mask2 + n * (size_t)bits.residual : NULL;
    }
    return made;
}

/* ---- working memory of one chunk, after the attention's, in floats ---- */

static uint64_t attention_scratch(const layout *self)
{
    return fedge_attention_scratch(self->steps, self->dim, self->heads);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Backward: two gradients of (rows, dim), and with dropout a third; then q, k and v's gradient, or
 * the hidden values and their gradient, whichever is larger. */
static uint64_t backward_floats(const layout *self)
{
    const uint64_t arrays = self->dropout > 0.0f ? 3 : 2;
    const uint64_t wide =
        larger(3 * (uint64_t)self->dim, (self->gelu ? 2 : 1) * (uint64_t)self->hidden);
    return (uint64_t)self->rows * (arrays * self->dim + wide);
}

static uint64_t forward_floats(const layout *self)
{
    return (uint64_t)self->rows * larger(self->dim, self->gelu ? self->hidden : 0);
}

static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    const layout self = layout_of(run, fedge_attention_chunk(run->in[0].dims[0], run->batch));
    const uint64_t core = attention_scratch(&self), one = record_bytes(&self);
    need->saved = run->batch * one;
    need->forward = (core + forward_floats(&self)) * sizeof(float) + self.examples * one;
    need->backward = (core + backward_floats(&self)) * sizeof(float);
}

/* ---- the layer's parts ---- */

typedef struct parts {
    fedge_attention core;
    fedge_affine in, out, linear1, linear2;
    fedge_norm norm1, norm2;
} parts;

/* Takes the next tensors of the run: a weight, and a bias if there is one. */
static void take_affine(const fedge_layer_run *run, const layout *self, uint32_t *next, size_t in,
                        size_t out, fedge_affine *made)
{
    const uint32_t at = *next;
    *made = (fedge_affine){.kernels = run->kernels,
                           .gemm_pack = run->gemm_pack,
                           .rows = self->rows,
                           .in = in,
                           .out = out,
                           .weight = run->values[at],
                           .bias = self->bias ? run->values[at + 1] : NULL,
                           .weight_gradient = run->gradients[at],
                           .bias_gradient = self->bias ? run->gradients[at + 1] : NULL};
    *next += self->bias ? 2 : 1;
}

static void take_norm(const fedge_layer_run *run, const layout *self, uint32_t *next,
                      float *moments, fedge_norm *made)
{
    const uint32_t at = *next;
    *made = (fedge_norm){.kernels = run->kernels,
                         .rows = self->rows,
                         .groups = 1,
                         .channels = self->dim,
                         .spatial = 1,
                         .eps = self->eps,
                         .weight = run->values[at],
                         .bias = self->bias ? run->values[at + 1] : NULL,
                         .weight_gradient = run->gradients[at],
                         .bias_gradient = self->bias ? run->gradients[at + 1] : NULL,
                         .moments = moments};
    *next += self->bias ? 2 : 1;
}

static parts parts_of(const fedge_layer_run *run, const layout *self, const record *saved)
{
    uint32_t next = 0;
    parts made = {.core = {.kernels = run->kernels,
                           .gemm_pack = run->gemm_pack,
                           .examples = self->examples,
                           .steps = self->steps,
                           .embed_dim = self->dim,
                           .heads = self->heads,
                           .causal = self->causal,
                           .dropout = run->training ? self->dropout : 0.0f}};
    take_affine(run, self, &next, self->dim, 3 * self->dim, &made.in);
    take_affine(run, self, &next, self->dim, self->dim, &made.out);
    take_affine(run, self, &next, self->dim, self->hidden, &made.linear1);
    take_affine(run, self, &next, self->hidden, self->dim, &made.linear2);
    take_norm(run, self, &next, saved->moments1, &made.norm1);
    take_norm(run, self, &next, saved->moments2, &made.norm2);
    return made;
}

/* ---- the passes ---- */

/* Dropout in place, in training. mask: whole bytes per example, or NULL. */
static void drop(const fedge_layer_run *run, const layout *self, size_t width, float *x,
                 uint8_t *mask)
{
    const size_t n = self->steps * width;
    for (size_t i = 0; run->training && self->dropout > 0.0f && i < self->examples; i++) {
        run->kernels->drop_draw(run->rng, self->dropout, n, x + i * n, x + i * n,
                                !mask ? NULL : mask + i * ((n + 7) / 8));
    }
}

/* The gradient of dropout; dx may be dy. */
static void undrop(const fedge_layer_run *run, const layout *self, size_t width,
                   const uint8_t *mask, const float *dy, float *dx)
{
    const size_t n = self->steps * width;
    for (size_t i = 0; i < self->examples; i++) {
        run->kernels->drop_apply(self->dropout, n, mask + i * ((n + 7) / 8), dy + i * n,
                                 dx + i * n);
    }
}

static void forward_chunk(const fedge_layer_run *run, const layout *self, const record *saved,
                          const float *x, float *y, float *scratch)
{
    const parts at = parts_of(run, self, saved);
    const size_t values = self->rows * self->dim, hidden = self->rows * self->hidden;
    float *t = scratch + (size_t)attention_scratch(self);
    fedge_norm_forward(&at.norm1, x, t);
    fedge_affine_forward(&at.in, t, saved->qkv);
    fedge_attention_forward(&at.core, saved->qkv, saved->context, saved->softmax,
                            saved->attention_mask, run->rng, scratch);
    fedge_affine_forward(&at.out, saved->context, saved->residual);
    drop(run, self, self->dim, saved->residual, saved->mask1);
    run->kernels->add(x, values, saved->residual);

    float *active = saved->hidden;
    fedge_norm_forward(&at.norm2, saved->residual, t);
    fedge_affine_forward(&at.linear1, t, saved->hidden);
    if (self->gelu) {
        active = t;
        run->kernels->gelu(saved->hidden, active, hidden);
    } else {
        run->kernels->relu_forward(active, hidden);
    }
    drop(run, self, self->hidden, active, saved->hidden_mask);
    fedge_affine_forward(&at.linear2, active, y);
    drop(run, self, self->dim, y, saved->mask2);
    run->kernels->add(saved->residual, values, y);
}

/* Replaces dh, the gradient after the activation and dropout, by the one before. Returns their
 * output; that of GELU is recomputed after dh. */
static const float *backward_activation(const fedge_layer_run *run, const layout *self,
                                        const record *saved, float *dh)
{
    const size_t hidden = self->rows * self->hidden;
    const bool drops = self->dropout > 0.0f;
    if (!self->gelu) { /* both ReLU and dropout leave 0 */
        const float scale = drops && self->dropout < 1.0f ? 1.0f / (1.0f - self->dropout) : 1.0f;
        run->kernels->relu_backward(saved->hidden, dh, hidden);
        for (size_t i = 0; scale != 1.0f && i < hidden; i++)
            dh[i] *= scale;
        return saved->hidden;
    }
    float *recomputed = dh + hidden;
    if (drops)
        undrop(run, self, self->hidden, saved->hidden_mask, dh, dh);
    run->kernels->gelu_backward(saved->hidden, dh, dh, recomputed, hidden);
    if (drops)
        undrop(run, self, self->hidden, saved->hidden_mask, recomputed, recomputed);
    return recomputed;
}

/* Computes dm, the gradient of m. t: (rows, dim). dh: (rows, hidden), with GELU twice that. */
static void backward_feedforward(const fedge_layer_run *run, const layout *self, const parts *at,
                                 const record *saved, const float *dy, float *dm, float *t,
                                 float *dh)
{
    const float *g = dy;
    if (self->dropout > 0.0f) {
        undrop(run, self, self->dim, saved->mask2, dy, dm);
        g = dm;
    }
    fedge_affine_backward(&at->linear2, g, dh);
    fedge_affine_gradients(&at->linear2, backward_activation(run, self, saved, dh), g);
    fedge_norm_recompute(&at->norm2, saved->residual, t);
    fedge_affine_gradients(&at->linear1, t, dh);
    fedge_affine_backward(&at->linear1, dh, t);
    fedge_norm_backward(&at->norm2, saved->residual, t, dm);
    run->kernels->add(dy, self->rows * self->dim, dm);
}

static void backward_chunk(const fedge_layer_run *run, const layout *self, const record *saved,
                           const float *x, const float *dy, float *dx)
{
    const parts at = parts_of(run, self, saved);
    const size_t values = self->rows * self->dim;
    float *scratch = run->scratch;
    float *dm = scratch + (size_t)attention_scratch(self), *t = dm + values;
    float *dropped = t + values, *wide = self->dropout > 0.0f ? dropped + values : dropped;
    backward_feedforward(run, self, &at, saved, dy, dm, t, wide);

    const float *g = dm;
    if (self->dropout > 0.0f) {
        undrop(run, self, self->dim, saved->mask1, dm, dropped);
        g = dropped;
    }
    fedge_affine_gradients(&at.out, saved->context, g);
    fedge_affine_backward(&at.out, g, t);
    fedge_attention_backward(&at.core, saved->qkv, saved->softmax, saved->attention_mask, t, wide,
                             scratch);
    fedge_norm_recompute(&at.norm1, x, t);
    fedge_affine_gradients(&at.in, t, wide);
    fedge_affine_backward(&at.in, wide, t);
    fedge_norm_backward(&at.norm1, x, t, dx);
    if (dx)
        run->kernels->add(dm, values, dx);
}

static void forward(const fedge_layer_run *run)
{
    const size_t steps = run->in[0].dims[0], example = steps * run->in[0].dims[1];
    const size_t chunk = fedge_attention_chunk(steps, run->batch);
    float *scratch = run->scratch;
    const layout largest = layout_of(run, chunk);
    float *temporary = scratch + (size_t)(attention_scratch(&largest) + forward_floats(&largest));
    uint8_t *base = run->saved;
    for (size_t first = 0, n; first < run->batch; first += n) {
        n = fedge_attention_next(chunk, run->batch - first);
        const layout self = layout_of(run, n);
        const record saved = record_at(&self, !base ? (void *)temporary : base);
        forward_chunk(run, &self, &saved, run->x[0] + first * example, run->y + first * example,
                      scratch);
        base = !base ? NULL : base + n * (size_t)record_bytes(&self);
    }
}

static void backward(const fedge_layer_run *run)
{
    const size_t steps = run->in[0].dims[0], example = steps * run->in[0].dims[1];
    const size_t chunk = fedge_attention_chunk(steps, run->batch);
    uint8_t *base = run->saved;
    for (size_t first = 0, n; first < run->batch; first += n) {
        n = fedge_attention_next(chunk, run->batch - first);
        const layout self = layout_of(run, n);
        const record saved = record_at(&self, base);
        backward_chunk(run, &self, &saved, run->x[0] + first * example, run->dy + first * example,
                       !run->dx[0] ? NULL : run->dx[0] + first * example);
        base += n * (size_t)record_bytes(&self);
    }
}

static const char *activation_name(unsigned choice)
{
    return choice == RELU ? "relu" : choice == GELU ? "gelu" : NULL;
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_COUNT_ARGUMENT("d_model", AT(d_model)),
    FEDGE_COUNT_ARGUMENT("nhead", AT(nhead)),
    FEDGE_U32_ARGUMENT("dim_feedforward", AT(dim_feedforward), false, 1, FEDGE_ARGUMENT_MAX_COUNT,
                       2048),
    FEDGE_F32_ARGUMENT("dropout", AT(dropout), 0, 1, 0.1),
    {.name = "activation",
     .kind = FEDGE_ARGUMENT_CHOICE,
     .offset = AT(activation),
     .num_choices = ACTIVATIONS,
     .choice_name = activation_name},
    FEDGE_EPS_ARGUMENT("layer_norm_eps", AT(layer_norm_eps)),
    FEDGE_BOOL_ARGUMENT("batch_first", AT(batch_first), 1),
    FEDGE_BOOL_ARGUMENT("norm_first", AT(norm_first), 1),
    FEDGE_BOOL_ARGUMENT("bias", AT(bias), 1),
    FEDGE_BOOL_ARGUMENT("is_causal", AT(is_causal), 0),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_transformerencoderlayer = {
    .arguments = ARGUMENTS,
    .flags = FEDGE_USES_X | FEDGE_Y_ON_X | FEDGE_DX_ON_DY | FEDGE_X_IS_STEPS,
    .infer = infer,
    .tensors = tensors,
    .sizes = sizes,
    .forward = forward,
    .backward = backward,
};

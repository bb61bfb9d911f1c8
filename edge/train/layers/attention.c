#include "edge/train/layers/attention.h"

#include <math.h>

#include "edge/train/layers/mask.h"

#define CHUNK_ROWS 256
#define ATTENTION_ROWS 48 /* of P at a time: a multiple of every table's tile of products */

/* One head of one example. */
typedef struct head {
    const fedge_attention *self;
    const float *q, *k, *v; /* rows of 3 · embed_dim */
    float *dq, *dk, *dv;
    size_t dim, stride;
    float scale; /* 1 / √dim */
} head;

uint32_t fedge_attention_chunk(uint64_t steps, uint32_t batch)
{
    const uint64_t whole = steps >= CHUNK_ROWS ? 1 : CHUNK_ROWS / steps;
    return whole < batch ? (uint32_t)whole : batch;
}

fedge_status fedge_attention_check(const fedge_shape *in, uint32_t embed_dim, uint32_t heads,
                                   const char *width, const char *count, fedge_error *err)
{
    char text[FEDGE_SHAPE_TEXT_SIZE];
    if (embed_dim == 0 || heads == 0 || embed_dim > FEDGE_ARGUMENT_MAX_COUNT ||
        embed_dim % heads != 0) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT, "%s %u must be 1 to %d and a multiple of %s %u", width,
            (unsigned)embed_dim, (int)FEDGE_ARGUMENT_MAX_COUNT, count, (unsigned)heads);
    }
    if (in->rank != 2 || in->dims[1] != embed_dim) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT, "the input is %s but must be [steps, %s], %s being %u",
            fedge_shape_text(in->rank, in->dims, text), width, width, (unsigned)embed_dim);
    }
    if (in->dims[0] > FEDGE_MAX_ATTENTION_STEPS) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%u steps are more than the limit of %d",
                          (unsigned)in->dims[0], FEDGE_MAX_ATTENTION_STEPS);
    }
    return FEDGE_OK;
}

uint32_t fedge_attention_tensors(uint32_t embed_dim, bool bias, bool inner,
                                 fedge_layer_tensor *list)
{
    static const char *const NAMES[2][4] = {
        {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"},
        {"self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight",
         "self_attn.out_proj.bias"}};
    const char *const *names = NAMES[inner];
    uint32_t n = 0;
    list[n++] = (fedge_layer_tensor){.name = names[0],
                                     .rank = 2,
                                     .shape = {3 * embed_dim, embed_dim},
                                     .init = FEDGE_INIT_UNIFORM, /* xavier_uniform_ */
                                     .scale = sqrtf(1.5f / (float)embed_dim)};
    if (bias) {
        list[n++] = (fedge_layer_tensor){.name = names[1], .rank = 1, .shape = {3 * embed_dim}};
    }
    list[n++] = (fedge_layer_tensor){.name = names[2],
                                     .rank = 2,
                                     .shape = {embed_dim, embed_dim},
                                     .init = FEDGE_INIT_UNIFORM,
                                     .scale = fedge_init_bound(embed_dim)};
    if (bias) {
        list[n++] = (fedge_layer_tensor){.name = names[3], .rank = 1, .shape = {embed_dim}};
    }
    return n;
}

uint64_t fedge_attention_scratch(uint64_t steps)
{
    return 2 * ATTENTION_ROWS * steps;
}

/* c = a · b or c += a · b, the inner dimension of a and b given by their strides. */
static void multiply(const fedge_attention *self, size_t m, size_t n, size_t k, const float *a,
                     size_t a_row, size_t a_column, const float *b, size_t b_row, size_t b_column,
                     float *c, size_t c_row, bool accumulate)
{
    self->kernels->gemm(&(fedge_gemm){.m = m,
                                      .n = n,
                                      .k = k,
                                      .a = a,
                                      .a_row = a_row,
                                      .a_column = a_column,
                                      .b = b,
                                      .b_row = b_row,
                                      .b_column = b_column,
                                      .c = c,
                                      .c_row = c_row,
                                      .accumulate = accumulate},
                        self->gemm_pack);
}

static head head_of(const fedge_attention *self, size_t example, size_t index, const float *qkv,
                    float *dqkv)
{
    const size_t dim = self->embed_dim / self->heads, stride = 3 * self->embed_dim;
    const size_t at = example * self->steps * stride + index * dim;
    head one = {.self = self,
                .q = qkv + at,
                .k = qkv + at + self->embed_dim,
                .v = qkv + at + 2 * self->embed_dim,
                .dim = dim,
                .stride = stride,
                .scale = 1.0f / sqrtf((float)dim)};
    if (dqkv != NULL) {
        one.dq = dqkv + at;
        one.dk = dqkv + at + self->embed_dim;
        one.dv = dqkv + at + 2 * self->embed_dim;
    }
    return one;
}

/* Steps that the rows [first, end) see together, and that row [i] sees. */
static size_t seen(const fedge_attention *self, size_t end)
{
    return self->causal ? end : self->steps;
}

/* s (end − first, steps): q kᵀ of these rows, before the scale. */
static void scores(const head *one, size_t first, size_t end, float *s)
{
    multiply(one->self, end - first, seen(one->self, end), one->dim, one->q + first * one->stride,
             one->stride, 1, one->k, 1, one->stride, s, one->self->steps, false);
}

/* s = softmax(scale · s) over [n] values; returns the logarithm of the sum of exponentials. */
static float softmax(float *s, size_t n, float scale)
{
    float most = s[0], sum = 0.0f;
    for (size_t j = 1; j < n; j++) {
        most = s[j] > most ? s[j] : most;
    }
    for (size_t j = 0; j < n; j++) {
        s[j] = expf((s[j] - most) * scale);
        sum += s[j];
    }
    const float inverse = 1.0f / sum;
    for (size_t j = 0; j < n; j++) {
        s[j] *= inverse;
    }
    return most * scale + logf(sum);
}

static void forward_head(const head *one, float *context, float *sums, uint8_t *kept,
                         fedge_rng *rng, float *s)
{
    const fedge_attention *self = one->self;
    const size_t steps = self->steps, row_bytes = (size_t)FEDGE_MASK_BYTES(steps);
    for (size_t first = 0; first < steps; first += ATTENTION_ROWS) {
        const size_t end = steps - first < ATTENTION_ROWS ? steps : first + ATTENTION_ROWS;
        const size_t width = seen(self, end);
        scores(one, first, end, s);
        for (size_t i = first; i < end; i++) {
            float *row = s + (i - first) * steps;
            const size_t n = seen(self, i + 1);
            const float sum = softmax(row, n, one->scale);
            if (sums != NULL) {
                sums[i] = sum;
            }
            if (self->dropout > 0.0f) {
                fedge_mask_draw(rng, self->dropout, n, row, row,
                                kept == NULL ? NULL : kept + i * row_bytes);
            }
            for (size_t j = n; j < width; j++) {
                row[j] = 0.0f;
            }
        }
        multiply(self, end - first, one->dim, width, s, steps, 1, one->v, one->stride, 1,
                 context + first * self->embed_dim, self->embed_dim, false);
    }
}

void fedge_attention_forward(const fedge_attention *self, const float *qkv, float *context,
                             float *sums, uint8_t *kept, fedge_rng *rng, float *scratch)
{
    const size_t steps = self->steps;
    for (size_t i = 0; i < self->examples * self->heads; i++) {
        const size_t example = i / self->heads, index = i % self->heads;
        const head one = head_of(self, example, index, qkv, NULL);
        forward_head(&one, context + example * steps * self->embed_dim + index * one.dim,
                     sums == NULL ? NULL : sums + i * steps,
                     kept == NULL ? NULL : kept + i * steps * (size_t)FEDGE_MASK_BYTES(steps), rng,
                     scratch);
    }
}

/* s: scores to P, row by row; and those that a row does not see to 0. */
static void again(const head *one, size_t first, size_t end, const float *sums, float *s)
{
    const fedge_attention *self = one->self;
    for (size_t i = first; i < end; i++) {
        float *row = s + (i - first) * self->steps;
        const size_t n = seen(self, i + 1);
        for (size_t j = 0; j < n; j++) {
            row[j] = expf(row[j] * one->scale - sums[i]);
        }
        for (size_t j = n; j < seen(self, end); j++) {
            row[j] = 0.0f;
        }
    }
}

/* With dropout: t = s or dP, dropped and scaled as forward did. */
static void drop(const fedge_attention *self, size_t first, size_t end, const uint8_t *kept,
                 const float *s, float *t)
{
    const size_t steps = self->steps, row_bytes = (size_t)FEDGE_MASK_BYTES(steps);
    for (size_t i = first; i < end; i++) {
        const size_t at = (i - first) * steps, n = seen(self, i + 1);
        fedge_mask_apply(self->dropout, n, kept + i * row_bytes, s + at, t + at);
        for (size_t j = n; j < seen(self, end); j++) {
            t[at + j] = 0.0f;
        }
    }
}

/* p: P to dS = P ∘ (dP − Σ_j P dP) · scale, by rows; 0 stays where a row does not see. */
static void softmax_backward(const head *one, size_t first, size_t end, const float *dp, float *p)
{
    const size_t steps = one->self->steps, width = seen(one->self, end);
    for (size_t i = 0; i < end - first; i++) {
        float *row = p + i * steps;
        const float *d = dp + i * steps;
        float dot = 0.0f;
        for (size_t j = 0; j < width; j++) {
            dot += row[j] * d[j];
        }
        for (size_t j = 0; j < width; j++) {
            row[j] *= (d[j] - dot) * one->scale;
        }
    }
}

/* The last band sees every step, so it begins dk and dv and the others add. */
static void backward_head(const head *one, const float *sums, const uint8_t *kept,
                          const float *dcontext, float *s)
{
    const fedge_attention *self = one->self;
    const size_t steps = self->steps, row = self->embed_dim, dim = one->dim, wide = one->stride;
    float *t = s + ATTENTION_ROWS * steps;
    const size_t last = (steps - 1) / ATTENTION_ROWS * ATTENTION_ROWS;
    for (size_t first = last + ATTENTION_ROWS; first > 0;) {
        first -= ATTENTION_ROWS;
        const size_t end = first == last ? steps : first + ATTENTION_ROWS, rows = end - first;
        const size_t width = seen(self, end);
        const float *dc = dcontext + first * row;
        const float *dropped = s;
        scores(one, first, end, s);
        again(one, first, end, sums, s);
        if (self->dropout > 0.0f) {
            drop(self, first, end, kept, s, t);
            dropped = t;
        }
        multiply(self, width, dim, rows, dropped, 1, steps, dc, row, 1, one->dv, wide,
                 first != last);
        multiply(self, rows, width, dim, dc, row, 1, one->v, 1, wide, t, steps, false);
        if (self->dropout > 0.0f) {
            drop(self, first, end, kept, t, t);
        }
        softmax_backward(one, first, end, t, s);
        multiply(self, width, dim, rows, s, 1, steps, one->q + first * wide, wide, 1, one->dk, wide,
                 first != last);
        multiply(self, rows, dim, width, s, steps, 1, one->k, wide, 1, one->dq + first * wide, wide,
                 false);
    }
}

void fedge_attention_backward(const fedge_attention *self, const float *qkv, const float *sums,
                              const uint8_t *kept, const float *dcontext, float *dqkv,
                              float *scratch)
{
    const size_t steps = self->steps;
    for (size_t i = 0; i < self->examples * self->heads; i++) {
        const size_t example = i / self->heads, index = i % self->heads;
        const head one = head_of(self, example, index, qkv, dqkv);
        backward_head(&one, sums + i * steps,
                      kept == NULL ? NULL : kept + i * steps * (size_t)FEDGE_MASK_BYTES(steps),
                      dcontext + example * steps * self->embed_dim + index * one.dim, scratch);
    }
}

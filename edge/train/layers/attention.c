#include "edge/train/layers/attention.h"

#include <math.h>

#define CHUNK_ROWS 160
#define ATTENTION_ROWS 24 /* rows of P at a time: a multiple of every table's tile of products */

uint32_t fedge_attention_chunk(uint64_t steps, uint32_t batch)
{
    const uint64_t whole = steps >= CHUNK_ROWS ? 1 : CHUNK_ROWS / steps;
    return whole < batch ? (uint32_t)whole : batch;
}

size_t fedge_attention_next(size_t chunk, size_t left)
{
    const size_t chunks = (left + chunk - 1) / chunk;
    return (left + chunks - 1) / chunks;
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
    if (bias)
        list[n++] = (fedge_layer_tensor){.name = names[1], .rank = 1, .shape = {3 * embed_dim}};
    list[n++] = (fedge_layer_tensor){.name = names[2],
                                     .rank = 2,
                                     .shape = {embed_dim, embed_dim},
                                     .init = FEDGE_INIT_UNIFORM,
                                     .scale = fedge_init_bound(embed_dim)};
    if (bias)
        list[n++] = (fedge_layer_tensor){.name = names[3], .rank = 1, .shape = {embed_dim}};
    return n;
}

/* One head of one example. */
typedef struct head {
    const fedge_attention *self;
    const float *q, *k, *v; /* rows of 3 · embed_dim */
    float *dq, *dk, *dv;
    size_t dim, stride;
    float scale;       /* 1 / √dim */
    float *softmax;    /* (steps, 2) */
    uint8_t *mask;     /* (steps, bytes of a bit per step), or NULL */
    float *s, *t;      /* scratch: (ATTENTION_ROWS, steps) each */
    float *transposed; /* scratch: kᵀ, then vᵀ: (dim, steps) each */
} head;

uint64_t fedge_attention_scratch(uint64_t steps, uint64_t embed_dim, uint64_t heads)
{
    return steps * (2 * ATTENTION_ROWS + 2 * (embed_dim / heads));
}

static head head_of(const fedge_attention *self, size_t index, const float *qkv, float *dqkv,
                    float *softmax, uint8_t *mask, float *scratch)
{
    const size_t dim = self->embed_dim / self->heads, stride = 3 * self->embed_dim;
    const size_t steps = self->steps, row_bytes = (steps + 7) / 8;
    const size_t at = index / self->heads * steps * stride + index % self->heads * dim;
    head one = {.self = self,
                .q = qkv + at,
                .k = qkv + at + self->embed_dim,
                .v = qkv + at + 2 * self->embed_dim,
                .dim = dim,
                .stride = stride,
                .scale = 1.0f / sqrtf((float)dim),
                .softmax = softmax + index * steps * 2,
                .mask = !mask ? NULL : mask + index * steps * row_bytes,
                .s = scratch,
                .t = scratch + ATTENTION_ROWS * steps,
                .transposed = scratch + 2 * ATTENTION_ROWS * steps};
    if (dqkv) {
        one.dq = dqkv + at;
        one.dk = dqkv + at + self->embed_dim;
        one.dv = dqkv + at + 2 * self->embed_dim;
    }
    return one;
}

/* Rows of P from [first] on, and the steps to which they attend together. */
typedef struct band {
    size_t first, rows, width;
} band;

static band band_at(const fedge_attention *self, size_t first)
{
    const size_t left = self->steps - first;
    const size_t rows = left < ATTENTION_ROWS ? left : ATTENTION_ROWS;
    return (band){first, rows, self->causal ? first + rows : self->steps};
}

static size_t visible_steps(const fedge_attention *self, size_t row)
{
    return self->causal ? row + 1 : self->steps;
}

/* Transposes k or v to (dim, steps). */
static void transpose_head(const head *one, const float *from, float *to)
{
    const size_t steps = one->self->steps;
    one->self->kernels->transpose(steps, one->dim, from, one->stride, to, steps);
}

/* c (rows, width) = a (rows, dim) · b (dim, steps): scores, or the gradient of P. */
static void multiply_scores(const head *one, const band *at, const float *a, size_t a_row,
                            const float *b, float *c)
{
    const size_t steps = one->self->steps;
    one->self->kernels->small_gemm(&(fedge_gemm){.m = at->rows,
                                                 .n = at->width,
                                                 .k = one->dim,
                                                 .a = a + at->first * a_row,
                                                 .a_row = a_row,
                                                 .a_column = 1,
                                                 .b = b,
                                                 .b_row = steps,
                                                 .b_column = 1,
                                                 .c = c,
                                                 .c_row = steps});
}

/* c (rows, dim) = s (rows, width) · b (width, dim). */
static void multiply_values(const head *one, const band *at, const float *s, const float *b,
                            float *c, size_t c_row)
{
    one->self->kernels->small_gemm(&(fedge_gemm){.m = at->rows,
                                                 .n = one->dim,
                                                 .k = at->width,
                                                 .a = s,
                                                 .a_row = one->self->steps,
                                                 .a_column = 1,
                                                 .b = b,
                                                 .b_row = one->stride,
                                                 .b_column = 1,
                                                 .c = c + at->first * c_row,
                                                 .c_row = c_row});
}

/* c (width, dim) = sᵀ · b (rows, dim), or added to c. */
static void multiply_transposed(const head *one, const band *at, const float *s, const float *b,
                                size_t b_row, float *c, bool add)
{
    one->self->kernels->small_gemm(&(fedge_gemm){.m = at->width,
                                                 .n = one->dim,
                                                 .k = at->rows,
                                                 .a = s,
                                                 .a_row = 1,
                                                 .a_column = one->self->steps,
                                                 .b = b + at->first * b_row,
                                                 .b_row = b_row,
                                                 .b_column = 1,
                                                 .c = c,
                                                 .c_row = one->stride,
                                                 .accumulate = add});
}

/* Replaces the scores in s by P. */
static void softmax_band(const head *one, const band *at, bool recompute)
{
    one->self->kernels->softmax(&(fedge_softmax){.s = one->s,
                                                 .rows = at->rows,
                                                 .stride = one->self->steps,
                                                 .width = at->width,
                                                 .visible = one->self->causal ? at->first + 1 : 0,
                                                 .scale = one->scale,
                                                 .saved = one->softmax + 2 * at->first,
                                                 .recompute = recompute});
}

/* Drops elements of P; masked ones draw no numbers. */
static void draw(const head *one, const band *at, fedge_rng *rng)
{
    const fedge_attention *self = one->self;
    const size_t steps = self->steps, row_bytes = (steps + 7) / 8;
    for (size_t r = 0; r < at->rows; r++) {
        const size_t row = at->first + r;
        self->kernels->drop_draw(rng, self->dropout, visible_steps(self, row), one->s + r * steps,
                                 one->s + r * steps,
                                 !one->mask ? NULL : one->mask + row * row_bytes);
    }
}

/* t = [from], dropped and scaled as in forward; masked elements are 0. */
static void drop(const head *one, const band *at, const float *from)
{
    const fedge_attention *self = one->self;
    const size_t steps = self->steps, row_bytes = (steps + 7) / 8;
    for (size_t r = 0; r < at->rows; r++) {
        const size_t row = at->first + r, n = visible_steps(self, row);
        self->kernels->drop_apply(self->dropout, n, one->mask + row * row_bytes, from + r * steps,
                                  one->t + r * steps);
        for (size_t j = n; j < at->width; j++)
            one->t[r * steps + j] = 0.0f;
    }
}

void fedge_attention_forward(const fedge_attention *self, const float *qkv, float *context,
                             float *softmax, uint8_t *mask, fedge_rng *rng, float *scratch)
{
    const size_t steps = self->steps, dim = self->embed_dim;
    for (size_t i = 0; i < self->examples * self->heads; i++) {
        const head one = head_of(self, i, qkv, NULL, softmax, mask, scratch);
        float *out = context + i / self->heads * steps * dim + i % self->heads * one.dim;
        transpose_head(&one, one.k, one.transposed);
        for (size_t first = 0; first < steps; first += ATTENTION_ROWS) {
            const band at = band_at(self, first);
            multiply_scores(&one, &at, one.q, one.stride, one.transposed, one.s);
            softmax_band(&one, &at, false);
            if (self->dropout > 0.0f)
                draw(&one, &at, rng);
            multiply_values(&one, &at, one.s, one.v, out, dim);
        }
    }
}

/* dout: this head's columns of the context's gradient. The last band attends to every step, so it
 * sets dk and dv, and the others add to them. */
static void backward_head(const head *one, const float *dout)
{
    const fedge_attention *self = one->self;
    const size_t steps = self->steps, row = self->embed_dim;
    const size_t last = (steps - 1) / ATTENTION_ROWS * ATTENTION_ROWS;
    float *transposed_v = one->transposed + one->dim * steps;
    transpose_head(one, one->k, one->transposed);
    transpose_head(one, one->v, transposed_v);
    for (size_t next = last + ATTENTION_ROWS; next > 0; next -= ATTENTION_ROWS) {
        const band at = band_at(self, next - ATTENTION_ROWS);
        const bool add = at.first != last;
        const bool drops = self->dropout > 0.0f;
        multiply_scores(one, &at, one->q, one->stride, one->transposed, one->s);
        softmax_band(one, &at, true);
        if (drops)
            drop(one, &at, one->s);
        multiply_transposed(one, &at, drops ? one->t : one->s, dout, row, one->dv, add);
        multiply_scores(one, &at, dout, row, transposed_v, one->t);
        if (drops)
            drop(one, &at, one->t);
        self->kernels->softmax_backward(&(fedge_softmax){.s = one->s,
                                                         .rows = at.rows,
                                                         .stride = steps,
                                                         .width = at.width,
                                                         .scale = one->scale},
                                        one->t);
        multiply_transposed(one, &at, one->s, one->q, one->stride, one->dk, add);
        multiply_values(one, &at, one->s, one->k, one->dq, one->stride);
    }
}

void fedge_attention_backward(const fedge_attention *self, const float *qkv, float *softmax,
                              uint8_t *mask, const float *dcontext, float *dqkv, float *scratch)
{
    const size_t steps = self->steps, dim = self->embed_dim;
    for (size_t i = 0; i < self->examples * self->heads; i++) {
        const head one = head_of(self, i, qkv, dqkv, softmax, mask, scratch);
        backward_head(&one, dcontext + i / self->heads * steps * dim + i % self->heads * one.dim);
    }
}

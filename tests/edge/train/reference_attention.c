/* The reference network's layers of attention, from PyTorch's definitions alone. */
#include "tests/edge/train/reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/edge/train/support.h"

static const double *take(const double **values, bool there, size_t n)
{
    const double *taken = there ? *values : NULL;
    *values += there ? n : 0;
    return taken;
}

/* y (rows, out) = x (rows, in) Wᵀ + b */
static void linear(const double *x, size_t rows, size_t in, size_t out, const double *weight,
                   const double *bias, double *y)
{
    for (size_t i = 0; i < rows * out; i++) {
        y[i] = !bias ? 0.0 : bias[i % out];
        for (size_t k = 0; k < in; k++)
            y[i] += x[i / out * in + k] * weight[i % out * in + k];
    }
}

static void norm(const double *x, size_t rows, size_t n, double eps, const double *weight,
                 const double *bias, double *y)
{
    for (size_t r = 0; r < rows; r++) {
        double mean = 0.0, variance = 0.0;
        for (size_t i = 0; i < n; i++)
            mean += x[r * n + i] / (double)n;
        for (size_t i = 0; i < n; i++)
            variance += pow(x[r * n + i] - mean, 2.0) / (double)n;
        for (size_t i = 0; i < n; i++) {
            y[r * n + i] =
                (x[r * n + i] - mean) / sqrt(variance + eps) * weight[i] + (!bias ? 0.0 : bias[i]);
        }
    }
}

static void drop(fedge_rng *rng, float p, double *x, size_t n)
{
    for (size_t i = 0; p > 0.0f && i < n; i++)
        x[i] *= fedge_rng_float(rng) >= p ? 1.0 / (1.0 - (double)p) : 0.0;
}

/* One head: rows of q, k, v and out lie [stride] and [wide] apart. */
static void attend(const double *q, const double *k, const double *v, size_t stride, size_t steps,
                   size_t dim, bool causal, float p, fedge_rng *rng, double *out, size_t wide)
{
    double *weights = new_doubles(steps);
    for (size_t i = 0; i < steps; i++) {
        const size_t n = causal ? i + 1 : steps;
        double sum = 0.0;
        for (size_t j = 0; j < n; j++) {
            double score = 0.0;
            for (size_t d = 0; d < dim; d++)
                score += q[i * stride + d] * k[j * stride + d];
            weights[j] = exp(score / sqrt((double)dim));
            sum += weights[j];
        }
        for (size_t j = 0; j < n; j++)
            weights[j] /= sum;
        drop(rng, p, weights, n);
        for (size_t d = 0; d < dim; d++) {
            out[i * wide + d] = 0.0;
            for (size_t j = 0; j < n; j++)
                out[i * wide + d] += weights[j] * v[j * stride + d];
        }
    }
    free(weights);
}

typedef struct attention {
    size_t batch, steps, dim, heads;
    bool causal;
    float p;
    const double *in_weight, *in_bias, *out_weight, *out_bias;
} attention;

static void take_attention(attention *self, bool bias, const double **values)
{
    const size_t dim = self->dim;
    self->in_weight = take(values, true, 3 * dim * dim);
    self->in_bias = take(values, bias, 3 * dim);
    self->out_weight = take(values, true, dim * dim);
    self->out_bias = take(values, bias, dim);
}

static void self_attention(const attention *self, const double *x, fedge_rng *rng, double *y)
{
    const size_t dim = self->dim, rows = self->batch * self->steps, part = dim / self->heads;
    double *qkv = new_doubles(rows * 3 * dim), *context = new_doubles(rows * dim);
    linear(x, rows, dim, 3 * dim, self->in_weight, self->in_bias, qkv);
    for (size_t b = 0; b < self->batch; b++) {
        for (size_t h = 0; h < self->heads; h++) {
            const double *q = qkv + b * self->steps * 3 * dim + h * part;
            attend(q, q + dim, q + 2 * dim, 3 * dim, self->steps, part, self->causal, self->p, rng,
                   context + b * self->steps * dim + h * part, dim);
        }
    }
    linear(context, rows, dim, dim, self->out_weight, self->out_bias, y);
    free(context);
    free(qkv);
}

static void encoder(const fedge_layer_spec *layer, const double *x, size_t batch, size_t steps,
                    const double **values, fedge_rng *rng, double *y)
{
    const size_t dim = layer->u.transformerencoderlayer.d_model, rows = batch * steps;
    const size_t hidden = layer->u.transformerencoderlayer.dim_feedforward;
    const double eps = (double)layer->u.transformerencoderlayer.layer_norm_eps;
    const float p = layer->u.transformerencoderlayer.dropout;
    const bool bias = layer->u.transformerencoderlayer.bias;
    attention self = {.batch = batch,
                      .steps = steps,
                      .dim = dim,
                      .heads = layer->u.transformerencoderlayer.nhead,
                      .causal = layer->u.transformerencoderlayer.is_causal,
                      .p = p};
    take_attention(&self, bias, values);
    const double *weight1 = take(values, true, hidden * dim), *bias1 = take(values, bias, hidden);
    const double *weight2 = take(values, true, hidden * dim), *bias2 = take(values, bias, dim);
    const double *scale1 = take(values, true, dim), *shift1 = take(values, bias, dim);
    const double *scale2 = take(values, true, dim), *shift2 = take(values, bias, dim);
    double *t = new_doubles(rows * dim), *m = new_doubles(rows * dim);
    double *h = new_doubles(rows * hidden);
    norm(x, rows, dim, eps, scale1, shift1, t);
    self_attention(&self, t, rng, m);
    drop(rng, p, m, rows * dim);
    for (size_t i = 0; i < rows * dim; i++)
        m[i] += x[i];
    norm(m, rows, dim, eps, scale2, shift2, t);
    linear(t, rows, dim, hidden, weight1, bias1, h);
    for (size_t i = 0; i < rows * hidden; i++) {
        h[i] = layer->u.transformerencoderlayer.activation == 0
                   ? fmax(h[i], 0.0)
                   : 0.5 * h[i] * (1.0 + erf(h[i] / sqrt(2.0)));
    }
    drop(rng, p, h, rows * hidden);
    linear(h, rows, hidden, dim, weight2, bias2, y);
    drop(rng, p, y, rows * dim);
    for (size_t i = 0; i < rows * dim; i++)
        y[i] += m[i];
    free(h);
    free(m);
    free(t);
}

void reference_attention_layer(const fedge_layer_spec *layer, const double *x, size_t batch,
                               size_t steps, const double **values, fedge_rng *rng, double *y)
{
    if (layer->type == FEDGE_LAYER_POSITIONALEMBEDDING) {
        const size_t dim = layer->u.positionalembedding.embedding_dim;
        const double *weight =
            take(values, true, layer->u.positionalembedding.num_embeddings * dim);
        for (size_t i = 0; i < batch * steps * dim; i++)
            y[i] = x[i] + weight[i % (steps * dim)];
    } else if (layer->type == FEDGE_LAYER_MULTIHEADATTENTION) {
        attention self = {.batch = batch,
                          .steps = steps,
                          .dim = layer->u.multiheadattention.embed_dim,
                          .heads = layer->u.multiheadattention.num_heads,
                          .causal = layer->u.multiheadattention.is_causal,
                          .p = layer->u.multiheadattention.dropout};
        take_attention(&self, layer->u.multiheadattention.bias, values);
        self_attention(&self, x, rng, y);
    } else {
        encoder(layer, x, batch, steps, values, rng, y);
    }
}

/* Naive norms, attention, recurrences, losses, norms of gradients and sums of changes. Shapes have
 * llm.c's names, row-major: B examples of a slot's batch, T steps, C channels, NH heads, V classes.
 * Only the first count examples of a slot are used. */
#include "edge/train/cuda/kernels/naive.h"
#include "edge/train/cuda/kernels/tile.cuh"

typedef fedge_cohort_slot_step slot_step;

/* Value i of slot s's weights; without weights, [otherwise]. */
static __device__ __forceinline__ float weight_of(const fedge_cohort_weights &weights, uint32_t s,
                                                  size_t i, float otherwise)
{
    return weights.values ? weights.values[s * weights.stride + i] : otherwise;
}

/* ---- norm: x (B, rows, channels · spatial), one thread for each row ---- */

/* The channel of value i of a row, among those of all groups. */
static __device__ __forceinline__ uint32_t norm_channel(const fedge_cohort_norm &p, uint32_t row,
                                                        uint32_t i)
{
    return row % p.groups * p.channels + i / p.spatial;
}

static __global__ void norm_y(fedge_cohort_norm p, const slot_step *slots, uint32_t B)
{
    const uint32_t s = blockIdx.z, row = value_index(), N = p.channels * p.spatial;
    if (row >= slots[s].count * p.rows)
        return;
    const size_t at = (size_t)s * B * p.rows + row;
    const float *x = p.x + at * N;
    double sum = 0.0, squares = 0.0;
    for (uint32_t i = 0; i < N; i++)
        sum += (double)x[i];
    for (uint32_t i = 0; i < N; i++)
        squares += ((double)x[i] - sum / N) * ((double)x[i] - sum / N);
    const float mean = (float)(sum / N);
    const float inverse = (float)(1.0 / sqrt(squares / N + (double)p.eps));
    for (uint32_t i = 0; i < N; i++) {
        const float weight = weight_of(p.weight, s, norm_channel(p, row, i), 1.0f);
        const float bias = weight_of(p.bias, s, norm_channel(p, row, i), 0.0f);
        p.y[at * N + i] = (x[i] - mean) * inverse * weight + bias;
    }
    p.moments[2 * at] = mean;
    p.moments[2 * at + 1] = inverse;
}

/* The gradient of the normalised value i of a row. */
static __device__ __forceinline__ double norm_gradient(const fedge_cohort_norm &p, uint32_t s,
                                                       uint32_t row, const float *dy, uint32_t i)
{
    return (double)(dy[i] * weight_of(p.weight, s, norm_channel(p, row, i), 1.0f));
}

static __global__ void norm_dx(fedge_cohort_norm p, const slot_step *slots, uint32_t B)
{
    const uint32_t s = blockIdx.z, row = value_index(), N = p.channels * p.spatial;
    if (row >= slots[s].count * p.rows)
        return;
    const size_t at = (size_t)s * B * p.rows + row;
    const float *x = p.x + at * N, *dy = p.dy + at * N;
    const float mean = p.moments[2 * at], inverse = p.moments[2 * at + 1];
    double sum = 0.0, product = 0.0;
    for (uint32_t i = 0; i < N; i++) {
        sum += norm_gradient(p, s, row, dy, i);
        product += norm_gradient(p, s, row, dy, i) * (double)((x[i] - mean) * inverse);
    }
    for (uint32_t i = 0; i < N; i++) {
        const double normalised = (double)((x[i] - mean) * inverse);
        const double by_moments = sum / N + normalised * product / N;
        p.dx[at * N + i] =
            (float)((norm_gradient(p, s, row, dy, i) - by_moments) * (double)inverse);
    }
}

/* One thread for each weight, over all rows of its group. */
static __global__ void norm_dweight(fedge_cohort_norm p, const slot_step *slots, uint32_t B)
{
    const uint32_t s = blockIdx.z, group = value_index() / p.channels;
    const uint32_t c = value_index() % p.channels, N = p.channels * p.spatial;
    if (group >= p.groups || slots[s].count == 0)
        return;
    double product = 0.0, sum = 0.0;
    for (uint32_t row = group; row < slots[s].count * p.rows; row += p.groups) {
        const size_t at = (size_t)s * B * p.rows + row;
        for (size_t i = at * N + c * p.spatial; i < at * N + (c + 1) * p.spatial; i++) {
            const float normalised = (p.x[i] - p.moments[2 * at]) * p.moments[2 * at + 1];
            product += (double)p.dy[i] * (double)normalised;
            sum += (double)p.dy[i];
        }
    }
    p.dweight[s * p.gradient_stride + value_index()] = (float)product;
    p.dbias[s * p.gradient_stride + value_index()] = (float)sum;
}

cudaError_t fedge_naive_launch_norm(const fedge_cohort_shape *shape, const fedge_cohort_norm *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->rows);
    return cudaLaunchKernelEx(&config, norm_y, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_naive_launch_norm_backward(const fedge_cohort_shape *shape,
                                             const fedge_cohort_norm *args)
{
    const cudaLaunchConfig_t rows = value_grid(shape, (size_t)shape->batch * args->rows);
    const cudaLaunchConfig_t weights = value_grid(shape, (size_t)args->groups * args->channels);
    const cudaError_t error =
        cudaLaunchKernelEx(&rows, norm_dx, *args, shape->slot_steps, shape->batch);
    return error != cudaSuccess
               ? error
               : cudaLaunchKernelEx(&weights, norm_dweight, *args, shape->slot_steps, shape->batch);
}

/* ---- batch norm: x (B, C, spatial), one thread for each channel ---- */

/* The index of the channel's value i of the count · spatial in a batch. */
static __device__ __forceinline__ size_t batch_index(const fedge_cohort_batchnorm &p, uint32_t B,
                                                     uint32_t i)
{
    const size_t example = (size_t)blockIdx.z * B + i / p.spatial;
    return (example * p.channels + value_index()) * p.spatial + i % p.spatial;
}

static __global__ void batchnorm_y(fedge_cohort_batchnorm p, const slot_step *slots, uint32_t B)
{
    const uint32_t s = blockIdx.z, C = p.channels, c = value_index();
    const uint32_t N = slots[s].count * p.spatial;
    if (c >= C || N == 0)
        return;
    double mean = 0.0, variance = 0.0;
    for (uint32_t i = 0; i < N; i++)
        mean += (double)p.x[batch_index(p, B, i)] / N;
    for (uint32_t i = 0; i < N; i++)
        variance += pow((double)p.x[batch_index(p, B, i)] - mean, 2.0) / N;
    if (!p.by_batch) {
        mean = (double)weight_of(p.running, s, c, 0.0f);
        variance = (double)weight_of(p.running, s, C + c, 0.0f);
    }
    const double inverse = 1.0 / sqrt(variance + (double)p.eps);
    for (uint32_t i = 0; i < N; i++) {
        const size_t at = batch_index(p, B, i);
        p.y[at] = (float)(((double)p.x[at] - mean) * inverse) * weight_of(p.weight, s, c, 1.0f) +
                  weight_of(p.bias, s, c, 0.0f);
    }
    p.moments[((size_t)s * C + c) * 2] = (float)mean;
    p.moments[((size_t)s * C + c) * 2 + 1] = (float)inverse;
    if (!p.tracked)
        return;
    float *tracked = p.tracked + s * p.running.stride;
    tracked[c] += p.momentum * ((float)mean - tracked[c]);
    tracked[C + c] += p.momentum * ((float)(variance * N / (N - 1.0)) - tracked[C + c]);
}

static __global__ void batchnorm_dx(fedge_cohort_batchnorm p, const slot_step *slots, uint32_t B)
{
    const uint32_t s = blockIdx.z, C = p.channels, c = value_index();
    const uint32_t N = slots[s].count * p.spatial;
    if (c >= C || N == 0)
        return;
    const double mean = (double)p.moments[((size_t)s * C + c) * 2];
    const double inverse = (double)p.moments[((size_t)s * C + c) * 2 + 1];
    double sum = 0.0, product = 0.0;
    for (uint32_t i = 0; i < N; i++) {
        const size_t at = batch_index(p, B, i);
        sum += (double)p.dy[at];
        product += (double)p.dy[at] * ((double)p.x[at] - mean) * inverse;
    }
    p.dweight[s * p.gradient_stride + c] = (float)product;
    p.dbias[s * p.gradient_stride + c] = (float)sum;
    for (uint32_t i = 0; i < N; i++) {
        const size_t at = batch_index(p, B, i);
        const double normalised = ((double)p.x[at] - mean) * inverse;
        const double by_moments = p.by_batch ? (sum + normalised * product) / N : 0.0;
        p.dx[at] =
            weight_of(p.weight, s, c, 1.0f) * (float)(inverse * ((double)p.dy[at] - by_moments));
    }
}

cudaError_t fedge_naive_launch_batchnorm(const fedge_cohort_shape *shape,
                                         const fedge_cohort_batchnorm *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, args->channels);
    return cudaLaunchKernelEx(&config, batchnorm_y, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_naive_launch_batchnorm_backward(const fedge_cohort_shape *shape,
                                                  const fedge_cohort_batchnorm *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, args->channels);
    return cudaLaunchKernelEx(&config, batchnorm_dx, *args, shape->slot_steps, shape->batch);
}

/* ---- attention: qkv (B, T, 3, C), P (B, NH, T, T), one thread for each example, head and step */

typedef struct query {
    uint32_t t, hs, num_keys; /* its step, a head's channels, and the steps that it attends to */
    size_t qkv, context, p;   /* indices of the head's step 0 */
    float scale;
} query;

/* False: the slot has no such query. */
static __device__ __forceinline__ bool find_query(const fedge_cohort_attention &a, uint32_t count,
                                                  uint32_t B, query *made)
{
    const uint32_t T = a.steps, NH = a.heads, C = a.dim;
    const uint32_t b = value_index() / T / NH, head = value_index() / T % NH;
    const size_t example = (size_t)blockIdx.z * B + b;
    made->t = value_index() % T;
    made->hs = C / NH;
    made->num_keys = a.causal ? made->t + 1 : T;
    made->qkv = example * T * 3 * C + head * made->hs;
    made->context = example * T * C + head * made->hs;
    made->p = (example * NH + head) * T * T;
    made->scale = 1.0f / sqrtf((float)made->hs);
    return b < count;
}

static __global__ void attention_y(fedge_cohort_attention a, const slot_step *slots, uint32_t B)
{
    const uint32_t T = a.steps, C = a.dim;
    query at;
    if (!find_query(a, slots[blockIdx.z].count, B, &at))
        return;
    const float *q = a.qkv + at.qkv + (size_t)at.t * 3 * C, *k = a.qkv + at.qkv + C, *v = k + C;
    float *p = a.att + at.p + (size_t)at.t * T, peak = -INFINITY, sum = 0.0f;
    for (uint32_t t = 0; t < at.num_keys; t++) {
        float score = 0.0f;
        for (uint32_t i = 0; i < at.hs; i++)
            score = fmaf(q[i], k[(size_t)t * 3 * C + i], score);
        p[t] = score * at.scale;
        peak = p[t] > peak ? p[t] : peak;
    }
    for (uint32_t t = 0; t < at.num_keys; t++)
        sum += p[t] = expf(p[t] - peak);
    for (uint32_t t = 0; t < at.num_keys; t++)
        p[t] /= sum;
    for (uint32_t i = 0; i < at.hs; i++) {
        float context = 0.0f;
        for (uint32_t t = 0; t < at.num_keys; t++)
            context = fmaf(p[t], v[(size_t)t * 3 * C + i], context);
        a.context[at.context + (size_t)at.t * C + i] = context;
    }
}

static __global__ void attention_dscores(fedge_cohort_attention a, const slot_step *slots,
                                         uint32_t B)
{
    const uint32_t T = a.steps, C = a.dim;
    query at;
    if (!find_query(a, slots[blockIdx.z].count, B, &at))
        return;
    const float *p = a.att + at.p + (size_t)at.t * T, *v = a.qkv + at.qkv + 2 * C;
    const float *dcontext = a.dcontext + at.context + (size_t)at.t * C;
    float *ds = a.dscores + at.p + (size_t)at.t * T, total = 0.0f;
    for (uint32_t t = 0; t < at.num_keys; t++) {
        ds[t] = 0.0f;
        for (uint32_t i = 0; i < at.hs; i++)
            ds[t] = fmaf(dcontext[i], v[(size_t)t * 3 * C + i], ds[t]);
        total = fmaf(p[t], ds[t], total);
    }
    for (uint32_t t = 0; t < at.num_keys; t++)
        ds[t] = p[t] * (ds[t] - total) * at.scale;
}

static __global__ void attention_dqkv(fedge_cohort_attention a, const slot_step *slots, uint32_t B)
{
    const uint32_t T = a.steps, C = a.dim;
    query at;
    if (!find_query(a, slots[blockIdx.z].count, B, &at))
        return;
    const float *q = a.qkv + at.qkv, *k = q + C, *p = a.att + at.p, *ds = a.dscores + at.p;
    const float *dcontext = a.dcontext + at.context;
    float *to = a.dqkv + at.qkv + (size_t)at.t * 3 * C;
    for (uint32_t i = 0; i < at.hs; i++) {
        float dq = 0.0f, dk = 0.0f, dv = 0.0f;
        for (uint32_t t = 0; t < at.num_keys; t++)
            dq = fmaf(ds[(size_t)at.t * T + t], k[(size_t)t * 3 * C + i], dq);
        for (uint32_t t = a.causal ? at.t : 0; t < T; t++) {
            dk = fmaf(ds[(size_t)t * T + at.t], q[(size_t)t * 3 * C + i], dk);
            dv = fmaf(p[(size_t)t * T + at.t], dcontext[(size_t)t * C + i], dv);
        }
        to[i] = dq;
        to[C + i] = dk;
        to[2 * C + i] = dv;
    }
}

cudaError_t fedge_naive_launch_attention(const fedge_cohort_shape *shape,
                                         const fedge_cohort_attention *args)
{
    const cudaLaunchConfig_t config =
        value_grid(shape, (size_t)shape->batch * args->heads * args->steps);
    return cudaLaunchKernelEx(&config, attention_y, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_naive_launch_attention_backward(const fedge_cohort_shape *shape,
                                                  const fedge_cohort_attention *args)
{
    const cudaLaunchConfig_t config =
        value_grid(shape, (size_t)shape->batch * args->heads * args->steps);
    const cudaError_t error =
        cudaLaunchKernelEx(&config, attention_dscores, *args, shape->slot_steps, shape->batch);
    return error != cudaSuccess ? error
                                : cudaLaunchKernelEx(&config, attention_dqkv, *args,
                                                     shape->slot_steps, shape->batch);
}

/* ---- recurrent: gates (B, T, 4 or 3, C), W_hh (4 or 3, C, C), one thread for each example ---- */

/* The row of an example's step t, counted in the order of the recurrence. */
static __device__ __forceinline__ size_t step_row(const fedge_cohort_recurrent &r, size_t example,
                                                  uint32_t t)
{
    return example * r.steps + (r.reverse ? r.steps - 1 - t : t);
}

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Channel c of one step; r.before has all of h from the step before. */
static __device__ void recurrent_unit(const fedge_cohort_recurrent &r, size_t row, uint32_t c,
                                      float cell_before)
{
    const uint32_t s = blockIdx.z, C = r.hidden, num_gates = r.is_gru ? 3 : 4;
    const float *before = r.before + row * C;
    float *g = r.gates + row * num_gates * C + c, sums[4], x[4];
    for (uint32_t gate = 0; gate < num_gates; gate++) {
        x[gate] = g[gate * C];
        sums[gate] = weight_of(r.bias, s, gate * C + c, 0.0f);
        for (uint32_t i = 0; i < C; i++) {
            const size_t at = ((size_t)gate * C + c) * C + i;
            sums[gate] = fmaf(weight_of(r.weight, s, at, 0.0f), before[i], sums[gate]);
        }
    }
    g[0] = sigmoid(x[0] + sums[0]);
    g[C] = sigmoid(x[1] + sums[1]);
    if (r.is_gru) {
        g[2 * C] = tanhf(x[2] + g[0] * sums[2]);
        r.cell[row * C + c] = sums[2];
        r.h[row * r.h_row + c] = (1.0f - g[C]) * g[2 * C] + g[C] * before[c];
        return;
    }
    g[2 * C] = tanhf(x[2] + sums[2]);
    g[3 * C] = sigmoid(x[3] + sums[3]);
    r.cell[row * C + c] = g[C] * cell_before + g[0] * g[2 * C];
    r.h[row * r.h_row + c] = g[3 * C] * tanhf(r.cell[row * C + c]);
}

static __global__ void recurrent_h(fedge_cohort_recurrent r, const slot_step *slots, uint32_t B)
{
    const size_t example = (size_t)blockIdx.z * B + value_index();
    const uint32_t C = r.hidden;
    if (value_index() >= slots[blockIdx.z].count)
        return;
    for (uint32_t t = 0; t < r.steps; t++) {
        const size_t row = step_row(r, example, t), last = step_row(r, example, t > 0 ? t - 1 : 0);
        for (uint32_t c = 0; c < C; c++)
            r.before[row * C + c] = t > 0 ? r.h[last * r.h_row + c] : 0.0f;
        for (uint32_t c = 0; c < C; c++)
            recurrent_unit(r, row, c, t > 0 ? r.cell[last * C + c] : 0.0f);
    }
}

/* Replaces a channel's gates by the gradients of their sums. Returns the gradient that goes to the
 * step before without passing W_hh: that of h for a GRU, that of c for an LSTM. */
static __device__ float recurrent_unit_backward(const fedge_cohort_recurrent &r, size_t row,
                                                uint32_t c, float dh, float dcell,
                                                float cell_before)
{
    const uint32_t C = r.hidden, num_gates = r.is_gru ? 3 : 4;
    float *g = r.gates + row * num_gates * C + c;
    if (r.is_gru) {
        float *dstate = r.dstate + row * num_gates * C + c;
        const float reset = g[0], z = g[C], n = g[2 * C], sum = r.cell[row * C + c];
        const float dn = dh * (1.0f - z) * (1.0f - n * n);
        g[0] = dstate[0] = dn * sum * reset * (1.0f - reset);
        g[C] = dstate[C] = dh * (r.before[row * C + c] - n) * z * (1.0f - z);
        g[2 * C] = dn;
        dstate[2 * C] = dn * reset;
        return dh * z;
    }
    const float in = g[0], forget = g[C], fresh = g[2 * C], out = g[3 * C];
    const float tanh_cell = tanhf(r.cell[row * C + c]);
    const float dc = dcell + dh * out * (1.0f - tanh_cell * tanh_cell);
    g[0] = dc * fresh * in * (1.0f - in);
    g[C] = dc * cell_before * forget * (1.0f - forget);
    g[2 * C] = dc * in * (1.0f - fresh * fresh);
    g[3 * C] = dh * tanh_cell * out * (1.0f - out);
    return dc * forget;
}

static __global__ void recurrent_dgates(fedge_cohort_recurrent r, const slot_step *slots,
                                        uint32_t B)
{
    const uint32_t s = blockIdx.z, C = r.hidden, rows = (r.is_gru ? 3 : 4) * C;
    const size_t example = (size_t)s * B + value_index();
    if (value_index() >= slots[s].count)
        return;
    float *dh = r.dh + example * C, *dcell = r.dcell + example * C;
    for (uint32_t c = 0; c < C; c++)
        dh[c] = dcell[c] = 0.0f;
    for (uint32_t t = r.steps; t-- > 0;) {
        const size_t row = step_row(r, example, t), last = step_row(r, example, t > 0 ? t - 1 : 0);
        for (uint32_t c = 0; c < C; c++) {
            dcell[c] = recurrent_unit_backward(r, row, c, r.dy[row * r.h_row + c] + dh[c], dcell[c],
                                               t > 0 ? r.cell[last * C + c] : 0.0f);
        }
        const float *dsums = (r.is_gru ? r.dstate : r.gates) + row * rows;
        for (uint32_t c = 0; c < C; c++) {
            dh[c] = r.is_gru ? dcell[c] : 0.0f;
            for (uint32_t i = 0; i < rows; i++)
                dh[c] = fmaf(weight_of(r.weight, s, (size_t)i * C + c, 0.0f), dsums[i], dh[c]);
        }
    }
}

cudaError_t fedge_naive_launch_recurrent(const fedge_cohort_shape *shape,
                                         const fedge_cohort_recurrent *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, shape->batch);
    return cudaLaunchKernelEx(&config, recurrent_h, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_naive_launch_recurrent_backward(const fedge_cohort_shape *shape,
                                                  const fedge_cohort_recurrent *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, shape->batch);
    return cudaLaunchKernelEx(&config, recurrent_dgates, *args, shape->slot_steps, shape->batch);
}

/* ---- loss: y (B, V), one thread for each slot ---- */

/* −Σ q log p with p = softmax(y), and q the label smoothed by [argument]. */
static __device__ double cross_entropy(const fedge_cohort_loss &l, const float *y, uint32_t label,
                                       uint32_t count, float *dy)
{
    double sum = 0.0, loss = 0.0;
    for (uint32_t v = 0; v < l.classes; v++)
        sum += exp((double)y[v]);
    for (uint32_t v = 0; v < l.classes; v++) {
        const double p = exp((double)y[v]) / sum, smoothing = (double)l.argument;
        const double q = smoothing / l.classes + (v == label ? 1.0 - smoothing : 0.0);
        loss -= q * log(p);
        dy[v] = (float)((p - q) / count);
    }
    return loss;
}

/* The loss of one output; *slope is its derivative. */
static __device__ double output_loss(const fedge_cohort_loss &l, double y, double target,
                                     double *slope)
{
    const double d = y - target, delta = (double)l.argument, p = 1.0 / (1.0 + exp(-y));
    const double sign = d > 0.0 ? 1.0 : d < 0.0 ? -1.0 : 0.0;
    switch (l.function) {
    case FEDGE_COHORT_BCE_WITH_LOGITS:
        *slope = p - target;
        return -(target * log(p) + (1.0 - target) * log(1.0 - p));
    case FEDGE_COHORT_MSE:
        *slope = 2.0 * d;
        return d * d;
    case FEDGE_COHORT_L1:
        *slope = sign;
        return fabs(d);
    case FEDGE_COHORT_SMOOTH_L1:
        *slope = fabs(d) < delta ? d / delta : sign;
        return fabs(d) < delta ? 0.5 * d * d / delta : fabs(d) - 0.5 * delta;
    default: /* Huber */
        *slope = fabs(d) <= delta ? d : sign * delta;
        return fabs(d) <= delta ? 0.5 * d * d : delta * (fabs(d) - 0.5 * delta);
    }
}

static __global__ void loss_sum(fedge_cohort_loss l, const slot_step *slots, uint32_t B)
{
    const uint32_t s = blockIdx.z, count = slots[s].count, V = l.classes;
    for (uint32_t b = 0; value_index() == 0 && b < count; b++) {
        const size_t at = (size_t)s * B + b;
        const float *y = l.y + at * V;
        const int32_t label = l.sets[slots[s].data].labels[l.indices[at]];
        uint32_t best = 0;
        bool all_right = true;
        double loss = 0.0;
        for (uint32_t v = 0; v < V; v++) {
            const double target = V == 1 ? label : (uint32_t)label == v;
            double slope;
            best = y[v] > y[best] ? v : best;
            all_right = all_right && (y[v] > 0.0f) == (target > 0.5);
            loss += output_loss(l, (double)y[v], target, &slope) / V;
            l.dy[at * V + v] = (float)(slope / count / V);
        }
        bool correct = l.function == FEDGE_COHORT_BCE_WITH_LOGITS && all_right;
        if (l.function == FEDGE_COHORT_CROSS_ENTROPY) {
            correct = best == (uint32_t)label;
            loss = cross_entropy(l, y, (uint32_t)label, count, l.dy + at * V);
        }
        l.predicted[at] = V == 1 ? y[0] > 0.0f : (int32_t)best;
        l.tallies[s].loss_sum += loss;
        l.tallies[s].correct += correct;
    }
}

cudaError_t fedge_naive_launch_loss(const fedge_cohort_shape *shape, const fedge_cohort_loss *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, 1);
    return cudaLaunchKernelEx(&config, loss_sum, *args, shape->slot_steps, shape->batch);
}

/* ---- the norm of a gradient: gradients (slots, stride), one thread for each slot ---- */

static __global__ void squares_sum(fedge_cohort_step p, const slot_step *slots)
{
    const uint32_t s = blockIdx.z;
    double *squares = p.squares + (size_t)s * FEDGE_COHORT_NORM_PARTS;
    if (value_index() > 0 || slots[s].count == 0)
        return;
    for (uint32_t part = 0; !p.adds && part < FEDGE_COHORT_NORM_PARTS; part++)
        squares[part] = 0.0;
    for (size_t i = p.first; i < (size_t)p.first + p.count; i++) {
        const float w = p.values[s * p.stride + i], start = p.start[slots[s].member * p.stride + i];
        const float g = p.gradients[s * p.stride + i] + p.proximal_mu * (w - start);
        squares[0] += (double)g * (double)g;
    }
}

cudaError_t fedge_naive_launch_squares(const fedge_cohort_shape *shape,
                                       const fedge_cohort_step *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, 1);
    return cudaLaunchKernelEx(&config, squares_sum, *args, shape->slot_steps);
}

/* ---- sums of changes: sums += weight · codec(values − start), one thread for each value ---- */

static __global__ void accumulate_first_bad(fedge_cohort_accumulate p)
{
    for (uint32_t i = p.num_values; i-- > 0;)
        p.tally->bad_value = isfinite(p.values[i]) ? p.tally->bad_value : ~i;
}

/* Value i of a chunk, cut to ±2^bound_log2, in units of 2^(bound_log2 − 30). */
static __device__ int64_t fixed_change(const fedge_cohort_accumulate &p,
                                       const fedge_cohort_chunk &chunk, uint32_t i, bool *cut)
{
    const double bound = ldexp(1.0, chunk.bound_log2);
    const float change = p.values[chunk.first + i] - p.start[chunk.first + i];
    *cut = fabs((double)change) > bound;
    return llrint(fmax(-bound, fmin(bound, (double)change)) * ldexp(1.0, 30 - chunk.bound_log2));
}

static __global__ void accumulate_change(fedge_cohort_accumulate p)
{
    const fedge_cohort_chunk chunk = p.chunks[blockIdx.x];
    const uint32_t i = threadIdx.x;
    if (i >= chunk.count || p.tally->bad_step > 0 || p.tally->bad_value > 0)
        return;
    bool cut;
    int64_t v = fixed_change(p, chunk, i, &cut), largest = 0;
    if (cut)
        atomicAdd(&p.tally->clamped, 1ull);
    for (uint32_t k = 0; k < chunk.count; k++) {
        const int64_t other = llabs(fixed_change(p, chunk, k, &cut));
        largest = other > largest ? other : largest;
    }
    if (chunk.codec == FEDGE_COHORT_CODEC_INT8 && largest > 0) {
        /* A scale of 16 bits in units of 128, large enough for 127 of them where it can be. */
        const double scale = 128.0 * fmin(65535.0, ceil((double)largest / (127.0 * 128.0)));
        v = (int64_t)(fmax(-127.0, fmin(127.0, rint((double)v / scale))) * scale);
    }
    chunk.sums[i] += p.weight * v;
}

cudaError_t fedge_naive_launch_accumulate(const fedge_cohort_accumulate *args, cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = config.blockDim = dim3(1);
    config.stream = stream;
    const cudaError_t error = cudaLaunchKernelEx(&config, accumulate_first_bad, *args);
    config.gridDim = dim3(args->num_chunks);
    config.blockDim = dim3(FEDGE_COHORT_CHUNK);
    return error == cudaSuccess ? cudaLaunchKernelEx(&config, accumulate_change, *args) : error;
}

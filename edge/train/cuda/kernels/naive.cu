/* Shapes are row-major: x (slots, batch, …), and of each slot only the first count examples. */
#include "edge/train/cuda/kernels/naive.h"
#include "edge/train/cuda/kernels/tile.cuh"

typedef const fedge_cohort_slot_step *slot_steps;

static __device__ __forceinline__ uint32_t value_index()
{
    return blockIdx.x * TILE_THREADS + threadIdx.x;
}

/* ---- linear: x (rows, in), weight (out, in), y (rows, out); rows = count · steps ---- */

static __global__ void linear_y(fedge_cohort_linear t, slot_steps turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, row = value_index() / t.out, o = value_index() % t.out;
    if (row >= turns[s].count * t.steps)
        return;
    const size_t at = (size_t)s * batch * t.steps + row;
    const float *w = t.weight.values + s * t.weight.stride + (size_t)o * t.in;
    float sum = 0.0f;
    for (uint32_t i = 0; i < t.in; i++)
        sum = fmaf(t.x[at * t.in + i], w[i], sum);
    sum += t.bias.values ? t.bias.values[s * t.bias.stride + o] : 0.0f;
    t.y[at * t.out + o] = t.relu && sum < 0.0f ? 0.0f : sum;
}

static __global__ void linear_dx(fedge_cohort_linear t, slot_steps turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, row = value_index() / t.in, i = value_index() % t.in;
    if (row >= turns[s].count * t.steps)
        return;
    const size_t at = (size_t)s * batch * t.steps + row;
    const float *w = t.weight.values + s * t.weight.stride;
    float sum = 0.0f;
    for (uint32_t o = 0; o < t.out; o++)
        sum = fmaf(t.dy[at * t.out + o], w[(size_t)o * t.in + i], sum);
    t.dx[at * t.in + i] = sum;
}

static __global__ void linear_dw(fedge_cohort_linear t, slot_steps turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, o = value_index() / t.in, i = value_index() % t.in;
    const uint32_t rows = turns[s].count * t.steps;
    if (o >= t.out || rows == 0)
        return;
    const size_t first = (size_t)s * batch * t.steps;
    float sum = 0.0f, bias = 0.0f;
    for (size_t row = first; row < first + rows; row++) {
        sum = fmaf(t.dy[row * t.out + o], t.x[row * t.in + i], sum);
        bias += t.dy[row * t.out + o];
    }
    t.dweight[s * t.gradient_stride + (size_t)o * t.in + i] = sum;
    if (t.dbias && i == 0)
        t.dbias[s * t.gradient_stride + o] = bias;
}

cudaError_t fedge_naive_launch_linear(const fedge_cohort_shape *shape,
                                      const fedge_cohort_linear *args)
{
    const cudaLaunchConfig_t config =
        value_grid(shape, (size_t)shape->batch * args->steps * args->out);
    return cudaLaunchKernelEx(&config, linear_y, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_naive_launch_linear_backward(const fedge_cohort_shape *shape,
                                               const fedge_cohort_linear *args)
{
    const cudaLaunchConfig_t inputs =
        value_grid(shape, (size_t)shape->batch * args->steps * args->in);
    const cudaLaunchConfig_t weights = value_grid(shape, (size_t)args->out * args->in);
    const cudaError_t error =
        cudaLaunchKernelEx(&inputs, linear_dx, *args, shape->slot_steps, shape->batch);
    return error != cudaSuccess
               ? error
               : cudaLaunchKernelEx(&weights, linear_dw, *args, shape->slot_steps, shape->batch);
}

/* ---- conv2d: x (count, in, height, width), weight (out, in / groups, kernel height, kernel
 * width), y (count, out, out height, out width) ---- */

/* The input's index under a tap of an output's window; false: it lies in the padding. */
static __device__ __forceinline__ bool under(const fedge_cohort_conv2d &c, int axis, uint32_t out,
                                             uint32_t tap, uint32_t *index)
{
    *index = out * c.stride[axis] + tap * c.dilation[axis] - c.padding[axis]; /* wraps below 0 */
    return *index < c.in_size[axis];
}

/* Where the array of a slot begins, of [channels] planes of [size] for each example. */
static __device__ __forceinline__ size_t image_of(uint32_t example, uint32_t channels,
                                                  uint32_t channel, const uint32_t size[2])
{
    return ((size_t)example * channels + channel) * size[0] * size[1];
}

static __global__ void conv2d_y(fedge_cohort_conv2d c, slot_steps turns, uint32_t batch)
{
    const fedge_cohort_linear &t = c.tensors;
    const uint32_t s = blockIdx.z, plane = c.out_size[0] * c.out_size[1], each = t.in / c.groups;
    const uint32_t b = value_index() / plane / t.out, o = value_index() / plane % t.out;
    const uint32_t i = value_index() % plane / c.out_size[1], j = value_index() % c.out_size[1];
    if (b >= turns[s].count)
        return;
    const float *w =
        t.weight.values + s * t.weight.stride + (size_t)o * each * c.kernel[0] * c.kernel[1];
    float sum = 0.0f;
    for (uint32_t k = 0; k < each; k++) {
        const uint32_t channel = o / (t.out / c.groups) * each + k;
        const float *x = t.x + image_of(s * batch + b, t.in, channel, c.in_size);
        for (uint32_t tap = 0; tap < c.kernel[0] * c.kernel[1]; tap++, w++) {
            uint32_t row, column;
            if (under(c, 0, i, tap / c.kernel[1], &row) &&
                under(c, 1, j, tap % c.kernel[1], &column))
                sum = fmaf(*w, x[(size_t)row * c.in_size[1] + column], sum);
        }
    }
    sum += t.bias.values ? t.bias.values[s * t.bias.stride + o] : 0.0f;
    t.y[image_of(s * batch + b, t.out, o, c.out_size) + i * c.out_size[1] + j] =
        t.relu && sum < 0.0f ? 0.0f : sum;
}

/* Looks at every output, and takes those whose window has the input under this tap. */
static __global__ void conv2d_dx(fedge_cohort_conv2d c, slot_steps turns, uint32_t batch)
{
    const fedge_cohort_linear &t = c.tensors;
    const uint32_t s = blockIdx.z, plane = c.in_size[0] * c.in_size[1], each = t.in / c.groups;
    const uint32_t b = value_index() / plane / t.in, channel = value_index() / plane % t.in;
    const uint32_t window = c.kernel[0] * c.kernel[1], outs = t.out / c.groups;
    if (b >= turns[s].count)
        return;
    float sum = 0.0f;
    for (uint32_t o = channel / each * outs; o < (channel / each + 1) * outs; o++) {
        const float *w =
            t.weight.values + s * t.weight.stride + ((size_t)o * each + channel % each) * window;
        const float *dy = t.dy + image_of(s * batch + b, t.out, o, c.out_size);
        for (uint32_t n = 0; n < window * c.out_size[0] * c.out_size[1]; n++) {
            const uint32_t at = n / window, tap = n % window;
            uint32_t row, column;
            if (under(c, 0, at / c.out_size[1], tap / c.kernel[1], &row) &&
                under(c, 1, at % c.out_size[1], tap % c.kernel[1], &column) &&
                row * c.in_size[1] + column == value_index() % plane)
                sum = fmaf(w[tap], dy[at], sum);
        }
    }
    t.dx[image_of(s * batch + b, t.in, channel, c.in_size) + value_index() % plane] = sum;
}

static __global__ void conv2d_dw(fedge_cohort_conv2d c, slot_steps turns, uint32_t batch)
{
    const fedge_cohort_linear &t = c.tensors;
    const uint32_t s = blockIdx.z, window = c.kernel[0] * c.kernel[1], each = t.in / c.groups;
    const uint32_t o = value_index() / window / each, k = value_index() / window % each;
    const uint32_t tap = value_index() % window, plane = c.out_size[0] * c.out_size[1];
    if (o >= t.out || turns[s].count == 0)
        return;
    float sum = 0.0f, bias = 0.0f;
    for (uint32_t b = 0; b < turns[s].count; b++) {
        const uint32_t channel = o / (t.out / c.groups) * each + k;
        const float *x = t.x + image_of(s * batch + b, t.in, channel, c.in_size);
        const float *dy = t.dy + image_of(s * batch + b, t.out, o, c.out_size);
        for (uint32_t at = 0; at < plane; at++) {
            uint32_t row, column;
            bias += dy[at];
            if (under(c, 0, at / c.out_size[1], tap / c.kernel[1], &row) &&
                under(c, 1, at % c.out_size[1], tap % c.kernel[1], &column))
                sum = fmaf(dy[at], x[(size_t)row * c.in_size[1] + column], sum);
        }
    }
    t.dweight[s * t.gradient_stride + value_index()] = sum;
    if (t.dbias && k == 0 && tap == 0)
        t.dbias[s * t.gradient_stride + o] = bias;
}

cudaError_t fedge_naive_launch_conv2d(const fedge_cohort_shape *shape,
                                      const fedge_cohort_conv2d *args)
{
    const size_t plane = (size_t)args->out_size[0] * args->out_size[1];
    const cudaLaunchConfig_t config = value_grid(shape, shape->batch * args->tensors.out * plane);
    return cudaLaunchKernelEx(&config, conv2d_y, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_naive_launch_conv2d_backward(const fedge_cohort_shape *shape,
                                               const fedge_cohort_conv2d *args)
{
    const size_t plane = (size_t)args->in_size[0] * args->in_size[1];
    const size_t window = (size_t)args->kernel[0] * args->kernel[1];
    const cudaLaunchConfig_t inputs = value_grid(shape, shape->batch * args->tensors.in * plane);
    const cudaLaunchConfig_t weights =
        value_grid(shape, args->tensors.out * (args->tensors.in / args->groups) * window);
    const cudaError_t error =
        cudaLaunchKernelEx(&inputs, conv2d_dx, *args, shape->slot_steps, shape->batch);
    return error != cudaSuccess
               ? error
               : cudaLaunchKernelEx(&weights, conv2d_dw, *args, shape->slot_steps, shape->batch);
}

/* ---- norm: x (count · rows, channels · spatial), a thread for each row ---- */

static __device__ __forceinline__ float scale_of(const fedge_cohort_norm &p, uint32_t s,
                                                 uint32_t row, uint32_t i)
{
    const uint32_t channel = row % p.groups * p.channels + i / p.spatial;
    return p.weight.values ? p.weight.values[s * p.weight.stride + channel] : 1.0f;
}

static __global__ void norm_y(fedge_cohort_norm p, slot_steps turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, row = value_index(), width = p.channels * p.spatial;
    if (row >= turns[s].count * p.rows)
        return;
    const size_t at = (size_t)s * batch * p.rows + row;
    const float *x = p.x + at * width;
    double sum = 0.0, squares = 0.0;
    for (uint32_t i = 0; i < width; i++)
        sum += (double)x[i];
    for (uint32_t i = 0; i < width; i++)
        squares += ((double)x[i] - sum / width) * ((double)x[i] - sum / width);
    const float mean = (float)(sum / width);
    const float inverse = (float)(1.0 / sqrt(squares / width + (double)p.eps));
    for (uint32_t i = 0; i < width; i++) {
        const uint32_t channel = row % p.groups * p.channels + i / p.spatial;
        const float bias = p.bias.values ? p.bias.values[s * p.bias.stride + channel] : 0.0f;
        p.y[at * width + i] = (x[i] - mean) * (inverse * scale_of(p, s, row, i)) + bias;
    }
    p.moments[2 * at] = mean;
    p.moments[2 * at + 1] = inverse;
}

static __global__ void norm_dx(fedge_cohort_norm p, slot_steps turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, row = value_index(), width = p.channels * p.spatial;
    if (row >= turns[s].count * p.rows)
        return;
    const size_t at = (size_t)s * batch * p.rows + row;
    const float *x = p.x + at * width, *dy = p.dy + at * width;
    const float mean = p.moments[2 * at], inverse = p.moments[2 * at + 1];
    double sum = 0.0, product = 0.0;
    for (uint32_t i = 0; i < width; i++) {
        const double g = (double)(dy[i] * scale_of(p, s, row, i));
        sum += g / width;
        product += g * (double)((x[i] - mean) * inverse) / width;
    }
    for (uint32_t i = 0; i < width; i++) {
        const double g = (double)(dy[i] * scale_of(p, s, row, i));
        const double normalised = (double)((x[i] - mean) * inverse);
        p.dx[at * width + i] = (float)((g - sum - normalised * product) * (double)inverse);
    }
}

cudaError_t fedge_naive_launch_norm(const fedge_cohort_shape *shape, const fedge_cohort_norm *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->rows);
    return cudaLaunchKernelEx(&config, norm_y, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_naive_launch_norm_backward(const fedge_cohort_shape *shape,
                                             const fedge_cohort_norm *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->rows);
    return cudaLaunchKernelEx(&config, norm_dx, *args, shape->slot_steps, shape->batch);
}

/* ---- attention: qkv (count, steps, 3, dim), a thread for each example, head and step ---- */

typedef struct query {
    uint32_t step, width, seen; /* seen: steps that it attends to */
    const float *q, *k, *v;     /* q: of the head's first step, as k and v */
    size_t row;                 /* floats from one step of these to the next */
    size_t qkv, context, p;     /* index of the head's first step in the arrays */
    float scale;
} query;

static __device__ __forceinline__ bool query_of(const fedge_cohort_attention &a, uint32_t count,
                                                uint32_t batch, query *at)
{
    const uint32_t b = value_index() / a.steps / a.heads, head = value_index() / a.steps % a.heads;
    const size_t example = (size_t)blockIdx.z * batch + b;
    *at = {value_index() % a.steps, a.dim / a.heads};
    at->seen = a.causal ? at->step + 1 : a.steps;
    at->row = (size_t)3 * a.dim;
    at->qkv = example * a.steps * at->row + head * at->width;
    at->q = a.qkv + at->qkv;
    at->k = at->q + a.dim;
    at->v = at->k + a.dim;
    at->context = example * a.steps * a.dim + head * at->width;
    at->p = (example * a.heads + head) * a.steps * a.steps;
    at->scale = 1.0f / sqrtf((float)at->width);
    return b < count;
}

static __global__ void attention_y(fedge_cohort_attention a, slot_steps turns, uint32_t batch)
{
    query at;
    if (!query_of(a, turns[blockIdx.z].count, batch, &at))
        return;
    float *p = a.shares + at.p + (size_t)at.step * a.steps, peak = -INFINITY, sum = 0.0f;
    for (uint32_t k = 0; k < at.seen; k++) {
        float score = 0.0f;
        for (uint32_t d = 0; d < at.width; d++)
            score = fmaf(at.q[at.step * at.row + d], at.k[k * at.row + d], score);
        p[k] = score * at.scale;
        peak = p[k] > peak ? p[k] : peak;
    }
    for (uint32_t k = 0; k < at.seen; k++)
        sum += p[k] = expf(p[k] - peak);
    for (uint32_t k = 0; k < at.seen; k++)
        p[k] /= sum;
    for (uint32_t d = 0; d < at.width; d++) {
        float context = 0.0f;
        for (uint32_t k = 0; k < at.seen; k++)
            context = fmaf(p[k], at.v[k * at.row + d], context);
        a.context[at.context + (size_t)at.step * a.dim + d] = context;
    }
}

static __global__ void attention_dscores(fedge_cohort_attention a, slot_steps turns, uint32_t batch)
{
    query at;
    if (!query_of(a, turns[blockIdx.z].count, batch, &at))
        return;
    const float *p = a.shares + at.p + (size_t)at.step * a.steps;
    const float *dcontext = a.dcontext + at.context + (size_t)at.step * a.dim;
    float *ds = a.dscores + at.p + (size_t)at.step * a.steps, total = 0.0f;
    for (uint32_t k = 0; k < at.seen; k++) {
        ds[k] = 0.0f;
        for (uint32_t d = 0; d < at.width; d++)
            ds[k] = fmaf(dcontext[d], at.v[k * at.row + d], ds[k]);
        total = fmaf(p[k], ds[k], total);
    }
    for (uint32_t k = 0; k < at.seen; k++)
        ds[k] = p[k] * (ds[k] - total) * at.scale;
}

static __global__ void attention_dqkv(fedge_cohort_attention a, slot_steps turns, uint32_t batch)
{
    query at;
    if (!query_of(a, turns[blockIdx.z].count, batch, &at))
        return;
    const float *p = a.shares + at.p, *ds = a.dscores + at.p, *dcontext = a.dcontext + at.context;
    float *to = a.dqkv + at.qkv + at.step * at.row;
    for (uint32_t d = 0; d < at.width; d++) {
        float dq = 0.0f, dk = 0.0f, dv = 0.0f;
        for (uint32_t k = 0; k < at.seen; k++)
            dq = fmaf(ds[(size_t)at.step * a.steps + k], at.k[k * at.row + d], dq);
        for (uint32_t q = a.causal ? at.step : 0; q < a.steps; q++) {
            dk = fmaf(ds[(size_t)q * a.steps + at.step], at.q[q * at.row + d], dk);
            dv = fmaf(p[(size_t)q * a.steps + at.step], dcontext[(size_t)q * a.dim + d], dv);
        }
        to[d] = dq;
        to[a.dim + d] = dk;
        to[2 * a.dim + d] = dv;
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

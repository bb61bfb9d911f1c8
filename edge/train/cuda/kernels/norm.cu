/* LayerNorm and GroupNorm normalise rows, BatchNorm2d channels over a batch. */
#include "edge/train/cuda/kernels/device.cuh"

/* ---- rows ---- */

typedef fedge_cohort_norm rows;

static __device__ __forceinline__ float weight_of(const rows &p, uint32_t s, uint32_t row,
                                                  uint32_t i)
{
    return p.weight.values
               ? p.weight.values[s * p.weight.stride + row % p.groups * p.channels + i / p.spatial]
               : 1.0f;
}

/* One block for each row. */
static __global__ void __launch_bounds__(SUM_THREADS)
    norm_forward(rows p, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, row = blockIdx.x, width = p.channels * p.spatial;
    if (row >= slot_steps[s].count * p.rows)
        return;
    const size_t at = (size_t)s * batch * p.rows + row;
    const float *x = p.x + at * width;
    double sum = 0.0, squares = 0.0, none = 0.0;
    for (uint32_t i = threadIdx.x; i < width; i += SUM_THREADS)
        sum += (double)x[i];
    sum_of_block(&sum, &none);
    const double center = sum / width;
    for (uint32_t i = threadIdx.x; i < width; i += SUM_THREADS)
        squares += ((double)x[i] - center) * ((double)x[i] - center);
    sum_of_block(&squares, &none);
    const float mean = (float)center;
    const float inverse = (float)(1.0 / sqrt(squares / width + (double)p.eps));
    for (uint32_t i = threadIdx.x; i < width; i += SUM_THREADS) {
        const uint32_t channel = row % p.groups * p.channels + i / p.spatial;
        const float bias = p.bias.values ? p.bias.values[s * p.bias.stride + channel] : 0.0f;
        p.y[at * width + i] = (x[i] - mean) * (inverse * weight_of(p, s, row, i)) + bias;
    }
    if (threadIdx.x == 0) {
        p.moments[2 * at] = mean;
        p.moments[2 * at + 1] = inverse;
    }
}

/* With x̂ the normalised x and g = dy · weight:
 *   dx = (g − mean(g) − x̂ · mean(g · x̂)) / deviation */
static __global__ void __launch_bounds__(SUM_THREADS)
    norm_dx(rows p, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, row = blockIdx.x, width = p.channels * p.spatial;
    if (row >= slot_steps[s].count * p.rows)
        return;
    const size_t at = (size_t)s * batch * p.rows + row;
    const float *x = p.x + at * width, *dy = p.dy + at * width;
    const float mean = p.moments[2 * at], inverse = p.moments[2 * at + 1];
    double sum = 0.0, product = 0.0;
    for (uint32_t i = threadIdx.x; i < width; i += SUM_THREADS) {
        const float g = dy[i] * weight_of(p, s, row, i);
        sum += (double)g;
        product += (double)(g * ((x[i] - mean) * inverse));
    }
    sum_of_block(&sum, &product);
    const float g_mean = (float)(sum / width), g_product = (float)(product / width);
    for (uint32_t i = threadIdx.x; i < width; i += SUM_THREADS) {
        const float g = dy[i] * weight_of(p, s, row, i);
        p.dx[at * width + i] = (g - g_mean - (x[i] - mean) * inverse * g_product) * inverse;
    }
}

/* One block for each weight sums over the rows of its group, each thread in the order of rows. */
static __global__ void __launch_bounds__(SUM_THREADS)
    norm_dweight(rows p, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, group = blockIdx.x / p.channels, c = blockIdx.x % p.channels;
    const uint32_t count = slot_steps[s].count, width = p.channels * p.spatial;
    if (count == 0)
        return;
    const size_t first = (size_t)s * batch * p.rows;
    double product = 0.0, sum = 0.0;
    for (uint32_t k = threadIdx.x; k < count * (p.rows / p.groups) * p.spatial; k += SUM_THREADS) {
        const size_t at = first + group + (size_t)(k / p.spatial) * p.groups;
        const size_t i = at * width + (size_t)c * p.spatial + k % p.spatial;
        const float mean = p.moments[2 * at], inverse = p.moments[2 * at + 1];
        product += (double)(p.dy[i] * ((p.x[i] - mean) * inverse));
        sum += (double)p.dy[i];
    }
    sum_of_block(&product, &sum);
    if (threadIdx.x == 0) {
        p.dweight[s * p.gradient_stride + blockIdx.x] = (float)product;
        if (p.dbias)
            p.dbias[s * p.gradient_stride + blockIdx.x] = (float)sum;
    }
}

cudaError_t fedge_cohort_launch_norm(const fedge_cohort_shape *shape, const fedge_cohort_norm *args)
{
    const cudaLaunchConfig_t config = sum_grid(shape, shape->batch * args->rows);
    return cudaLaunchKernelEx(&config, norm_forward, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_cohort_launch_norm_backward(const fedge_cohort_shape *shape,
                                              const fedge_cohort_norm *args)
{
    const cudaLaunchConfig_t weights = sum_grid(shape, args->groups * args->channels);
    const cudaLaunchConfig_t rows = sum_grid(shape, shape->batch * args->rows);
    const cudaError_t error = args->dweight ? cudaLaunchKernelEx(&weights, norm_dweight, *args,
                                                                 shape->slot_steps, shape->batch)
                                            : cudaSuccess;
    return error == cudaSuccess && args->dx
               ? cudaLaunchKernelEx(&rows, norm_dx, *args, shape->slot_steps, shape->batch)
               : error;
}

/* ---- channels over a batch ---- */

typedef fedge_cohort_batchnorm channels;

/* The index of value [i] of the channel in a batch. */
static __device__ __forceinline__ size_t batch_index(const channels &p, uint32_t s, uint32_t batch,
                                                     size_t i)
{
    const size_t example = (size_t)s * batch + i / p.spatial;
    return (example * p.channels + blockIdx.x) * p.spatial + i % p.spatial;
}

static __device__ __forceinline__ float channel_weight(const channels &p, uint32_t s)
{
    return p.weight.values ? p.weight.values[s * p.weight.stride + blockIdx.x] : 1.0f;
}

/* One block for each channel. */
static __global__ void __launch_bounds__(SUM_THREADS)
    batchnorm_forward(channels p, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, c = blockIdx.x;
    const size_t n = (size_t)slot_steps[s].count * p.spatial;
    double mean = 0.0, squares = 0.0, none = 0.0;
    if (n == 0)
        return;
    if (p.by_batch) {
        for (size_t i = threadIdx.x; i < n; i += SUM_THREADS)
            mean += (double)p.x[batch_index(p, s, batch, i)];
        sum_of_block(&mean, &none);
        mean /= (double)n;
        for (size_t i = threadIdx.x; i < n; i += SUM_THREADS) {
            const double off = (double)p.x[batch_index(p, s, batch, i)] - mean;
            squares += off * off;
        }
        sum_of_block(&squares, &none);
    }
    const float *running = p.running.values + s * p.running.stride + c;
    const double variance = p.by_batch ? squares / (double)n : (double)running[p.channels];
    const float center = p.by_batch ? (float)mean : running[0];
    const float inverse = (float)(1.0 / sqrt(variance + (double)p.eps));
    const float scale = inverse * channel_weight(p, s);
    const float shift = p.bias.values ? p.bias.values[s * p.bias.stride + c] : 0.0f;
    for (size_t i = threadIdx.x; i < n; i += SUM_THREADS) {
        const size_t at = batch_index(p, s, batch, i);
        p.y[at] = (p.x[at] - center) * scale + shift;
    }
    if (threadIdx.x > 0)
        return;
    p.moments[((size_t)s * p.channels + c) * 2] = center;
    p.moments[((size_t)s * p.channels + c) * 2 + 1] = inverse;
    if (p.tracked) {
        float *tracked = p.tracked + s * p.running.stride + c;
        const double old = 1.0 - (double)p.momentum, fresh = (double)p.momentum, count = (double)n;
        tracked[0] = (float)(old * (double)tracked[0] + fresh * mean);
        tracked[p.channels] =
            (float)(old * (double)tracked[p.channels] + fresh * variance * count / (count - 1.0));
    }
}

/* One block for each channel computes the gradients of its weight, bias and x. Running statistics
 * do not depend on x. */
static __global__ void __launch_bounds__(SUM_THREADS)
    batchnorm_backward(channels p, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, c = blockIdx.x;
    const size_t n = (size_t)slot_steps[s].count * p.spatial;
    double sum = 0.0, product = 0.0;
    if (n == 0)
        return;
    const float mean = p.moments[((size_t)s * p.channels + c) * 2];
    const float inverse = p.moments[((size_t)s * p.channels + c) * 2 + 1];
    for (size_t i = threadIdx.x; i < n; i += SUM_THREADS) {
        const size_t at = batch_index(p, s, batch, i);
        sum += (double)p.dy[at];
        product += (double)p.dy[at] * (double)(p.x[at] - mean);
    }
    sum_of_block(&sum, &product);
    product *= (double)inverse;
    if (threadIdx.x == 0 && p.dweight)
        p.dweight[s * p.gradient_stride + c] = (float)product;
    if (threadIdx.x == 0 && p.dbias)
        p.dbias[s * p.gradient_stride + c] = (float)sum;
    const float scale = inverse * channel_weight(p, s);
    const double per_value = p.by_batch ? -(double)scale / (double)n : 0.0;
    const float by_x = (float)(product * per_value * (double)inverse),
                by_one = (float)(sum * per_value);
    for (size_t i = threadIdx.x; p.dx && i < n; i += SUM_THREADS) {
        const size_t at = batch_index(p, s, batch, i);
        p.dx[at] = scale * p.dy[at] + (by_x * (p.x[at] - mean) + by_one);
    }
}

cudaError_t fedge_cohort_launch_batchnorm(const fedge_cohort_shape *shape,
                                          const fedge_cohort_batchnorm *args)
{
    const cudaLaunchConfig_t config = sum_grid(shape, args->channels);
    return cudaLaunchKernelEx(&config, batchnorm_forward, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_cohort_launch_batchnorm_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_batchnorm *args)
{
    const cudaLaunchConfig_t config = sum_grid(shape, args->channels);
    return cudaLaunchKernelEx(&config, batchnorm_backward, *args, shape->slot_steps, shape->batch);
}

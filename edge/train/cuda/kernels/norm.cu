#include "edge/train/cuda/kernels/sums.cuh"

typedef fedge_cohort_norm rows;

static __device__ __forceinline__ float weight_of(const rows &p, uint32_t s, uint32_t row,
                                                  uint32_t i)
{
    return p.weight.values
               ? p.weight.values[s * p.weight.stride + row % p.groups * p.channels + i / p.spatial]
               : 1.0f;
}

/* A block for each row. */
static __global__ void __launch_bounds__(SUM_THREADS)
    norm_forward(rows p, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, row = blockIdx.x, width = p.channels * p.spatial;
    if (row >= turns[s].count * p.rows)
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
    norm_dx(rows p, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, row = blockIdx.x, width = p.channels * p.spatial;
    if (row >= turns[s].count * p.rows)
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

/* A block for each weight: its sum over the rows of its group, in their order by each thread. */
static __global__ void __launch_bounds__(SUM_THREADS)
    norm_dweight(rows p, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, group = blockIdx.x / p.channels, c = blockIdx.x % p.channels;
    const uint32_t count = turns[s].count, width = p.channels * p.spatial;
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
    return cudaLaunchKernelEx(&config, norm_forward, *args, shape->turns, shape->batch);
}

cudaError_t fedge_cohort_launch_norm_backward(const fedge_cohort_shape *shape,
                                              const fedge_cohort_norm *args)
{
    const cudaLaunchConfig_t weights = sum_grid(shape, args->groups * args->channels);
    const cudaLaunchConfig_t rows = sum_grid(shape, shape->batch * args->rows);
    const cudaError_t error = args->dweight ? cudaLaunchKernelEx(&weights, norm_dweight, *args,
                                                                 shape->turns, shape->batch)
                                            : cudaSuccess;
    return error == cudaSuccess && args->dx
               ? cudaLaunchKernelEx(&rows, norm_dx, *args, shape->turns, shape->batch)
               : error;
}

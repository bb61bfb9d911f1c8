/* Pooling over windows of images: maximum or mean. */
#include "edge/train/cuda/kernels/tile.cuh"

/* ---- MaxPool2d ---- */

typedef fedge_cohort_maxpool2d max_pool;

/* One thread for each output. */
static __global__ void __launch_bounds__(TILE_THREADS)
    maxpool2d_forward(max_pool p, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, out = p.out_size[0] * p.out_size[1];
    const size_t in = (size_t)p.in_size[0] * p.in_size[1];
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)slot_steps[s].count * p.channels * out)
        return;
    const size_t first = (size_t)s * batch * p.channels, plane = i / out;
    const uint32_t y = (uint32_t)(i % out) / p.out_size[1], x = (uint32_t)(i % out) % p.out_size[1];
    const float *image = p.x + (first + plane) * in;
    float best = -INFINITY;
    uint32_t argmax = UINT32_MAX;
    for (uint32_t k = 0; k < p.kernel[0] * p.kernel[1]; k++) {
        /* row and column wrap below 0. */
        const uint32_t row = y * p.stride[0] + k / p.kernel[1] * p.dilation[0] - p.padding[0];
        const uint32_t column = x * p.stride[1] + k % p.kernel[1] * p.dilation[1] - p.padding[1];
        if (row < p.in_size[0] && column < p.in_size[1]) {
            const float value = image[row * p.in_size[1] + column];
            if (argmax == UINT32_MAX || value > best || isnan(value)) {
                best = value;
                argmax = k;
            }
        }
    }
    p.y[first * out + i] = best;
    p.argmax[first * out + i] = (uint16_t)argmax;
}

/* One thread for each input adds dy of the windows whose maximum it is. */
static __global__ void __launch_bounds__(TILE_THREADS)
    maxpool2d_backward(max_pool p, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, in = p.in_size[0] * p.in_size[1];
    const size_t out = (size_t)p.out_size[0] * p.out_size[1];
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)slot_steps[s].count * p.channels * in)
        return;
    const size_t first = (size_t)s * batch * p.channels, plane = (first + i / in) * out;
    const uint32_t y = (uint32_t)(i % in) / p.in_size[1], x = (uint32_t)(i % in) % p.in_size[1];
    float sum = 0.0f;
    for (uint32_t k = p.kernel[0] * p.kernel[1]; k-- > 0;) { /* windows in ascending order */
        const uint32_t top = y + p.padding[0] - k / p.kernel[1] * p.dilation[0];
        const uint32_t left = x + p.padding[1] - k % p.kernel[1] * p.dilation[1];
        const uint32_t row = top / p.stride[0], column = left / p.stride[1];
        if (row < p.out_size[0] && column < p.out_size[1] && row * p.stride[0] == top &&
            column * p.stride[1] == left) {
            const size_t at = plane + row * p.out_size[1] + column;
            sum += p.argmax[at] == k ? p.dy[at] : 0.0f;
        }
    }
    p.dx[first * in + i] = sum;
}

cudaError_t fedge_cohort_launch_maxpool2d(const fedge_cohort_shape *shape,
                                          const fedge_cohort_maxpool2d *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->channels *
                                                            args->out_size[0] * args->out_size[1]);
    return cudaLaunchKernelEx(&config, maxpool2d_forward, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_cohort_launch_maxpool2d_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_maxpool2d *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->channels *
                                                            args->in_size[0] * args->in_size[1]);
    return cudaLaunchKernelEx(&config, maxpool2d_backward, *args, shape->slot_steps, shape->batch);
}

/* ---- AvgPool2d ---- */

typedef fedge_cohort_avgpool2d average_pool;

/* The part [*first, *last) of window [i] that lies in the image. */
static __device__ __forceinline__ void window_in_image(const average_pool &p, int axis, uint32_t i,
                                                       uint32_t *first, uint32_t *last)
{
    const uint32_t begin = i * p.stride[axis], pad = p.padding[axis];
    const uint32_t end = begin + p.kernel[axis], most = p.in_size[axis] + pad;
    *first = begin > pad ? begin - pad : 0;
    *last = (end < most ? end : most) - pad;
}

/* The length of window [i] in the image and its padding. */
static __device__ __forceinline__ uint32_t padded(const average_pool &p, int axis, uint32_t i)
{
    const uint32_t unread = p.in_size[axis] + 2 * p.padding[axis] - i * p.stride[axis];
    return unread < p.kernel[axis] ? unread : p.kernel[axis];
}

/* 1 / the divisor of a window's sum. */
static __device__ __forceinline__ float reciprocal(const average_pool &p, uint32_t row,
                                                   uint32_t column)
{
    uint32_t top, bottom, left, right;
    window_in_image(p, 0, row, &top, &bottom);
    window_in_image(p, 1, column, &left, &right);
    const uint32_t count = p.divisor > 0 ? p.divisor
                           : p.count_pad ? padded(p, 0, row) * padded(p, 1, column)
                                         : (bottom - top) * (right - left);
    return 1.0f / (float)count;
}

/* One thread for each output. */
static __global__ void __launch_bounds__(TILE_THREADS)
    avgpool2d_forward(average_pool p, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, out = p.out_size[0] * p.out_size[1];
    const size_t in = (size_t)p.in_size[0] * p.in_size[1];
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)slot_steps[s].count * p.channels * out)
        return;
    const size_t first = (size_t)s * batch * p.channels;
    const uint32_t y = (uint32_t)(i % out) / p.out_size[1], x = (uint32_t)(i % out) % p.out_size[1];
    const float *image = p.x + (first + i / out) * in;
    uint32_t top, bottom, left, right;
    window_in_image(p, 0, y, &top, &bottom);
    window_in_image(p, 1, x, &left, &right);
    float sum = 0.0f;
    for (uint32_t r = top; r < bottom; r++) {
        for (uint32_t q = left; q < right; q++)
            sum += image[(size_t)r * p.in_size[1] + q];
    }
    p.y[first * out + i] = sum * reciprocal(p, y, x);
}

/* One thread for each input adds the parts of all windows that it is in, in ascending order. */
static __global__ void __launch_bounds__(TILE_THREADS)
    avgpool2d_backward(average_pool p, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, in = p.in_size[0] * p.in_size[1];
    const size_t out = (size_t)p.out_size[0] * p.out_size[1];
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)slot_steps[s].count * p.channels * in)
        return;
    const size_t first = (size_t)s * batch * p.channels;
    const float *dy = p.dy + (first + i / in) * out;
    const uint32_t y = (uint32_t)(i % in) / p.in_size[1], x = (uint32_t)(i % in) % p.in_size[1];
    float sum = 0.0f;
    for (uint32_t k = p.kernel[0] * p.kernel[1]; k-- > 0;) {
        /* top and left wrap below 0. */
        const uint32_t top = y + p.padding[0] - k / p.kernel[1];
        const uint32_t left = x + p.padding[1] - k % p.kernel[1];
        const uint32_t row = top / p.stride[0], column = left / p.stride[1];
        if (row < p.out_size[0] && column < p.out_size[1] && row * p.stride[0] == top &&
            column * p.stride[1] == left)
            sum += dy[row * p.out_size[1] + column] * reciprocal(p, row, column);
    }
    p.dx[first * in + i] = sum;
}

cudaError_t fedge_cohort_launch_avgpool2d(const fedge_cohort_shape *shape,
                                          const fedge_cohort_avgpool2d *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->channels *
                                                            args->out_size[0] * args->out_size[1]);
    return cudaLaunchKernelEx(&config, avgpool2d_forward, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_cohort_launch_avgpool2d_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_avgpool2d *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->channels *
                                                            args->in_size[0] * args->in_size[1]);
    return cudaLaunchKernelEx(&config, avgpool2d_backward, *args, shape->slot_steps, shape->batch);
}

/* ---- AdaptiveAvgPool2d ---- */

typedef fedge_cohort_adaptiveavgpool2d adaptive_pool;

static __device__ __forceinline__ uint32_t begin_of(uint32_t i, uint32_t in, uint32_t out)
{
    return (uint32_t)((uint64_t)i * in / out);
}

static __device__ __forceinline__ uint32_t end_of(uint32_t i, uint32_t in, uint32_t out)
{
    return (uint32_t)(((uint64_t)(i + 1) * in + out - 1) / out);
}

/* One thread for each output. */
static __global__ void __launch_bounds__(TILE_THREADS)
    avgpool_forward(adaptive_pool p, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, out = p.out_size[0] * p.out_size[1];
    const size_t in = (size_t)p.in_size[0] * p.in_size[1];
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)slot_steps[s].count * p.channels * out)
        return;
    const size_t first = (size_t)s * batch * p.channels;
    const uint32_t y = (uint32_t)(i % out) / p.out_size[1], x = (uint32_t)(i % out) % p.out_size[1];
    const float *image = p.x + (first + i / out) * in;
    const uint32_t top = begin_of(y, p.in_size[0], p.out_size[0]);
    const uint32_t bottom = end_of(y, p.in_size[0], p.out_size[0]);
    const uint32_t left = begin_of(x, p.in_size[1], p.out_size[1]);
    const uint32_t right = end_of(x, p.in_size[1], p.out_size[1]);
    float sum = 0.0f;
    for (uint32_t r = top; r < bottom; r++) {
        for (uint32_t q = left; q < right; q++)
            sum += image[(size_t)r * p.in_size[1] + q];
    }
    p.y[first * out + i] = sum / (float)((bottom - top) * (right - left));
}

/* One thread for each input adds the parts of all windows that it is in, in ascending order. */
static __global__ void __launch_bounds__(TILE_THREADS)
    avgpool_backward(adaptive_pool p, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, in = p.in_size[0] * p.in_size[1];
    const size_t out = (size_t)p.out_size[0] * p.out_size[1];
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)slot_steps[s].count * p.channels * in)
        return;
    const size_t first = (size_t)s * batch * p.channels;
    const float *dy = p.dy + (first + i / in) * out;
    const uint32_t y = (uint32_t)(i % in) / p.in_size[1], x = (uint32_t)(i % in) % p.in_size[1];
    float sum = 0.0f;
    /* Windows before y · out / in end above y. */
    for (uint32_t r = begin_of(y, p.out_size[0], p.in_size[0]);
         r < p.out_size[0] && begin_of(r, p.in_size[0], p.out_size[0]) <= y; r++) {
        const uint32_t top = begin_of(r, p.in_size[0], p.out_size[0]);
        const uint32_t bottom = end_of(r, p.in_size[0], p.out_size[0]);
        for (uint32_t q = begin_of(x, p.out_size[1], p.in_size[1]);
             q < p.out_size[1] && begin_of(q, p.in_size[1], p.out_size[1]) <= x; q++) {
            const uint32_t left = begin_of(q, p.in_size[1], p.out_size[1]);
            const uint32_t right = end_of(q, p.in_size[1], p.out_size[1]);
            if (y < bottom && x < right)
                sum += dy[(size_t)r * p.out_size[1] + q] / (float)((bottom - top) * (right - left));
        }
    }
    p.dx[first * in + i] = sum;
}

cudaError_t fedge_cohort_launch_adaptiveavgpool2d(const fedge_cohort_shape *shape,
                                                  const fedge_cohort_adaptiveavgpool2d *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->channels *
                                                            args->out_size[0] * args->out_size[1]);
    return cudaLaunchKernelEx(&config, avgpool_forward, *args, shape->slot_steps, shape->batch);
}

cudaError_t
fedge_cohort_launch_adaptiveavgpool2d_backward(const fedge_cohort_shape *shape,
                                               const fedge_cohort_adaptiveavgpool2d *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->channels *
                                                            args->in_size[0] * args->in_size[1]);
    return cudaLaunchKernelEx(&config, avgpool_backward, *args, shape->slot_steps, shape->batch);
}

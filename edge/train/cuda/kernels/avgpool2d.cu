#include "edge/train/cuda/kernels/tile.cuh"

typedef fedge_cohort_averages pool;

/* Places of window [i] in the image, [*first, *last). */
static __device__ __forceinline__ void place(const pool &p, int axis, uint32_t i, uint32_t *first,
                                             uint32_t *last)
{
    const uint32_t begin = i * p.stride[axis], pad = p.padding[axis];
    const uint32_t end = begin + p.kernel[axis], most = p.in_size[axis] + pad;
    *first = begin > pad ? begin - pad : 0;
    *last = (end < most ? end : most) - pad;
}

/* Of the window, in image and padding. */
static __device__ __forceinline__ uint32_t padded(const pool &p, int axis, uint32_t i)
{
    const uint32_t rest = p.in_size[axis] + 2 * p.padding[axis] - i * p.stride[axis];
    return rest < p.kernel[axis] ? rest : p.kernel[axis];
}

/* One over what the sum of the window is divided by. */
static __device__ __forceinline__ float share(const pool &p, uint32_t row, uint32_t column)
{
    uint32_t top, bottom, left, right;
    place(p, 0, row, &top, &bottom);
    place(p, 1, column, &left, &right);
    const uint32_t count = p.divisor > 0 ? p.divisor
                           : p.count_pad ? padded(p, 0, row) * padded(p, 1, column)
                                         : (bottom - top) * (right - left);
    return 1.0f / (float)count;
}

/* A thread for each output. */
static __global__ void __launch_bounds__(TILE_THREADS)
    avgpool2d_forward(pool p, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, out = p.out_size[0] * p.out_size[1];
    const size_t in = (size_t)p.in_size[0] * p.in_size[1];
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)turns[s].count * p.channels * out)
        return;
    const size_t first = (size_t)s * batch * p.channels;
    const uint32_t y = (uint32_t)(i % out) / p.out_size[1], x = (uint32_t)(i % out) % p.out_size[1];
    const float *image = p.x + (first + i / out) * in;
    uint32_t top, bottom, left, right;
    place(p, 0, y, &top, &bottom);
    place(p, 1, x, &left, &right);
    float sum = 0.0f;
    for (uint32_t r = top; r < bottom; r++) {
        for (uint32_t q = left; q < right; q++)
            sum += image[(size_t)r * p.in_size[1] + q];
    }
    p.y[first * out + i] = sum * share(p, y, x);
}

/* A thread for each input adds the shares of the windows that it is in, in their order. */
static __global__ void __launch_bounds__(TILE_THREADS)
    avgpool2d_backward(pool p, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, in = p.in_size[0] * p.in_size[1];
    const size_t out = (size_t)p.out_size[0] * p.out_size[1];
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)turns[s].count * p.channels * in)
        return;
    const size_t first = (size_t)s * batch * p.channels;
    const float *dy = p.dy + (first + i / in) * out;
    const uint32_t y = (uint32_t)(i % in) / p.in_size[1], x = (uint32_t)(i % in) % p.in_size[1];
    float sum = 0.0f;
    for (uint32_t k = p.kernel[0] * p.kernel[1]; k-- > 0;) {
        /* Below 0 they wrap. */
        const uint32_t top = y + p.padding[0] - k / p.kernel[1];
        const uint32_t left = x + p.padding[1] - k % p.kernel[1];
        const uint32_t row = top / p.stride[0], column = left / p.stride[1];
        if (row < p.out_size[0] && column < p.out_size[1] && row * p.stride[0] == top &&
            column * p.stride[1] == left)
            sum += dy[row * p.out_size[1] + column] * share(p, row, column);
    }
    p.dx[first * in + i] = sum;
}

cudaError_t fedge_cohort_launch_avgpool2d(const fedge_cohort_shape *shape,
                                          const fedge_cohort_averages *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->channels *
                                                            args->out_size[0] * args->out_size[1]);
    return cudaLaunchKernelEx(&config, avgpool2d_forward, *args, shape->turns, shape->batch);
}

cudaError_t fedge_cohort_launch_avgpool2d_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_averages *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->channels *
                                                            args->in_size[0] * args->in_size[1]);
    return cudaLaunchKernelEx(&config, avgpool2d_backward, *args, shape->turns, shape->batch);
}

#include "edge/train/cuda/kernels/tile.cuh"

typedef fedge_cohort_maxpool2d pool;

/* A thread for each output. */
static __global__ void __launch_bounds__(TILE_THREADS)
    maxpool2d_forward(pool p, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, out = p.out_size[0] * p.out_size[1];
    const size_t in = (size_t)p.in_size[0] * p.in_size[1];
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)turns[s].count * p.channels * out)
        return;
    const size_t first = (size_t)s * batch * p.channels, plane = i / out;
    const uint32_t y = (uint32_t)(i % out) / p.out_size[1], x = (uint32_t)(i % out) % p.out_size[1];
    const float *image = p.x + (first + plane) * in;
    float best = -INFINITY;
    uint32_t place = UINT32_MAX;
    for (uint32_t k = 0; k < p.kernel[0] * p.kernel[1]; k++) {
        /* Below 0 they wrap. */
        const uint32_t row = y * p.stride[0] + k / p.kernel[1] * p.dilation[0] - p.padding[0];
        const uint32_t column = x * p.stride[1] + k % p.kernel[1] * p.dilation[1] - p.padding[1];
        if (row < p.in_size[0] && column < p.in_size[1]) {
            const float value = image[row * p.in_size[1] + column];
            if (place == UINT32_MAX || value > best || isnan(value)) {
                best = value;
                place = k;
            }
        }
    }
    p.y[first * out + i] = best;
    p.places[first * out + i] = (uint16_t)place;
}

/* A thread for each input adds what the windows that chose it have. */
static __global__ void __launch_bounds__(TILE_THREADS)
    maxpool2d_backward(pool p, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, in = p.in_size[0] * p.in_size[1];
    const size_t out = (size_t)p.out_size[0] * p.out_size[1];
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)turns[s].count * p.channels * in)
        return;
    const size_t first = (size_t)s * batch * p.channels, plane = (first + i / in) * out;
    const uint32_t y = (uint32_t)(i % in) / p.in_size[1], x = (uint32_t)(i % in) % p.in_size[1];
    float sum = 0.0f;
    for (uint32_t k = p.kernel[0] * p.kernel[1]; k-- > 0;) { /* the windows in their order */
        const uint32_t top = y + p.padding[0] - k / p.kernel[1] * p.dilation[0];
        const uint32_t left = x + p.padding[1] - k % p.kernel[1] * p.dilation[1];
        const uint32_t row = top / p.stride[0], column = left / p.stride[1];
        if (row < p.out_size[0] && column < p.out_size[1] && row * p.stride[0] == top &&
            column * p.stride[1] == left) {
            const size_t at = plane + row * p.out_size[1] + column;
            sum += p.places[at] == k ? p.dy[at] : 0.0f;
        }
    }
    p.dx[first * in + i] = sum;
}

cudaError_t fedge_cohort_launch_maxpool2d(const fedge_cohort_shape *shape,
                                          const fedge_cohort_maxpool2d *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->channels *
                                                            args->out_size[0] * args->out_size[1]);
    return cudaLaunchKernelEx(&config, maxpool2d_forward, *args, shape->turns, shape->batch);
}

cudaError_t fedge_cohort_launch_maxpool2d_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_maxpool2d *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->channels *
                                                            args->in_size[0] * args->in_size[1]);
    return cudaLaunchKernelEx(&config, maxpool2d_backward, *args, shape->turns, shape->batch);
}

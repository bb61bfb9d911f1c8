#include "edge/train/cuda/kernels/tile.cuh"

typedef fedge_cohort_avgpool pool;

static __device__ __forceinline__ uint32_t begin_of(uint32_t i, uint32_t in, uint32_t out)
{
    return (uint32_t)((uint64_t)i * in / out);
}

static __device__ __forceinline__ uint32_t end_of(uint32_t i, uint32_t in, uint32_t out)
{
    return (uint32_t)(((uint64_t)(i + 1) * in + out - 1) / out);
}

/* A thread for each output. */
static __global__ void __launch_bounds__(TILE_THREADS)
    avgpool_forward(pool p, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, out = p.out_size[0] * p.out_size[1];
    const size_t in = (size_t)p.in_size[0] * p.in_size[1];
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)turns[s].count * p.channels * out)
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

/* A thread for each input adds the shares of the windows that it is in, in their order. */
static __global__ void __launch_bounds__(TILE_THREADS)
    avgpool_backward(pool p, const fedge_cohort_turn *turns, uint32_t batch)
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
    /* No window before y · out / in reaches so far. */
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
                                                  const fedge_cohort_avgpool *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->channels *
                                                            args->out_size[0] * args->out_size[1]);
    return cudaLaunchKernelEx(&config, avgpool_forward, *args, shape->turns, shape->batch);
}

cudaError_t fedge_cohort_launch_adaptiveavgpool2d_backward(const fedge_cohort_shape *shape,
                                                           const fedge_cohort_avgpool *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->channels *
                                                            args->in_size[0] * args->in_size[1]);
    return cudaLaunchKernelEx(&config, avgpool_backward, *args, shape->turns, shape->batch);
}

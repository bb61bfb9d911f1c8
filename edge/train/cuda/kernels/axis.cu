#include "edge/train/cuda/kernels/tile.cuh"

typedef fedge_cohort_axis axis;

/* A thread for each output. */
static __global__ void __launch_bounds__(TILE_THREADS)
    axis_forward(axis a, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t n = (size_t)a.outer * a.inner;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= turns[s].count * n)
        return;
    const size_t o = (size_t)s * batch * a.outer + i / a.inner;
    const float *x = a.x + (o * a.length + a.first) * a.inner + i % a.inner;
    float sum = 0.0f;
    for (uint32_t k = 0; k < a.count; k++)
        sum += x[(size_t)k * a.inner];
    a.y[o * a.inner + i % a.inner] = sum * (1.0f / (float)a.count);
}

/* A thread for each input. */
static __global__ void __launch_bounds__(TILE_THREADS)
    axis_backward(axis a, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t n = (size_t)a.outer * a.length * a.inner;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= turns[s].count * n)
        return;
    const size_t o = (size_t)s * batch * a.outer + i / a.inner / a.length;
    const uint32_t k = (uint32_t)(i / a.inner % a.length);
    const bool there = k >= a.first && k - a.first < a.count;
    a.dx[(size_t)s * batch * n + i] =
        there ? a.dy[o * a.inner + i % a.inner] * (1.0f / (float)a.count) : 0.0f;
}

cudaError_t fedge_cohort_launch_axis(const fedge_cohort_shape *shape, const fedge_cohort_axis *args)
{
    const cudaLaunchConfig_t config =
        value_grid(shape, (size_t)shape->batch * args->outer * args->inner);
    return cudaLaunchKernelEx(&config, axis_forward, *args, shape->turns, shape->batch);
}

cudaError_t fedge_cohort_launch_axis_backward(const fedge_cohort_shape *shape,
                                              const fedge_cohort_axis *args)
{
    const cudaLaunchConfig_t config =
        value_grid(shape, (size_t)shape->batch * args->outer * args->length * args->inner);
    return cudaLaunchKernelEx(&config, axis_backward, *args, shape->turns, shape->batch);
}

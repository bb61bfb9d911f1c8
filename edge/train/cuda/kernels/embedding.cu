#include "edge/train/cuda/kernels/tile.cuh"

typedef fedge_cohort_embedding embedding;

/* One thread for each output. The host has checked the indices. */
static __global__ void __launch_bounds__(TILE_THREADS)
    embedding_forward(embedding e, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i < (size_t)slot_steps[s].count * e.steps * e.dim) {
        const size_t at = (size_t)s * batch * e.steps + i / e.dim;
        const size_t row = (size_t)e.x[at];
        e.y[at * e.dim + i % e.dim] =
            e.weight.values[s * e.weight.stride + row * e.dim + i % e.dim];
    }
}

/* One thread for each weight visits all steps of all examples in order. */
static __global__ void __launch_bounds__(TILE_THREADS)
    embedding_dweight(embedding e, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, rows = slot_steps[s].count * e.steps;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (rows == 0 || i >= (size_t)e.rows * e.dim)
        return;
    const size_t first = (size_t)s * batch * e.steps;
    const float row = (float)(i / e.dim);
    float sum = 0.0f;
    for (uint32_t k = 0; k < rows; k++) {
        if (e.x[first + k] == row)
            sum += e.dy[(first + k) * e.dim + i % e.dim];
    }
    e.dweight[s * e.gradient_stride + i] = sum;
}

static __global__ void __launch_bounds__(TILE_THREADS)
    positions_forward(embedding e, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, n = e.steps * e.dim;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i < (size_t)slot_steps[s].count * n) {
        const size_t at = (size_t)s * batch * n + i;
        e.y[at] = e.x[at] + e.weight.values[s * e.weight.stride + i % n];
    }
}

/* Positions after the last step have gradient 0. */
static __global__ void __launch_bounds__(TILE_THREADS)
    positions_dweight(embedding e, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, n = e.steps * e.dim;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (slot_steps[s].count == 0 || i >= (size_t)e.rows * e.dim)
        return;
    float sum = 0.0f;
    for (uint32_t b = 0; i < n && b < slot_steps[s].count; b++)
        sum += e.dy[((size_t)s * batch + b) * n + i];
    e.dweight[s * e.gradient_stride + i] = sum;
}

cudaError_t fedge_cohort_launch_embedding(const fedge_cohort_shape *shape,
                                          const fedge_cohort_embedding *args)
{
    const cudaLaunchConfig_t config =
        value_grid(shape, (size_t)shape->batch * args->steps * args->dim);
    return cudaLaunchKernelEx(&config, embedding_forward, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_cohort_launch_embedding_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_embedding *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)args->rows * args->dim);
    return args->dweight ? cudaLaunchKernelEx(&config, embedding_dweight, *args, shape->slot_steps,
                                              shape->batch)
                         : cudaSuccess;
}

cudaError_t fedge_cohort_launch_positions(const fedge_cohort_shape *shape,
                                          const fedge_cohort_embedding *args)
{
    const cudaLaunchConfig_t config =
        value_grid(shape, (size_t)shape->batch * args->steps * args->dim);
    return cudaLaunchKernelEx(&config, positions_forward, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_cohort_launch_positions_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_embedding *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)args->rows * args->dim);
    return args->dweight ? cudaLaunchKernelEx(&config, positions_dweight, *args, shape->slot_steps,
                                              shape->batch)
                         : cudaSuccess;
}

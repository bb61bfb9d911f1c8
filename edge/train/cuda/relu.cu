#include "edge/train/cuda/tile.cuh"

static __global__ void __launch_bounds__(TILE_THREADS)
    relu_forward(float *y, uint32_t values, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i < (size_t)turns[s].count * values) {
        float *at = y + (size_t)s * batch * values + i;
        *at = *at < 0.0f ? 0.0f : *at;
    }
}

static __global__ void __launch_bounds__(TILE_THREADS)
    relu_backward(const float *y, float *dy, uint32_t values, const fedge_cohort_turn *turns,
                  uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i < (size_t)turns[s].count * values) {
        const size_t at = (size_t)s * batch * values + i;
        if (!(y[at] > 0.0f)) {
            dy[at] = 0.0f;
        }
    }
}

cudaError_t fedge_cohort_launch_relu(const fedge_cohort_shape *shape, float *y, uint32_t values)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * values);
    return cudaLaunchKernelEx(&config, relu_forward, y, values, shape->turns, shape->batch);
}

cudaError_t fedge_cohort_launch_relu_backward(const fedge_cohort_shape *shape, const float *y,
                                              float *dy, uint32_t values)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * values);
    return cudaLaunchKernelEx(&config, relu_backward, y, dy, values, shape->turns, shape->batch);
}

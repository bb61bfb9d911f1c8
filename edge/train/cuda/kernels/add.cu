#include "edge/train/cuda/kernels/tile.cuh"

static __global__ void __launch_bounds__(TILE_THREADS)
    add(fedge_cohort_add a, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i < (size_t)turns[s].count * a.values) {
        const size_t at = (size_t)s * batch * a.values + i;
        a.to[at] = a.adds ? a.to[at] + a.from[at] : a.from[at];
    }
}

cudaError_t fedge_cohort_launch_add(const fedge_cohort_shape *shape, const fedge_cohort_add *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->values);
    return cudaLaunchKernelEx(&config, add, *args, shape->turns, shape->batch);
}

#include "edge/train/cuda/kernels/drop.cuh"
#include "edge/train/cuda/kernels/tile.cuh"

/* A thread for each value. */
static __global__ void __launch_bounds__(TILE_THREADS)
    dropout(fedge_cohort_dropout d, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)turns[s].count * d.values)
        return;
    const fedge_cohort_turn turn = turns[s];
    const size_t at = (size_t)s * batch * d.values + i;
    const uint64_t word = first_word(d.drop, turn, (uint32_t)(i / d.values)) + i % d.values;
    d.y[at] = is_kept(d.drop, turn, word) ? d.x[at] * drop_factor(d.drop) : 0.0f;
}

cudaError_t fedge_cohort_launch_dropout(const fedge_cohort_shape *shape,
                                        const fedge_cohort_dropout *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->values);
    return cudaLaunchKernelEx(&config, dropout, *args, shape->turns, shape->batch);
}

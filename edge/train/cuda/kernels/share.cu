/* Compiled without fused products: the integers are the same wherever a part is trained. */
#include "edge/train/cuda/kernels/tile.cuh"

static __device__ __forceinline__ double power_of_two(uint32_t exponent)
{
    return (double)(1ull << exponent);
}

/* A thread for each value, over all slots that have worked. */
static __global__ void __launch_bounds__(TILE_THREADS)
    add_gradients(fedge_cohort_shared_sums p, const fedge_cohort_turn *turns, uint32_t slots)
{
    const uint32_t at = blockIdx.x * TILE_THREADS + threadIdx.x, i = p.first + at;
    int64_t sum = 0;
    if (at >= p.count)
        return;
    for (uint32_t s = 0; s < slots; s++) {
        const uint32_t examples = turns[s].count;
        const float g = examples > 0 ? p.gradients[s * p.gradient_stride + i] : 0.0f;
        if (fabsf(g) <= FEDGE_COHORT_SHARE_MOST)
            sum += (int64_t)rint((double)g * (double)examples * power_of_two(p.fraction));
        else
            atomicMax(&p.tallies[s].bad_value, ~i);
    }
    p.sums[i] += sum;
}

static __global__ void __launch_bounds__(TILE_THREADS) take_gradients(fedge_cohort_shared_sums p)
{
    const uint32_t at = blockIdx.x * TILE_THREADS + threadIdx.x;
    if (at < p.count) {
        const double sum = (double)p.sums[at] / power_of_two(p.fraction);
        p.gradients[p.first + at] = (float)(sum / (double)p.examples);
    }
}

cudaError_t fedge_cohort_launch_share(const fedge_cohort_shape *shape,
                                      const fedge_cohort_shared_sums *args)
{
    const fedge_cohort_shape one = {shape->turns, 1, shape->batch, shape->stream};
    const cudaLaunchConfig_t config = value_grid(&one, args->count);
    return cudaLaunchKernelEx(&config, add_gradients, *args, shape->turns, shape->slots);
}

cudaError_t fedge_cohort_launch_unshare(const fedge_cohort_shared_sums *args, cudaStream_t stream)
{
    const fedge_cohort_shape one = {nullptr, 1, 1, stream};
    const cudaLaunchConfig_t config = value_grid(&one, args->count);
    return cudaLaunchKernelEx(&config, take_gradients, *args);
}

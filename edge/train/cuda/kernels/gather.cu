#include "edge/train/cuda/kernels/tile.cuh"

/* The stored value that becomes value [v] of the moved example; 0 outside the image. */
template <typename Stored>
static __device__ __forceinline__ float shifted(const fedge_cohort_gather &g, const Stored *example,
                                                uint32_t v, const fedge_cohort_move &move)
{
    const uint32_t plane = g.height * g.width, i = v % plane / g.width, j = v % g.width;
    const uint32_t row = i + (uint32_t)move.shift_h; /* wraps below 0, as column */
    const uint32_t column = (move.flip ? g.width - 1 - j : j) + (uint32_t)move.shift_w;
    return row < g.height && column < g.width
               ? (float)example[v - v % plane + row * g.width + column]
               : 0.0f;
}

/* The grid's y is an example and x its values. Compiled without fused products, as on the CPU. */
template <typename Stored>
static __global__ void __launch_bounds__(TILE_THREADS)
    gather(fedge_cohort_gather g, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, v = blockIdx.x * TILE_THREADS + threadIdx.x;
    if (v >= g.example_values)
        return;
    const fedge_cohort_slot_step slot_step = slot_steps[s];
    const Stored *values = (const Stored *)(slot_step.data ? g.sets[1] : g.sets[0]).values;
    const uint32_t channel = g.num_channels > 1 ? v / g.plane : 0;
    for (uint32_t b = blockIdx.y; b < slot_step.count; b += gridDim.y) {
        const uint32_t example = g.indices[(size_t)s * batch + b];
        const Stored *stored = values + (size_t)example * g.example_values;
        float x =
            g.moves ? shifted(g, stored, v, g.moves[(size_t)s * batch + b]) : (float)stored[v];
        x /= g.divide_by;
        if (g.num_channels > 0)
            x = (x - g.mean[channel]) / g.std[channel];
        g.x[((size_t)s * batch + b) * g.example_values + v] = x;
    }
}

cudaError_t fedge_cohort_launch_gather(const fedge_cohort_shape *shape,
                                       const fedge_cohort_gather *args)
{
    cudaLaunchConfig_t config = value_grid(shape, args->example_values);
    config.gridDim.y = shape->batch < 64 ? shape->batch : 64;
    return args->is_float
               ? cudaLaunchKernelEx(&config, gather<float>, *args, shape->slot_steps, shape->batch)
               : cudaLaunchKernelEx(&config, gather<uint8_t>, *args, shape->slot_steps,
                                    shape->batch);
}

/* One block for each slot. */
static __global__ void __launch_bounds__(TILE_THREADS)
    advance(fedge_cohort_advance a, uint32_t slots, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t from = (size_t)a.steps_taken[s] * slots + s;
    const fedge_cohort_slot_step slot_step = a.slot_steps[from];
    for (uint32_t b = threadIdx.x; b < slot_step.count; b += TILE_THREADS) {
        a.batch[(size_t)s * batch + b] = a.indices[from * batch + b];
        if (a.moves)
            a.step_moves[(size_t)s * batch + b] = a.moves[from * batch + b];
    }
    __syncthreads(); /* all threads have read steps_taken */
    if (threadIdx.x == 0) {
        a.slot_step[s] = slot_step;
        a.steps_taken[s]++;
    }
}

/* One kernel suffices: all are built for the same GPUs. */
cudaError_t fedge_cohort_has_code(void)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, advance);
}

cudaError_t fedge_cohort_launch_advance(const fedge_cohort_shape *shape,
                                        const fedge_cohort_advance *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, 1);
    return cudaLaunchKernelEx(&config, advance, *args, shape->slots, shape->batch);
}

#include "edge/train/cuda/kernels/tile.cuh"

/* The stored value that comes to be value [v] of an example, 0 outside of it. */
template <typename Stored>
static __device__ __forceinline__ float moved(const fedge_cohort_gather &g, const Stored *example,
                                              uint32_t v, const fedge_cohort_move &move)
{
    const uint32_t plane = g.height * g.width, i = v % plane / g.width, j = v % g.width;
    const uint32_t row = i + (uint32_t)move.down; /* below 0 they wrap */
    const uint32_t column = (move.flip ? g.width - 1 - j : j) + (uint32_t)move.right;
    return row < g.height && column < g.width
               ? (float)example[v - v % plane + row * g.width + column]
               : 0.0f;
}

/* An example in y of the grid, its values in x. Compiled without fused
 * products, as the CPU's. */
template <typename Stored>
static __global__ void __launch_bounds__(TILE_THREADS)
    gather(fedge_cohort_gather g, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, v = blockIdx.x * TILE_THREADS + threadIdx.x;
    if (v >= g.example_values)
        return;
    const fedge_cohort_slot_step turn = slot_steps[s];
    const Stored *values = (const Stored *)(turn.data ? g.sets[1] : g.sets[0]).values;
    const uint32_t channel = g.num_channels > 1 ? v / g.plane : 0;
    for (uint32_t b = blockIdx.y; b < turn.count; b += gridDim.y) {
        const uint32_t example = g.indices[(size_t)s * batch + b];
        const Stored *stored = values + (size_t)example * g.example_values;
        float x = g.moves ? moved(g, stored, v, g.moves[(size_t)s * batch + b]) : (float)stored[v];
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

/* A block for each slot. */
static __global__ void __launch_bounds__(TILE_THREADS)
    advance(fedge_cohort_advance a, uint32_t slots, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t from = (size_t)a.taken[s] * slots + s;
    const fedge_cohort_slot_step turn = a.slot_steps[from];
    for (uint32_t b = threadIdx.x; b < turn.count; b += TILE_THREADS) {
        a.batch[(size_t)s * batch + b] = a.indices[from * batch + b];
        if (a.moves)
            a.moved[(size_t)s * batch + b] = a.moves[from * batch + b];
    }
    __syncthreads(); /* all have read how many were taken */
    if (threadIdx.x == 0) {
        a.turn[s] = turn;
        a.taken[s]++;
    }
}

/* Any kernel tells: all are built for the same GPUs. */
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

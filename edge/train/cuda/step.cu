#include "edge/train/cuda/tile.cuh"

/* Compiled without fused products: the operations and their order are those of
 * the CPU's scalar reference, edge/train/optimizers. */

static __global__ void __launch_bounds__(TILE_THREADS)
    begin_slots(fedge_cohort_step p, fedge_cohort_tally *tallies, const fedge_cohort_turn *turns)
{
    const uint32_t s = blockIdx.z;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (turns[s].count == 0 || turns[s].step != 1)
        return;
    if (i == 0)
        tallies[s] = fedge_cohort_tally{};
    if (p.values && i < p.num_values) {
        p.values[s * p.stride + i] = p.start[turns[s].member * p.stride + i];
        for (int k = 0; k < 2; k++) {
            if (p.states[k] && i < p.states_stride)
                p.states[k][s * p.states_stride + i] = 0.0f;
        }
    }
}

/* With the proximal term, which the norm is taken of too. */
static __device__ __forceinline__ float gradient(const fedge_cohort_step &p,
                                                 const fedge_cohort_turn &turn, size_t at, size_t i)
{
    float g = p.gradients[at];
    if (p.proximal_mu != 0.0f)
        g += p.proximal_mu * (p.values[at] - p.start[turn.member * p.stride + i]);
    return g;
}

/* The sum of squares of one part of a slot's gradient: 256 sums, then a tree.
 */
static __global__ void __launch_bounds__(TILE_THREADS)
    sum_squares(fedge_cohort_step p, const fedge_cohort_turn *turns)
{
    __shared__ double sums[TILE_THREADS];
    const uint32_t s = blockIdx.z;
    const fedge_cohort_turn turn = turns[s];
    double sum = 0.0;
    if (turn.count == 0)
        return;
    const size_t step = (size_t)FEDGE_COHORT_NORM_PARTS * TILE_THREADS;
    for (size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x; i < p.count; i += step) {
        const size_t value = p.first + i;
        const double g = (double)gradient(p, turn, s * p.stride + value, value);
        sum += g * g;
    }
    sums[threadIdx.x] = sum;
    for (uint32_t half = TILE_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) {
        double *part = p.squares + (size_t)s * FEDGE_COHORT_NORM_PARTS + blockIdx.x;
        *part = p.adds ? *part + sums[0] : sums[0];
    }
}

/* 1 where the gradient is not clipped. */
static __device__ __forceinline__ float clip_scale(const fedge_cohort_step &p, uint32_t s)
{
    double squares = 0.0;
    for (int i = 0; i < FEDGE_COHORT_NORM_PARTS; i++)
        squares += p.squares[(size_t)s * FEDGE_COHORT_NORM_PARTS + i];
    const float scale = (float)((double)p.clip_norm / (sqrt(squares) + 1e-6));
    return scale < 1.0f ? scale : 1.0f;
}

static __device__ __forceinline__ void
step_sgd(const fedge_cohort_step &p, const fedge_cohort_turn &turn, float g, size_t at, size_t kept)
{
    const float w = p.values[at];
    const float slope = g + p.weight_decay * w;
    if (!p.states[0]) {
        p.values[at] = w - turn.rate * slope;
        return;
    }
    const float v = p.momentum * p.states[0][kept] + slope;
    p.states[0][kept] = v;
    p.values[at] = w - turn.rate * (p.nesterov ? slope + p.momentum * v : v);
}

static __device__ __forceinline__ void step_adam(const fedge_cohort_step &p,
                                                 const fedge_cohort_turn &turn, float g, size_t at,
                                                 size_t kept)
{
    const float w = p.values[at];
    if (p.optimizer == FEDGE_COHORT_ADAM)
        g += p.weight_decay * w;
    const float m = p.beta1 * p.states[0][kept] + (1.0f - p.beta1) * g;
    const float v = p.beta2 * p.states[1][kept] + (1.0f - p.beta2) * g * g;
    p.states[0][kept] = m;
    p.states[1][kept] = v;
    p.values[at] = turn.keep * w - turn.size * m / (sqrtf(v) / turn.root + p.epsilon);
}

static __global__ void __launch_bounds__(TILE_THREADS)
    step_all(fedge_cohort_step p, const fedge_cohort_turn *turns)
{
    const uint32_t s = blockIdx.z;
    const size_t at_range = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x, i = p.first + at_range;
    const fedge_cohort_turn turn = turns[s];
    if (turn.count == 0 || at_range >= p.count)
        return;
    const size_t at = s * p.stride + i, kept = s * p.states_stride + p.states_first + at_range;
    float g = gradient(p, turn, at, i);
    if (p.clip_norm > 0.0f) {
        const float scale = clip_scale(p, s);
        g = scale < 1.0f ? g * scale : g;
    }
    if (p.corrections)
        g += p.corrections[at];
    if (p.optimizer == FEDGE_COHORT_SGD)
        step_sgd(p, turn, g, at, kept);
    else
        step_adam(p, turn, g, at, kept);
}

cudaError_t fedge_cohort_launch_begin(const fedge_cohort_shape *shape,
                                      const fedge_cohort_step *args, fedge_cohort_tally *tallies)
{
    const cudaLaunchConfig_t config = value_grid(shape, args->num_values);
    return cudaLaunchKernelEx(&config, begin_slots, *args, tallies, shape->turns);
}

cudaError_t fedge_cohort_launch_squares(const fedge_cohort_shape *shape,
                                        const fedge_cohort_step *args)
{
    cudaLaunchConfig_t parts = value_grid(shape, 1);
    parts.gridDim.x = FEDGE_COHORT_NORM_PARTS;
    return cudaLaunchKernelEx(&parts, sum_squares, *args, shape->turns);
}

cudaError_t fedge_cohort_launch_step(const fedge_cohort_shape *shape, const fedge_cohort_step *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, args->count);
    return cudaLaunchKernelEx(&config, step_all, *args, shape->turns);
}

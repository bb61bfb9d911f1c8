#include "edge/train/cuda/kernels/device.cuh"
#include "edge/train/cuda/kernels/tile.cuh"

/* Compiled without fused products: operations and their order are those of the CPU's scalar
 * reference, edge/train/optimizers. */

/* ---- states ---------------------------------------------------------------------------------- */

/* The index of a value's states, and its word of the step's stream. */
typedef struct state_ref {
    size_t at;
    uint32_t word;
} state_ref;

static __device__ __forceinline__ state_ref find_state(const fedge_cohort_step &p,
                                                       const fedge_cohort_slot_step &slot_step,
                                                       size_t at, size_t value)
{
    state_ref made = {at, 0};
    if (p.states_bf16) {
        fedge_cohort_slot_step named = slot_step;
        named.stream[0] = p.rounding | (slot_step.stream[0] & 0xffffu);
        made.word = drawn_word(named, value);
    }
    return made;
}

static __device__ __forceinline__ float read_state(const fedge_cohort_step &p, int k, state_ref of)
{
    return p.states_bf16
               ? __int_as_float((int)((uint32_t) static_cast<uint16_t *>(p.states[k])[of.at] << 16))
               : static_cast<float *>(p.states[k])[of.at];
}

/* Rounds to bf16 stochastically: up with the probability of the dropped bits. A change too small
 * for bf16, such as that of Adam's second moment, then happens on average; rounding to nearest
 * would lose it. Each of the two states uses half of the word. */
static __device__ __forceinline__ void write_state(const fedge_cohort_step &p, int k, state_ref of,
                                                   float x)
{
    if (!p.states_bf16) {
        static_cast<float *>(p.states[k])[of.at] = x;
        return;
    }
    const uint32_t bits = (uint32_t)__float_as_int(x);
    const uint32_t chance = k == 0 ? of.word & 0xffffu : of.word >> 16;
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    const uint32_t quiet = isnan(x) ? 0x400000u : 0;
    const uint32_t rounded = finite ? bits + chance : bits | quiet;
    static_cast<uint16_t *>(p.states[k])[of.at] = (uint16_t)(rounded >> 16);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(TILE_THREADS)
    begin_slots(fedge_cohort_step p, fedge_cohort_tally *tallies,
                const fedge_cohort_slot_step *slot_steps)
{
    const uint32_t s = blockIdx.z;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (slot_steps[s].count == 0 || slot_steps[s].step != 1)
        return;
    if (i == 0)
        tallies[s] = fedge_cohort_tally{};
    if (p.values && i < p.num_values) {
        p.values[s * p.stride + i] = p.start[slot_steps[s].member * p.stride + i];
        for (int k = 0; k < 2; k++) {
            if (p.states[k] && i < p.states_stride)
                write_state(p, k, state_ref{s * p.states_stride + i, 0}, 0.0f);
        }
    }
}

/* The gradient with the proximal term, which counts in the norm. */
static __device__ __forceinline__ float
gradient(const fedge_cohort_step &p, const fedge_cohort_slot_step &slot_step, size_t at, size_t i)
{
    float g = p.gradients[at];
    if (p.proximal_mu != 0.0f)
        g += p.proximal_mu * (p.values[at] - p.start[slot_step.member * p.stride + i]);
    return g;
}

/* The sum of squares of one part of a slot's gradient: 256 sums, then a tree. */
static __global__ void __launch_bounds__(TILE_THREADS)
    sum_squares(fedge_cohort_step p, const fedge_cohort_slot_step *slot_steps)
{
    __shared__ double sums[TILE_THREADS];
    const uint32_t s = blockIdx.z;
    const fedge_cohort_slot_step slot_step = slot_steps[s];
    double sum = 0.0;
    if (slot_step.count == 0)
        return;
    const size_t step = (size_t)FEDGE_COHORT_NORM_PARTS * TILE_THREADS;
    for (size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x; i < p.count; i += step) {
        const size_t value = p.first + i;
        const double g = (double)gradient(p, slot_step, s * p.stride + value, value);
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

/* The factor that clips the gradient; 1: it is not clipped. */
static __device__ __forceinline__ float clip_scale(const fedge_cohort_step &p, uint32_t s)
{
    double squares = 0.0;
    for (int i = 0; i < FEDGE_COHORT_NORM_PARTS; i++)
        squares += p.squares[(size_t)s * FEDGE_COHORT_NORM_PARTS + i];
    const float scale = (float)((double)p.clip_norm / (sqrt(squares) + 1e-6));
    return scale < 1.0f ? scale : 1.0f;
}

static __device__ __forceinline__ void step_sgd(const fedge_cohort_step &p,
                                                const fedge_cohort_slot_step &slot_step, float g,
                                                size_t at, state_ref of)
{
    const float w = p.values[at];
    const float slope = g + p.weight_decay * w;
    if (!p.states[0]) {
        p.values[at] = w - slot_step.rate * slope;
        return;
    }
    const float v = p.momentum * read_state(p, 0, of) + slope;
    write_state(p, 0, of, v);
    p.values[at] = w - slot_step.rate * (p.nesterov ? slope + p.momentum * v : v);
}

static __device__ __forceinline__ void step_adam(const fedge_cohort_step &p,
                                                 const fedge_cohort_slot_step &slot_step, float g,
                                                 size_t at, state_ref of)
{
    const float w = p.values[at];
    if (p.optimizer == FEDGE_COHORT_ADAM)
        g += p.weight_decay * w;
    const float m = p.beta1 * read_state(p, 0, of) + (1.0f - p.beta1) * g;
    const float v = p.beta2 * read_state(p, 1, of) + (1.0f - p.beta2) * g * g;
    write_state(p, 0, of, m);
    write_state(p, 1, of, v);
    p.values[at] =
        slot_step.keep * w - slot_step.size * m / (sqrtf(v) / slot_step.root + p.epsilon);
}

static __global__ void __launch_bounds__(TILE_THREADS)
    step_all(fedge_cohort_step p, const fedge_cohort_slot_step *slot_steps)
{
    const uint32_t s = blockIdx.z;
    const size_t at_range = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x, i = p.first + at_range;
    const fedge_cohort_slot_step slot_step = slot_steps[s];
    if (slot_step.count == 0 || at_range >= p.count)
        return;
    const size_t at = s * p.stride + i;
    const state_ref of =
        find_state(p, slot_step, s * p.states_stride + p.states_first + at_range, i);
    float g = gradient(p, slot_step, at, i);
    if (p.clip_norm > 0.0f) {
        const float scale = clip_scale(p, s);
        g = scale < 1.0f ? g * scale : g;
    }
    if (p.corrections)
        g += p.corrections[at];
    if (p.optimizer == FEDGE_COHORT_SGD)
        step_sgd(p, slot_step, g, at, of);
    else
        step_adam(p, slot_step, g, at, of);
}

cudaError_t fedge_cohort_launch_begin(const fedge_cohort_shape *shape,
                                      const fedge_cohort_step *args, fedge_cohort_tally *tallies)
{
    const cudaLaunchConfig_t config = value_grid(shape, args->num_values);
    return cudaLaunchKernelEx(&config, begin_slots, *args, tallies, shape->slot_steps);
}

cudaError_t fedge_cohort_launch_squares(const fedge_cohort_shape *shape,
                                        const fedge_cohort_step *args)
{
    cudaLaunchConfig_t parts = value_grid(shape, 1);
    parts.gridDim.x = FEDGE_COHORT_NORM_PARTS;
    return cudaLaunchKernelEx(&parts, sum_squares, *args, shape->slot_steps);
}

cudaError_t fedge_cohort_launch_step(const fedge_cohort_shape *shape, const fedge_cohort_step *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, args->count);
    return cudaLaunchKernelEx(&config, step_all, *args, shape->slot_steps);
}

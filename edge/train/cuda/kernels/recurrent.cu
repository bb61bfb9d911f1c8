/* Steps of LSTM and GRU (edge/train/layers/lstm.c, gru.c). */
#include "edge/train/cuda/kernels/tile.cuh"

typedef fedge_cohort_recurrent cells;

enum { LANES = 32, WARPS = TILE_THREADS / LANES };
enum {
    WARP_EXAMPLES = 2,
    BLOCK_EXAMPLES = WARP_EXAMPLES * WARPS
}; /* examples of a block of cell_forward */

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static __device__ __forceinline__ uint32_t first_step(const cells &c)
{
    return c.reverse ? c.steps - 1 : 0;
}

static __device__ __forceinline__ uint32_t last_step(const cells &c)
{
    return c.reverse ? 0 : c.steps - 1;
}

/* The rows of the previous and the next step of the recurrence. */
static __device__ __forceinline__ size_t row_before(const cells &c, size_t row)
{
    return c.reverse ? row + 1 : row - 1;
}

static __device__ __forceinline__ size_t row_after(const cells &c, size_t row)
{
    return c.reverse ? row - 1 : row + 1;
}

/* Adds W_hh h to the sums of the lane's channel, for each of the warp's examples. One thread adds a
 * sum from the first k to the last. Weights and states pass through shared memory, so that a warp's
 * reads along k are contiguous and a block reads a weight once for all of its examples. [weight]
 * and [before] belong to the block's first channel and example. */
template <int GATES>
static __device__ __forceinline__ void
add_from_states(const cells &c, const float *weight, const float *before, uint32_t channels,
                uint32_t examples, float sums[WARP_EXAMPLES][GATES])
{
    __shared__ float weights[GATES][LANES][LANES + 1], states[BLOCK_EXAMPLES][LANES];
    const uint32_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, n = c.hidden;
    for (uint32_t k0 = 0; k0 < n; k0 += LANES) {
        const uint32_t deep = n - k0 < LANES ? n - k0 : (uint32_t)LANES;
        __syncthreads(); /* all threads are done with the last values */
#pragma unroll 4
        for (uint32_t row = 0; row < GATES * LANES; row += WARPS) {
            const uint32_t gate = row / LANES, i = row % LANES + warp;
            weights[gate][i][lane] =
                i < channels && lane < deep ? weight[((size_t)gate * n + i) * n + k0 + lane] : 0.0f;
        }
#pragma unroll
        for (uint32_t b = 0; b < BLOCK_EXAMPLES; b += WARPS) {
            states[b + warp][lane] = b + warp < examples && lane < deep
                                         ? before[(size_t)(b + warp) * c.steps * n + k0 + lane]
                                         : 0.0f;
        }
        __syncthreads();
        for (uint32_t k = 0; k < deep; k++) {
#pragma unroll
            for (uint32_t gate = 0; gate < GATES; gate++) {
#pragma unroll
                for (uint32_t e = 0; e < WARP_EXAMPLES; e++) {
                    sums[e][gate] =
                        fmaf(weights[gate][lane][k], states[warp + e * WARPS][k], sums[e][gate]);
                }
            }
        }
    }
}

/* Channel [k] of h, from W_hh h + b_hh in [sums]. Replaces the gates' sums of inputs by the gates'
 * values. One overload is for GRU, with three sums, and one for LSTM, with four. */
static __device__ __forceinline__ float next_h(const cells &c, uint32_t, size_t row, uint32_t k,
                                               const float (&sums)[3])
{
    const uint32_t n = c.hidden;
    float *g = c.gates + row * 3 * n + k;
    const float r = sigmoid(g[0] + sums[0]);
    const float z = sigmoid(g[n] + sums[1]);
    const float q = sums[2];
    const float fresh = tanhf(g[2 * n] + r * q);
    g[0] = r;
    g[n] = z;
    g[2 * n] = fresh;
    c.cell[row * n + k] = q;
    return fresh + z * (c.before[row * n + k] - fresh);
}

static __device__ __forceinline__ float next_h(const cells &c, uint32_t t, size_t row, uint32_t k,
                                               const float (&sums)[4])
{
    const uint32_t n = c.hidden;
    float *g = c.gates + row * 4 * n + k;
    const float in = sigmoid(g[0] + sums[0]);
    const float forget = sigmoid(g[n] + sums[1]);
    const float fresh = tanhf(g[2 * n] + sums[2]);
    const float out = sigmoid(g[3 * n] + sums[3]);
    const float last = t != first_step(c) ? c.cell[row_before(c, row) * n + k] : 0.0f;
    const float cell = forget * last + in * fresh;
    g[0] = in;
    g[n] = forget;
    g[2 * n] = fresh;
    g[3 * n] = out;
    c.cell[row * n + k] = cell;
    return out * tanhf(cell);
}

/* One lane for each channel, and one warp for WARP_EXAMPLES examples. Writes h, also to before of
 * the next step. */
template <int GATES>
static __global__ void __launch_bounds__(TILE_THREADS)
    cell_forward(cells c, uint32_t t, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, n = c.hidden, count = slot_steps[s].count;
    const tile_index tile = find_tile(n, LANES);
    const uint32_t first = tile.column * LANES, example = tile.row * BLOCK_EXAMPLES;
    if (example >= count)
        return;
    const uint32_t k = first + threadIdx.x % LANES;
    const float *bias = c.bias.values && k < n ? c.bias.values + s * c.bias.stride + k : nullptr;
    float sums[WARP_EXAMPLES][GATES];
#pragma unroll
    for (uint32_t i = 0; i < WARP_EXAMPLES * GATES; i++)
        sums[i / GATES][i % GATES] = bias ? bias[i % GATES * n] : 0.0f;
    add_from_states<GATES>(c, c.weight.values + s * c.weight.stride + (size_t)first * n,
                           c.before + (((size_t)s * batch + example) * c.steps + t) * n, n - first,
                           count - example, sums);
#pragma unroll
    for (uint32_t e = 0; e < WARP_EXAMPLES; e++) {
        const uint32_t b = example + threadIdx.x / LANES + e * WARPS;
        if (b >= count || k >= n)
            continue;
        const size_t row = ((size_t)s * batch + b) * c.steps + t;
        const float h = next_h(c, t, row, k, sums[e]);
        c.h[row * c.h_row + k] = h;
        if (t != last_step(c))
            c.before[row_after(c, row) * n + k] = h;
    }
}

/* Clears the state before the first step, or the gradients from after the last step. */
static __global__ void __launch_bounds__(TILE_THREADS)
    clear(cells c, uint32_t backward, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)slot_steps[s].count * c.hidden)
        return;
    const size_t example = (size_t)s * batch + i / c.hidden;
    const uint32_t k = (uint32_t)(i % c.hidden);
    if (backward) {
        c.dh[example * c.hidden + k] = 0.0f;
        c.dcell[example * c.hidden + k] = 0.0f;
    } else {
        c.before[(example * c.steps + first_step(c)) * c.hidden + k] = 0.0f;
    }
}

/* One thread for each channel replaces the gates by the gradients of their sums. */
static __global__ void __launch_bounds__(TILE_THREADS)
    cell_backward(cells c, uint32_t t, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, n = c.hidden;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)slot_steps[s].count * n)
        return;
    const uint32_t k = (uint32_t)(i % n);
    const size_t example = (size_t)s * batch + i / n, row = example * c.steps + t;
    const uint32_t gates = c.is_gru ? 3 : 4;
    float *g = c.gates + row * gates * n + k, *through = &c.dcell[example * n + k];
    const float dh = c.dy[row * c.h_row + k] + c.dh[example * n + k];
    if (c.is_gru) {
        const float r = g[0], z = g[n], fresh = g[2 * n], q = c.cell[row * n + k];
        const float dn = dh * (1.0f - z) * (1.0f - fresh * fresh);
        float *from = c.dstate + row * 3 * n + k;
        g[0] = from[0] = dn * q * r * (1.0f - r);
        g[n] = from[n] = dh * (c.before[row * n + k] - fresh) * z * (1.0f - z);
        g[2 * n] = dn;
        from[2 * n] = dn * r;
        *through = dh * z;
        return;
    }
    const float in = g[0], forget = g[n], fresh = g[2 * n], out = g[3 * n];
    const float tanh_c = tanhf(c.cell[row * n + k]);
    const float before = t != first_step(c) ? c.cell[row_before(c, row) * n + k] : 0.0f;
    const float dc = *through + dh * out * (1.0f - tanh_c * tanh_c);
    g[0] = dc * fresh * in * (1.0f - in);
    g[n] = dc * before * forget * (1.0f - forget);
    g[2 * n] = dc * in * (1.0f - fresh * fresh);
    g[3 * n] = dh * tanh_c * out * (1.0f - out);
    *through = dc * forget;
}

/* One thread for each channel: dh of the step before = W_hhᵀ · the gradients of the sums, plus for
 * a GRU the part that does not pass W_hh. */
static __global__ void __launch_bounds__(TILE_THREADS)
    state_backward(cells c, uint32_t t, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, n = c.hidden, gates = c.is_gru ? 3 : 4;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)slot_steps[s].count * n)
        return;
    const uint32_t k = (uint32_t)(i % n);
    const size_t example = (size_t)s * batch + i / n;
    const float *sums = (c.is_gru ? c.dstate : c.gates) + (example * c.steps + t) * gates * n;
    const float *weight = c.weight.values + s * c.weight.stride + k;
    float sum = c.is_gru ? c.dcell[example * n + k] : 0.0f;
    for (uint32_t r = 0; r < gates * n; r++)
        sum = fmaf(weight[(size_t)r * n], sums[r], sum);
    c.dh[example * n + k] = sum;
}

cudaError_t fedge_cohort_launch_recurrent(const fedge_cohort_shape *shape,
                                          const fedge_cohort_recurrent *args)
{
    const cudaLaunchConfig_t start = value_grid(shape, (size_t)shape->batch * args->hidden);
    const cudaLaunchConfig_t config =
        tile_grid(shape, shape->batch, BLOCK_EXAMPLES, args->hidden, LANES);
    cudaError_t error =
        cudaLaunchKernelEx(&start, clear, *args, 0u, shape->slot_steps, shape->batch);
    for (uint32_t k = 0; k < args->steps && error == cudaSuccess; k++) {
        const uint32_t t = args->reverse ? args->steps - 1 - k : k;
        error = args->is_gru ? cudaLaunchKernelEx(&config, cell_forward<3>, *args, t,
                                                  shape->slot_steps, shape->batch)
                             : cudaLaunchKernelEx(&config, cell_forward<4>, *args, t,
                                                  shape->slot_steps, shape->batch);
    }
    return error;
}

cudaError_t fedge_cohort_launch_recurrent_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_recurrent *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->hidden);
    cudaError_t error =
        cudaLaunchKernelEx(&config, clear, *args, 1u, shape->slot_steps, shape->batch);
    for (uint32_t k = args->steps; k-- > 0 && error == cudaSuccess;) {
        const uint32_t t = args->reverse ? args->steps - 1 - k : k;
        error =
            cudaLaunchKernelEx(&config, cell_backward, *args, t, shape->slot_steps, shape->batch);
        if (error == cudaSuccess && k > 0) {
            error = cudaLaunchKernelEx(&config, state_backward, *args, t, shape->slot_steps,
                                       shape->batch);
        }
    }
    return error;
}

/* Steps of LSTM and GRU (edge/train/layers/lstm.c, gru.c). */
#include "edge/train/cuda/tile.cuh"

typedef fedge_cohort_recurrent cells;

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

/* The row of a step's neighbour: of the step before it, or the one behind. */
static __device__ __forceinline__ size_t row_before(const cells &c, size_t row)
{
    return c.reverse ? row + 1 : row - 1;
}

static __device__ __forceinline__ size_t row_behind(const cells &c, size_t row)
{
    return c.reverse ? row - 1 : row + 1;
}

/* Row [row] of W_hh by the state before, and its bias. */
static __device__ __forceinline__ float from_state(const cells &c, uint32_t s, uint32_t row,
                                                   const float *before)
{
    const float *weight = c.weight.values + s * c.weight.stride + (size_t)row * c.hidden;
    float sum = c.bias.values ? c.bias.values[s * c.bias.stride + row] : 0.0f;
    for (uint32_t k = 0; k < c.hidden; k++)
        sum = fmaf(weight[k], before[k], sum);
    return sum;
}

/* A thread for each number of the state. Gates have the inputs' share, and get their values; the
 * state goes to h, and to where the next step finds it. */
static __global__ void __launch_bounds__(TILE_THREADS)
    cell_forward(cells c, uint32_t t, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, n = c.hidden;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)turns[s].count * n)
        return;
    const uint32_t k = (uint32_t)(i % n);
    const size_t row = ((size_t)s * batch + i / n) * c.steps + t;
    const float *before = c.before + row * n;
    const uint32_t gates = c.is_gru ? 3 : 4;
    float *g = c.gates + row * gates * n + k, h;
    if (c.is_gru) {
        const float r = sigmoid(g[0] + from_state(c, s, k, before));
        const float z = sigmoid(g[n] + from_state(c, s, n + k, before));
        const float q = from_state(c, s, 2 * n + k, before);
        const float fresh = tanhf(g[2 * n] + r * q);
        h = fresh + z * (before[k] - fresh);
        g[0] = r;
        g[n] = z;
        g[2 * n] = fresh;
        c.cell[row * n + k] = q;
    } else {
        const float in = sigmoid(g[0] + from_state(c, s, k, before));
        const float forget = sigmoid(g[n] + from_state(c, s, n + k, before));
        const float fresh = tanhf(g[2 * n] + from_state(c, s, 2 * n + k, before));
        const float out = sigmoid(g[3 * n] + from_state(c, s, 3 * n + k, before));
        const float last = t != first_step(c) ? c.cell[row_before(c, row) * n + k] : 0.0f;
        const float cell = forget * last + in * fresh;
        h = out * tanhf(cell);
        g[0] = in;
        g[n] = forget;
        g[2 * n] = fresh;
        g[3 * n] = out;
        c.cell[row * n + k] = cell;
    }
    c.h[row * c.h_row + k] = h;
    if (t != last_step(c))
        c.before[row_behind(c, row) * n + k] = h;
}

/* The state before the first step, and what comes from behind the last. */
static __global__ void __launch_bounds__(TILE_THREADS)
    clear(cells c, uint32_t backward, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)turns[s].count * c.hidden)
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

/* A thread for each number of the state: gates become the gradients of their sums. */
static __global__ void __launch_bounds__(TILE_THREADS)
    cell_backward(cells c, uint32_t t, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, n = c.hidden;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)turns[s].count * n)
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

/* A thread for each number of the state before: dh = W_hhᵀ · the sums' gradients, and for a GRU
 * what goes past the gates. */
static __global__ void __launch_bounds__(TILE_THREADS)
    state_backward(cells c, uint32_t t, const fedge_cohort_turn *turns, uint32_t batch)
{
    const uint32_t s = blockIdx.z, n = c.hidden, gates = c.is_gru ? 3 : 4;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)turns[s].count * n)
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
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->hidden);
    cudaError_t error = cudaLaunchKernelEx(&config, clear, *args, 0u, shape->turns, shape->batch);
    for (uint32_t k = 0; k < args->steps && error == cudaSuccess; k++) {
        const uint32_t t = args->reverse ? args->steps - 1 - k : k;
        error = cudaLaunchKernelEx(&config, cell_forward, *args, t, shape->turns, shape->batch);
    }
    return error;
}

cudaError_t fedge_cohort_launch_recurrent_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_recurrent *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->hidden);
    cudaError_t error = cudaLaunchKernelEx(&config, clear, *args, 1u, shape->turns, shape->batch);
    for (uint32_t k = args->steps; k-- > 0 && error == cudaSuccess;) {
        const uint32_t t = args->reverse ? args->steps - 1 - k : k;
        error = cudaLaunchKernelEx(&config, cell_backward, *args, t, shape->turns, shape->batch);
        if (error == cudaSuccess && k > 0) {
            error =
                cudaLaunchKernelEx(&config, state_backward, *args, t, shape->turns, shape->batch);
        }
    }
    return error;
}

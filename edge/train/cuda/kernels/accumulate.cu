/* Sums of integers, whose results do not depend on the order of adding. Compiled without fused
 * products. */
#include "edge/train/cuda/kernels/tile.cuh"

/* ---- changes of models, with the integers of edge/core/fixed.c and edge/core/codec/int8.c ---- */

enum { SCALE_SHIFT = 7, Q_MAX = 127, SCALE_UNIT = Q_MAX << SCALE_SHIFT, SCALE_MAX = 65535 };

static __device__ __forceinline__ float power_of_two(int exponent)
{
    return __int_as_float((exponent + 127) << 23);
}

/* Finds the first value that is not finite: the smallest index has the largest complement. */
static __global__ void __launch_bounds__(TILE_THREADS) find_bad(fedge_cohort_accumulate p)
{
    const uint32_t i = blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i < p.num_values && !isfinite(p.values[i]))
        atomicMax(&p.tally->bad_value, ~i);
}

/* Clamps a change to the bound and converts it to fixed point. */
static __device__ __forceinline__ int32_t to_fixed(float change, int bound_log2, bool *cut)
{
    const float bound = power_of_two(bound_log2);
    *cut = !(fabsf(change) <= bound);
    return __float2int_rn((*cut ? copysignf(bound, change) : change) *
                          power_of_two(30 - bound_log2));
}

/* [v] after encoding and decoding as int8, where [largest] is the largest size in its block. */
static __device__ __forceinline__ int32_t through_int8(int32_t v, int32_t largest)
{
    const int32_t needed = (largest + SCALE_UNIT - 1) / SCALE_UNIT;
    const int32_t factor = (needed < SCALE_MAX ? needed : SCALE_MAX) << SCALE_SHIFT;
    if (factor == 0)
        return 0;
    const int32_t q = (int32_t)rint((double)v / (double)factor);
    return (q > Q_MAX ? Q_MAX : q < -Q_MAX ? -Q_MAX : q) * factor;
}

static __device__ __forceinline__ int32_t largest_of_block(int32_t v)
{
    __shared__ int32_t sizes[TILE_THREADS];
    sizes[threadIdx.x] = v < 0 ? -v : v;
    for (uint32_t half = TILE_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            const int32_t other = sizes[threadIdx.x + half];
            sizes[threadIdx.x] = other > sizes[threadIdx.x] ? other : sizes[threadIdx.x];
        }
    }
    __syncthreads();
    return sizes[0];
}

/* One block for each chunk. */
static __global__ void __launch_bounds__(TILE_THREADS) accumulate(fedge_cohort_accumulate p)
{
    if (p.tally->bad_step > 0 || p.tally->bad_value > 0)
        return;
    const fedge_cohort_chunk sum_chunk = p.chunks[blockIdx.x];
    const bool mine = threadIdx.x < sum_chunk.count;
    int32_t v = 0;
    bool cut = false;
    if (mine) {
        const size_t i = (size_t)sum_chunk.first + threadIdx.x;
        v = to_fixed(p.values[i] - p.start[i], sum_chunk.bound_log2, &cut);
    }
    const int clamped = __syncthreads_count(cut);
    if (sum_chunk.codec == FEDGE_COHORT_CODEC_INT8)
        v = through_int8(v, largest_of_block(v));
    if (mine)
        sum_chunk.sums[threadIdx.x] += (int64_t)p.weight * v;
    if (threadIdx.x == 0 && clamped > 0)
        atomicAdd(&p.tally->clamped, (unsigned long long)clamped);
}

static cudaLaunchConfig_t blocks_of(uint32_t blocks, cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(TILE_THREADS);
    config.stream = stream;
    return config;
}

cudaError_t fedge_cohort_launch_accumulate(const fedge_cohort_accumulate *args, cudaStream_t stream)
{
    const cudaLaunchConfig_t values =
        blocks_of((args->num_values + TILE_THREADS - 1) / TILE_THREADS, stream);
    const cudaLaunchConfig_t chunks = blocks_of(args->num_chunks, stream);
    const cudaError_t error = cudaLaunchKernelEx(&values, find_bad, *args);
    return error == cudaSuccess ? cudaLaunchKernelEx(&chunks, accumulate, *args) : error;
}

/* ---- gradients of a batch's parts, in fixed point ---- */

static __device__ __forceinline__ double fixed_unit(uint32_t exponent)
{
    return (double)(1ull << exponent);
}

/* One thread for each value, over all slots that have examples. */
static __global__ void __launch_bounds__(TILE_THREADS)
    add_gradients(fedge_cohort_gradient_sums p, const fedge_cohort_slot_step *slot_steps,
                  uint32_t slots)
{
    const uint32_t at = blockIdx.x * TILE_THREADS + threadIdx.x, i = p.first + at;
    int64_t sum = 0;
    if (at >= p.count)
        return;
    for (uint32_t s = 0; s < slots; s++) {
        const uint32_t examples = slot_steps[s].count;
        const float g = examples > 0 ? p.gradients[s * p.gradient_stride + i] : 0.0f;
        if (fabsf(g) <= FEDGE_COHORT_MAX_GRADIENT)
            sum += (int64_t)rint((double)g * (double)examples * fixed_unit(p.fraction));
        else
            atomicMax(&p.tallies[s].bad_value, ~i);
    }
    p.sums[i] += sum;
}

static __global__ void __launch_bounds__(TILE_THREADS) take_gradients(fedge_cohort_gradient_sums p)
{
    const uint32_t at = blockIdx.x * TILE_THREADS + threadIdx.x;
    if (at < p.count) {
        const double sum = (double)p.sums[at] / fixed_unit(p.fraction);
        p.gradients[p.first + at] = (float)(sum / (double)p.examples);
    }
}

cudaError_t fedge_cohort_launch_sum_gradients(const fedge_cohort_shape *shape,
                                              const fedge_cohort_gradient_sums *args)
{
    const fedge_cohort_shape one = {shape->slot_steps, 1, shape->batch, shape->stream};
    const cudaLaunchConfig_t config = value_grid(&one, args->count);
    return cudaLaunchKernelEx(&config, add_gradients, *args, shape->slot_steps, shape->slots);
}

cudaError_t fedge_cohort_launch_mean_gradients(const fedge_cohort_gradient_sums *args,
                                               cudaStream_t stream)
{
    const fedge_cohort_shape one = {nullptr, 1, 1, stream};
    const cudaLaunchConfig_t config = value_grid(&one, args->count);
    return cudaLaunchKernelEx(&config, take_gradients, *args);
}

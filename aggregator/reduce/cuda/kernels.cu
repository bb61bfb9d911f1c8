#include "aggregator/reduce/cuda/kernels.h"

#include "aggregator/reduce/cuda/values.cuh"

#define IN_FLIGHT 8 /* loads that a thread issues before it uses the first */

/* ---- stage ----------------------------------------------------------------------------------- */

/* Whether the codec's values are stored as int8. */
static __host__ __device__ __forceinline__ bool is_of_bytes(int codec)
{
    return codec == FEDGE_CUDA_INT8 || codec == FEDGE_CUDA_INT4;
}

/* Stores the value with the bits [bits] in its plane. */
static __device__ __forceinline__ void put_value(const fedge_cuda_chunk &chunk, uint64_t index,
                                                 uint32_t bits)
{
    switch (chunk.codec) {
    case FEDGE_CUDA_INT8:
        ((uint8_t *)chunk.values)[index] = (uint8_t)bits;
        break;
    case FEDGE_CUDA_INT4:
        ((uint8_t *)chunk.values)[index] = (uint8_t)(bits << 4);
        break;
    case FEDGE_CUDA_F16:
        ((float *)chunk.values)[index] = float_of_f16(bits);
        break;
    case FEDGE_CUDA_BF16:
        ((float *)chunk.values)[index] = __int_as_float((int)(bits << 16));
        break;
    default:
        ((float *)chunk.values)[index] = __int_as_float((int)bits);
    }
}

/* Each block of threads stages a block of coordinates. */
static __global__ void __launch_bounds__(THREADS) stage(fedge_cuda_chunk chunk)
{
    const uint32_t i = threadIdx.x;
    for (uint32_t b = blockIdx.x; b < chunk.num_blocks; b += gridDim.x) {
        const fedge_cuda_block block = chunk.blocks[b];
        const uint8_t *from = chunk.bytes + (block.offset - chunk.offset);
        const uint64_t index = (uint64_t)b * FEDGE_CUDA_BLOCK + i;
        const int bound = chunk.bounds_log2[block.tensor];
        uint32_t bits;
        const bool good = take_value(chunk.codec, from, bound, i, block.count, &bits);
        if (chunk.values)
            put_value(chunk, index, bits);
        if (chunk.values && i == 0) {
            chunk.scales[b] = is_of_bytes(chunk.codec)        ? (uint16_t)load_u16(from)
                              : chunk.codec == FEDGE_CUDA_F16 ? (uint16_t)15
                                                              : (uint16_t)(30 - bound);
        }
        if (!good) {
            const uint64_t coordinate = (uint64_t)chunk.first_block * FEDGE_CUDA_BLOCK + index;
            atomicMin(chunk.bad, (unsigned long long)(coordinate << 32 | bits));
        }
    }
}

cudaError_t fedge_cuda_stage(const fedge_cuda_chunk *chunk, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = shape(chunk->num_blocks, MAX_GRID, stream);
    return cudaLaunchKernelEx(&config, stage, *chunk);
}

/* ---- accumulate ------------------------------------------------------------------------------ */

/* A thread adds four coordinates with one load of 4 or 16 bytes for each update; loads of a warp
 * are contiguous. The sums stay in registers during the batch. */
struct four {
    long long sum[4];
};

static __device__ __forceinline__ void add_floats(four *sums, float4 x, uint32_t fraction_bits,
                                                  uint32_t weight)
{
    const float scale = power_of_two((int)fraction_bits);
    const long long w = weight;
    sums->sum[0] += w * __float2int_rn(x.x * scale);
    sums->sum[1] += w * __float2int_rn(x.y * scale);
    sums->sum[2] += w * __float2int_rn(x.z * scale);
    sums->sum[3] += w * __float2int_rn(x.w * scale);
}

/* q · m · w: except in extreme cases m · w fits 32 bits, and one instruction multiplies and adds.
 * The format's 2^7 is applied at the end. */
static __device__ __forceinline__ void add_bytes(four *sums, uint32_t q, uint32_t scale,
                                                 uint32_t weight)
{
    const uint64_t factor = (uint64_t)scale * weight;
    if (factor <= 0x7fffffff) {
        const int small_factor = (int)factor;
        for (int j = 0; j < 4; j++)
            sums->sum[j] += (long long)small_factor * (int)(int8_t)(q >> 8 * j);
    } else {
        for (int j = 0; j < 4; j++)
            sums->sum[j] += (long long)factor * (int)(int8_t)(q >> 8 * j);
    }
}

static __device__ __forceinline__ void add_group(four *sums, const fedge_cuda_batch &batch,
                                                 uint32_t first, uint64_t quad, const float4 *)
{
    float4 x[IN_FLIGHT];
    uint32_t scales[IN_FLIGHT];
#pragma unroll
    for (uint32_t k = 0; k < IN_FLIGHT; k++) {
        if (first + k < batch.count) {
            x[k] = __ldcs((const float4 *)batch.values[first + k] + quad);
            scales[k] = batch.scales[first + k][quad / (FEDGE_CUDA_BLOCK / 4)];
        }
    }
#pragma unroll
    for (uint32_t k = 0; k < IN_FLIGHT; k++) {
        if (first + k < batch.count)
            add_floats(sums, x[k], scales[k], batch.weights[first + k]);
    }
}

static __device__ __forceinline__ void add_group(four *sums, const fedge_cuda_batch &batch,
                                                 uint32_t first, uint64_t quad, const uint32_t *)
{
    uint32_t q[IN_FLIGHT], scales[IN_FLIGHT];
#pragma unroll
    for (uint32_t k = 0; k < IN_FLIGHT; k++) {
        if (first + k < batch.count) {
            q[k] = __ldcs((const uint32_t *)batch.values[first + k] + quad);
            scales[k] = batch.scales[first + k][quad / (FEDGE_CUDA_BLOCK / 4)];
        }
    }
#pragma unroll
    for (uint32_t k = 0; k < IN_FLIGHT; k++) {
        if (first + k < batch.count)
            add_bytes(sums, q[k], scales[k], batch.weights[first + k]);
    }
}

/* Value: float4 for floats, uint32_t for four int8. */
template <typename Value, int SHIFT>
static __global__ void __launch_bounds__(THREADS)
    accumulate(fedge_cuda_batch batch, longlong2 *sums, uint64_t num_quads)
{
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t quad = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; quad < num_quads;
         quad += stride) {
        four mine = {};
        for (uint32_t u = 0; u < batch.count; u += IN_FLIGHT)
            add_group(&mine, batch, u, quad, (const Value *)nullptr);
        longlong2 low = sums[2 * quad], high = sums[2 * quad + 1];
        low.x += mine.sum[0] * (1 << SHIFT);
        low.y += mine.sum[1] * (1 << SHIFT);
        high.x += mine.sum[2] * (1 << SHIFT);
        high.y += mine.sum[3] * (1 << SHIFT);
        sums[2 * quad] = low;
        sums[2 * quad + 1] = high;
    }
}

cudaError_t fedge_cuda_accumulate(int codec, const fedge_cuda_batch *batch, int64_t *sums,
                                  uint32_t num_blocks, uint32_t max_grid, cudaStream_t stream)
{
    const uint64_t quads = (uint64_t)num_blocks * (FEDGE_CUDA_BLOCK / 4);
    const cudaLaunchConfig_t config = shape((quads + THREADS - 1) / THREADS, max_grid, stream);
    longlong2 *pairs = (longlong2 *)sums;
    return is_of_bytes(codec)
               ? cudaLaunchKernelEx(&config, accumulate<uint32_t, 7>, *batch, pairs, quads)
               : cudaLaunchKernelEx(&config, accumulate<float4, 0>, *batch, pairs, quads);
}

/* ---- add_fixed ------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS)
    add_fixed(const int32_t *v, uint32_t weight, int64_t *sums, uint32_t count)
{
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        sums[i] += (int64_t)weight * v[i];
}

cudaError_t fedge_cuda_add_fixed(const int32_t *v, uint32_t weight, int64_t *sums, uint32_t count,
                                 cudaStream_t stream)
{
    const cudaLaunchConfig_t config =
        shape(((uint64_t)count + THREADS - 1) / THREADS, MAX_GRID, stream);
    return cudaLaunchKernelEx(&config, add_fixed, v, weight, sums, count);
}

/* Any kernel will do: all are built for the same GPUs. */
cudaError_t fedge_cuda_has_code(void)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, add_fixed);
}

/* ---- step ------------------------------------------------------------------------------------ */

/* Each operation rounds once, in the CPU's order; compiled without fused multiply-add. */
static __global__ void __launch_bounds__(THREADS)
    step(float *values, const int64_t *sums, uint32_t count, double weight, double unit,
         double rate)
{
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        values[i] += (float)(rate * ((double)sums[i] / weight * unit));
}

cudaError_t fedge_cuda_step(float *values, const int64_t *sums, uint32_t count,
                            uint64_t total_weight, double unit, double rate, cudaStream_t stream)
{
    const cudaLaunchConfig_t config =
        shape(((uint64_t)count + THREADS - 1) / THREADS, MAX_GRID, stream);
    return cudaLaunchKernelEx(&config, step, values, sums, count, (double)total_weight, unit, rate);
}

/* Σ w·v / W · 2^−F, as on the CPU. */
static __device__ __forceinline__ double mean_of(int64_t sum, double weight, double unit)
{
    return (double)sum / weight * unit;
}

static __device__ __forceinline__ double next_of(int rule, double beta2, double v, double square)
{
    if (rule == FEDGE_STEP_RULE_ADAGRAD)
        return v + square;
    if (rule == FEDGE_STEP_RULE_ADAM)
        return beta2 * v + (1.0 - beta2) * square;
    const double sign = v > square ? 1.0 : v < square ? -1.0 : 0.0;
    return v - (1.0 - beta2) * square * sign;
}

template <int RULE>
static __global__ void __launch_bounds__(THREADS)
    optimize(fedge_optimizer_step with, float *values, float *first, float *second,
             const int64_t *sums, uint32_t count, double weight, double unit, double rate)
{
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        const double mean = mean_of(sums[i], weight, unit);
        if (RULE == FEDGE_STEP_RULE_MOMENTUM) {
            first[i] = (float)(with.beta1 * (double)first[i] + mean);
            values[i] += (float)(rate * (double)first[i]);
        } else if (RULE == FEDGE_STEP_RULE_DYN) {
            first[i] = (float)((double)first[i] - with.beta1 * with.beta2 * mean);
            values[i] += (float)(rate * (mean - (double)first[i] / with.beta1));
        } else {
            first[i] = (float)(with.beta1 * (double)first[i] + (1.0 - with.beta1) * mean);
            second[i] = (float)next_of(RULE, with.beta2, (double)second[i], mean * mean);
            values[i] += (float)(rate * (double)first[i] / (sqrt((double)second[i]) + with.tau));
        }
    }
}

cudaError_t fedge_cuda_optimize(const fedge_optimizer_step *step,
                                const fedge_cuda_optimizer_range *range, cudaStream_t stream)
{
    const cudaLaunchConfig_t config =
        shape(((uint64_t)range->count + THREADS - 1) / THREADS, MAX_GRID, stream);
    const double weight = (double)range->total_weight;
#define LAUNCH(rule)                                                                               \
    cudaLaunchKernelEx(&config, optimize<rule>, *step, range->values, range->moments[0],           \
                       range->moments[1], range->sums, range->count, weight, range->unit,          \
                       range->rate)
    switch (step->rule) {
    case FEDGE_STEP_RULE_MOMENTUM:
        return LAUNCH(FEDGE_STEP_RULE_MOMENTUM);
    case FEDGE_STEP_RULE_ADAGRAD:
        return LAUNCH(FEDGE_STEP_RULE_ADAGRAD);
    case FEDGE_STEP_RULE_ADAM:
        return LAUNCH(FEDGE_STEP_RULE_ADAM);
    case FEDGE_STEP_RULE_YOGI:
        return LAUNCH(FEDGE_STEP_RULE_YOGI);
    default:
        return LAUNCH(FEDGE_STEP_RULE_DYN);
    }
#undef LAUNCH
}

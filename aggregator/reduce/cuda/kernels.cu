#include "aggregator/reduce/cuda/kernels.h"

#include <cuda_runtime.h>

#define THREADS 256
#define IN_FLIGHT 8 /* loads that a thread starts before it uses one */
#define MAX_GRID 65535

static cudaLaunchConfig_t shape(uint64_t blocks, uint32_t most, cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks < most ? (unsigned)blocks : most);
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    return config;
}

/* 2^exponent, −126 ≤ exponent ≤ 127. */
static __device__ __forceinline__ float power_of_two(int exponent)
{
    return __int_as_float((exponent + 127) << 23);
}

/* ---- stage ------------------------------------------------------------------------------------
 */

/* A float at any alignment. Bytes come over PCIe at a fraction of what these loads can do. */
static __device__ __forceinline__ uint32_t load_bits(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The bits of value [i] of a block, which is staged at [place] of its plane; false: it is bad. */
static __device__ bool stage_float(const fedge_cuda_chunk &chunk, const uint8_t *from, int bound,
                                   uint32_t i, uint32_t count, uint64_t place, uint32_t *bits)
{
    *bits = i < count ? load_bits(from + 4 * i) : 0;
    const float x = __int_as_float((int)*bits);
    if (chunk.values)
        ((float *)chunk.values)[place] = x;
    return fabsf(x) <= power_of_two(bound);
}

/* An IEEE 754 binary16 as a float. */
static __device__ __forceinline__ float float_of_f16(uint32_t bits)
{
    const uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    const float small = (float)magnitude * 0x1p-24f;
    const float x =
        magnitude < 0x400u ? small : __int_as_float((int)((magnitude << 13) + 0x38000000u));
    return sign ? -x : x;
}

static __device__ bool stage_f16(const fedge_cuda_chunk &chunk, const uint8_t *from, uint32_t i,
                                 uint32_t count, uint64_t place, uint32_t *bits)
{
    *bits = i < count ? from[2 * i] | (uint32_t)from[2 * i + 1] << 8 : 0;
    if (chunk.values)
        ((float *)chunk.values)[place] = float_of_f16(*bits);
    return (*bits & 0x7fffu) <= 0x7800u; /* 2^15, what the bound is scaled to */
}

static __device__ bool stage_bf16(const fedge_cuda_chunk &chunk, const uint8_t *from, int bound,
                                  uint32_t i, uint32_t count, uint64_t place, uint32_t *bits)
{
    *bits = i < count ? from[2 * i] | (uint32_t)from[2 * i + 1] << 8 : 0;
    const float x = __int_as_float((int)(*bits << 16));
    if (chunk.values)
        ((float *)chunk.values)[place] = x;
    return fabsf(x) <= power_of_two(bound);
}

static __device__ bool stage_int8(const fedge_cuda_chunk &chunk, const uint8_t *from, uint32_t i,
                                  uint32_t count, uint64_t place, uint32_t *bits)
{
    *bits = i < count ? from[2 + i] : 0;
    if (chunk.values)
        ((uint8_t *)chunk.values)[place] = (uint8_t)*bits;
    return *bits != 0x80;
}

static __device__ bool stage_int4(const fedge_cuda_chunk &chunk, const uint8_t *from, uint32_t i,
                                  uint32_t count, uint64_t place, uint32_t *bits)
{
    const bool behind = i == count && count % 2 == 1; /* the upper half of the last byte */
    *bits = i < count || behind ? from[2 + i / 2] >> 4 * (i % 2) & 0xfu : 0;
    if (chunk.values)
        ((uint8_t *)chunk.values)[place] = (uint8_t)(*bits << 4);
    return behind ? *bits == 0 : *bits != 8;
}

static __device__ bool stage_value(const fedge_cuda_chunk &chunk, const uint8_t *from, int bound,
                                   uint32_t i, uint32_t count, uint64_t place, uint32_t *bits)
{
    switch (chunk.codec) {
    case FEDGE_CUDA_INT8:
        return stage_int8(chunk, from, i, count, place, bits);
    case FEDGE_CUDA_INT4:
        return stage_int4(chunk, from, i, count, place, bits);
    case FEDGE_CUDA_F16:
        return stage_f16(chunk, from, i, count, place, bits);
    case FEDGE_CUDA_BF16:
        return stage_bf16(chunk, from, bound, i, count, place, bits);
    default:
        return stage_float(chunk, from, bound, i, count, place, bits);
    }
}

/* Do its values lie on a plane of int8? */
static __host__ __device__ __forceinline__ bool is_of_bytes(int codec)
{
    return codec == FEDGE_CUDA_INT8 || codec == FEDGE_CUDA_INT4;
}

/* A block of coordinates for each block of threads. */
static __global__ void __launch_bounds__(THREADS) stage(fedge_cuda_chunk chunk)
{
    const uint32_t i = threadIdx.x;
    for (uint32_t b = blockIdx.x; b < chunk.num_blocks; b += gridDim.x) {
        const fedge_cuda_block block = chunk.blocks[b];
        const uint8_t *from = chunk.bytes + (block.offset - chunk.offset);
        const uint64_t place = (uint64_t)b * FEDGE_CUDA_BLOCK + i;
        const int bound = chunk.bounds_log2[block.tensor];
        uint32_t bits;
        const bool good = stage_value(chunk, from, bound, i, block.count, place, &bits);
        if (chunk.values && i == 0) {
            chunk.scales[b] = is_of_bytes(chunk.codec)        ? (uint16_t)(from[0] | from[1] << 8)
                              : chunk.codec == FEDGE_CUDA_F16 ? (uint16_t)15
                                                              : (uint16_t)(30 - bound);
        }
        if (!good) {
            const uint64_t coordinate = (uint64_t)chunk.first_block * FEDGE_CUDA_BLOCK + place;
            atomicMin(chunk.bad, (unsigned long long)(coordinate << 32 | bits));
        }
    }
}

cudaError_t fedge_cuda_stage(const fedge_cuda_chunk *chunk, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = shape(chunk->num_blocks, MAX_GRID, stream);
    return cudaLaunchKernelEx(&config, stage, *chunk);
}

/* ---- accumulate -------------------------------------------------------------------------------
 */

/* A thread owns four coordinates: one load of 4 or 16 bytes for each update, all neighbours of a
 * warp's. Their sums stay in registers while the batch goes by. */
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

/* q · m · w: in all but extreme cases m · w has less than 32 bits, and one instruction multiplies
 * and adds. The 2^7 of the format comes at the end. */
static __device__ __forceinline__ void add_bytes(four *sums, uint32_t q, uint32_t scale,
                                                 uint32_t weight)
{
    const uint64_t factor = (uint64_t)scale * weight;
    if (factor <= 0x7fffffff) {
        const int narrow = (int)factor;
        for (int j = 0; j < 4; j++)
            sums->sum[j] += (long long)narrow * (int)(int8_t)(q >> 8 * j);
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

/* ---- add_chosen -------------------------------------------------------------------------------
 */

#define GROUP 32768 /* values of a tensor whose gaps are read alone: FEDGE_CODEC_GROUP */
#define INDEX_BYTES 4
#define KEY_BYTES 8
#define DRAW_PURPOSE (14u << 16) /* FEDGE_PURPOSE_CHOICE */

static __device__ __forceinline__ uint32_t load_u16(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8;
}

/* Chosen value [i], whose codec wrote [values]. */
static __device__ int chosen_value(const fedge_cuda_chosen &tensor, const uint8_t *values,
                                   uint32_t i)
{
    const uint32_t block = i / FEDGE_CUDA_BLOCK, within = i % FEDGE_CUDA_BLOCK;
    const float unit = power_of_two(30 - tensor.bound_log2);
    const uint8_t *at = values;
    switch (tensor.codec) {
    case FEDGE_CUDA_INT8:
        at += (uint64_t)block * (2 + FEDGE_CUDA_BLOCK);
        return (int)(int8_t)at[2 + within] * (int)(load_u16(at) << 7);
    case FEDGE_CUDA_INT4: {
        at += (uint64_t)block * (2 + FEDGE_CUDA_BLOCK / 2);
        const int nibble = at[2 + within / 2] >> 4 * (within % 2) & 0xf;
        return ((nibble ^ 8) - 8) * (int)(load_u16(at) << 11);
    }
    case FEDGE_CUDA_F16:
        return __float2int_rn(float_of_f16(load_u16(at + 2 * (uint64_t)i)) * 0x1p15f);
    case FEDGE_CUDA_BF16:
        return __float2int_rn(__int_as_float((int)(load_u16(at + 2 * (uint64_t)i) << 16)) * unit);
    default:
        return __float2int_rn(__int_as_float((int)load_bits(at + 4 * (uint64_t)i)) * unit);
    }
}

static __device__ __forceinline__ void add_atomically(int64_t *sum, uint32_t weight, int v)
{
    atomicAdd((unsigned long long *)sum, (unsigned long long)((long long)weight * v));
}

/* The bits of a group's gaps, from the lowest of each byte up. */
struct bits {
    const uint8_t *at;
    uint64_t held;
    uint32_t count;
};

static __device__ uint32_t take_bits(bits *from, uint32_t count)
{
    while (from->count < count) {
        from->held |= (uint64_t)*from->at++ << from->count;
        from->count += 8;
    }
    const uint32_t taken = (uint32_t)(from->held & ((1ull << count) - 1));
    from->held >>= count;
    from->count -= count;
    return taken;
}

static __device__ uint32_t take_gap(bits *from, uint32_t rice)
{
    uint32_t ones = 0;
    while (take_bits(from, 1))
        ones++;
    return (ones << rice) + take_bits(from, rice);
}

/* A group of coordinates for each thread. */
static __global__ void __launch_bounds__(THREADS)
    add_groups(fedge_cuda_chosen tensor, int64_t *sums, uint32_t num_groups)
{
    const uint8_t *values = tensor.bytes + (uint64_t)num_groups * INDEX_BYTES;
    const int magnitude = tensor.codec == FEDGE_CUDA_SIGNS ? (int)load_bits(values) : 0;
    for (uint32_t g = blockIdx.x * blockDim.x + threadIdx.x; g < num_groups;
         g += gridDim.x * blockDim.x) {
        bits gaps = {values + tensor.values_size, 0, 0};
        uint32_t first = 0, place = g * GROUP;
        for (uint32_t before = 0; before < g; before++) {
            first += load_u16(tensor.bytes + before * INDEX_BYTES);
            gaps.at += load_u16(tensor.bytes + before * INDEX_BYTES + 2);
        }
        const uint32_t end = first + load_u16(tensor.bytes + g * INDEX_BYTES);
        for (uint32_t i = first; i < end; i++, place++) {
            place += take_gap(&gaps, tensor.rice);
            const int v = tensor.codec != FEDGE_CUDA_SIGNS ? chosen_value(tensor, values, i)
                          : take_bits(&gaps, 1)            ? -magnitude
                                                           : magnitude;
            add_atomically(&sums[place], tensor.weight, v);
        }
    }
}

/* Word [i] of the stream of a key: Philox4x32-10, as edge/core/rng.h. */
static __device__ uint32_t draw(uint32_t key0, uint32_t key1, uint32_t i)
{
    uint32_t x[4] = {i / 4, DRAW_PURPOSE, 0, 0};
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * x[0], p1 = (uint64_t)0xCD9E8D57u * x[2];
        const uint32_t y0 = (uint32_t)(p1 >> 32) ^ x[1] ^ key0,
                       y2 = (uint32_t)(p0 >> 32) ^ x[3] ^ key1;
        x[0] = y0;
        x[1] = (uint32_t)p1;
        x[2] = y2;
        x[3] = (uint32_t)p0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return x[i % 4];
}

/* A value for each thread. */
static __global__ void __launch_bounds__(THREADS) add_drawn(fedge_cuda_chosen tensor, int64_t *sums)
{
    const uint32_t key0 = load_bits(tensor.bytes), key1 = load_bits(tensor.bytes + 4);
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < tensor.chosen;
         i += gridDim.x * blockDim.x) {
        const uint64_t begin = (uint64_t)i * tensor.count / tensor.chosen;
        const uint64_t end = ((uint64_t)i + 1) * tensor.count / tensor.chosen;
        const uint64_t place = begin + ((uint64_t)draw(key0, key1, i) * (end - begin) >> 32);
        add_atomically(&sums[place], tensor.weight,
                       chosen_value(tensor, tensor.bytes + KEY_BYTES, i));
    }
}

cudaError_t fedge_cuda_add_chosen(const fedge_cuda_chosen *tensor, int64_t *sums,
                                  cudaStream_t stream)
{
    const uint32_t groups = (tensor->count + GROUP - 1) / GROUP;
    const uint32_t threads = tensor->drawn ? tensor->chosen : groups;
    const cudaLaunchConfig_t config =
        shape(((uint64_t)threads + THREADS - 1) / THREADS, MAX_GRID, stream);
    return tensor->drawn ? cudaLaunchKernelEx(&config, add_drawn, *tensor, sums)
                         : cudaLaunchKernelEx(&config, add_groups, *tensor, sums, groups);
}

/* ---- add_fixed --------------------------------------------------------------------------------
 */

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

/* ---- step -------------------------------------------------------------------------------------
 */

/* Each operation rounds once, in this order, as on the CPU; compiled without fused products. */
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

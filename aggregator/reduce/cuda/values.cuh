/* Values as codecs write them, read by a thread: what the kernels of this folder share.
 *
 * A block is 256 values or less; [from] is its first byte (int8 and int4: of its scale), at any
 * alignment. Bytes come over PCIe at a fraction of what these loads can do.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_VALUES_CUH
#define FEDGE_AGGREGATOR_REDUCE_CUDA_VALUES_CUH

#include <cuda_runtime.h>

#include "aggregator/reduce/cuda/kernels.h"

#define THREADS 256
#define MAX_GRID 65535

static inline cudaLaunchConfig_t shape(uint64_t blocks, uint32_t most, cudaStream_t stream)
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

static __device__ __forceinline__ uint32_t load_u16(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8;
}

static __device__ __forceinline__ uint32_t load_u32(const uint8_t *at)
{
    return load_u16(at) | load_u16(at + 2) << 16;
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

/* The bits of value [i] of a block of [count], 0 after the last; false: it is bad. */
static __device__ __forceinline__ bool take_value(int codec, const uint8_t *from, int bound,
                                                  uint32_t i, uint32_t count, uint32_t *bits)
{
    const bool there = i < count;
    switch (codec) {
    case FEDGE_CUDA_INT8:
        *bits = there ? from[2 + i] : 0;
        return *bits != 0x80;
    case FEDGE_CUDA_INT4: {
        const bool behind = i == count && count % 2 == 1; /* upper half of the last byte */
        *bits = there || behind ? from[2 + i / 2] >> 4 * (i % 2) & 0xfu : 0;
        return behind ? *bits == 0 : *bits != 8;
    }
    case FEDGE_CUDA_F16:
        *bits = there ? load_u16(from + 2 * i) : 0;
        return (*bits & 0x7fffu) <= 0x7800u; /* 2^15 is the scaled bound */
    case FEDGE_CUDA_BF16:
        *bits = there ? load_u16(from + 2 * i) : 0;
        return fabsf(__int_as_float((int)(*bits << 16))) <= power_of_two(bound);
    default:
        *bits = there ? load_u32(from + 4 * i) : 0;
        return fabsf(__int_as_float((int)*bits)) <= power_of_two(bound);
    }
}

/* Bytes of a full block. */
static __device__ __forceinline__ uint32_t bytes_of_block(int codec)
{
    switch (codec) {
    case FEDGE_CUDA_INT8:
        return 2 + FEDGE_CUDA_BLOCK;
    case FEDGE_CUDA_INT4:
        return 2 + FEDGE_CUDA_BLOCK / 2;
    case FEDGE_CUDA_F16:
    case FEDGE_CUDA_BF16:
        return 2 * FEDGE_CUDA_BLOCK;
    default:
        return 4 * FEDGE_CUDA_BLOCK;
    }
}

/* Value [i] of a valid block, in fixed point. */
static __device__ __forceinline__ int fixed_value(int codec, const uint8_t *from, int bound,
                                                  uint32_t i)
{
    switch (codec) {
    case FEDGE_CUDA_INT8:
        return (int)(int8_t)from[2 + i] * (int)(load_u16(from) << 7);
    case FEDGE_CUDA_INT4:
        return ((int)((from[2 + i / 2] >> 4 * (i % 2) & 0xfu) ^ 8u) - 8) *
               (int)(load_u16(from) << 11);
    case FEDGE_CUDA_F16:
        return __float2int_rn(float_of_f16(load_u16(from + 2 * i)) * 0x1p15f);
    case FEDGE_CUDA_BF16:
        return __float2int_rn(__int_as_float((int)(load_u16(from + 2 * i) << 16)) *
                              power_of_two(30 - bound));
    default:
        return __float2int_rn(__int_as_float((int)load_u32(from + 4 * i)) *
                              power_of_two(30 - bound));
    }
}

#endif

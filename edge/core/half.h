/* 16-bit floats: bf16 (8 bits of exponent, 8 of precision) and IEEE fp16 (5 and 11). Narrowing
 * rounds to nearest, ties to even; infinities and NaN are preserved, and overflow becomes infinity.
 * Widening is exact. */
#ifndef FEDGE_EDGE_CORE_HALF_H
#define FEDGE_EDGE_CORE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t fedge_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float fedge_float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline uint16_t fedge_bf16_from_float(float x)
{
    const uint32_t bits = fedge_float_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float fedge_bf16_to_float(uint16_t x)
{
    return fedge_float_of_bits((uint32_t)x << 16);
}

static inline uint16_t fedge_f16_from_float(float x)
{
    const uint32_t bits = fedge_float_bits(x);
    const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    if (magnitude >= 0x477ff000u) { /* 65520: the smallest value that rounds to infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { /* 2^-14: smaller values are subnormal, in steps of 2^-24 */
        const float rounded = fedge_float_of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (fedge_float_bits(rounded) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

static inline float fedge_f16_to_float(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, magnitude = x & 0x7fffu;
    if (magnitude >= 0x7c00u)
        return fedge_float_of_bits(sign | 0x7f800000u | magnitude << 13);
    if (magnitude < 0x400u) {
        const float small = (float)magnitude * 0x1p-24f;
        return sign == 0 ? small : -small;
    }
    return fedge_float_of_bits(sign | ((magnitude << 13) + 0x38000000u));
}

#endif

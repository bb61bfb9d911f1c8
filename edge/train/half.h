/* Numbers of 16 bits: bf16 (8 bits of exponent, 8 of precision) and IEEE fp16 (5 and 11).
 *
 * Narrowing rounds to nearest, ties to even; infinities and NaN stay. What is too large
 * becomes an infinity, but fedge_half_narrow keeps finite numbers finite: ±65504 in fp16.
 * Widening is exact.
 */
#ifndef FEDGE_EDGE_TRAIN_HALF_H
#define FEDGE_EDGE_TRAIN_HALF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "edge/train/model.h"

static inline uint32_t fedge_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float fedge_float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint16_t fedge_bf16_from_float(float x)
{
    const uint32_t bits = fedge_float_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40u);
    }
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float fedge_bf16_to_float(uint16_t x)
{
    return fedge_float_of_bits((uint32_t)x << 16);
}

uint16_t fedge_f16_from_float(float x);
float fedge_f16_to_float(uint16_t x);

/* [n] numbers to and from 16 bits. [storage]: BF16 or FP16. */
void fedge_half_narrow(fedge_storage storage, const float *from, size_t n, uint16_t *to);
void fedge_half_widen(fedge_storage storage, const uint16_t *from, size_t n, float *to);

/* The float that bf16 would keep of x; numbers below 2^-126 become 0, as for vdpbf16ps. */
static inline float fedge_bf16_operand(float x)
{
    const uint32_t bits = fedge_float_bits(x);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t kept = magnitude > 0x7f800000u ? (bits | 0x400000u) & 0xffff0000u : rounded;
    return fedge_float_of_bits(magnitude < 0x800000u ? bits & 0x80000000u : kept);
}

#endif

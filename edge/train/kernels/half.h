/* Many numbers to 16 bits and back, each as edge/core/half.h has it; but fedge_half_narrow keeps
 * finite numbers finite: ±65504 in fp16. */
#ifndef FEDGE_EDGE_TRAIN_KERNELS_HALF_H
#define FEDGE_EDGE_TRAIN_KERNELS_HALF_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/half.h"
#include "edge/train/model.h"

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

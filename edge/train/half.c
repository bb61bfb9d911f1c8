#include "edge/train/half.h"

#include <stdbool.h>

uint16_t fedge_f16_from_float(float x)
{
    const uint32_t bits = fedge_float_bits(x);
    const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    }
    if (magnitude >= 0x477ff000u) { /* 65520, halfway to what fp16 does not have */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { /* 2^-14: subnormal, in steps of 2^-24, as next to one half */
        const float rounded = fedge_float_of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (fedge_float_bits(rounded) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

float fedge_f16_to_float(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, magnitude = x & 0x7fffu;
    if (magnitude >= 0x7c00u) {
        return fedge_float_of_bits(sign | 0x7f800000u | magnitude << 13);
    }
    if (magnitude < 0x400u) {
        const float small = (float)magnitude * 0x1p-24f;
        return sign == 0 ? small : -small;
    }
    return fedge_float_of_bits(sign | ((magnitude << 13) + 0x38000000u));
}

void fedge_half_narrow(fedge_storage storage, const float *from, size_t n, uint16_t *to)
{
    if (storage == FEDGE_STORAGE_BF16) {
        for (size_t i = 0; i < n; i++) {
            to[i] = fedge_bf16_from_float(from[i]);
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const float x = from[i];
        const bool large = (x > 65504.0f || x < -65504.0f) && x - x == 0.0f;
        to[i] = fedge_f16_from_float(!large ? x : x > 0.0f ? 65504.0f : -65504.0f);
    }
}

void fedge_half_widen(fedge_storage storage, const uint16_t *from, size_t n, float *to)
{
    if (storage == FEDGE_STORAGE_BF16) {
        for (size_t i = 0; i < n; i++) {
            to[i] = fedge_bf16_to_float(from[i]);
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        to[i] = fedge_f16_to_float(from[i]);
    }
}

#include "edge/train/kernels/half.h"

#include <stdbool.h>

void fedge_half_narrow(fedge_storage storage, const float *from, size_t n, uint16_t *to)
{
    if (storage == FEDGE_STORAGE_BF16) {
        for (size_t i = 0; i < n; i++)
            to[i] = fedge_bf16_from_float(from[i]);
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
        for (size_t i = 0; i < n; i++)
            to[i] = fedge_bf16_to_float(from[i]);
        return;
    }
    for (size_t i = 0; i < n; i++)
        to[i] = fedge_f16_to_float(from[i]);
}

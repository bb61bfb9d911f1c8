#include "edge/train/layers/mask.h"

#include <string.h>

static float scale_of(float p)
{
    return p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
}

void fedge_mask_draw(fedge_rng *rng, float p, size_t n, const float *x, float *y, uint8_t *kept)
{
    const float scale = scale_of(p);
    if (kept != NULL) {
        memset(kept, 0, (size_t)FEDGE_MASK_BYTES(n));
    }
    for (size_t i = 0; i < n; i++) {
        const bool keep = fedge_rng_float(rng) >= p;
        y[i] = keep ? x[i] * scale : 0.0f;
        if (kept != NULL) {
            kept[i / 8] = (uint8_t)(kept[i / 8] | (unsigned)keep << i % 8);
        }
    }
}

void fedge_mask_apply(float p, size_t n, const uint8_t *kept, const float *dy, float *dx)
{
    const float scale = scale_of(p);
    for (size_t i = 0; i < n; i++) {
        dx[i] = kept[i / 8] >> i % 8 & 1 ? dy[i] * scale : 0.0f;
    }
}

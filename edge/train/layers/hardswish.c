/* Hardswish: x · min(max(x + 3, 0), 6) / 6. */
#include "edge/train/layers/elementwise.h"

static void forward(const fedge_layer_run *run)
{
    const size_t n = fedge_elementwise_count(run);
    const float *x = run->x[0];
    for (size_t i = 0; i < n; i++) {
        const float low = x[i] + 3.0f < 0.0f ? 0.0f : x[i] + 3.0f; /* NaN stays */
        run->y[i] = x[i] * (low > 6.0f ? 6.0f : low) * (1.0f / 6.0f);
    }
}

/* 0 up to −3, 1 from 3 on, x / 3 + 1/2 between. */
static void backward(const fedge_layer_run *run)
{
    const size_t n = fedge_elementwise_count(run);
    const float *x = run->x[0], *dy = run->dy;
    float *dx = run->dx[0];
    for (size_t i = 0; i < n; i++) {
        const float slope = x[i] * (1.0f / 3.0f) + 0.5f;
        dx[i] = dy[i] * (x[i] < -3.0f ? 0.0f : x[i] > 3.0f ? 1.0f : slope);
    }
}

const fedge_layer_ops fedge_layer_hardswish = {.arguments = fedge_inplace_argument,
                                               .flags = FEDGE_USES_X | FEDGE_DX_ON_DY,
                                               .infer = fedge_elementwise_infer,
                                               .forward = forward,
                                               .backward = backward};

/* Hardsigmoid: min(max(x / 6 + 1/2, 0), 1). */
#include "edge/train/layers/elementwise.h"

static void forward(const fedge_layer_run *run)
{
    const size_t n = fedge_elementwise_count(run);
    const float *x = run->x[0];
    for (size_t i = 0; i < n; i++) {
        const float low = x[i] + 3.0f < 0.0f ? 0.0f : x[i] + 3.0f; /* NaN stays */
        run->y[i] = (low > 6.0f ? 6.0f : low) * (1.0f / 6.0f);
    }
}

static void backward(const fedge_layer_run *run)
{
    const size_t n = fedge_elementwise_count(run);
    const float *y = run->y, *dy = run->dy;
    float *dx = run->dx[0];
    for (size_t i = 0; i < n; i++)
        dx[i] = dy[i] * (y[i] > 0.0f && y[i] < 1.0f ? 1.0f / 6.0f : 0.0f);
}

const fedge_layer_ops fedge_layer_hardsigmoid = {.arguments = fedge_inplace_argument,
                                                 .flags =
                                                     FEDGE_USES_Y | FEDGE_Y_ON_X | FEDGE_DX_ON_DY,
                                                 .infer = fedge_elementwise_infer,
                                                 .forward = forward,
                                                 .backward = backward};

/* ELU: x above 0, else alpha · (e^x − 1). */
#include "edge/train/layers/elementwise.h"

enum { BLOCK = 256 }; /* values whose exponentials are computed together */

static void forward(const fedge_layer_run *run)
{
    const size_t n = fedge_elementwise_count(run);
    const float alpha = run->spec->u.elu.alpha;
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t count = n - at < BLOCK ? n - at : BLOCK;
        const float *x = run->x[0] + at;
        float *y = run->y + at, below[BLOCK];
        for (size_t i = 0; i < count; i++)
            below[i] = x[i] > 0.0f ? 0.0f : x[i]; /* no exponential is infinite */
        run->kernels->exp(below, below, count);
        for (size_t i = 0; i < count; i++)
            y[i] = x[i] > 0.0f ? x[i] : alpha * (below[i] - 1.0f);
    }
}

/* Below 0 the derivative is alpha · e^x = y + alpha. */
static void backward(const fedge_layer_run *run)
{
    const size_t n = fedge_elementwise_count(run);
    const float alpha = run->spec->u.elu.alpha, *y = run->y, *dy = run->dy;
    float *dx = run->dx[0];
    for (size_t i = 0; i < n; i++)
        dx[i] = dy[i] * (y[i] > 0.0f ? 1.0f : y[i] + alpha);
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_F32_ARGUMENT("alpha", offsetof(fedge_layer_spec, u.elu.alpha), 0, 1e6, 1),
    FEDGE_BOOL_ARGUMENT("inplace", offsetof(fedge_layer_spec, u.elu.inplace), 0),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_elu = {.arguments = ARGUMENTS,
                                         .flags = FEDGE_USES_Y | FEDGE_Y_ON_X | FEDGE_DX_ON_DY,
                                         .infer = fedge_elementwise_infer,
                                         .forward = forward,
                                         .backward = backward};

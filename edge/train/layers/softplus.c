/* Softplus: log(1 + e^(beta · x)) / beta, and x itself where beta · x is above threshold. */
#include <math.h>

#include "edge/train/layers/elementwise.h"

enum { BLOCK = 256 }; /* values whose exponentials are computed together */

/* log(1 + e^z) = max(z, 0) + log(1 + e^−|z|), which does not overflow. */
static void forward(const fedge_layer_run *run)
{
    const size_t n = fedge_elementwise_count(run);
    const float beta = run->spec->u.softplus.beta, most = run->spec->u.softplus.threshold;
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t count = n - at < BLOCK ? n - at : BLOCK;
        const float *x = run->x[0] + at;
        float *y = run->y + at, power[BLOCK];
        for (size_t i = 0; i < count; i++)
            power[i] = -fabsf(beta * x[i]);
        run->kernels->exp(power, power, count);
        for (size_t i = 0; i < count; i++) {
            const float z = beta * x[i];
            y[i] = z > most ? x[i] : ((z > 0.0f ? z : 0.0f) + log1pf(power[i])) / beta;
        }
    }
}

static void backward(const fedge_layer_run *run)
{
    const size_t n = fedge_elementwise_count(run);
    const float beta = run->spec->u.softplus.beta, most = run->spec->u.softplus.threshold;
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t count = n - at < BLOCK ? n - at : BLOCK;
        const float *x = run->x[0] + at, *dy = run->dy + at;
        float *dx = run->dx[0] + at, slope[BLOCK];
        for (size_t i = 0; i < count; i++)
            slope[i] = beta * x[i];
        run->kernels->sigmoid(slope, slope, count);
        for (size_t i = 0; i < count; i++)
            dx[i] = dy[i] * (beta * x[i] > most ? 1.0f : slope[i]);
    }
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_F32_ARGUMENT("beta", offsetof(fedge_layer_spec, u.softplus.beta), 1e-6, 1e6, 1),
    FEDGE_F32_ARGUMENT("threshold", offsetof(fedge_layer_spec, u.softplus.threshold), -1e6, 1e6,
                       20),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_softplus = {.arguments = ARGUMENTS,
                                              .flags = FEDGE_USES_X | FEDGE_DX_ON_DY,
                                              .infer = fedge_elementwise_infer,
                                              .forward = forward,
                                              .backward = backward};

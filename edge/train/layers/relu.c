/* ReLU: y = max(x, 0); NaN stays NaN. Backward needs only the signs of y. */
#include <math.h>
#include <string.h>

#include "edge/train/layers/elementwise.h"
#include "edge/train/layers/layer.h"

static void forward(const fedge_layer_run *run)
{
    const size_t n = fedge_elementwise_count(run);
    if (run->y != run->x[0])
        memcpy(run->y, run->x[0], n * sizeof(*run->y));
    run->kernels->relu_forward(run->y, n);
    if (run->masked && run->saved)
        run->kernels->relu_bits(run->y, n, run->saved);
}

static void backward(const fedge_layer_run *run)
{
    const size_t n = fedge_elementwise_count(run);
    if (run->masked) {
        run->kernels->relu_from_bits(run->saved, run->dy, run->dx[0], n);
        return;
    }
    if (run->dx[0] != run->dy)
        memcpy(run->dx[0], run->dy, n * sizeof(*run->dy));
    run->kernels->relu_backward(run->y, run->dx[0], n);
}

const fedge_layer_ops fedge_layer_relu = {
    .arguments = fedge_inplace_argument,
    .flags = FEDGE_USES_Y | FEDGE_Y_ON_X | FEDGE_DX_ON_DY,
    .ceiling = INFINITY,
    .infer = fedge_elementwise_infer,
    .sizes = fedge_elementwise_mask_sizes,
    .forward = forward,
    .backward = backward,
};

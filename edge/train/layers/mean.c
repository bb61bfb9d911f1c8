/* Mean: torch.mean(x, dim), the mean over a dimension, which is removed. The steps of a sequence
 * are dim 1. x: (batch, …) with 2 or 3 further dimensions. dim counts the batch as 0, or from the
 * end if negative. */
#include <string.h>

#include "edge/train/layers/layer.h"

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    fedge_axis axis;
    FEDGE_TRY(fedge_shape_axis(in, layer->u.mean.dim, &axis, err));
    *out = *in;
    fedge_shape_drop(out, axis.at);
    return FEDGE_OK;
}

static fedge_axis axis_of(const fedge_layer_run *run)
{
    fedge_axis axis = {0};
    if (fedge_shape_axis(&run->in[0], run->spec->u.mean.dim, &axis, NULL) ==
        FEDGE_OK) { /* infer has passed */
        axis.outer *= run->batch;
    }
    return axis;
}

static void forward(const fedge_layer_run *run)
{
    const fedge_axis axis = axis_of(run);
    const float *x = run->x[0], scale = 1.0f / (float)axis.length;
    for (size_t o = 0; o < axis.outer; o++) {
        float *y = run->y + o * axis.inner;
        memset(y, 0, axis.inner * sizeof(*y));
        for (size_t k = 0; k < axis.length; k++, x += axis.inner) {
            for (size_t i = 0; i < axis.inner; i++)
                y[i] += x[i];
        }
        for (size_t i = 0; i < axis.inner; i++)
            y[i] *= scale;
    }
}

static void backward(const fedge_layer_run *run)
{
    const fedge_axis axis = axis_of(run);
    const float scale = 1.0f / (float)axis.length;
    float *dx = run->dx[0];
    for (size_t o = 0; dx && o < axis.outer; o++) {
        const float *dy = run->dy + o * axis.inner;
        for (size_t k = 0; k < axis.length; k++, dx += axis.inner) {
            for (size_t i = 0; i < axis.inner; i++)
                dx[i] = scale * dy[i];
        }
    }
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_I32_ARGUMENT("dim", offsetof(fedge_layer_spec, u.mean.dim), -FEDGE_MAX_SHAPE_RANK,
                       FEDGE_MAX_SHAPE_RANK),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_mean = {
    .arguments = ARGUMENTS, .infer = infer, .forward = forward, .backward = backward};

/* Select: torch.select(x, dim, index), one index of a dimension, which is removed. The last step of
 * a sequence is dim 1, index −1. x: (batch, …) with 2 or 3 further dimensions. dim counts the batch
 * as 0; negative dim and index count from the end. */
#include <string.h>

#include "edge/train/layers/layer.h"

/* The index from the start; it is valid. */
static uint32_t index_of(const fedge_layer_spec *layer, uint32_t length)
{
    const int32_t index = layer->u.select.index;
    return index < 0 ? (uint32_t)((int32_t)length + index) : (uint32_t)index;
}

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    fedge_axis axis;
    const int64_t index = layer->u.select.index;
    FEDGE_TRY(fedge_shape_axis(in, layer->u.select.dim, &axis, err));
    if (index >= (int64_t)axis.length || index < -(int64_t)axis.length) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "index %d is not in [-%zu, %zu), the places of dim %d", (int)index,
                          axis.length, axis.length, (int)layer->u.select.dim);
    }
    *out = *in;
    fedge_shape_drop(out, axis.at);
    return FEDGE_OK;
}

static fedge_axis axis_of(const fedge_layer_run *run)
{
    fedge_axis axis = {0};
    if (fedge_shape_axis(&run->in[0], run->spec->u.select.dim, &axis, NULL) ==
        FEDGE_OK) { /* infer has passed */
        axis.outer *= run->batch;
    }
    return axis;
}

static void forward(const fedge_layer_run *run)
{
    const fedge_axis axis = axis_of(run);
    const float *x = run->x[0] + index_of(run->spec, (uint32_t)axis.length) * axis.inner;
    for (size_t o = 0; o < axis.outer; o++) {
        memcpy(run->y + o * axis.inner, x + o * axis.length * axis.inner,
               axis.inner * sizeof(*run->y));
    }
}

static void backward(const fedge_layer_run *run)
{
    const fedge_axis axis = axis_of(run);
    float *dx = run->dx[0];
    if (!dx)
        return;
    memset(dx, 0, axis.outer * axis.length * axis.inner * sizeof(*dx));
    dx += index_of(run->spec, (uint32_t)axis.length) * axis.inner;
    for (size_t o = 0; o < axis.outer; o++) {
        memcpy(dx + o * axis.length * axis.inner, run->dy + o * axis.inner,
               axis.inner * sizeof(*dx));
    }
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_I32_ARGUMENT("dim", offsetof(fedge_layer_spec, u.select.dim), -FEDGE_MAX_SHAPE_RANK,
                       FEDGE_MAX_SHAPE_RANK),
    FEDGE_I32_ARGUMENT("index", offsetof(fedge_layer_spec, u.select.index),
                       -FEDGE_ARGUMENT_MAX_COUNT, FEDGE_ARGUMENT_MAX_COUNT),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_select = {
    .arguments = ARGUMENTS, .infer = infer, .forward = forward, .backward = backward};

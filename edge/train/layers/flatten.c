/* Flatten: (batch, …) to (batch, product); keeps the order of the values. */
#include <string.h>

#include "edge/train/layers/layer.h"

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)layer;
    (void)num_inputs;
    (void)err;
    *out = (fedge_shape){1, {(uint32_t)fedge_shape_count(in)}};
    return FEDGE_OK;
}

static size_t bytes(const fedge_layer_run *run)
{
    return fedge_shape_count(&run->out) * run->batch * sizeof(float);
}

static void forward(const fedge_layer_run *run)
{
    if (run->y != run->x[0])
        memcpy(run->y, run->x[0], bytes(run));
}

static void backward(const fedge_layer_run *run)
{
    if (run->dx[0] != run->dy)
        memcpy(run->dx[0], run->dy, bytes(run));
}

const fedge_layer_ops fedge_layer_flatten = {
    .flags = FEDGE_Y_ON_X | FEDGE_DX_ON_DY,
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

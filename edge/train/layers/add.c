/* Add: the sum of two or more inputs of equal shape, as in residual nets. Not a PyTorch class; x +
 * y there. */
#include <string.h>

#include "edge/train/layers/elementwise.h"
#include "edge/train/layers/layer.h"

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)layer;
    for (uint32_t i = 1; i < num_inputs; i++) {
        if (in[i].rank != in[0].rank ||
            memcmp(in[i].dims, in[0].dims, in[0].rank * sizeof(in[0].dims[0])) != 0) {
            char a[FEDGE_SHAPE_TEXT_SIZE], b[FEDGE_SHAPE_TEXT_SIZE];
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "input 0 is %s but input %u is %s: they must be equal",
                              fedge_shape_text(in[0].rank, in[0].dims, a), (unsigned)i,
                              fedge_shape_text(in[i].rank, in[i].dims, b));
        }
    }
    *out = in[0];
    return FEDGE_OK;
}

static void forward(const fedge_layer_run *run)
{
    const size_t n = fedge_elementwise_count(run);
    if (run->y != run->x[0])
        memcpy(run->y, run->x[0], n * sizeof(*run->y));
    for (uint32_t k = 1; k < run->num_inputs; k++)
        run->kernels->add(run->x[k], n, run->y);
}

static void backward(const fedge_layer_run *run)
{
    for (uint32_t k = 0; k < run->num_inputs; k++) {
        if (run->dx[k] && run->dx[k] != run->dy)
            memcpy(run->dx[k], run->dy, fedge_elementwise_count(run) * sizeof(*run->dy));
    }
}

const fedge_layer_ops fedge_layer_add = {
    .min_inputs = 2,
    .max_inputs = FEDGE_MAX_LAYER_INPUTS,
    .flags = FEDGE_Y_ON_X | FEDGE_DX_ON_DY,
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

/* Concat: torch.cat of two to four inputs along a dimension, in which alone they may differ. */
#include <string.h>

#include "edge/train/layers/layer.h"

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    fedge_axis axis;
    FEDGE_TRY(fedge_shape_dim(&in[0], layer->u.concat.dim, &axis, err));
    *out = in[0];
    for (uint32_t k = 1; k < num_inputs; k++) {
        bool fits = in[k].rank == in[0].rank;
        for (uint32_t i = 0; fits && i < in[0].rank; i++)
            fits = i == axis.at || in[k].dims[i] == in[0].dims[i];
        if (!fits) {
            char a[FEDGE_SHAPE_TEXT_SIZE], b[FEDGE_SHAPE_TEXT_SIZE];
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "input 0 is %s but input %u is %s: they may differ in dim %d alone",
                              fedge_shape_text(in[0].rank, in[0].dims, a), (unsigned)k,
                              fedge_shape_text(in[k].rank, in[k].dims, b),
                              (int)layer->u.concat.dim);
        }
        if (in[k].dims[axis.at] > UINT32_MAX - out->dims[axis.at])
            return fedge_fail(err, FEDGE_TOO_BIG, "the inputs are too long together");
        out->dims[axis.at] += in[k].dims[axis.at];
    }
    return FEDGE_OK;
}

/* Values of input [k] that lie side by side, and how often in the batch. */
static size_t part(const fedge_layer_run *run, uint32_t k, size_t *outer)
{
    fedge_axis axis = {.length = 0};
    (void)!fedge_shape_dim(&run->in[k], run->spec->u.concat.dim, &axis, NULL); /* infer passed */
    *outer = axis.outer * run->batch;
    return axis.length * axis.inner;
}

static void forward(const fedge_layer_run *run)
{
    size_t first = 0, outer;
    const size_t whole = fedge_shape_count(&run->out) * run->batch;
    for (uint32_t k = 0; k < run->num_inputs; k++) {
        const size_t n = part(run, k, &outer);
        for (size_t o = 0; o < outer; o++)
            memcpy(run->y + o * (whole / outer) + first, run->x[k] + o * n, n * sizeof(*run->y));
        first += n;
    }
}

static void backward(const fedge_layer_run *run)
{
    size_t first = 0, outer;
    const size_t whole = fedge_shape_count(&run->out) * run->batch;
    for (uint32_t k = 0; k < run->num_inputs; k++) {
        const size_t n = part(run, k, &outer);
        for (size_t o = 0; run->dx[k] && o < outer; o++)
            memcpy(run->dx[k] + o * n, run->dy + o * (whole / outer) + first, n * sizeof(*run->dy));
        first += n;
    }
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_I32_ARGUMENT("dim", offsetof(fedge_layer_spec, u.concat.dim), -FEDGE_MAX_SHAPE_RANK,
                       FEDGE_MAX_SHAPE_RANK),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_concat = {.arguments = ARGUMENTS,
                                            .min_inputs = 2,
                                            .max_inputs = FEDGE_MAX_LAYER_INPUTS,
                                            .infer = infer,
                                            .forward = forward,
                                            .backward = backward};

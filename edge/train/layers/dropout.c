/* Dropout: in training each value is kept with probability 1 − p and scaled by 1 / (1 − p), and a
 * mask of the kept ones is saved. In evaluation y = x. */
#include <string.h>

#include "edge/train/layers/elementwise.h"

static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    need->saved = ((uint64_t)fedge_shape_count(&run->out) * run->batch + 7) / 8;
}

static void forward(const fedge_layer_run *run)
{
    const size_t n = fedge_elementwise_count(run);
    if (run->training)
        run->kernels->drop_draw(run->rng, run->spec->u.dropout.p, n, run->x[0], run->y, run->saved);
    else if (run->y != run->x[0])
        memcpy(run->y, run->x[0], n * sizeof(*run->y));
}

static void backward(const fedge_layer_run *run)
{
    run->kernels->drop_apply(run->spec->u.dropout.p, fedge_elementwise_count(run), run->saved,
                             run->dy, run->dx[0]);
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_F32_ARGUMENT("p", offsetof(fedge_layer_spec, u.dropout.p), 0, 1, 0.5),
    FEDGE_BOOL_ARGUMENT("inplace", offsetof(fedge_layer_spec, u.dropout.inplace), 0),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_dropout = {.arguments = ARGUMENTS,
                                             .flags = FEDGE_Y_ON_X | FEDGE_DX_ON_DY,
                                             .infer = fedge_elementwise_infer,
                                             .sizes = sizes,
                                             .forward = forward,
                                             .backward = backward};

/* Softmax along a dimension inside a model: y = e^x / Σ e^x. Losses take logits, so it is not for
 * the end of one. */
#include <string.h>

#include "edge/train/layers/elementwise.h"

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    fedge_axis axis;
    FEDGE_TRY(fedge_shape_dim(in, layer->u.softmax.dim, &axis, err));
    return fedge_elementwise_infer(layer, in, num_inputs, out, err);
}

static fedge_axis axis_of(const fedge_layer_run *run)
{
    fedge_axis axis = {0};
    if (fedge_shape_dim(&run->in[0], run->spec->u.softmax.dim, &axis, NULL) ==
        FEDGE_OK) { /* infer has passed */
        axis.outer *= run->batch;
    }
    return axis;
}

/* A number for each row that is summed: two for the kernel, or one for each column of a plane. */
static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    const fedge_axis axis = axis_of(run);
    need->forward = (axis.inner == 1 ? 2 * (uint64_t)axis.outer : axis.inner) * sizeof(float);
    need->backward = axis.inner == 1 ? 0 : axis.inner * sizeof(float);
}

/* Column by column of one plane, (length, inner), many columns at a time. */
static void forward_plane(const fedge_layer_run *run, const fedge_axis *axis, const float *x,
                          float *y, float *per_column)
{
    memcpy(per_column, x, axis->inner * sizeof(*x));
    for (size_t l = 1; l < axis->length; l++) {
        const float *row = x + l * axis->inner;
        for (size_t i = 0; i < axis->inner; i++)
            per_column[i] = row[i] > per_column[i] ? row[i] : per_column[i];
    }
    for (size_t l = 0; l < axis->length; l++) {
        for (size_t i = 0; i < axis->inner; i++)
            y[l * axis->inner + i] = x[l * axis->inner + i] - per_column[i];
    }
    run->kernels->exp(y, y, axis->length * axis->inner);
    memset(per_column, 0, axis->inner * sizeof(*per_column));
    for (size_t l = 0; l < axis->length; l++) {
        for (size_t i = 0; i < axis->inner; i++)
            per_column[i] += y[l * axis->inner + i];
    }
    for (size_t l = 0; l < axis->length; l++) {
        for (size_t i = 0; i < axis->inner; i++)
            y[l * axis->inner + i] /= per_column[i];
    }
}

static void forward(const fedge_layer_run *run)
{
    const fedge_axis axis = axis_of(run);
    const size_t plane = axis.length * axis.inner;
    if (axis.inner == 1) {
        if (run->y != run->x[0])
            memcpy(run->y, run->x[0], axis.outer * plane * sizeof(*run->y));
        run->kernels->softmax(&(fedge_softmax){.s = run->y,
                                               .rows = axis.outer,
                                               .stride = axis.length,
                                               .width = axis.length,
                                               .scale = 1.0f,
                                               .saved = run->scratch});
        return;
    }
    for (size_t o = 0; o < axis.outer; o++)
        forward_plane(run, &axis, run->x[0] + o * plane, run->y + o * plane, run->scratch);
}

/* dx = y · (dy − Σ y · dy) */
static void backward_plane(const fedge_axis *axis, const float *y, const float *dy, float *dx,
                           float *sums)
{
    memset(sums, 0, axis->inner * sizeof(*sums));
    for (size_t l = 0; l < axis->length; l++) {
        for (size_t i = 0; i < axis->inner; i++)
            sums[i] += y[l * axis->inner + i] * dy[l * axis->inner + i];
    }
    for (size_t l = 0; l < axis->length; l++) {
        for (size_t i = 0; i < axis->inner; i++) {
            const size_t at = l * axis->inner + i;
            dx[at] = y[at] * (dy[at] - sums[i]);
        }
    }
}

static void backward(const fedge_layer_run *run)
{
    const fedge_axis axis = axis_of(run);
    const size_t plane = axis.length * axis.inner;
    if (axis.inner == 1) {
        memcpy(run->dx[0], run->y, axis.outer * plane * sizeof(*run->y));
        run->kernels->softmax_backward(&(fedge_softmax){.s = run->dx[0],
                                                        .rows = axis.outer,
                                                        .stride = axis.length,
                                                        .width = axis.length,
                                                        .scale = 1.0f},
                                       run->dy);
        return;
    }
    for (size_t o = 0; o < axis.outer; o++) {
        backward_plane(&axis, run->y + o * plane, run->dy + o * plane, run->dx[0] + o * plane,
                       run->scratch);
    }
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_I32_ARGUMENT("dim", offsetof(fedge_layer_spec, u.softmax.dim), -FEDGE_MAX_SHAPE_RANK,
                       FEDGE_MAX_SHAPE_RANK),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_softmax = {.arguments = ARGUMENTS,
                                             .flags = FEDGE_USES_Y | FEDGE_Y_ON_X,
                                             .infer = infer,
                                             .sizes = sizes,
                                             .forward = forward,
                                             .backward = backward};

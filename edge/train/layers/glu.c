/* GLU: a · σ(b), where a and b are the halves of the input along a dimension. */
#include "edge/train/layers/layer.h"

enum { BLOCK = 256 }; /* values whose sigmoids are computed together */

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    fedge_axis axis;
    FEDGE_TRY(fedge_shape_dim(in, layer->u.glu.dim, &axis, err));
    if (axis.length % 2 != 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "dim %d of the input is %zu, which has no halves: give an even number",
                          (int)layer->u.glu.dim, axis.length);
    }
    *out = *in;
    out->dims[axis.at] /= 2;
    return FEDGE_OK;
}

/* Values of a half that lie side by side, and how often in the batch. */
static size_t half(const fedge_layer_run *run, size_t *outer)
{
    fedge_axis axis = {.length = 2};
    (void)!fedge_shape_dim(&run->in[0], run->spec->u.glu.dim, &axis, NULL); /* infer has passed */
    *outer = axis.outer * run->batch;
    return axis.length / 2 * axis.inner;
}

static void forward(const fedge_layer_run *run)
{
    size_t outer, n = half(run, &outer);
    for (size_t o = 0; o < outer; o++) {
        const float *a = run->x[0] + 2 * o * n, *b = a + n;
        float *y = run->y + o * n;
        run->kernels->sigmoid(b, y, n);
        for (size_t i = 0; i < n; i++)
            y[i] *= a[i];
    }
}

static void backward(const fedge_layer_run *run)
{
    size_t outer, n = half(run, &outer);
    for (size_t o = 0; o < outer; o++) {
        for (size_t at = 0; at < n; at += BLOCK) {
            const size_t count = n - at < BLOCK ? n - at : BLOCK;
            const float *a = run->x[0] + 2 * o * n + at, *b = a + n, *dy = run->dy + o * n + at;
            float *da = run->dx[0] + 2 * o * n + at, *db = da + n, gate[BLOCK];
            run->kernels->sigmoid(b, gate, count);
            for (size_t i = 0; i < count; i++) {
                da[i] = dy[i] * gate[i];
                db[i] = dy[i] * a[i] * gate[i] * (1.0f - gate[i]);
            }
        }
    }
}

static const fedge_argument ARGUMENTS[] = {
    {.name = "dim",
     .kind = FEDGE_ARGUMENT_I32,
     .offset = offsetof(fedge_layer_spec, u.glu.dim),
     .min = -FEDGE_MAX_SHAPE_RANK,
     .max = FEDGE_MAX_SHAPE_RANK,
     .fallback = -1},
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_glu = {.arguments = ARGUMENTS,
                                         .flags = FEDGE_USES_X,
                                         .infer = infer,
                                         .forward = forward,
                                         .backward = backward};

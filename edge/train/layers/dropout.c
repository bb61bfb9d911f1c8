/* Dropout: in training each value is kept with probability 1 − p and scaled by 1 / (1 − p); else y
 * = x. Which are kept is drawn from the step's stream and saved as bits. */
#include <string.h>

#include "edge/train/layer.h"
#include "edge/train/layers/elementwise.h"

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    if (!(layer->u.dropout.p >= 0.0f && layer->u.dropout.p <= 1.0f)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "p is %g but must be from 0 to 1",
                          (double)layer->u.dropout.p);
    }
    return fedge_elementwise_infer(layer, in, num_inputs, out, err);
}

static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    need->saved = ((uint64_t)fedge_shape_count(&run->out) * run->batch + 7) / 8;
}

static float scale_of(const fedge_layer_run *run)
{
    const float p = run->spec->u.dropout.p;
    return p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
}

static void forward(const fedge_layer_run *run)
{
    const size_t n = fedge_elementwise_count(run);
    const float p = run->spec->u.dropout.p, scale = scale_of(run);
    uint8_t *kept = run->saved;
    if (!run->training) {
        if (run->y != run->x[0]) {
            memcpy(run->y, run->x[0], n * sizeof *run->y);
        }
        return;
    }
    if (kept != NULL) {
        memset(kept, 0, (n + 7) / 8);
    }
    for (size_t i = 0; i < n; i++) {
        const bool keep = fedge_rng_float(run->rng) >= p;
        run->y[i] = keep ? run->x[0][i] * scale : 0.0f;
        if (kept != NULL) {
            kept[i / 8] = (uint8_t)(kept[i / 8] | (unsigned)keep << i % 8);
        }
    }
}

static void backward(const fedge_layer_run *run)
{
    const size_t n = fedge_elementwise_count(run);
    const uint8_t *kept = run->saved;
    const float scale = scale_of(run);
    for (size_t i = 0; i < n; i++) {
        run->dx[0][i] = kept[i / 8] >> i % 8 & 1 ? run->dy[i] * scale : 0.0f;
    }
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_F32_ARGUMENT("p", offsetof(fedge_layer_spec, u.dropout.p), 0, 1, 0.5),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_dropout = {.arguments = ARGUMENTS,
                                             .flags = FEDGE_Y_ON_X | FEDGE_DX_ON_DY,
                                             .infer = infer,
                                             .sizes = sizes,
                                             .forward = forward,
                                             .backward = backward};

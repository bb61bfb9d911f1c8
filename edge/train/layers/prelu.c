/* PReLU: x above 0, else weight · x, with one weight or one for each channel, the first dimension
 * of an example. */
#include "edge/train/layers/elementwise.h"

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    const uint32_t weights = layer->u.prelu.num_parameters;
    if (weights != 1 && weights != in->dims[0]) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "num_parameters is %u but must be 1 or %u, the channels of the input",
                          (unsigned)weights, (unsigned)in->dims[0]);
    }
    *out = *in;
    return FEDGE_OK;
}

static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
{
    list[0] = (fedge_layer_tensor){.name = "weight",
                                   .rank = 1,
                                   .shape = {layer->u.prelu.num_parameters},
                                   .init = FEDGE_INIT_CONSTANT,
                                   .scale = layer->u.prelu.init};
    return 1;
}

/* Values in a row that share a weight. */
static size_t shared(const fedge_layer_run *run)
{
    return fedge_shape_count(&run->out) / run->spec->u.prelu.num_parameters;
}

static void forward(const fedge_layer_run *run)
{
    const size_t n = shared(run), weights = run->spec->u.prelu.num_parameters;
    for (size_t row = 0; row < run->batch * weights; row++) {
        const float weight = run->values[0][row % weights], *x = run->x[0] + row * n;
        float *y = run->y + row * n;
        for (size_t i = 0; i < n; i++)
            y[i] = x[i] > 0.0f ? x[i] : weight * x[i];
    }
}

static void backward(const fedge_layer_run *run)
{
    const size_t n = shared(run), weights = run->spec->u.prelu.num_parameters;
    for (size_t row = 0; row < run->batch * weights; row++) {
        const float weight = run->values[0][row % weights], *x = run->x[0] + row * n;
        const float *dy = run->dy + row * n;
        double sum = 0.0;
        for (size_t i = 0; run->gradients[0] && i < n; i++)
            sum += (double)(x[i] > 0.0f ? 0.0f : x[i] * dy[i]);
        if (run->gradients[0])
            run->gradients[0][row % weights] += (float)sum;
        float *dx = run->dx[0] ? run->dx[0] + row * n : NULL;
        for (size_t i = 0; dx && i < n; i++)
            dx[i] = x[i] > 0.0f ? dy[i] : weight * dy[i];
    }
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_U32_ARGUMENT("num_parameters", offsetof(fedge_layer_spec, u.prelu.num_parameters), false,
                       1, FEDGE_ARGUMENT_MAX_COUNT, 1),
    FEDGE_F32_ARGUMENT("init", offsetof(fedge_layer_spec, u.prelu.init), -1e6, 1e6, 0.25),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_prelu = {.arguments = ARGUMENTS,
                                           .flags = FEDGE_USES_X | FEDGE_DX_ON_DY,
                                           .infer = infer,
                                           .tensors = tensors,
                                           .forward = forward,
                                           .backward = backward};

/* GroupNorm over groups of channels of one example. x: (batch, channels, …). */
#include "edge/train/layers/norm.h"

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    const uint32_t groups = layer->u.groupnorm.num_groups, wants = layer->u.groupnorm.num_channels;
    if (groups == 0 || wants == 0 || wants % groups != 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "num_groups %u must divide num_channels %u, and be at least 1",
                          (unsigned)groups, (unsigned)wants);
    }
    if (in->dims[0] != wants) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "num_channels is %u but the layer before gives %u channels",
                          (unsigned)wants, (unsigned)in->dims[0]);
    }
    *out = *in;
    return FEDGE_OK;
}

static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
{
    fedge_norm_tensors(1, &layer->u.groupnorm.num_channels, list);
    return layer->u.groupnorm.affine ? 2 : 0;
}

static fedge_norm describe(const fedge_layer_run *run)
{
    const size_t groups = run->spec->u.groupnorm.num_groups, channels = run->in[0].dims[0];
    return (fedge_norm){.rows = groups * run->batch,
                        .groups = groups,
                        .channels = channels / groups,
                        .spatial = fedge_shape_count(&run->in[0]) / channels,
                        .eps = run->spec->u.groupnorm.eps};
}

static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    const fedge_norm norm = describe(run);
    need->saved = (uint64_t)norm.rows * 2 * sizeof(float);
    need->fuses_relu = fedge_norm_fuses_relu(&norm);
}

static void forward(const fedge_layer_run *run)
{
    fedge_norm norm = describe(run);
    fedge_norm_set_run(run, &norm);
    fedge_norm_forward(&norm, run->x[0], run->y);
}

static void backward(const fedge_layer_run *run)
{
    fedge_norm norm = describe(run);
    fedge_norm_set_run(run, &norm);
    fedge_norm_backward(&norm, run->x[0], run->dy, run->dx[0]);
}

#define AT(member) offsetof(fedge_layer_spec, u.groupnorm.member)

static const fedge_argument ARGUMENTS[] = {
    FEDGE_COUNT_ARGUMENT("num_groups", AT(num_groups)),
    FEDGE_COUNT_ARGUMENT("num_channels", AT(num_channels)),
    FEDGE_EPS_ARGUMENT("eps", AT(eps)),
    FEDGE_BOOL_ARGUMENT("affine", AT(affine), 1),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_groupnorm = {.arguments = ARGUMENTS,
                                               .flags = FEDGE_USES_X | FEDGE_DX_ON_DY,
                                               .infer = infer,
                                               .tensors = tensors,
                                               .sizes = sizes,
                                               .forward = forward,
                                               .backward = backward};

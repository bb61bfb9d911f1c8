/* Conv1d: (batch, in, length) → (batch, out, length'); see convolution.h. The height is 1. */
#include "edge/train/layers/convolution.h"

/* Zeros before the first place. Causal: as many as the window reaches back, and none behind the
 * last place, where the outputs end. */
static uint32_t padding_of(const fedge_layer_spec *layer, uint32_t dilation)
{
    return !layer->u.conv1d.causal ? layer->u.conv1d.padding
                                   : dilation * (layer->u.conv1d.kernel_size - 1);
}

static fedge_convolution describe(const fedge_layer_spec *layer)
{
    const uint32_t dilation = layer->u.conv1d.dilation == 0 ? 1 : layer->u.conv1d.dilation;
    return (fedge_convolution){.rank = 2,
                               .channels = layer->u.conv1d.in_channels,
                               .out_channels = layer->u.conv1d.out_channels,
                               .groups = layer->u.conv1d.groups == 0 ? 1 : layer->u.conv1d.groups,
                               .kernel = {1, layer->u.conv1d.kernel_size},
                               .stride = {1, layer->u.conv1d.stride},
                               .padding = {0, padding_of(layer, dilation)},
                               .dilation = {1, dilation},
                               .bias = layer->u.conv1d.bias};
}

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    if (layer->u.conv1d.causal && layer->u.conv1d.padding != 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "causal has its own padding: remove padding %u",
                          (unsigned)layer->u.conv1d.padding);
    }
    FEDGE_TRY(fedge_convolution_infer(describe(layer), in, out, err));
    if (layer->u.conv1d.causal)
        out->dims[1] = (in->dims[1] - 1) / layer->u.conv1d.stride + 1;
    return FEDGE_OK;
}

static const char *feature(const fedge_layer_spec *layer)
{
    return layer->u.conv1d.causal ? "causal" : NULL;
}

static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
{
    return fedge_convolution_tensors(describe(layer), list);
}

static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    fedge_convolution_sizes(run, describe(run->spec), need);
}

static void forward(const fedge_layer_run *run)
{
    fedge_convolution_forward(run, describe(run->spec));
}

static void backward(const fedge_layer_run *run)
{
    fedge_convolution_backward(run, describe(run->spec));
}

#define AT(member) offsetof(fedge_layer_spec, u.conv1d.member)

static const fedge_argument ARGUMENTS[] = {
    FEDGE_COUNT_ARGUMENT("in_channels", AT(in_channels)),
    FEDGE_COUNT_ARGUMENT("out_channels", AT(out_channels)),
    FEDGE_U32_ARGUMENT("kernel_size", AT(kernel_size), true, 1, FEDGE_ARGUMENT_MAX_SIDE, 0),
    FEDGE_U32_ARGUMENT("stride", AT(stride), false, 1, FEDGE_ARGUMENT_MAX_SIDE, 1),
    FEDGE_U32_ARGUMENT("padding", AT(padding), false, 0, FEDGE_ARGUMENT_MAX_SIDE, 0),
    FEDGE_U32_ARGUMENT("dilation", AT(dilation), false, 1, FEDGE_ARGUMENT_MAX_SIDE, 1),
    FEDGE_U32_ARGUMENT("groups", AT(groups), false, 1, FEDGE_ARGUMENT_MAX_COUNT, 1),
    FEDGE_BOOL_ARGUMENT("bias", AT(bias), 1),
    FEDGE_BOOL_ARGUMENT("causal", AT(causal), 0),
    FEDGE_NO_ARGUMENT,
};

static fedge_status pad_same(fedge_layer_spec *layer, fedge_error *err)
{
    return fedge_convolution_pad_same(describe(layer), 1, &layer->u.conv1d.padding, err);
}

const fedge_layer_ops fedge_layer_conv1d = {
    .arguments = ARGUMENTS,
    .flags = FEDGE_USES_X,
    .infer = infer,
    .feature = feature,
    .pad_same = pad_same,
    .tensors = tensors,
    .sizes = sizes,
    .forward = forward,
    .backward = backward,
};

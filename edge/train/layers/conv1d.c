/* Conv1d: (batch, in, length) → (batch, out, length'); see convolution.h. The height is 1. */
#include "edge/train/layers/int8_forward.h"

static fedge_convolution describe(const fedge_layer_spec *layer)
{
    return (fedge_convolution){
        .channels = layer->u.conv1d.in_channels,
        .out_channels = layer->u.conv1d.out_channels,
        .groups = layer->u.conv1d.groups == 0 ? 1 : layer->u.conv1d.groups,
        .kernel = {1, layer->u.conv1d.kernel_size},
        .stride = {1, layer->u.conv1d.stride},
        .padding = {0, layer->u.conv1d.padding},
        .dilation = {1, layer->u.conv1d.dilation == 0 ? 1 : layer->u.conv1d.dilation},
        .bias = layer->u.conv1d.bias};
}

static fedge_convolution describe_run(const fedge_layer_run *run)
{
    fedge_convolution conv = describe(run->spec);
    conv.in[0] = conv.out[0] = 1;
    conv.in[1] = run->in[0].dims[1];
    conv.out[1] = run->out.dims[1];
    return conv;
}

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    fedge_convolution conv = describe(layer);
    fedge_status status = fedge_shape_need(in, 2, "[channels, length]", err);
    if (status == FEDGE_OK) {
        conv.in[0] = 1;
        conv.in[1] = in->dims[1];
        status = fedge_convolution_infer(&conv, in->dims[0], err);
    }
    *out = (fedge_shape){2, {conv.out_channels, conv.out[1]}};
    return status;
}

static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
{
    const fedge_convolution conv = describe(layer);
    return fedge_convolution_tensors(&conv, 3, list);
}

static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    const fedge_convolution conv = describe_run(run);
    fedge_convolution_sizes(run, &conv, need);
    if (run->in_int8) {
        need->forward = fedge_int8_convolution_scratch(&conv);
    }
}

static void forward(const fedge_layer_run *run)
{
    const fedge_convolution conv = describe_run(run);
    if (run->in_int8) {
        fedge_int8_convolution(run, &conv, conv.bias ? run->values[1] : NULL);
    } else {
        fedge_convolution_forward(run, &conv);
    }
}

static void backward(const fedge_layer_run *run)
{
    const fedge_convolution conv = describe_run(run);
    fedge_convolution_backward(run, &conv);
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
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_conv1d = {
    .arguments = ARGUMENTS,
    .flags = FEDGE_USES_X,
    .infer = infer,
    .tensors = tensors,
    .sizes = sizes,
    .forward = forward,
    .backward = backward,
};

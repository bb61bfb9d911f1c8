/* Conv2d: (batch, in, h, w) → (batch, out, h', w'); see convolution.h. */
#include "edge/train/layers/convolution.h"

static fedge_convolution describe(const fedge_layer_spec *layer)
{
    fedge_convolution conv = {.rank = 3,
                              .channels = layer->u.conv2d.in_channels,
                              .out_channels = layer->u.conv2d.out_channels,
                              .groups = layer->u.conv2d.groups == 0 ? 1 : layer->u.conv2d.groups,
                              .bias = layer->u.conv2d.bias};
    for (int i = 0; i < 2; i++) {
        conv.kernel[i] = layer->u.conv2d.kernel_size[i];
        conv.stride[i] = layer->u.conv2d.stride[i];
        conv.padding[i] = layer->u.conv2d.padding[i];
        conv.dilation[i] = layer->u.conv2d.dilation[i] == 0 ? 1 : layer->u.conv2d.dilation[i];
    }
    return conv;
}

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    return fedge_convolution_infer(describe(layer), in, out, err);
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

#define AT(member) offsetof(fedge_layer_spec, u.conv2d.member)

static const fedge_argument ARGUMENTS[] = {
    FEDGE_COUNT_ARGUMENT("in_channels", AT(in_channels)),
    FEDGE_COUNT_ARGUMENT("out_channels", AT(out_channels)),
    FEDGE_PAIR_ARGUMENT("kernel_size", AT(kernel_size), true, 1, 0),
    FEDGE_PAIR_ARGUMENT("stride", AT(stride), false, 1, 1),
    FEDGE_PAIR_ARGUMENT("padding", AT(padding), false, 0, 0),
    FEDGE_PAIR_ARGUMENT("dilation", AT(dilation), false, 1, 1),
    FEDGE_U32_ARGUMENT("groups", AT(groups), false, 1, FEDGE_ARGUMENT_MAX_COUNT, 1),
    FEDGE_BOOL_ARGUMENT("bias", AT(bias), 1),
    FEDGE_NO_ARGUMENT,
};

static fedge_status pad_same(fedge_layer_spec *layer, fedge_error *err)
{
    return fedge_convolution_pad_same(describe(layer), 0, layer->u.conv2d.padding, err);
}

const fedge_layer_ops fedge_layer_conv2d = {
    .arguments = ARGUMENTS,
    .flags = FEDGE_USES_X,
    .infer = infer,
    .pad_same = pad_same,
    .tensors = tensors,
    .sizes = sizes,
    .forward = forward,
    .backward = backward,
};

/* ConvTranspose1d: (batch, in, length) → (batch, out, length'); see transposed.h. The height is 1.
 */
#include "edge/train/layers/transposed.h"

static fedge_convolution describe(const fedge_layer_spec *layer)
{
    const uint32_t groups = layer->u.convtranspose1d.groups;
    const uint32_t dilation = layer->u.convtranspose1d.dilation;
    return (fedge_convolution){.rank = 2,
                               .channels = layer->u.convtranspose1d.out_channels,
                               .out_channels = layer->u.convtranspose1d.in_channels,
                               .groups = groups == 0 ? 1 : groups,
                               .kernel = {1, layer->u.convtranspose1d.kernel_size},
                               .stride = {1, layer->u.convtranspose1d.stride},
                               .padding = {0, layer->u.convtranspose1d.padding},
                               .dilation = {1, dilation == 0 ? 1 : dilation},
                               .bias = layer->u.convtranspose1d.bias};
}

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    const uint32_t output_padding[2] = {0, layer->u.convtranspose1d.output_padding};
    return fedge_transposed_infer(describe(layer), output_padding, in, out, err);
}

static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
{
    return fedge_transposed_tensors(describe(layer), list);
}

static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    fedge_transposed_sizes(run, describe(run->spec), need);
}

static void forward(const fedge_layer_run *run)
{
    fedge_transposed_forward(run, describe(run->spec));
}

static void backward(const fedge_layer_run *run)
{
    fedge_transposed_backward(run, describe(run->spec));
}

#define AT(member) offsetof(fedge_layer_spec, u.convtranspose1d.member)

static const fedge_argument ARGUMENTS[] = {
    FEDGE_COUNT_ARGUMENT("in_channels", AT(in_channels)),
    FEDGE_COUNT_ARGUMENT("out_channels", AT(out_channels)),
    FEDGE_U32_ARGUMENT("kernel_size", AT(kernel_size), true, 1, FEDGE_ARGUMENT_MAX_SIDE, 0),
    FEDGE_U32_ARGUMENT("stride", AT(stride), false, 1, FEDGE_ARGUMENT_MAX_SIDE, 1),
    FEDGE_U32_ARGUMENT("padding", AT(padding), false, 0, FEDGE_ARGUMENT_MAX_SIDE, 0),
    FEDGE_U32_ARGUMENT("output_padding", AT(output_padding), false, 0, FEDGE_ARGUMENT_MAX_SIDE, 0),
    FEDGE_U32_ARGUMENT("groups", AT(groups), false, 1, FEDGE_ARGUMENT_MAX_COUNT, 1),
    FEDGE_BOOL_ARGUMENT("bias", AT(bias), 1),
    FEDGE_U32_ARGUMENT("dilation", AT(dilation), false, 1, FEDGE_ARGUMENT_MAX_SIDE, 1),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_convtranspose1d = {.arguments = ARGUMENTS,
                                                     .flags = FEDGE_USES_X,
                                                     .infer = infer,
                                                     .tensors = tensors,
                                                     .sizes = sizes,
                                                     .forward = forward,
                                                     .backward = backward};

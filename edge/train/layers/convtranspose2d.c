/* ConvTranspose2d: (batch, in, h, w) → (batch, out, h', w'); see transposed.h. */
#include "edge/train/layers/transposed.h"

static fedge_convolution describe(const fedge_layer_spec *layer)
{
    fedge_convolution conv = {
        .rank = 3,
        .channels = layer->u.convtranspose2d.out_channels,
        .out_channels = layer->u.convtranspose2d.in_channels,
        .groups = layer->u.convtranspose2d.groups == 0 ? 1 : layer->u.convtranspose2d.groups,
        .bias = layer->u.convtranspose2d.bias};
    for (int i = 0; i < 2; i++) {
        const uint32_t dilation = layer->u.convtranspose2d.dilation[i];
        conv.kernel[i] = layer->u.convtranspose2d.kernel_size[i];
        conv.stride[i] = layer->u.convtranspose2d.stride[i];
        conv.padding[i] = layer->u.convtranspose2d.padding[i];
        conv.dilation[i] = dilation == 0 ? 1 : dilation;
    }
    return conv;
}

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    return fedge_transposed_infer(describe(layer), layer->u.convtranspose2d.output_padding, in, out,
                                  err);
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

#define AT(member) offsetof(fedge_layer_spec, u.convtranspose2d.member)

static const fedge_argument ARGUMENTS[] = {
    FEDGE_COUNT_ARGUMENT("in_channels", AT(in_channels)),
    FEDGE_COUNT_ARGUMENT("out_channels", AT(out_channels)),
    FEDGE_PAIR_ARGUMENT("kernel_size", AT(kernel_size), true, 1, 0),
    FEDGE_PAIR_ARGUMENT("stride", AT(stride), false, 1, 1),
    FEDGE_PAIR_ARGUMENT("padding", AT(padding), false, 0, 0),
    FEDGE_PAIR_ARGUMENT("output_padding", AT(output_padding), false, 0, 0),
    FEDGE_U32_ARGUMENT("groups", AT(groups), false, 1, FEDGE_ARGUMENT_MAX_COUNT, 1),
    FEDGE_BOOL_ARGUMENT("bias", AT(bias), 1),
    FEDGE_PAIR_ARGUMENT("dilation", AT(dilation), false, 1, 1),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_convtranspose2d = {.arguments = ARGUMENTS,
                                                     .flags = FEDGE_USES_X,
                                                     .infer = infer,
                                                     .tensors = tensors,
                                                     .sizes = sizes,
                                                     .forward = forward,
                                                     .backward = backward};

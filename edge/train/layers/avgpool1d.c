/* AvgPool1d: (batch, c, length) → (batch, c, length'). */
#include "edge/train/layers/pooling.h"

static fedge_pooling describe(const fedge_layer_spec *layer)
{
    return fedge_pooling_1d(layer->u.avgpool1d.kernel_size, layer->u.avgpool1d.stride,
                            layer->u.avgpool1d.padding, layer->u.avgpool1d.ceil_mode);
}

static fedge_averaging divide_by(const fedge_layer_spec *layer)
{
    return (fedge_averaging){.count_pad = layer->u.avgpool1d.count_include_pad};
}

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    return fedge_pooling_infer(describe(layer), in, out, err);
}

static void forward(const fedge_layer_run *run)
{
    fedge_average_pooling_forward(run, describe(run->spec), divide_by(run->spec));
}

static void backward(const fedge_layer_run *run)
{
    fedge_average_pooling_backward(run, describe(run->spec), divide_by(run->spec));
}

#define AT(member) offsetof(fedge_layer_spec, u.avgpool1d.member)

static const fedge_argument ARGUMENTS[] = {
    FEDGE_U32_ARGUMENT("kernel_size", AT(kernel_size), true, 1, FEDGE_ARGUMENT_MAX_SIDE, 0),
    FEDGE_U32_ARGUMENT("stride", AT(stride), false, 1, FEDGE_ARGUMENT_MAX_SIDE, 0),
    FEDGE_U32_ARGUMENT("padding", AT(padding), false, 0, FEDGE_ARGUMENT_MAX_SIDE, 0),
    FEDGE_BOOL_ARGUMENT("ceil_mode", AT(ceil_mode), 0),
    FEDGE_BOOL_ARGUMENT("count_include_pad", AT(count_include_pad), 1),
    FEDGE_NO_ARGUMENT,
};

static const char *feature(const fedge_layer_spec *layer)
{
    return layer->u.avgpool1d.ceil_mode ? FEDGE_POOLING_FEATURE : NULL;
}

const fedge_layer_ops fedge_layer_avgpool1d = {
    .arguments = ARGUMENTS,
    .infer = infer,
    .feature = feature,
    .forward = forward,
    .backward = backward,
};

/* MaxPool1d: (batch, c, length) → (batch, c, length'). */
#include "edge/train/layers/pooling.h"

static fedge_pooling describe(const fedge_layer_spec *layer)
{
    const uint32_t dilation = layer->u.maxpool1d.dilation;
    fedge_pooling pool = fedge_pooling_1d(layer->u.maxpool1d.kernel_size, layer->u.maxpool1d.stride,
                                          layer->u.maxpool1d.padding, layer->u.maxpool1d.ceil_mode);
    pool.dilation[1] = dilation == 0 ? 1 : dilation;
    return pool;
}

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    return fedge_max_pooling_infer(describe(layer), in, out, err);
}

static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    const fedge_pooling pool = describe(run->spec);
    fedge_max_pooling_sizes(run, &pool, need);
}

static void forward(const fedge_layer_run *run)
{
    fedge_max_pooling_forward(run, describe(run->spec));
}

static void backward(const fedge_layer_run *run)
{
    fedge_max_pooling_backward(run, describe(run->spec));
}

#define AT(member) offsetof(fedge_layer_spec, u.maxpool1d.member)

static const fedge_argument ARGUMENTS[] = {
    FEDGE_U32_ARGUMENT("kernel_size", AT(kernel_size), true, 1, FEDGE_ARGUMENT_MAX_SIDE, 0),
    FEDGE_U32_ARGUMENT("stride", AT(stride), false, 1, FEDGE_ARGUMENT_MAX_SIDE, 0),
    FEDGE_U32_ARGUMENT("padding", AT(padding), false, 0, FEDGE_ARGUMENT_MAX_SIDE, 0),
    FEDGE_U32_ARGUMENT("dilation", AT(dilation), false, 1, FEDGE_ARGUMENT_MAX_SIDE, 1),
    FEDGE_BOOL_ARGUMENT("ceil_mode", AT(ceil_mode), 0),
    FEDGE_NO_ARGUMENT,
};

static const char *feature(const fedge_layer_spec *layer)
{
    return fedge_max_pooling_feature(describe(layer));
}

const fedge_layer_ops fedge_layer_maxpool1d = {
    .arguments = ARGUMENTS,
    .infer = infer,
    .feature = feature,
    .sizes = sizes,
    .forward = forward,
    .backward = backward,
};

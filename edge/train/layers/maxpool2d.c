/* MaxPool2d: (batch, c, h, w) → (batch, c, h', w'). */
#include "edge/train/layers/pooling.h"

static fedge_pooling describe(const fedge_layer_spec *layer)
{
    fedge_pooling pool = fedge_pooling_2d(layer->u.maxpool2d.kernel_size, layer->u.maxpool2d.stride,
                                          layer->u.maxpool2d.padding, layer->u.maxpool2d.ceil_mode);
    for (int i = 0; i < 2; i++) {
        const uint32_t dilation = layer->u.maxpool2d.dilation[i];
        pool.dilation[i] = dilation == 0 ? 1 : dilation;
    }
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

#define AT(member) offsetof(fedge_layer_spec, u.maxpool2d.member)

static const fedge_argument ARGUMENTS[] = {
    FEDGE_PAIR_ARGUMENT("kernel_size", AT(kernel_size), true, 1, 0),
    FEDGE_PAIR_ARGUMENT("stride", AT(stride), false, 1, 0),
    FEDGE_PAIR_ARGUMENT("padding", AT(padding), false, 0, 0),
    FEDGE_PAIR_ARGUMENT("dilation", AT(dilation), false, 1, 1),
    FEDGE_BOOL_ARGUMENT("ceil_mode", AT(ceil_mode), 0),
    FEDGE_NO_ARGUMENT,
};

static const char *feature(const fedge_layer_spec *layer)
{
    return fedge_max_pooling_feature(describe(layer));
}

/* Plans of older releases have the stride in numbers. */
static void complete(fedge_layer_spec *layer)
{
    if (layer->u.maxpool2d.stride[0] == 0) {
        for (int i = 0; i < 2; i++)
            layer->u.maxpool2d.stride[i] = layer->u.maxpool2d.kernel_size[i];
    }
}

const fedge_layer_ops fedge_layer_maxpool2d = {
    .arguments = ARGUMENTS,
    .infer = infer,
    .feature = feature,
    .complete = complete,
    .sizes = sizes,
    .forward = forward,
    .backward = backward,
};

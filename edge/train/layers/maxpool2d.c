/* MaxPool2d: (batch, c, h, w) → (batch, c, h', w'). */
#include "edge/train/layers/pooling.h"

static fedge_pooling describe(const fedge_layer_spec *layer, const fedge_shape *in)
{
    fedge_pooling pool = fedge_pooling_2d(layer->u.maxpool2d.kernel_size, layer->u.maxpool2d.stride,
                                          layer->u.maxpool2d.padding);
    pool.in[0] = in->dims[1];
    pool.in[1] = in->dims[2];
    return pool;
}

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    fedge_status status = fedge_shape_need(in, 3, "[channels, height, width]", err);
    if (status != FEDGE_OK) {
        return status;
    }
    fedge_pooling pool = describe(layer, in);
    status = fedge_pooling_infer(&pool, err);
    *out = (fedge_shape){3, {in->dims[0], pool.out[0], pool.out[1]}};
    return status;
}

static fedge_pooling describe_run(const fedge_layer_run *run)
{
    fedge_pooling pool = describe(run->spec, &run->in[0]);
    pool.out[0] = run->out.dims[1];
    pool.out[1] = run->out.dims[2];
    return pool;
}

static void forward(const fedge_layer_run *run)
{
    const fedge_pooling pool = describe_run(run);
    fedge_max_pooling_forward(run, &pool);
}

static void backward(const fedge_layer_run *run)
{
    const fedge_pooling pool = describe_run(run);
    fedge_max_pooling_backward(run, &pool);
}

#define AT(member) offsetof(fedge_layer_spec, u.maxpool2d.member)

static const fedge_argument ARGUMENTS[] = {
    FEDGE_PAIR_ARGUMENT("kernel_size", AT(kernel_size), true, 1, 0),
    FEDGE_PAIR_ARGUMENT("stride", AT(stride), false, 1, 0),
    FEDGE_PAIR_ARGUMENT("padding", AT(padding), false, 0, 0),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_maxpool2d = {
    .arguments = ARGUMENTS,
    .infer = infer,
    .sizes = fedge_max_pooling_sizes,
    .forward = forward,
    .backward = backward,
};

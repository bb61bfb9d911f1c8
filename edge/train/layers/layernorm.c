/* LayerNorm over the last dimensions of one example. x: (batch, …, normalized_shape…). */
#include "edge/train/layers/norm.h"

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    *out = *in;
    return fedge_norm_check_shape(layer->u.layernorm.rank, layer->u.layernorm.normalized_shape, in,
                                  err);
}

static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
{
    fedge_norm_tensors(layer->u.layernorm.rank, layer->u.layernorm.normalized_shape, list);
    return !layer->u.layernorm.elementwise_affine ? 0 : layer->u.layernorm.bias ? 2 : 1;
}

static fedge_norm describe(const fedge_layer_run *run)
{
    fedge_norm norm = {.groups = 1, .channels = 1, .spatial = 1, .eps = run->spec->u.layernorm.eps};
    for (uint32_t i = 0; i < run->spec->u.layernorm.rank; i++)
        norm.channels *= run->spec->u.layernorm.normalized_shape[i];
    norm.rows = fedge_shape_count(&run->in[0]) / norm.channels * run->batch;
    return norm;
}

static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    need->saved = (uint64_t)describe(run).rows * 2 * sizeof(float);
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

#define AT(member) offsetof(fedge_layer_spec, u.layernorm.member)

static const fedge_argument ARGUMENTS[] = {
    {.name = "normalized_shape",
     .kind = FEDGE_ARGUMENT_U32S,
     .required = true,
     .offset = AT(normalized_shape),
     .extra = AT(rank),
     .min = 1,
     .max = FEDGE_ARGUMENT_MAX_COUNT},
    FEDGE_EPS_ARGUMENT("eps", AT(eps)),
    FEDGE_BOOL_ARGUMENT("elementwise_affine", AT(elementwise_affine), 1),
    FEDGE_BOOL_ARGUMENT("bias", AT(bias), 1),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_layernorm = {.arguments = ARGUMENTS,
                                               .flags = FEDGE_USES_X | FEDGE_DX_ON_DY,
                                               .infer = infer,
                                               .tensors = tensors,
                                               .sizes = sizes,
                                               .forward = forward,
                                               .backward = backward};

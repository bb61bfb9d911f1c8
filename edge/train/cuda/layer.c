#include "edge/train/cuda/layer.h"

static const fedge_cohort_layer_ops *const TABLE[FEDGE_LAYER_COUNT] = {
    [FEDGE_LAYER_LINEAR] = &fedge_cohort_layer_linear,
    [FEDGE_LAYER_CONV2D] = &fedge_cohort_layer_conv2d,
    [FEDGE_LAYER_MAXPOOL2D] = &fedge_cohort_layer_maxpool2d,
    [FEDGE_LAYER_CONV1D] = &fedge_cohort_layer_conv2d,
    [FEDGE_LAYER_MAXPOOL1D] = &fedge_cohort_layer_maxpool2d,
    [FEDGE_LAYER_AVGPOOL1D] = &fedge_cohort_layer_avgpool2d,
    [FEDGE_LAYER_AVGPOOL2D] = &fedge_cohort_layer_avgpool2d,
    [FEDGE_LAYER_RELU] = &fedge_cohort_layer_relu,
    [FEDGE_LAYER_FLATTEN] = &fedge_cohort_layer_flatten,
    [FEDGE_LAYER_ADD] = &fedge_cohort_layer_add,
    [FEDGE_LAYER_RELU6] = &fedge_cohort_layer_activation,
    [FEDGE_LAYER_LEAKYRELU] = &fedge_cohort_layer_activation,
    [FEDGE_LAYER_GELU] = &fedge_cohort_layer_activation,
    [FEDGE_LAYER_SIGMOID] = &fedge_cohort_layer_activation,
    [FEDGE_LAYER_TANH] = &fedge_cohort_layer_activation,
    [FEDGE_LAYER_SILU] = &fedge_cohort_layer_activation,
    [FEDGE_LAYER_ADAPTIVEAVGPOOL2D] = &fedge_cohort_layer_adaptiveavgpool2d,
    [FEDGE_LAYER_GROUPNORM] = &fedge_cohort_layer_groupnorm,
    [FEDGE_LAYER_LAYERNORM] = &fedge_cohort_layer_layernorm,
    [FEDGE_LAYER_EMBEDDING] = &fedge_cohort_layer_embedding,
    [FEDGE_LAYER_POSITIONALEMBEDDING] = &fedge_cohort_layer_positionalembedding,
    [FEDGE_LAYER_LSTM] = &fedge_cohort_layer_recurrent,
    [FEDGE_LAYER_GRU] = &fedge_cohort_layer_recurrent,
    [FEDGE_LAYER_TRANSFORMERENCODERLAYER] = &fedge_cohort_layer_transformerencoderlayer,
    [FEDGE_LAYER_BATCHNORM2D] = &fedge_cohort_layer_batchnorm2d,
    [FEDGE_LAYER_DROPOUT] = &fedge_cohort_layer_dropout,
    [FEDGE_LAYER_MULTIHEADATTENTION] = &fedge_cohort_layer_multiheadattention,
    [FEDGE_LAYER_SELECT] = &fedge_cohort_layer_select,
    [FEDGE_LAYER_MEAN] = &fedge_cohort_layer_mean,
};

const fedge_cohort_layer_ops *fedge_cohort_layer_ops_of(fedge_layer_type type)
{
    return (unsigned)type < FEDGE_LAYER_COUNT ? TABLE[type] : NULL;
}

fedge_cohort_drop fedge_cohort_drop_of(const fedge_cohort_layer *layer,
                                       const fedge_cohort_pass *pass, float p)
{
    return (fedge_cohort_drop){.p = pass->training ? p : 0.0f,
                               .all = layer->drawn_all,
                               .before = layer->drawn_before,
                               .layer = layer->ops->draws(layer)};
}

uint64_t fedge_cohort_attention_words(uint64_t steps, uint64_t heads, bool causal)
{
    return heads * (causal ? steps * (steps + 1) / 2 : steps * steps);
}

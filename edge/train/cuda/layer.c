#include "edge/train/cuda/layer.h"

static const fedge_cohort_layer_ops *const TABLE[FEDGE_LAYER_COUNT] = {
    [FEDGE_LAYER_LINEAR] = &fedge_cohort_layer_linear,
    [FEDGE_LAYER_CONV2D] = &fedge_cohort_layer_conv2d,
    [FEDGE_LAYER_MAXPOOL2D] = &fedge_cohort_layer_maxpool2d,
    [FEDGE_LAYER_RELU] = &fedge_cohort_layer_relu,
    [FEDGE_LAYER_FLATTEN] = &fedge_cohort_layer_flatten,
};

const fedge_cohort_layer_ops *fedge_cohort_layer_ops_of(fedge_layer_type type)
{
    return (unsigned)type < FEDGE_LAYER_COUNT ? TABLE[type] : NULL;
}

/* BatchNorm2d of (batch, channels, height, width); see batchnorm.h. */
#include "edge/train/layers/batchnorm.h"

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    FEDGE_TRY(fedge_shape_need(in, 3, "[channels, height, width]", err));
    return fedge_batch_norm_infer(layer, in, out, err);
}

const fedge_layer_ops fedge_layer_batchnorm2d = {.arguments = fedge_batch_norm_arguments,
                                                 .flags = FEDGE_USES_X | FEDGE_DX_ON_DY |
                                                          FEDGE_BATCH_NORM,
                                                 .infer = infer,
                                                 .tensors = fedge_batch_norm_tensors,
                                                 .sizes = fedge_batch_norm_sizes,
                                                 .check = fedge_batch_norm_check,
                                                 .forward = fedge_batch_norm_forward,
                                                 .backward = fedge_batch_norm_backward};

#include "edge/train/layers/elementwise.h"

fedge_status fedge_elementwise_infer(const fedge_layer_spec *layer, const fedge_shape *in,
                                     uint32_t num_inputs, fedge_shape *out, fedge_error *err)
{
    (void)layer;
    (void)num_inputs;
    (void)err;
    *out = in[0];
    return FEDGE_OK;
}

size_t fedge_elementwise_count(const fedge_layer_run *run)
{
    return fedge_shape_count(&run->out) * run->batch;
}

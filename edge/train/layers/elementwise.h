/* What layers share that keep the shape; private to edge/train/layers. */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_ELEMENTWISE_H
#define FEDGE_EDGE_TRAIN_LAYERS_ELEMENTWISE_H

#include "edge/train/layer.h"

/* out = in[0]. */
FEDGE_MUST_USE fedge_status fedge_elementwise_infer(const fedge_layer_spec *layer,
                                                    const fedge_shape *in, uint32_t num_inputs,
                                                    fedge_shape *out, fedge_error *err);

/* Values in the batch. */
size_t fedge_elementwise_count(const fedge_layer_run *run);

#endif

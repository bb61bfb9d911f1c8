/* Shapes from layer to layer, with every limit checked; private to edge/train. */
#ifndef FEDGE_EDGE_TRAIN_SHAPE_H
#define FEDGE_EDGE_TRAIN_SHAPE_H

#include "edge/train/model.h"

/* One example's shape, without the batch. */
typedef struct fedge_shape {
    uint32_t rank;    /* 1 to 3 */
    uint32_t dims[3]; /* rank 3: channels, height, width */
} fedge_shape;

size_t fedge_shape_count(const fedge_shape *shape);

/* The model's input; checks rank, dimensions and the number of layers. */
FEDGE_MUST_USE fedge_status fedge_shape_input(const fedge_model_spec *spec, fedge_shape *shape,
                                              fedge_error *err);

/* What layer [index] makes of [shape], in place. Messages begin with the layer's place, type and
 * name: 'layer 2 (Linear "fc")'. */
FEDGE_MUST_USE fedge_status fedge_shape_advance(const fedge_model_spec *spec, uint32_t index,
                                                fedge_shape *shape, fedge_error *err);

/* The last layer's shape must be [classes], and there must be something to train. */
FEDGE_MUST_USE fedge_status fedge_shape_output(const fedge_shape *shape, size_t num_parameters,
                                               fedge_error *err);

/* The layer's name, or its position as text when it has none. */
const char *fedge_layer_label(const fedge_model_spec *spec, uint32_t index,
                              char label[FEDGE_MAX_LAYER_NAME]);

#endif

/* Shapes from layer to layer, with every limit checked; private to edge/train. */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_SHAPE_H
#define FEDGE_EDGE_TRAIN_LAYERS_SHAPE_H

#include "edge/train/model.h"

#define FEDGE_MAX_SHAPE_RANK 3

/* One example's shape, without the batch. */
typedef struct fedge_shape {
    uint32_t rank;                       /* 1 to 3 */
    uint32_t dims[FEDGE_MAX_SHAPE_RANK]; /* rank 3: channels, height, width */
} fedge_shape;

size_t fedge_shape_count(const fedge_shape *shape);

/* The model's input; checks rank, dimensions and the number of layers. */
FEDGE_MUST_USE fedge_status fedge_shape_input(const fedge_model_spec *spec, fedge_shape *shape,
                                              fedge_error *err);

/* Where layer [index] reads: its sources as positions of earlier layers or FEDGE_INPUT_MODEL.
 * *num_sources ≥ 1. Fails on a wrong number of them, and on a layer that is not earlier. */
FEDGE_MUST_USE fedge_status fedge_layer_sources(const fedge_model_spec *spec, uint32_t index,
                                                uint16_t sources[FEDGE_MAX_LAYER_INPUTS],
                                                uint32_t *num_sources, fedge_error *err);

/* Puts the layer's place, type and name before the message: 'layer 2 (Linear "fc"): …'. Returns
 * [status]. */
fedge_status fedge_layer_prefix(const fedge_layer_spec *layer, uint32_t index, fedge_status status,
                                fedge_error *err);
fedge_status fedge_layer_fail(const fedge_model_spec *spec, uint32_t index, fedge_status status,
                              fedge_error *err);

/* What layer [index] makes of the shapes [in] of its sources; checks its arguments. */
FEDGE_MUST_USE fedge_status fedge_shape_infer(const fedge_model_spec *spec, uint32_t index,
                                              const fedge_shape *in, uint32_t num_inputs,
                                              fedge_shape *out, fedge_error *err);

/* What the whole model makes of its input; checks every layer on the way. */
FEDGE_MUST_USE fedge_status fedge_shape_model(const fedge_model_spec *spec, fedge_shape *out,
                                              fedge_error *err);

/* What layer [index] of a plain list makes of [shape], in place. */
FEDGE_MUST_USE fedge_status fedge_shape_advance(const fedge_model_spec *spec, uint32_t index,
                                                fedge_shape *shape, fedge_error *err);

/* The last layer's shape must be [outputs], and there must be something to train. */
FEDGE_MUST_USE fedge_status fedge_shape_output(const fedge_shape *shape, size_t num_parameters,
                                               fedge_error *err);

/* For layers' infer: the input must have [rank] dimensions, called [layout] in the message. */
FEDGE_MUST_USE fedge_status fedge_shape_need(const fedge_shape *shape, uint32_t rank,
                                             const char *layout, fedge_error *err);

/* For windows of one or two dimensions: the height (1 in a rank of 2) and width behind the channels
 * of (channels, length) or (channels, height, width), and such a shape again. */
void fedge_shape_sides(const fedge_shape *shape, uint32_t sides[2]);
const char *fedge_shape_side_name(uint32_t rank, int side); /* "height", "width" or "length" */
fedge_shape fedge_shape_of_sides(uint32_t rank, uint32_t channels, const uint32_t sides[2]);

/* For their layers' infer: the input must have [rank] 2 or 3. */
FEDGE_MUST_USE fedge_status fedge_shape_need_sides(const fedge_shape *shape, uint32_t rank,
                                                   fedge_error *err);

/* One dimension of a row-major array, and what lies before and behind it. */
typedef struct fedge_axis {
    uint32_t at;   /* among the example's dimensions */
    size_t outer;  /* product of the dimensions before it; of one example */
    size_t length; /* the dimension */
    size_t inner;  /* product of those behind it: floats between its neighbours */
} fedge_axis;

/* For layers that take one dimension away: PyTorch's [dim], which counts the batch as 0 and from
 * the end when negative. Fails for the batch, for a dim that is not there, and for rank 1, which
 * would leave nothing. */
FEDGE_MUST_USE fedge_status fedge_shape_axis(const fedge_shape *shape, int32_t dim,
                                             fedge_axis *axis, fedge_error *err);

/* Takes dimension [at] away; rank ≥ 2. */
void fedge_shape_drop(fedge_shape *shape, uint32_t at);

/* One axis of a sliding window with dilation ≥ 1:
 * out = floor((size + 2 · padding − dilation · (kernel − 1) − 1) / stride) + 1.
 * [axis]: its name in messages, "height". */
FEDGE_MUST_USE fedge_status fedge_shape_slide(const char *axis, uint32_t kernel, uint32_t stride,
                                              uint32_t padding, uint32_t dilation, uint32_t size,
                                              uint32_t *out, fedge_error *err);

/* Dimensions ≥ 1 and a product that stays under the limit, without overflow. */
FEDGE_MUST_USE fedge_status fedge_shape_check(const fedge_shape *shape, fedge_error *err);

/* The layer's name, or its position as text when it has none. */
const char *fedge_layer_label(const fedge_layer_spec *layer, uint32_t index,
                              char label[FEDGE_MAX_LAYER_NAME]);

#endif

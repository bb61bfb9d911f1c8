/* Floating-point operations of training, layer by layer. */
#ifndef FEDGE_EDGE_TRAIN_FLOPS_H
#define FEDGE_EDGE_TRAIN_FLOPS_H

#include "edge/train/model.h"

/* Multiplications and additions of one example in matrix products and convolutions, as dense ones.
 * A product costs 2 · m · n · k forward, and as much for each of its two gradients that is made:
 * not that of the model's input, nor those before the first trained layer, nor those of frozen
 * weights. Attention counts the steps that a causal mask lets through. Elementwise work is not
 * counted. */
typedef struct fedge_layer_flops {
    double forward, backward;
} fedge_layer_flops;

/* Sets flops, (num_layers). Fails as fedge_model_size for a wrong [spec]. */
FEDGE_MUST_USE fedge_status fedge_model_flops(const fedge_model_spec *spec,
                                              fedge_layer_flops *flops, fedge_error *err);

#endif

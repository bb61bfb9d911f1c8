/* Parts of the reference network (reference.c) in files of their own. Arrays are in double
 * precision, (batch, steps, features); *values moves on behind the layer's parameters. */
#ifndef FEDGE_TESTS_EDGE_TRAIN_REFERENCE_H
#define FEDGE_TESTS_EDGE_TRAIN_REFERENCE_H

#include "edge/core/rng.h"
#include "edge/train/model.h"

/* MultiheadAttention, TransformerEncoderLayer or PositionalEmbedding. y: as x. Dropout draws from
 * [rng] in the order of edge/train/layers/attention.h. */
void reference_attention_layer(const fedge_layer_spec *layer, const double *x, size_t batch,
                               size_t steps, const double **values, fedge_rng *rng, double *y);

#endif

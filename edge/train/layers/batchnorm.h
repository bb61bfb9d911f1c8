/* Normalisation of each channel over the batch, for BatchNorm1d and BatchNorm2d, which describe
 * themselves by fedge_layer_spec.u.batchnorm2d; private to edge/train/layers.
 *
 * Each channel is normalised by its mean and variance over the batch and all its places, or in
 * evaluation and when frozen by the running statistics. running ← (1 − momentum) · running +
 * momentum · batch's, the variance times n / (n − 1). num_batches_tracked, which only a momentum of
 * None needs, is not stored.
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_BATCHNORM_H
#define FEDGE_EDGE_TRAIN_LAYERS_BATCHNORM_H

#include "edge/train/layers/norm.h"

extern const fedge_argument fedge_batch_norm_arguments[];

/* Checks the arguments against an input whose first dimension is the channels. */
FEDGE_MUST_USE fedge_status fedge_batch_norm_infer(const fedge_layer_spec *layer,
                                                   const fedge_shape *in, fedge_shape *out,
                                                   fedge_error *err);

uint32_t fedge_batch_norm_tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list);
void fedge_batch_norm_sizes(const fedge_layer_run *run, fedge_layer_sizes *need);

/* Refuses to train on one value for each channel, which has no variance. */
FEDGE_MUST_USE fedge_status fedge_batch_norm_check(const fedge_layer_run *run, fedge_error *err);

void fedge_batch_norm_forward(const fedge_layer_run *run);
void fedge_batch_norm_backward(const fedge_layer_run *run);

#endif

/* libfedge_train: training alone, for devices: no network, no files, no malloc.
 *
 *   static const fedge_model_spec spec = {.input_rank = 1, .input_shape = {2}, .num_layers = 1,
 *       .layers = {{.type = FEDGE_LAYER_LINEAR, .u.linear = {2, 2, .bias = true}}}};
 *   fedge_model_options options = {.max_batch = 4, .training = true};
 *   fedge_model_new(&model, &spec, &options, block, sizeof(block), &err);
 *   fedge_model_init_values(&spec, 1, fedge_model_values(model));
 *   fedge_model_step(model, x, labels, 4, &sgd, &loss, &correct, &err);
 *
 * examples/edge_only is a whole program. The epochs of a federated round are fedge_trainer_run.
 */
#ifndef FEDGE_EDGE_TRAIN_FEDGE_TRAIN_H
#define FEDGE_EDGE_TRAIN_FEDGE_TRAIN_H

#include "edge/core/version.h"
#include "edge/train/model.h"
#include "edge/train/trainer.h"

#endif

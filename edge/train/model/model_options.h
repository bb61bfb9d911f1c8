/* What a model's options ask for, before there is a model; private to edge/train. */
#ifndef FEDGE_EDGE_TRAIN_MODEL_MODEL_OPTIONS_H
#define FEDGE_EDGE_TRAIN_MODEL_MODEL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/train/kernels/kernels.h"
#include "edge/train/model.h"

/* Are the options and the model's loss known and possible? FEDGE_INVALID_ARGUMENT,
 * FEDGE_UNSUPPORTED. */
FEDGE_MUST_USE fedge_status fedge_model_check_options(const fedge_model_spec *spec,
                                                      const fedge_model_options *options,
                                                      fedge_error *err);

/* The CPU's features that may be used. */
unsigned fedge_model_features(const fedge_model_options *options);

/* The kernels that the options ask for. */
fedge_kernels fedge_kernels_for(const fedge_model_options *options);

/* Does the CPU multiply what it has, as it is? */
bool fedge_multiplies_fp32(const fedge_model_options *options);

/* Examples that pass through the layers at a time. */
uint32_t fedge_micro_batch(const fedge_model_options *options);

/* What is kept for each parameter besides its value: floats. */
uint32_t fedge_states_of_each(const fedge_model_options *options);

/* Is there a gradient for every parameter, until all have been made? */
bool fedge_keeps_gradients(const fedge_model_options *options);

#endif

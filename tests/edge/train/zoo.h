/* Jobs of examples/zoo with a start and batches that tests/golden/train/make_zoo.py can make alike,
 * by formulas in integers: the weights are too large for golden files. */
#ifndef FEDGE_TESTS_EDGE_TRAIN_ZOO_H
#define FEDGE_TESTS_EDGE_TRAIN_ZOO_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/tensor.h"
#include "edge/data/dataset.h"
#include "edge/plan/plan.h"
#include "edge/train/model.h"

#define ZOO_INPUTS 1000u /* streams: inputs, labels, order of examples; below: tensors */
#define ZOO_LABELS 1001u
#define ZOO_ORDER 1002u

uint32_t zoo_hash(uint32_t stream, size_t i);

/* u(stream, i), in [-1, 1). */
double zoo_number(uint32_t stream, size_t i);

/* The first values of tensor [stream] of a model: (tensor->count). */
void zoo_start(const fedge_tensor_spec *tensor, uint32_t stream, float *values);

/* Trains [model], made for [plan], for [steps] steps of [batch] examples of [dataset] as the job
 * says, from zoo_start with the weights of half of the places one rounding larger, drawn by
 * [nudge] (0: none); step s takes examples hash(ZOO_ORDER, s · batch + k) modulo their number.
 * losses: (steps), the batch's mean loss before each step. */
FEDGE_MUST_USE fedge_status zoo_train(fedge_model *model, const fedge_plan *plan,
                                      const fedge_dataset *dataset, uint32_t nudge, uint32_t steps,
                                      uint32_t batch, double *losses, fedge_error *err);

#endif

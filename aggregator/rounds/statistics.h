/* The statistics of BatchNorm after a round: the clients' weighted mean, and nothing else.
 *
 * They are no parameters: no strategy, server learning rate or clipping touches them. What travels
 * is how far each moved, so that x ← x + S / W · 2^−F is the mean of what the clients ended with.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STATISTICS_H
#define FEDGE_AGGREGATOR_ROUNDS_STATISTICS_H

#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"

/* Moves the statistics among [model] (plan->schema.num_elements); nothing without such a section.
 * [accumulator] (at least one update), [bounds_log2]: of all that is sent. Rounding leaves no
 * variance below 0. After a failure the values are undefined. */
FEDGE_MUST_USE fedge_status fedge_statistics_step(const fedge_plan *plan,
                                                  fedge_accumulator *accumulator,
                                                  const int8_t *bounds_log2, float *model,
                                                  fedge_error *err);

#endif

/* The statistics of BatchNorm after a round: the clients' weighted mean, and nothing else.
 *
 * They are no parameters: no strategy, server learning rate or clipping touches them. What travels
 * is how far each moved, so that x ← x + S / W · 2^−F is the mean of what the clients ended with.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STATISTICS_H
#define FEDGE_AGGREGATOR_ROUNDS_STATISTICS_H

#include <stdint.h>

#include "edge/io/plan.h"

/* Moves the statistics among [model] (plan->schema.num_elements); nothing without such a section.
 * [sum], [bounds_log2]: of all that is sent; total_weight ≥ 1. Rounding leaves no variance below 0.
 */
void fedge_statistics_step(const fedge_plan *plan, const int64_t *sum, const int8_t *bounds_log2,
                           uint64_t total_weight, float *model);

#endif

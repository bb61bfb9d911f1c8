/* Encoding and accumulating: what training made of a client's model is added to the sums of an
 * accumulator, piece by piece as it is encoded (edge/plan/update.h). Encoding an update, decoding
 * it and adding it gives the same sums, bit for bit, and the same size.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_ACCUMULATE_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_ACCUMULATE_H

#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "edge/core/status.h"
#include "edge/plan/update.h"

/* Adds to a lane of [accumulator]; [update] without its give. v: NULL, or the update in fixed point
 * is left here (plan->sent.schema.num_elements). Nothing is added when it fails with
 * FEDGE_NOT_FINITE, for a change that is no number, with its tensor, or as fedge_accumulator_begin
 * does. What is not given as changes is finite. Takes no memory. */
FEDGE_MUST_USE fedge_status fedge_accumulate_update(const fedge_update *update,
                                                    fedge_accumulator *accumulator, uint32_t lane,
                                                    uint32_t weight, int32_t *v,
                                                    fedge_update_made *made, fedge_error *err);

#endif

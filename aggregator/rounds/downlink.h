/* Compressed model deltas from the server to clients, for a job with "down" (edge/plan/update.h).
 *
 * It holds the deltas of the last few steps and the residual of what the codec dropped. Call _begin
 * before the strategy's step and _end after it. _end moves the model by what clients will decode.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_DOWNLINK_H
#define FEDGE_AGGREGATOR_ROUNDS_DOWNLINK_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/bytes.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/plan/update.h"

/* The most deltas stored; together they are smaller than a whole model. */
#define FEDGE_DOWNLINK_STEPS FEDGE_MODEL_DELTA_MAX_STEPS

/* All 0: of a plan without "down", where no function does anything and there are no deltas. */
typedef struct fedge_downlink {
    const fedge_plan *plan;
    float *before;   /* (plan->schema.num_elements): the model before the step */
    float *residual; /* part of the trained values' change that deltas have not sent yet */
    uint8_t *steps[FEDGE_DOWNLINK_STEPS]; /* newest first; NULL after the last */
    size_t sizes[FEDGE_DOWNLINK_STEPS];
} fedge_downlink;

FEDGE_MUST_USE fedge_status fedge_downlink_init(fedge_downlink *downlink, const fedge_plan *plan,
                                                fedge_error *err);
void fedge_downlink_fini(fedge_downlink *downlink);

/* Bytes of memory including deltas, and the bytes that a checkpoint stores. */
uint64_t fedge_downlink_memory(const fedge_plan *plan);
size_t fedge_downlink_state_size(const fedge_plan *plan);

/* values: (plan->schema.num_elements) of the model. */
void fedge_downlink_begin(fedge_downlink *downlink, const float *values);
FEDGE_MUST_USE fedge_status fedge_downlink_end(fedge_downlink *downlink, uint32_t round,
                                               float *values, fedge_error *err);

/* Bytes of the delta from the model of [age] rounds ago, age ≥ 1; 0: it is not stored. */
uint64_t fedge_downlink_size(const fedge_downlink *downlink, uint32_t age);
/* Returns a copy of that delta, which must be stored; *bytes is malloc'ed. */
FEDGE_MUST_USE fedge_status fedge_downlink_delta(const fedge_downlink *downlink, uint32_t age,
                                                 uint8_t **bytes, fedge_error *err);

/* Appends the residual, fedge_downlink_state_size bytes, to [state]. Loading it forgets the deltas.
 */
FEDGE_MUST_USE fedge_status fedge_downlink_save(const fedge_downlink *downlink, fedge_buffer *state,
                                                fedge_error *err);
void fedge_downlink_load(fedge_downlink *downlink, const uint8_t *state);

#endif

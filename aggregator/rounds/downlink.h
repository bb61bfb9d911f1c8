/* The way down of a job with "down": each step of the global model as the delta that clients get
 * (edge/plan/update.h), the last few of them, and the residual of what their codec dropped.
 *
 *     _begin before the strategy's step, _end after it, which moves the model by what clients will
 *     decode
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_DOWNLINK_H
#define FEDGE_AGGREGATOR_ROUNDS_DOWNLINK_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/bytes.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/plan/update.h"

/* That are kept, as long as they are together smaller than a whole model. */
#define FEDGE_DOWNLINK_STEPS FEDGE_MODEL_DELTA_MAX_STEPS

/* One that is all 0 is of a plan without "down": nothing is done, and there are no deltas. */
typedef struct fedge_downlink {
    const fedge_plan *plan;
    float *before;   /* (plan->schema.num_elements) the model, while a step is taken */
    float *residual; /* of the trained values */
    uint8_t *steps[FEDGE_DOWNLINK_STEPS]; /* the newest first; NULL: there are no more */
    size_t sizes[FEDGE_DOWNLINK_STEPS];
} fedge_downlink;

FEDGE_MUST_USE fedge_status fedge_downlink_init(fedge_downlink *downlink, const fedge_plan *plan,
                                                fedge_error *err);
void fedge_downlink_fini(fedge_downlink *downlink);

/* Bytes of memory that it takes, its deltas with it; the part of them that a checkpoint has. */
uint64_t fedge_downlink_memory(const fedge_plan *plan);
size_t fedge_downlink_state_size(const fedge_plan *plan);

/* values: of the model. */
void fedge_downlink_begin(fedge_downlink *downlink, const float *values);
FEDGE_MUST_USE fedge_status fedge_downlink_end(fedge_downlink *downlink, uint32_t round,
                                               float *values, fedge_error *err);

/* Bytes of the delta from the model that was [age] rounds ago, age ≥ 1; 0: there is none. */
uint64_t fedge_downlink_size(const fedge_downlink *downlink, uint32_t age);
/* That delta, one that is there; *bytes is malloc'ed. */
FEDGE_MUST_USE fedge_status fedge_downlink_delta(const fedge_downlink *downlink, uint32_t age,
                                                 uint8_t **bytes, fedge_error *err);

/* The residual, fedge_downlink_state_size bytes, at the end of [state]; and back: the deltas are
 * forgotten. */
FEDGE_MUST_USE fedge_status fedge_downlink_save(const fedge_downlink *downlink, fedge_buffer *state,
                                                fedge_error *err);
void fedge_downlink_load(fedge_downlink *downlink, const uint8_t *state);

#endif

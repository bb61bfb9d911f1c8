/* Model deltas: a new model for clients that have an older one, sent as the difference.
 *
 *     server   w = the model + its residual + the strategy's step;
 *              what the codec of "down" makes of w − model is the delta;
 *              the model moves by what clients will decode;
 *              the remainder of w is the next residual
 *     client   model += delta
 *
 * so both have the same bits, and nothing is lost of what the codec dropped, or cut at the plan's
 * bound: a larger change goes on in the next steps. A file is a chain of steps, 1 …
 * FEDGE_MODEL_DELTA_MAX_STEPS, each from one round's model to the next one's, little-endian:
 *
 *     u64 raw bytes of the section, u64 bytes that follow of it: fewer when they are deflated
 *     the section: the trained values' changes in the codec of "down", with the plan's bound
 *     f32 the new statistics, those that travel in updates
 */
#ifndef FEDGE_EDGE_PLAN_MODEL_DELTA_H
#define FEDGE_EDGE_PLAN_MODEL_DELTA_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/plan/plan.h"

#define FEDGE_MODEL_DELTA_MAX_STEPS 32 /* of a chain: each costs the work of a whole model */

/* The step of a round. before: the model that clients have; after: the one that they should have,
 * which becomes the one that they will have; each plan->schema.num_elements. residual: of the
 * trained values (plan->sent.sections[0]), which have been taken out of it. *bytes is malloc'ed, or
 * NULL on failure. FEDGE_NO_MEMORY; FEDGE_NOT_FINITE for a change that is infinite or no number. */
FEDGE_MUST_USE fedge_status fedge_model_delta_make(const fedge_plan *plan, uint32_t round,
                                                   const float *before, float *residual,
                                                   float *after, uint8_t **bytes, size_t *size,
                                                   fedge_error *err);

/* Takes [values], the model that the chain begins with, to the one that it ends with. Any bytes are
 * refused or change finite values into finite ones; after a failure the values are undefined.
 * FEDGE_TRUNCATED, FEDGE_TOO_BIG, FEDGE_CORRUPT, FEDGE_NO_MEMORY, and what decoding gives. */
FEDGE_MUST_USE fedge_status fedge_model_delta_apply(const fedge_plan *plan, const uint8_t *bytes,
                                                    size_t size, float *values, fedge_error *err);

#endif

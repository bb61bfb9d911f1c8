/* Folding: what training made of a client's model is added to the sums of an accumulator.
 *
 *     trained − start → codec and back → weight · v into the sums
 *
 * in one pass, piece by piece in the first-level cache: encoding an update (edge/io/update.h),
 * decoding it and adding it gives the same sums, bit for bit, and the same size.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_FOLD_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_FOLD_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "edge/core/status.h"
#include "edge/io/deflate.h"
#include "edge/io/plan.h"

/* A client's update. Plain data; points to what others own. */
typedef struct fedge_fold {
    const fedge_plan *plan;
    const int8_t *bounds_log2; /* of the tensors that travel */
    /* What travels: [changes] (plan->sent.schema.num_elements), or when that is NULL the difference
     * of a model's values (plan->schema.num_elements) from [start]. Then all of them are finite;
     * its parameters and its buffers may lie apart, and what travels of them is taken back to
     * [start], ready for the next client. */
    const float *changes;
    const float *start;
    float *parameters, *buffers;
    int32_t *v; /* NULL, or the update in fixed point is left here too, as the changes are */
    /* NULL when the plan does not deflate; else rooms of fedge_update_max_size each. */
    fedge_deflater *deflater;
    uint8_t *bytes, *packed;
} fedge_fold;

/* What came of it. */
typedef struct fedge_folded {
    uint64_t size;    /* of the upload's sections, as fedge_update_encode makes them */
    uint64_t clamped; /* values cut to their bound */
} fedge_folded;

/* Adds to a lane of [accumulator]. Nothing is added when it fails with FEDGE_NOT_FINITE, for a
 * change that is no number, with its tensor, or as fedge_accumulator_begin does. Takes no memory.
 */
FEDGE_MUST_USE fedge_status fedge_fold_update(const fedge_fold *update,
                                              fedge_accumulator *accumulator, uint32_t lane,
                                              uint32_t weight, fedge_folded *folded,
                                              fedge_error *err);

#endif

#include "aggregator/simulate/run/accumulate.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Differences of finite numbers are no NaN. */
static fedge_status check_changes(const fedge_update *update, fedge_error *err)
{
    const fedge_schema *schema = &update->plan->sent.schema;
    for (uint32_t t = 0; update->changes && t < schema->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &schema->tensors[t];
        for (size_t i = 0; i < tensor->count; i++) {
            if (isnan(update->changes[tensor->offset + i])) {
                return fedge_fail(err, FEDGE_NOT_FINITE,
                                  "value %zu of tensor \"%s\" is NaN; training has diverged", i,
                                  tensor->name);
            }
        }
    }
    return FEDGE_OK;
}

/* Where a folded update goes. */
typedef struct destination {
    fedge_accumulator *accumulator;
    uint32_t lane, weight;
    int32_t *v;
} destination;

static fedge_status add(void *user, size_t first, size_t n, const int32_t *v, fedge_error *err)
{
    const destination *to = user;
    if (to->v) {
        memcpy(to->v + first, v, n * sizeof(*v));
    }
    return fedge_accumulator_add_values(to->accumulator, to->lane, v, first, n, to->weight, err);
}

fedge_status fedge_accumulate_update(const fedge_update *update, fedge_accumulator *accumulator,
                                     uint32_t lane, uint32_t weight, int32_t *v,
                                     fedge_update_made *made, fedge_error *err)
{
    destination to = {.accumulator = accumulator, .lane = lane, .weight = weight, .v = v};
    fedge_update folded = *update;
    folded.give = add;
    folded.user = &to;
    fedge_status status = check_changes(update, err);
    if (status == FEDGE_OK) {
        status = fedge_accumulator_begin(accumulator, weight, err);
    }
    if (status == FEDGE_OK) {
        status = fedge_update_run(&folded, made, err);
        assert(status != FEDGE_NOT_FINITE); /* else there are sums that cannot be taken back */
    }
    return status;
}

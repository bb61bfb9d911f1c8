#include "aggregator/simulate/cohort/accumulate.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define WINDOW 1024u /* sums between chosen values that are added at a time */

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

/* Where the pieces of an update go. */
typedef struct destination {
    fedge_accumulator *accumulator;
    uint32_t lane, weight;
    int32_t *v;
} destination;

/* Chosen values, with zeros between them, window by window of those that have any. */
static fedge_status add_chosen(const destination *to, size_t first, const uint32_t *places,
                               size_t n, const int32_t *v, fedge_error *err)
{
    int32_t window[WINDOW];
    fedge_status status = FEDGE_OK;
    for (size_t i = 0; i < n && status == FEDGE_OK;) {
        const uint32_t begin = places[i];
        uint32_t end = begin;
        memset(window, 0, sizeof(window));
        for (; i < n && places[i] - begin < WINDOW; i++) {
            window[places[i] - begin] = v[i];
            end = places[i] + 1;
        }
        status = fedge_accumulator_add_values(to->accumulator, to->lane, window, first + begin,
                                              end - begin, to->weight, err);
    }
    return status;
}

static fedge_status add(void *user, size_t first, const uint32_t *places, size_t n,
                        const int32_t *v, fedge_error *err)
{
    const destination *to = user;
    if (places) {
        for (size_t i = 0; to->v && i < n; i++)
            to->v[first + places[i]] = v[i];
        return add_chosen(to, first, places, n, v, err);
    }
    if (to->v)
        memcpy(to->v + first, v, n * sizeof(*v));
    return fedge_accumulator_add_values(to->accumulator, to->lane, v, first, n, to->weight, err);
}

fedge_status fedge_accumulate_update(const fedge_update *update, fedge_accumulator *accumulator,
                                     uint32_t lane, uint32_t weight, int32_t *v,
                                     fedge_update_made *made, fedge_error *err)
{
    destination to = {.accumulator = accumulator, .lane = lane, .weight = weight, .v = v};
    fedge_update chunks = *update;
    chunks.give = add;
    chunks.user = &to;
    fedge_status status = check_changes(update, err);
    if (v) { /* what is not sent is 0 */
        memset(v, 0, update->plan->sent.schema.num_elements * sizeof(*v));
    }
    if (status == FEDGE_OK)
        status = fedge_accumulator_begin(accumulator, weight, err);
    if (status == FEDGE_OK) {
        status = fedge_update_run(&chunks, made, err);
        assert(status != FEDGE_NOT_FINITE); /* else there are sums that cannot be taken back */
    }
    return status;
}

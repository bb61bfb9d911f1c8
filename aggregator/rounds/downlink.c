#include "aggregator/rounds/downlink.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "edge/plan/update.h"

static size_t num_trained(const fedge_plan *plan)
{
    return plan->sent.sections[0].schema.num_elements;
}

fedge_status fedge_downlink_init(fedge_downlink *downlink, const fedge_plan *plan, fedge_error *err)
{
    *downlink = (fedge_downlink){0};
    if (!plan->update.down.values)
        return FEDGE_OK;
    downlink->plan = plan;
    downlink->before = malloc(plan->schema.num_elements * sizeof(*downlink->before));
    downlink->residual = calloc(num_trained(plan), sizeof(*downlink->residual));
    if (!downlink->before || !downlink->residual) {
        fedge_downlink_fini(downlink);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the deltas of %zu parameters",
                          plan->schema.num_elements);
    }
    return FEDGE_OK;
}

static void forget(fedge_downlink *downlink)
{
    for (uint32_t i = 0; i < FEDGE_DOWNLINK_STEPS; i++) {
        free(downlink->steps[i]);
        downlink->steps[i] = NULL;
        downlink->sizes[i] = 0;
    }
}

void fedge_downlink_fini(fedge_downlink *downlink)
{
    forget(downlink);
    free(downlink->before);
    free(downlink->residual);
    *downlink = (fedge_downlink){0};
}

uint64_t fedge_downlink_memory(const fedge_plan *plan)
{
    return plan->update.down.values
               ? (2 * (uint64_t)plan->schema.num_elements + 2 * num_trained(plan)) * sizeof(float)
               : 0;
}

size_t fedge_downlink_state_size(const fedge_plan *plan)
{
    return plan->update.down.values ? num_trained(plan) * sizeof(float) : 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

void fedge_downlink_begin(fedge_downlink *downlink, const float *values)
{
    if (downlink->plan)
        memcpy(downlink->before, values, downlink->plan->schema.num_elements * sizeof(*values));
}

/* Forgets the oldest steps once a chain would be as large as a whole model, which clients then
 * fetch instead.
 */
static void trim(fedge_downlink *downlink)
{
    const uint64_t most = (uint64_t)downlink->plan->schema.num_elements * sizeof(float);
    uint64_t size = 0;
    for (uint32_t i = 0; i < FEDGE_DOWNLINK_STEPS; i++) {
        size += downlink->sizes[i];
        if (size < most)
            continue;
        free(downlink->steps[i]);
        downlink->steps[i] = NULL;
        downlink->sizes[i] = 0;
        /* A chain needs all younger steps, so steps older than a missing one are useless. */
        size = most;
    }
}

fedge_status fedge_downlink_end(fedge_downlink *downlink, uint32_t round, float *values,
                                fedge_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (!downlink->plan)
        return FEDGE_OK;
    FEDGE_TRY(fedge_model_delta_make(downlink->plan, round, downlink->before, downlink->residual,
                                     values, &bytes, &size, err));
    free(downlink->steps[FEDGE_DOWNLINK_STEPS - 1]);
    memmove(downlink->steps + 1, downlink->steps, (FEDGE_DOWNLINK_STEPS - 1) * sizeof(uint8_t *));
    memmove(downlink->sizes + 1, downlink->sizes, (FEDGE_DOWNLINK_STEPS - 1) * sizeof(size_t));
    downlink->steps[0] = bytes;
    downlink->sizes[0] = size;
    trim(downlink);
    return FEDGE_OK;
}

uint64_t fedge_downlink_size(const fedge_downlink *downlink, uint32_t age)
{
    uint64_t size = 0;
    if (age == 0 || age > FEDGE_DOWNLINK_STEPS || !downlink->steps[age - 1])
        return 0;
    for (uint32_t i = 0; i < age; i++)
        size += downlink->sizes[i];
    return size;
}

fedge_status fedge_downlink_delta(const fedge_downlink *downlink, uint32_t age, uint8_t **bytes,
                                  fedge_error *err)
{
    const size_t size = (size_t)fedge_downlink_size(downlink, age);
    assert(size > 0);
    uint8_t *to = *bytes = malloc(size);
    if (!to)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a delta of %zu bytes", size);
    /* The oldest first: a chain starts at its base. */
    for (uint32_t i = age; i > 0; i--) {
        memcpy(to, downlink->steps[i - 1], downlink->sizes[i - 1]);
        to += downlink->sizes[i - 1];
    }
    return FEDGE_OK;
}

/* ---- state ----------------------------------------------------------------------------------- */

fedge_status fedge_downlink_save(const fedge_downlink *downlink, fedge_buffer *state,
                                 fedge_error *err)
{
    if (!downlink->plan)
        return FEDGE_OK;
    const size_t size = fedge_downlink_state_size(downlink->plan);
    assert(size > 0);
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a residual of %zu bytes", size);
    fedge_put_f32s(bytes, downlink->residual, num_trained(downlink->plan));
    const fedge_status status = fedge_buffer_append(state, bytes, size, err);
    free(bytes);
    return status;
}

void fedge_downlink_load(fedge_downlink *downlink, const uint8_t *state)
{
    if (downlink->plan) {
        fedge_get_f32s(state, downlink->residual, num_trained(downlink->plan));
        /* Checkpoints have no steps: after a restart clients fetch one whole model. */
        forget(downlink);
    }
}

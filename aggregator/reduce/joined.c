#include "aggregator/reduce/joined.h"

#include <stdlib.h>
#include <string.h>

#include "edge/core/fixed.h"

typedef struct joined {
    fedge_accumulator own;
    const fedge_collective *collective;
    size_t num_elements;
    int64_t *sums; /* (num_elements): of all ranks, while they are joined */
    fedge_accumulator_totals totals;
    bool is_joined;
} joined;

/* ---- what the rank's own does ---------------------------------------------------------------- */

static void close_joined(void *state)
{
    joined *self = state;
    if (self) {
        fedge_accumulator_close(&self->own);
        free(self->sums);
        free(self);
    }
}

static fedge_status validate(void *state, fedge_encoded *update, fedge_error *err)
{
    joined *self = state;
    return fedge_accumulator_validate(&self->own, update, err);
}

static fedge_status add(void *state, fedge_encoded *const *updates, uint32_t count,
                        uint64_t *ticket, fedge_error *err)
{
    joined *self = state;
    return fedge_accumulator_add(&self->own, updates, count, ticket, err);
}

static fedge_status wait_for(void *state, uint64_t ticket, fedge_error *err)
{
    joined *self = state;
    return fedge_accumulator_wait(&self->own, ticket, err);
}

static void drop(void *state, fedge_encoded *update)
{
    joined *self = state;
    fedge_accumulator_drop(&self->own, update);
}

static fedge_status begin(void *state, uint32_t weight, fedge_error *err)
{
    joined *self = state;
    return fedge_accumulator_begin(&self->own, weight, err);
}

static fedge_status add_values(void *state, uint32_t lane, const int32_t *v, size_t first,
                               size_t count, uint32_t weight, fedge_error *err)
{
    joined *self = state;
    return fedge_accumulator_add_values(&self->own, lane, v, first, count, weight, err);
}

static fedge_status lend(void *state, uint32_t gpu, size_t first, int64_t **sums, fedge_error *err)
{
    joined *self = state;
    return fedge_accumulator_lend(&self->own, gpu, first, sums, err);
}

static void describe(const void *state, char *text, size_t size)
{
    const joined *self = state;
    fedge_accumulator_describe(&self->own, text, size);
}

static uint32_t stats(const void *state, fedge_gpu_stats *of, uint32_t room)
{
    const joined *self = state;
    return fedge_accumulator_stats(&self->own, of, room);
}

/* ---- of all ranks ---------------------------------------------------------------------------- */

static void totals(const void *state, fedge_accumulator_totals *to)
{
    const joined *self = state;
    *to = self->is_joined ? self->totals : fedge_accumulator_get_totals(&self->own);
}

static fedge_status read_sums(void *state, size_t first, size_t count, int64_t *sums,
                              fedge_error *err)
{
    joined *self = state;
    if (!self->is_joined)
        return fedge_accumulator_read(&self->own, first, count, sums, err);
    memcpy(sums, self->sums + first, count * sizeof(*sums));
    return FEDGE_OK;
}

static fedge_status step(void *state, const fedge_step_part *parts, uint32_t num_parts,
                         fedge_error *err)
{
    joined *self = state;
    if (!self->is_joined)
        return fedge_accumulator_step(&self->own, parts, num_parts, err);
    for (uint32_t i = 0; i < num_parts; i++) {
        fedge_fixed_step(parts[i].values, self->sums + parts[i].first, parts[i].count,
                         self->totals.total_weight, parts[i].bound_log2, parts[i].rate);
    }
    return FEDGE_OK;
}

static fedge_status reset(void *state, fedge_error *err)
{
    joined *self = state;
    self->is_joined = false;
    return fedge_accumulator_reset(&self->own, err);
}

static const fedge_accumulator_ops JOINED = {
    .name = "joined",
    .close = close_joined,
    .validate = validate,
    .add = add,
    .wait = wait_for,
    .drop = drop,
    .begin = begin,
    .add_values = add_values,
    .lend = lend,
    .totals = totals,
    .read = read_sums,
    .step = step,
    .reset = reset,
    .describe = describe,
    .stats = stats,
};

fedge_status fedge_joined_wrap(fedge_accumulator *accumulator, const fedge_collective *collective,
                               size_t num_elements, fedge_error *err)
{
    joined *fresh = calloc(1, sizeof(*fresh));
    int64_t *sums = malloc(num_elements * sizeof(*sums));
    if (!fresh || !sums) {
        free(fresh);
        free(sums);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %zu sums of all ranks",
                          num_elements);
    }
    *fresh = (joined){
        .own = *accumulator, .collective = collective, .num_elements = num_elements, .sums = sums};
    *accumulator = (fedge_accumulator){.ops = &JOINED, .state = fresh};
    return FEDGE_OK;
}

fedge_status fedge_joined_join(fedge_accumulator *accumulator, fedge_status status,
                               fedge_error *err)
{
    joined *self = accumulator->state;
    if (status == FEDGE_OK)
        status = fedge_accumulator_read(&self->own, 0, self->num_elements, self->sums, err);
    status = fedge_collective_agree(self->collective, status, NULL, 0, err);
    if (status != FEDGE_OK)
        return status;
    const fedge_accumulator_totals own = fedge_accumulator_get_totals(&self->own);
    int64_t both[2] = {(int64_t)own.total_weight, own.num_updates};
    fedge_collective_sum(self->collective, both, 2);
    fedge_collective_sum(self->collective, self->sums, self->num_elements);
    self->totals = (fedge_accumulator_totals){.total_weight = (uint64_t)both[0],
                                              .num_updates = (uint32_t)both[1]};
    self->is_joined = true;
    return self->totals.total_weight <= FEDGE_FIXED_MAX_TOTAL_WEIGHT
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_OUT_OF_RANGE,
                            "the ranks' updates weigh %llu in all, over 2^32: lower max-weight",
                            (unsigned long long)self->totals.total_weight);
}

const char *fedge_joined_kind(const fedge_accumulator *accumulator)
{
    const joined *self = accumulator->state;
    return accumulator->ops == &JOINED ? self->own.ops->name : accumulator->ops->name;
}

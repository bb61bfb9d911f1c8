#include <stdlib.h>
#include <string.h>

#include "edge/data/partitions/scheme.h"

/* Marks [count] random examples of [order]. */
static void set_apart(uint32_t *order, uint32_t num, uint32_t count, uint64_t seed, uint32_t *owner)
{
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_PARTITION, 0, 0, FEDGE_DRAW_VALIDATION);
    fedge_rng_shuffle(&rng, order, num);
    for (uint32_t i = 0; i < count; i++)
        owner[order[i]] = FEDGE_PARTITION_VALIDATION;
}

/* Examples have parts already; validation examples leave theirs. */
static fedge_status assign_then_take(const fedge_partition_spec *spec,
                                     const fedge_partition_data *data, double fraction,
                                     uint32_t num_parts, uint32_t *owner, uint32_t *order,
                                     fedge_error *err)
{
    FEDGE_TRY(fedge_partition_assign(spec, data, num_parts, owner, err));
    uint32_t num = 0, part = 0;
    for (uint32_t i = 0; i < data->num_examples; i++) {
        if (owner[i] == FEDGE_PARTITION_VALIDATION) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "%.200s has examples for validation (client -1) already: set no "
                              "other share of them apart",
                              spec->source);
        }
        if (owner[i] < num_parts)
            order[num++] = i;
    }
    set_apart(order, num, (uint32_t)(fraction * num), spec->seed, owner);
    FEDGE_TRY(fedge_partition_find_empty(data->num_examples, num_parts, owner, &part, err));
    if (part < num_parts) {
        char text[FEDGE_PARTITION_MAX_TEXT];
        fedge_partition_text(spec, text);
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "partition %.200s: with %g of the examples set apart for validation "
                          "client %" PRIu32 " of %" PRIu32
                          " has none left to train with; set less apart, or give it more",
                          text, fraction, part, num_parts);
    }
    return FEDGE_OK;
}

/* Buffers of (num_examples) each. */
typedef struct buffers {
    uint32_t *order; /* the other examples, in the order of the division */
    uint32_t *part;  /* parts and labels of these */
    int32_t *labels;
} buffers;

/* Selects [held] validation examples and divides the others. */
static fedge_status take_then_assign(const fedge_partition_spec *spec,
                                     const fedge_partition_data *data, uint32_t held,
                                     uint32_t num_parts, uint32_t *owner, const buffers *at,
                                     fedge_error *err)
{
    uint32_t *order = at->order;
    memset(owner, 0, data->num_examples * sizeof(*owner));
    for (uint32_t i = 0; i < data->num_examples; i++)
        order[i] = i;
    set_apart(order, data->num_examples, held, spec->seed, owner);
    fedge_partition_data training = *data;
    training.num_examples = 0;
    training.labels = data->labels ? at->labels : NULL;
    for (uint32_t i = 0; i < data->num_examples; i++) {
        if (owner[i] == FEDGE_PARTITION_VALIDATION)
            continue;
        if (data->labels)
            at->labels[training.num_examples] = data->labels[i];
        order[training.num_examples++] = i;
    }
    const fedge_status status = fedge_partition_assign(spec, &training, num_parts, at->part, err);
    if (status != FEDGE_OK) {
        return fedge_error_prefix(
            err, status, "with %" PRIu32 " of %" PRIu32 " examples set apart for validation", held,
            data->num_examples);
    }
    for (uint32_t i = 0; i < training.num_examples; i++)
        owner[order[i]] = at->part[i];
    return FEDGE_OK;
}

fedge_status fedge_partition_assign_with_validation(const fedge_partition_spec *spec,
                                                    const fedge_partition_data *data,
                                                    double fraction, uint32_t num_parts,
                                                    uint32_t *owner, fedge_error *err)
{
    const uint32_t count = data->num_examples;
    if (fraction == 0)
        return fedge_partition_assign(spec, data, num_parts, owner, err);
    if (!(fraction > 0 && fraction < 1)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "validation split %g; it must be at least 0 and below 1", fraction);
    }
    const uint32_t held = (uint32_t)(fraction * count);
    if (held == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "validation split %g of %" PRIu32
                          " examples is less than one: raise it to %g or more",
                          fraction, count, count > 0 ? 1.0 / count : 1.0);
    }
    const buffers at = {malloc(count * sizeof(*at.order)), malloc(count * sizeof(*at.part)),
                        malloc(count * sizeof(*at.labels))};
    fedge_status status;
    if (!at.order || !at.part || !at.labels)
        status = fedge_partition_no_memory(count, num_parts, err);
    else if (spec->scheme == FEDGE_PARTITION_NATURAL || spec->scheme == FEDGE_PARTITION_FILE ||
             spec->scheme == FEDGE_PARTITION_PER_FILE)
        status = assign_then_take(spec, data, fraction, num_parts, owner, at.order, err);
    else
        status = take_then_assign(spec, data, held, num_parts, owner, &at, err);
    free(at.order);
    free(at.part);
    free(at.labels);
    return status;
}

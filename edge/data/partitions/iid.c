#include <stdlib.h>

#include "edge/data/partitions/scheme.h"

uint32_t *fedge_partition_shuffled(uint32_t num_examples, fedge_rng rng)
{
    uint32_t *order = malloc(num_examples * sizeof(*order));
    if (!order)
        return NULL;
    for (uint32_t i = 0; i < num_examples; i++)
        order[i] = i;
    fedge_rng_shuffle(&rng, order, num_examples);
    return order;
}

static fedge_status assign(const fedge_partition_spec *spec, const fedge_partition_data *data,
                           uint32_t num_parts, uint32_t *owner, fedge_error *err)
{
    const uint32_t n = data->num_examples;
    uint32_t *order = fedge_partition_shuffled(
        n, fedge_rng_stream(spec->seed, FEDGE_PURPOSE_PARTITION, 0, 0, FEDGE_DRAW_IID));
    if (!order)
        return fedge_partition_no_memory(n, num_parts, err);
    for (uint32_t i = 0; i < n; i++)
        owner[order[i]] = (uint32_t)((uint64_t)i * num_parts / n);
    free(order);
    return FEDGE_OK;
}

const fedge_partition_ops fedge_partition_iid = {
    .name = "iid", .usage = "iid", .min_examples = 1, .assign = assign};

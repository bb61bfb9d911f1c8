#include <stdlib.h>

#include "edge/data/partitions/scheme.h"

static fedge_status assign(const fedge_partition_spec *spec, const fedge_partition_data *data,
                           uint32_t num_parts, uint32_t *owner, fedge_error *err)
{
    const uint32_t per_part = spec->count;
    const uint32_t num_shards = num_parts * per_part; /* ≤ num_examples: checked by the caller */
    fedge_classes sorted;
    FEDGE_TRY(fedge_classes_init(&sorted, data, err));
    uint32_t *order = fedge_partition_shuffled(
        num_shards, fedge_rng_stream(spec->seed, FEDGE_PURPOSE_PARTITION, 0, 0, FEDGE_DRAW_SHARDS));
    if (!order) {
        fedge_classes_fini(&sorted);
        return fedge_partition_no_memory(data->num_examples, num_parts, err);
    }
    const uint64_t n = data->num_examples;
    for (uint32_t i = 0; i < num_shards; i++) {
        for (uint64_t e = order[i] * n / num_shards; e < (order[i] + 1) * n / num_shards; e++)
            owner[sorted.members[e]] = i / per_part;
    }
    free(order);
    fedge_classes_fini(&sorted);
    return FEDGE_OK;
}

const fedge_partition_ops fedge_partition_shards = {.name = "shards",
                                                    .usage = "shards:K",
                                                    .argument = FEDGE_PARTITION_K,
                                                    .needs_labels = true,
                                                    .assign = assign};

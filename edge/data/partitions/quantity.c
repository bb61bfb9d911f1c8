#include <stdlib.h>

#include "edge/data/partitions/scheme.h"

/* cuts[j] is the end of part j; returns the smallest size. */
static uint32_t draw_cuts(const fedge_partition_spec *spec, uint32_t attempt, uint32_t num_examples,
                          uint32_t num_parts, double *weights, uint32_t *cuts)
{
    fedge_rng rng =
        fedge_rng_stream(spec->seed, FEDGE_PURPOSE_PARTITION, 0, attempt, FEDGE_DRAW_SIZES);
    double sum = 0;
    for (uint32_t j = 0; j < num_parts; j++) {
        weights[j] = fedge_rng_gamma(&rng, spec->alpha);
        sum += weights[j];
    }
    if (!(sum > 0))
        return 0;
    fedge_partition_cut(weights, sum, num_parts, num_examples, cuts);
    uint32_t smallest = cuts[0];
    for (uint32_t j = 1; j < num_parts; j++)
        smallest = cuts[j] - cuts[j - 1] < smallest ? cuts[j] - cuts[j - 1] : smallest;
    return smallest;
}

static fedge_status hand_out(const fedge_partition_spec *spec, uint32_t num_examples,
                             uint32_t num_parts, const uint32_t *cuts, uint32_t *owner,
                             fedge_error *err)
{
    uint32_t *order =
        fedge_partition_shuffled(num_examples, fedge_rng_stream(spec->seed, FEDGE_PURPOSE_PARTITION,
                                                                0, 0, FEDGE_DRAW_SIZES_ORDER));
    if (!order)
        return fedge_partition_no_memory(num_examples, num_parts, err);
    fedge_partition_deal(order, num_examples, cuts, owner);
    free(order);
    return FEDGE_OK;
}

static fedge_status assign(const fedge_partition_spec *spec, const fedge_partition_data *data,
                           uint32_t num_parts, uint32_t *owner, fedge_error *err)
{
    const uint32_t n = data->num_examples;
    double *weights = malloc(num_parts * sizeof(*weights));
    uint32_t *cuts = malloc(num_parts * sizeof(*cuts));
    if (!weights || !cuts) {
        free(weights);
        free(cuts);
        return fedge_partition_no_memory(n, num_parts, err);
    }
    uint32_t attempts = 0, best = 0;
    do {
        const uint32_t smallest = draw_cuts(spec, attempts++, n, num_parts, weights, cuts);
        best = smallest > best ? smallest : best;
    } while (best < FEDGE_PARTITION_MIN_EXAMPLES && attempts < FEDGE_PARTITION_MAX_ATTEMPTS &&
             (attempts + (uint64_t)1) * num_parts <= FEDGE_PARTITION_MAX_DRAWS);
    fedge_status status = FEDGE_OK;
    if (best >= FEDGE_PARTITION_MIN_EXAMPLES) {
        status = hand_out(spec, n, num_parts, cuts, owner, err);
    } else {
        status =
            fedge_partition_none_found("quantity", spec->alpha, attempts, n, num_parts, best, err);
    }
    free(weights);
    free(cuts);
    return status;
}

const fedge_partition_ops fedge_partition_quantity = {.name = "quantity",
                                                      .usage = "quantity:ALPHA",
                                                      .argument = FEDGE_PARTITION_ALPHA,
                                                      .min_examples = FEDGE_PARTITION_MIN_EXAMPLES,
                                                      .assign = assign};

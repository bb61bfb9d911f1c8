#include "edge/data/partitions/scheme.h"

void fedge_partition_cut(const double *shares, double sum, uint32_t num_parts, uint32_t count,
                         uint32_t *cuts)
{
    double cumulative = 0;
    for (uint32_t j = 0; j < num_parts; j++) {
        cumulative += shares[j] / sum;
        const double cut = cumulative * count;
        cuts[j] = j + 1 == num_parts || cut >= count ? count : (uint32_t)cut;
    }
}

void fedge_partition_deal(const uint32_t *examples, uint32_t count, const uint32_t *cuts,
                          uint32_t *owner)
{
    uint32_t part = 0;
    for (uint32_t i = 0; i < count; i++) {
        while (i >= cuts[part])
            part++;
        owner[examples[i]] = part;
    }
}

fedge_status fedge_partition_check_draws(uint32_t num_labels, uint32_t num_parts, fedge_error *err)
{
    if ((uint64_t)num_labels * num_parts <= FEDGE_PARTITION_MAX_DRAWS)
        return FEDGE_OK;
    return fedge_fail(err, FEDGE_TOO_BIG,
                      "%" PRIu32 " labels times %" PRIu32 " clients are over the limit of %" PRIu64
                      "; use fewer clients",
                      num_labels, num_parts, FEDGE_PARTITION_MAX_DRAWS);
}

fedge_status fedge_partition_none_found(const char *scheme, double alpha, uint32_t attempts,
                                        uint32_t num_examples, uint32_t num_parts, uint32_t best,
                                        fedge_error *err)
{
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                      "partition %s:%g: in %" PRIu32 " attempts no division of %" PRIu32
                      " examples among %" PRIu32 " clients gave each at least %d (best: %" PRIu32
                      "); use a larger alpha, fewer clients or more examples",
                      scheme, alpha, attempts, num_examples, num_parts,
                      FEDGE_PARTITION_MIN_EXAMPLES, best);
}

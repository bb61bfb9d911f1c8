#include "tests/edge/data/partitions/partitions.h"

#include "tests/edge/core/cmocka_all.h"

fedge_partition_spec parsed_partition(const char *text, uint64_t seed)
{
    fedge_partition_spec spec = {.seed = seed};
    fedge_error err = {.status = FEDGE_OK};
    if (fedge_partition_parse(text, &spec, &err))
        fail_msg("%s", err.message);
    assert_true(spec.seed == seed);
    return spec;
}

uint64_t hash_of_owners(const uint32_t *owner, uint32_t num_examples)
{
    uint64_t hash = 14695981039346656037u;
    for (uint32_t i = 0; i < num_examples; i++) {
        for (int shift = 0; shift < 32; shift += 8)
            hash = (hash ^ ((owner[i] >> shift) & 0xFF)) * 1099511628211u;
    }
    return hash;
}

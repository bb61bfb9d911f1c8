/* Divisions of data for tests. */
#ifndef FEDGE_TESTS_EDGE_DATA_PARTITIONS_PARTITIONS_H
#define FEDGE_TESTS_EDGE_DATA_PARTITIONS_PARTITIONS_H

#include <stdint.h>

#include "edge/data/partitions/partition.h"

/* "shards:2" and the like, which must be readable. */
fedge_partition_spec parsed_partition(const char *text, uint64_t seed);

/* FNV-1a of the owners as little-endian u32. */
uint64_t hash_of_owners(const uint32_t *owner, uint32_t num_examples);

#endif

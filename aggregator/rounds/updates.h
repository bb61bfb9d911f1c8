/* The updates of a round, one by one: for strategies that need more than their sum
 * (aggregator/rounds/robust). Where they lie is the caller's business: in the journal of a server
 * (aggregator/run/ingest/accepted_updates.h), in memory or a file
 * (aggregator/rounds/kept_updates.h).
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_UPDATES_H
#define FEDGE_AGGREGATOR_ROUNDS_UPDATES_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/codec/codec.h"
#include "edge/core/status.h"

/* Values that are read at a time: of one tensor, from a multiple of it on. */
#define FEDGE_UPDATES_PIECE (16 * FEDGE_CODEC_BLOCK)

typedef struct fedge_updates {
    uint32_t num; /* in the order of the cohort's slots */
    /* v (count): the values [at, at + count) of a tensor of the delta in update [index], as they
     * were decoded, in units of 2^−F; at is a multiple of FEDGE_CODEC_BLOCK, count at most
     * FEDGE_UPDATES_PIECE. Any number of threads at once. */
    fedge_status (*read)(void *user, uint32_t index, uint32_t tensor, size_t at, size_t count,
                         int32_t *v, fedge_error *err);
    void *user;
} fedge_updates;

#endif

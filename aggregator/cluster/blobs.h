/* The blobs that all ranks have: the plan and models. Rank 0 broadcasts each of them once.
 *
 * A reply names a blob by its hash. From the broadcast to the withdrawal each rank serves it from
 * its own memory. Used by the one thread that makes the calls of the collective.
 */
#ifndef FEDGE_AGGREGATOR_CLUSTER_BLOBS_H
#define FEDGE_AGGREGATOR_CLUSTER_BLOBS_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/cluster/protocol/rank_message.h"
#include "aggregator/exchange/blob.h"
#include "aggregator/reduce/collective.h"
#include "aggregator/rounds/downlink.h"
#include "edge/core/log.h"
#include "edge/core/status.h"

#define FEDGE_RANKS_BLOBS (2 * FEDGE_DOWNLINK_STEPS + 6) /* most blobs at a time */
#define FEDGE_RANKS_CHUNK_BYTES ((size_t)1 << 20)        /* bytes of one broadcast call */

typedef struct fedge_rank_blobs {
    const fedge_collective *collective;
    const fedge_log *log;
    fedge_blob *blobs[FEDGE_RANKS_BLOBS]; /* NULL: free */
    uint8_t *chunk;                       /* (FEDGE_RANKS_CHUNK_BYTES) */
} fedge_rank_blobs;

/* FEDGE_NO_MEMORY. _fini may be called after a failure, and on one that is all 0. */
FEDGE_MUST_USE fedge_status fedge_rank_blobs_init(fedge_rank_blobs *self,
                                                  const fedge_collective *collective,
                                                  const fedge_log *log, fedge_error *err);
void fedge_rank_blobs_fini(fedge_rank_blobs *self);

/* Borrowed; NULL: the ranks do not have it. */
fedge_blob *fedge_rank_blobs_find(const fedge_rank_blobs *self, const char *hash);
void fedge_rank_blobs_drop(fedge_rank_blobs *self, const char *hash);

/* Rank 0 broadcasts the bytes while all others are in _receive, with [announced] from a
 * FEDGE_RANK_MESSAGE_BLOB. Errors end all ranks: FEDGE_IO, FEDGE_NO_MEMORY, and FEDGE_CORRUPT for
 * bytes that changed on the way. */
FEDGE_MUST_USE fedge_status fedge_rank_blobs_broadcast(fedge_rank_blobs *self, fedge_blob *blob,
                                                       fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_rank_blobs_receive(fedge_rank_blobs *self,
                                                     const fedge_rank_message_blob *announced,
                                                     fedge_error *err);

#endif

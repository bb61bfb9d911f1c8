/* The blobs that all ranks have: the plan and models, each of which rank 0 has broadcast once.
 *
 * A reply names one by its hash; from the broadcast to its withdrawal each rank serves it from its
 * own memory. One thread's, which makes the calls of the collective.
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

#define FEDGE_RANKS_BLOBS (2 * FEDGE_DOWNLINK_STEPS + 6) /* that the ranks have at a time */
#define FEDGE_RANKS_PIECE_BYTES ((size_t)1 << 20)        /* of a broadcast */

typedef struct fedge_rank_blobs {
    const fedge_collective *collective;
    const fedge_log *log;
    fedge_blob *blobs[FEDGE_RANKS_BLOBS]; /* NULL: free */
    uint8_t *piece;                       /* (FEDGE_RANKS_PIECE_BYTES) */
} fedge_rank_blobs;

/* FEDGE_NO_MEMORY. _fini also after that, and of one that is all 0. */
FEDGE_MUST_USE fedge_status fedge_rank_blobs_init(fedge_rank_blobs *self,
                                                  const fedge_collective *collective,
                                                  const fedge_log *log, fedge_error *err);
void fedge_rank_blobs_fini(fedge_rank_blobs *self);

/* NULL: the ranks do not have it. It stays theirs. */
fedge_blob *fedge_rank_blobs_find(const fedge_rank_blobs *self, const char *hash);
void fedge_rank_blobs_drop(fedge_rank_blobs *self, const char *hash);

/* Rank 0: all ranks get its bytes now, at the same time in _receive, which takes what a
 * FEDGE_RANK_MESSAGE_BLOB says. Errors end all ranks: those of a file, no memory, and FEDGE_CORRUPT
 * for bytes that have changed on their way. */
FEDGE_MUST_USE fedge_status fedge_rank_blobs_broadcast(fedge_rank_blobs *self, fedge_blob *blob,
                                                       fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_rank_blobs_receive(fedge_rank_blobs *self,
                                                     const fedge_rank_message_blob *said,
                                                     fedge_error *err);

#endif

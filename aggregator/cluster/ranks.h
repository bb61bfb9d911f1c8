/* One aggregator on several ranks: rank 0 has the run, all have their share of the clients.
 *
 * Each rank has its network threads, with the handshakes, the encryption and the frames of its
 * share of the clients. What they ask goes to rank 0 as messages (rank_message.h), in the order in
 * which a connection said it, and what the engine answers comes back in the same way. The bytes of
 * updates stay where they come (rank_worker.h): a rank journals and sums those of its own clients.
 * Whatever counts is decided in one place: the engine grants a slot to one rank at a time
 * (lease.h), notes what has come of it and acknowledges it, so a result that is sent again to
 * another rank counts once. Only for strategies that collect updates all bytes go to rank 0.
 *
 * A blob (the plan, a model) goes to all ranks once, by broadcast, before the first answer that
 * needs it; from then on each rank serves it from its own memory.
 *
 * One thread makes all calls of the collective between fedge_ranks_start and fedge_ranks_end. A
 * rank that is lost ends the whole job: MPI sees to that, and for one that says nothing more
 * workers/ranks_watch.h does. The next start, with as many ranks as there are, goes on from the
 * journals that are there.
 */
#ifndef FEDGE_AGGREGATOR_CLUSTER_RANKS_H
#define FEDGE_AGGREGATOR_CLUSTER_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/cluster/protocol/rank_message.h"
#include "aggregator/cluster/rank_worker.h"
#include "aggregator/net/transport.h"
#include "aggregator/reduce/collective.h"
#include "aggregator/run/engine_thread.h"
#include "edge/core/log.h"
#include "edge/core/status.h"

#define FEDGE_RANKS_OUTBOX_BYTES ((uint64_t)8 << 20) /* of requests that wait; then peers pause */
#define FEDGE_RANKS_AWAY_MS 1000     /* when clients of a rank that ends come back */
#define FEDGE_RANKS_STATUS_MS 1000   /* between two messages with the status; or of another rank */
#define FEDGE_RANKS_MAX_NAP_US 2000u /* between two looks for messages */

typedef struct fedge_ranks fedge_ranks;

typedef struct fedge_ranks_config {
    const fedge_collective *collective; /* not alone; all here outlive the ranks */
    fedge_engine_thread *engine;        /* rank 0: with an engine; else it stands in for one */
    fedge_transport *transport;         /* whose first tag is fedge_ranks_first_tag */
    fedge_rank_worker *worker; /* of a rank other than 0; NULL: all bytes of updates go to rank 0 */
    uint64_t sum_bytes;        /* of all sums, the most that one call of the collective moves */
    const fedge_log *log;
} fedge_ranks_config;

/* What the numbers of a rank's connections begin with. */
uint32_t fedge_ranks_first_tag(const fedge_collective *collective);

/* At most FEDGE_RANKS_MAX ranks. FEDGE_NO_MEMORY. The engine's replies go through the ranks
 * from then on, and another rank's requests to rank 0; so before either thread starts. The others
 * have as long until fedge_ranks_start as for a call of all ranks (workers/ranks_watch.h): what
 * takes longer, as recovery does, comes before. */
FEDGE_MUST_USE fedge_status fedge_ranks_new(const fedge_ranks_config *config, fedge_ranks **ranks,
                                            fedge_error *err);
/* After fedge_ranks_end, or without a start; the transport is gone. NULL is fine. */
void fedge_ranks_free(fedge_ranks *ranks);

/* Starts the thread. */
FEDGE_MUST_USE fedge_status fedge_ranks_start(fedge_ranks *ranks, fedge_error *err);

/* Rank 0, for fedge_rank_link; [ranks] are started. */
void fedge_ranks_send_order(fedge_ranks *ranks, uint32_t to, const fedge_order *order,
                            const void *bytes);
FEDGE_MUST_USE fedge_status fedge_ranks_join_sums(fedge_ranks *ranks,
                                                  fedge_accumulator *accumulator, fedge_error *err);

/* A signal that reloads has come here: all other ranks hear of it, by rank 0. NULL is fine. */
void fedge_ranks_reload(fedge_ranks *ranks);

/* The service has ended here, by a signal ([stopped]) or with the run: tells the others, waits
 * until they have ended too, and stops the thread. The collective is the caller's again. */
void fedge_ranks_end(fedge_ranks *ranks, bool stopped);

#endif

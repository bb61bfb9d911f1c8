/* One aggregator on several ranks: rank 0 has the run, and every rank serves a fraction of the
 * clients.
 *
 * Each rank has network threads, which do handshakes, encryption and frames for its clients.
 * Requests go to rank 0 as rank messages (protocol/rank_message.h), in the order of each
 * connection, and the engine's replies come back likewise. The bytes of updates stay on the rank
 * that receives them (rank_worker.h), which journals and sums them. What counts is decided in one
 * place: the engine leases a slot to one rank at a time (protocol/slot_lease.h), records the result
 * and acknowledges it, so an update that is sent again to another rank counts once. With strategies
 * that read updates one by one all bytes go to rank 0.
 *
 * A blob (the plan, a model) is broadcast to all ranks once, before the first reply that needs it;
 * after that each rank serves it from its own memory.
 *
 * One thread makes all calls of the collective between fedge_ranks_start and fedge_ranks_end. A
 * lost rank ends the whole job: MPI notices a process that has ended,
 * aggregator/threads/ranks_watch.h one that is silent. The next start, with as many ranks as there
 * are, continues from the journals.
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

#define FEDGE_RANKS_OUTBOX_BYTES                                                                   \
    ((uint64_t)8 << 20)               /* limit of the waiting requests; above it peers are paused */
#define FEDGE_RANKS_RECONNECT_MS 1000 /* pause before the clients of an ending rank reconnect */
#define FEDGE_RANKS_STATUS_MS 1000    /* time between two STATUS messages, or two ALIVE messages */
#define FEDGE_RANKS_MAX_NAP_US 2000u  /* longest sleep between two checks for messages */

typedef struct fedge_ranks fedge_ranks;

typedef struct fedge_ranks_config {
    const fedge_collective *collective; /* two ranks or more; outlives the ranks */
    fedge_engine_thread *engine;        /* rank 0: runs the engine; elsewhere it stands in for it */
    fedge_transport *transport;         /* its first tag is fedge_ranks_first_tag */
    fedge_rank_worker *worker;          /* NULL on rank 0, or if rank 0 gets all bytes */
    uint64_t sum_bytes; /* bytes of all sums, the most that one call of the collective moves */
    const fedge_log *log;
} fedge_ranks_config;

/* The tag of the ids of a rank's first connections. */
uint32_t fedge_ranks_first_tag(const fedge_collective *collective);

/* At most FEDGE_RANKS_MAX ranks. FEDGE_NO_MEMORY. From then on the engine's replies, and on other
 * ranks the requests, go through the ranks; so call it before either thread starts. Between this
 * and fedge_ranks_start the ranks watch each other (aggregator/threads/ranks_watch.h): do slow work
 * such as recovery before. */
FEDGE_MUST_USE fedge_status fedge_ranks_new(const fedge_ranks_config *config, fedge_ranks **ranks,
                                            fedge_error *err);
/* After fedge_ranks_end, or without a start, and after the transport is freed. NULL is fine. */
void fedge_ranks_free(fedge_ranks *ranks);

/* Starts the thread. */
FEDGE_MUST_USE fedge_status fedge_ranks_start(fedge_ranks *ranks, fedge_error *err);

/* Rank 0, after the start: the functions of fedge_rank_link. */
void fedge_ranks_send_order(fedge_ranks *ranks, uint32_t to, const fedge_order *order,
                            const void *bytes);
FEDGE_MUST_USE fedge_status fedge_ranks_join_sums(fedge_ranks *ranks,
                                                  fedge_accumulator *accumulator, fedge_error *err);

/* A signal has asked this process to reload: passes that on to all ranks, through rank 0. NULL is
 * fine. */
void fedge_ranks_reload(fedge_ranks *ranks);

/* The service has ended here, by a signal ([stopped]) or with the run: notifies the other ranks,
 * waits until they have ended, too, and stops the thread. The caller may use the collective again.
 */
void fedge_ranks_end(fedge_ranks *ranks, bool stopped);

#endif

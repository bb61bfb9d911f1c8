/* The rank worker: on a rank from 1 on, takes the updates of the rank's own clients into its own
 * journal and sums.
 *
 * Rank 0 decides, by orders (protocol/rank_message.h). When rank 0 grants a slot, the rank worker
 * receives the update over its own connections, lets its ingest workers validate it and make it
 * durable, and reports the result; rank 0 sends the ACK. When a round closes, its sums are joined
 * with those of all ranks.
 *
 * A thread of its own carries out orders and takes parts of uploads.
 */
#ifndef FEDGE_AGGREGATOR_CLUSTER_RANK_WORKER_H
#define FEDGE_AGGREGATOR_CLUSTER_RANK_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/cluster/protocol/rank_message.h"
#include "aggregator/exchange/exchange.h"
#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/collective.h"
#include "aggregator/run/engine_thread.h"
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"

/* Bytes of parts that may wait; above that peers are paused. */
#define FEDGE_RANK_WORKER_INBOX_BYTES FEDGE_ENGINE_INBOX_BYTES

typedef struct fedge_rank_worker fedge_rank_worker;

typedef struct fedge_rank_worker_config {
    const fedge_job *job; /* all pointers outlive the worker */
    const char *state_dir;
    uint32_t num_workers;
    const char *accumulator;       /* kind of accumulator, or "auto" */
    fedge_accumulator_config sums; /* configuration of the accumulator */
    const fedge_collective *collective;
    const fedge_log *log;
} fedge_rank_worker_config;

/* Call while rank 0 opens the run: recovers this rank's updates and carries out rank 0's commands
 * (aggregator/run/rendezvous.h). A failure of any rank fails all. */
FEDGE_MUST_USE fedge_status fedge_rank_worker_open(const fedge_rank_worker_config *config,
                                                   fedge_rank_worker **worker, fedge_error *err);
/* No callback is called once it returns; later posts are dropped. */
void fedge_rank_worker_stop(fedge_rank_worker *worker); /* NULL is fine, as in the next function */
void fedge_rank_worker_free(fedge_rank_worker *worker); /* call it when no thread posts any more */

/* Callbacks for replies to connections, reports to rank 0, and a failure that ends all ranks. Each
 * may be called on any thread. Set them before the service runs. */
typedef struct fedge_rank_worker_callbacks {
    fedge_deliver_fn deliver;
    void *deliver_user;
    void (*report)(void *user, const fedge_report *report, const void *bytes);
    void (*fail)(void *user, const fedge_error *err);
    void *user;
} fedge_rank_worker_callbacks;
void fedge_rank_worker_connect(fedge_rank_worker *worker,
                               const fedge_rank_worker_callbacks *callbacks);

/* Any thread: takes over a part of an upload. Returns as fedge_engine_thread_post. */
bool fedge_rank_worker_post(fedge_rank_worker *worker, fedge_request *request);
/* Any thread: queues an order; [bytes] (order->size) are copied. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_rank_worker_order(fedge_rank_worker *worker,
                                                    const fedge_order *order, const void *bytes,
                                                    fedge_error *err);

/* Any thread: uses sums->gpus from the next round on. If they cannot be opened, logs why and keeps
 * the present ones. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_rank_worker_change_gpus(fedge_rank_worker *worker,
                                                          const fedge_accumulator_config *sums,
                                                          fedge_error *err);

/* Its accumulator, for fedge_distributed_follow between CLOSE and OPEN. */
fedge_accumulator *fedge_rank_worker_accumulator(fedge_rank_worker *worker);

#endif

/* The share of a rank from 1 on: its clients' updates, in its own journal and its own sums.
 *
 * Rank 0 decides (protocol/rank_message.h): it grants a slot, and the share takes the bytes that
 * come over its own connections, has its workers look at them, makes them durable and reports that;
 * the acknowledgement is rank 0's. When a round closes, its sums are joined with those of all
 * ranks.
 *
 * Orders and parts are carried out by one thread of its own.
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

/* Of parts that wait; then peers pause. */
#define FEDGE_RANK_WORKER_INBOX_BYTES FEDGE_ENGINE_INBOX_BYTES

typedef struct fedge_rank_worker fedge_rank_worker;

typedef struct fedge_rank_worker_config {
    const fedge_job *job; /* all here outlive the share */
    const char *state_dir;
    uint32_t num_workers;
    const char *accumulator;       /* as for fedge_engine_config */
    fedge_accumulator_config sums; /* likewise */
    const fedge_collective *collective;
    const fedge_log *log;
} fedge_rank_worker_config;

/* While rank 0 opens the run: finds what this rank has of it, and does what rank 0 wants
 * (fedge_rendezvous). A failure of any rank is that of all. */
FEDGE_MUST_USE fedge_status fedge_rank_worker_open(const fedge_rank_worker_config *config,
                                                   fedge_rank_worker **worker, fedge_error *err);
/* Nothing more is said to the callbacks once it returns; what is posted after that is dropped. */
void fedge_rank_worker_stop(fedge_rank_worker *worker); /* NULL is fine, here and below */
void fedge_rank_worker_free(fedge_rank_worker *worker); /* when nobody posts any more */

/* Before the service runs: where answers to connections go, reports to rank 0, and a failure that
 * is the end of all; each may be called on any thread. */
typedef struct fedge_rank_worker_callbacks {
    fedge_deliver_fn deliver;
    void *deliver_user;
    void (*report)(void *user, const fedge_report *report, const void *bytes);
    void (*fail)(void *user, const fedge_error *err);
    void *user;
} fedge_rank_worker_callbacks;
void fedge_rank_worker_connect(fedge_rank_worker *worker,
                               const fedge_rank_worker_callbacks *callbacks);

/* From any thread. A part of an upload; as fedge_engine_thread_post. */
bool fedge_rank_worker_post(fedge_rank_worker *worker, fedge_request *request);
/* [bytes] (order->size) are copied. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_rank_worker_order(fedge_rank_worker *worker,
                                                    const fedge_order *order, const void *bytes,
                                                    fedge_error *err);

/* From any thread: sums->gpus are to sum from the next round on; where they cannot, the log says
 * why and the present ones go on. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_rank_worker_change_gpus(fedge_rank_worker *worker,
                                                          const fedge_accumulator_config *sums,
                                                          fedge_error *err);

/* What it sums in, for fedge_joined_follow between CLOSE and OPEN. */
fedge_accumulator *fedge_rank_worker_accumulator(fedge_rank_worker *worker);

#endif

/* Orders and reports: what rank 0's engine tells the share of another rank (rank_worker.h), and
 * what that one answers. Plain structs with bytes behind them, as they lie in memory
 * (rank_message.h).
 */
#ifndef FEDGE_AGGREGATOR_CLUSTER_PROTOCOL_ORDER_H
#define FEDGE_AGGREGATOR_CLUSTER_PROTOCOL_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/exchange/exchange.h"
#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/collective.h"
#include "aggregator/store/journal.h"
#include "edge/core/status.h"

#define FEDGE_RANKS_MAX 64u /* of one aggregator */
/* Tags of connection ids that each rank has: rank r gives those from r · FEDGE_RANKS_TAGS on. */
#define FEDGE_RANKS_TAGS FEDGE_MAX_NETWORK_THREADS

typedef enum fedge_order_kind {
    FEDGE_ORDER_OPEN,   /* a training phase: fedge_journal_phase and its tasks follow; OPENED */
    FEDGE_ORDER_GRANT,  /* the slot's update may come: the UPLOAD's JSON follows */
    FEDGE_ORDER_RECALL, /* give the slot back; RELEASED or VALIDATED */
    FEDGE_ORDER_CLOSE   /* the phase is over: end what is with the workers; FLUSHED */
} fedge_order_kind;

typedef struct fedge_order {
    fedge_order_kind kind;
    uint32_t slot;           /* GRANT, RECALL */
    uint64_t phase;          /* counts the phases of this start */
    uint64_t conn_id;        /* GRANT */
    uint32_t number;         /* GRANT: of the lease */
    fedge_journal_task task; /* GRANT */
    uint32_t weight;         /* GRANT */
    uint32_t oldest;         /* OPEN: journals of rounds before it may go */
    bool dropped;            /* CLOSE: nothing of it counts */
    uint32_t size;           /* bytes that follow */
} fedge_order;

typedef enum fedge_report_kind {
    FEDGE_REPORT_OPENED,
    FEDGE_REPORT_VALIDATED, /* durable, with the UPLOAD's JSON behind it; or refused */
    FEDGE_REPORT_RELEASED,
    FEDGE_REPORT_FLUSHED
} fedge_report_kind;

typedef struct fedge_report {
    fedge_report_kind kind;
    uint32_t slot, rank;
    uint32_t number; /* VALIDATED: of the last grant */
    uint64_t phase, task_id;
    fedge_status status; /* OPENED, VALIDATED */
    double seconds_upload;
    fedge_journal_slot facts; /* VALIDATED and FEDGE_OK: in the journal of: */
    fedge_journal_place place;
    char message[FEDGE_ERROR_MESSAGE_SIZE];
    uint32_t size; /* bytes that follow */
} fedge_report;

/* The other ranks, for the engine and what ends its rounds. */
typedef struct fedge_rank_link {
    const fedge_collective *collective; /* not alone; used by one thread: before the service runs */
    /* Sends an order, with order->size bytes; thread-safe. */
    void (*say)(void *user, uint32_t to, const fedge_order *order, const void *bytes);
    /* While the service runs, on the round finalizer's thread: fedge_joined_together_fn. */
    fedge_status (*together)(void *user, fedge_accumulator *accumulator, fedge_error *err);
    void *user;
} fedge_rank_link;

#endif

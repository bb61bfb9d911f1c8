/* Rank messages: the messages between the ranks of one aggregator, in bytes.
 *
 * Rank 0 has the engine. Connections of other ranks use the same requests and replies as its own;
 * between ranks these travel as rank messages. Pure: no I/O, no clock.
 *
 * A message is a head and a body. Structs are sent as they are in memory: all ranks run the same
 * program on the same kind of processor, which is compared at the start. Lengths are checked
 * nevertheless, since another process made the message.
 */
#ifndef FEDGE_AGGREGATOR_CLUSTER_PROTOCOL_RANK_MESSAGE_H
#define FEDGE_AGGREGATOR_CLUSTER_PROTOCOL_RANK_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/exchange/exchange.h"
#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/collective.h"
#include "aggregator/store/journal.h"
#include "edge/core/message.h"
#include "edge/core/status.h"

/* ---- orders and reports ---------------------------------------------------------------------- */

/* Rank 0's engine sends orders to the rank worker of another rank
 * (aggregator/cluster/rank_worker.h), which answers with reports. Plain structs, followed by [size]
 * bytes. */

#define FEDGE_RANKS_MAX 64u /* ranks of one aggregator */
/* Tags of connection ids of each rank: rank r uses those from r · FEDGE_RANKS_TAGS on. */
#define FEDGE_RANKS_TAGS FEDGE_MAX_NETWORK_THREADS

typedef enum fedge_order_kind {
    FEDGE_ORDER_OPEN,   /* a training phase: fedge_journal_phase and its tasks follow; OPENED */
    FEDGE_ORDER_GRANT,  /* take the slot's update: the UPLOAD's JSON follows */
    FEDGE_ORDER_RECALL, /* give the slot back; RELEASED or VALIDATED */
    FEDGE_ORDER_CLOSE   /* the phase is over: finish queued work; FLUSHED */
} fedge_order_kind;

typedef struct fedge_order {
    fedge_order_kind kind;
    uint32_t slot;           /* GRANT, RECALL */
    uint64_t phase;          /* number of the phase, from 1 in each process */
    uint64_t conn_id;        /* GRANT */
    uint32_t number;         /* GRANT: number of the lease's grant */
    fedge_journal_task task; /* GRANT */
    uint32_t weight;         /* GRANT */
    uint32_t oldest;         /* OPEN: journals of earlier rounds may be removed */
    bool dropped;            /* CLOSE: its updates do not count */
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
    uint32_t number; /* VALIDATED: number of the last grant */
    uint64_t phase, task_id;
    fedge_status status; /* OPENED, VALIDATED */
    double seconds_upload;
    fedge_journal_slot facts; /* VALIDATED and FEDGE_OK: the record in the journal at [location] */
    fedge_journal_location location;
    char message[FEDGE_ERROR_MESSAGE_SIZE];
    uint32_t size; /* bytes that follow */
} fedge_report;

/* The other ranks, as the engine and the round finalizer use them. */
typedef struct fedge_rank_link {
    const fedge_collective *collective; /* two ranks or more; used before the service runs */
    /* Sends an order, with order->size bytes; thread-safe. */
    void (*send_order)(void *user, uint32_t to, const fedge_order *order, const void *bytes);
    /* A fedge_distributed_together_fn, while the service runs, on the round finalizer's thread. */
    fedge_status (*join_sums)(void *user, fedge_accumulator *accumulator, fedge_error *err);
    void *user;
} fedge_rank_link;

/* ---- messages -------------------------------------------------------------------------------- */

typedef enum fedge_rank_message_kind {
    FEDGE_RANK_MESSAGE_REQUEST, /* to rank 0: a connection's request */
    FEDGE_RANK_MESSAGE_REPLY,   /* from rank 0: a reply to one connection or to all */
    FEDGE_RANK_MESSAGE_BLOB,    /* from rank 0: a fedge_rank_message_blob, whose bytes are broadcast
                                   next */
    FEDGE_RANK_MESSAGE_ORDER,   /* from rank 0: a fedge_order and its bytes */
    FEDGE_RANK_MESSAGE_REPORT,  /* to rank 0: a fedge_report and its bytes */
    FEDGE_RANK_MESSAGE_SUMS,    /* from rank 0: all ranks call fedge_distributed_follow next */
    FEDGE_RANK_MESSAGE_STATUS,  /* from rank 0: a fedge_run_status */
    FEDGE_RANK_MESSAGE_STOP,    /* a signal ends all ranks */
    FEDGE_RANK_MESSAGE_RELOAD,  /* to rank 0: a signal asked to reload; from it: reload */
    FEDGE_RANK_MESSAGE_END,     /* from rank 0: a fedge_error with the run's result */
    FEDGE_RANK_MESSAGE_ALIVE,   /* to rank 0: the sender is alive */
    FEDGE_RANK_MESSAGE_LAST     /* the sender's last message */
} fedge_rank_message_kind;

/* Names a blob. */
typedef struct fedge_rank_message_blob {
    char hash[FEDGE_HASH_TEXT];
    uint64_t size;
} fedge_rank_message_blob;

typedef struct fedge_rank_message_head {
    uint32_t kind; /* one of fedge_rank_message_kind */
    uint32_t meta_size, payload_size;
    uint32_t body_size;           /* size of the struct before meta and payload */
    uint64_t up, down;            /* traffic of the sender's connections since its last message */
    fedge_rank_message_blob blob; /* REPLY: its blob; size 0 and "": none */
} fedge_rank_message_head;

/* Limit of a message's bytes: more than the largest request, and than the largest cohort's order.
 */
#define FEDGE_RANK_MESSAGE_MAX_SIZE                                                                \
    (sizeof(fedge_rank_message_head) + sizeof(fedge_request) + sizeof(fedge_reply) +               \
     sizeof(fedge_report) + (size_t)FEDGE_MESSAGE_MAX_SIZE + sizeof(fedge_order) +                 \
     sizeof(fedge_journal_phase) + FEDGE_JOURNAL_MAX_SLOTS * sizeof(fedge_journal_task))

/* A message to be sent. */
typedef struct fedge_rank_message {
    fedge_mailbox_item item;
    uint32_t to;      /* rank of the receiver */
    fedge_blob *blob; /* retained; must be on all ranks before it is sent; NULL: none */
    void *sending;    /* the send in progress; [next]: the next of the messages being sent */
    struct fedge_rank_message *next;
    size_t size;
    uint8_t bytes[]; /* (size): the head first */
} fedge_rank_message;

/* Each returns a malloc'ed message; NULL: no memory. A request's meta and payload are copied; the
 * receiver reads its upload from the meta. */
fedge_rank_message *fedge_rank_message_of_request(const fedge_request *request);
fedge_rank_message *fedge_rank_message_of_reply(const fedge_reply *reply, uint32_t to);
/* Makes any other kind, with [body] (size); NULL and 0: none. */
fedge_rank_message *fedge_rank_message_new(fedge_rank_message_kind kind, const void *body,
                                           size_t size, uint32_t to);
/* Makes such a message with [more] (more_size) behind [body]. */
fedge_rank_message *fedge_rank_message_with(fedge_rank_message_kind kind, const void *body,
                                            size_t size, const void *more, size_t more_size,
                                            uint32_t to);
void fedge_rank_message_free(fedge_rank_message *message); /* NULL is fine */

/* Opens received bytes: copies the head, and points *body behind it. FEDGE_CORRUPT: wrong lengths.
 */
FEDGE_MUST_USE fedge_status fedge_rank_message_open(const uint8_t *bytes, size_t size,
                                                    fedge_rank_message_head *head,
                                                    const uint8_t **body, fedge_error *err);
/* Read a request or reply, malloc'ed. A reply comes without its blob, which head->blob names.
 * FEDGE_CORRUPT, FEDGE_NO_MEMORY, and for an upload the errors of fedge_upload_read. */
FEDGE_MUST_USE fedge_status fedge_rank_message_request(const fedge_rank_message_head *head,
                                                       const uint8_t *body, fedge_request **request,
                                                       fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_rank_message_reply(const fedge_rank_message_head *head,
                                                     const uint8_t *body, fedge_reply **reply,
                                                     fedge_error *err);

#endif

/* What connections and the engine tell each other: requests one way, replies the other.
 *
 * Each is one allocation that travels through a mailbox and belongs to whoever takes it out. A
 * connection is named by a number that is never used again, so a reply to one that is gone finds
 * nobody. Nothing else is shared between the threads of the network and the engine's.
 */
#ifndef FEDGE_AGGREGATOR_EXCHANGE_EXCHANGE_H
#define FEDGE_AGGREGATOR_EXCHANGE_EXCHANGE_H

#include <stdatomic.h>
#include <stdint.h>

#include "aggregator/exchange/blob.h"
#include "aggregator/reduce/accumulator.h"
#include "aggregator/rounds/round_summary.h"
#include "aggregator/threads/mailbox.h"
#include "edge/wire/protocol.h"
#include "secure/identity/registry.h"

#define FEDGE_MAX_NETWORK_THREADS 64u /* of a process */

typedef enum fedge_request_type {
    FEDGE_REQUEST_JOIN,    /* HELLO came: the device waits for WELCOME and tasks */
    FEDGE_REQUEST_LEAVE,   /* the connection closes, or its device declined the plan */
    FEDGE_REQUEST_FETCH,   /* blob */
    FEDGE_REQUEST_UPLOAD,  /* upload and meta, the message's JSON */
    FEDGE_REQUEST_PART,    /* position and payload */
    FEDGE_REQUEST_DECLINE, /* notice; without a task it is about the plan */
    FEDGE_REQUEST_DRAIN,   /* of the operator: no round follows */
    FEDGE_REQUEST_GPUS,    /* likewise: sums.gpus are to sum from the next round on */
    FEDGE_REQUEST_REPORT   /* of another rank: a fedge_report (cluster/protocol/rank_message.h) in
                              payload */
} fedge_request_type;

/* From a connection to the engine. */
typedef struct fedge_request {
    fedge_mailbox_item item;
    fedge_request_type type;
    uint64_t conn_id; /* ≥ 1 */
    uint32_t client_index;
    bool hangs_up; /* JOIN: the client may be told to call again (HELLO) */
    char device_id[FEDGE_UUID_TEXT];
    union {
        fedge_blob_ref blob;
        fedge_position position;
        fedge_notice notice;
        fedge_accumulator_config sums;
    };
    fedge_upload *upload; /* malloc'ed */
    const char *meta;     /* (meta_size), in frame */
    uint32_t meta_size;
    const uint8_t *payload; /* (payload_size), in frame */
    uint32_t payload_size;
    uint8_t *frame; /* malloc'ed; the message as it came */
} fedge_request;
void fedge_request_free(fedge_request *request); /* NULL is fine */

typedef enum fedge_reply_type {
    FEDGE_REPLY_MESSAGE,  /* [message] with its content */
    FEDGE_REPLY_BLOB,     /* [size] bytes of [blob] from [offset] on, in place of one that is under
                             way; 0: all */
    FEDGE_REPLY_WITHDRAW, /* [blob] is not served any more, and nothing may hold it */
    FEDGE_REPLY_CLOSE,    /* [message] (REFUSE or BYE) with the notice, then the end */
    FEDGE_REPLY_PAUSE,    /* nothing more is read from the peer */
    FEDGE_REPLY_RESUME,   /* until this comes */
    FEDGE_REPLY_ROUND     /* to the service: a phase was closed, and its summary */
} fedge_reply_type;

#define FEDGE_CONN_ALL 0u /* conn_id of a reply to all connections */

/* From the engine to a connection. */
typedef struct fedge_reply {
    fedge_mailbox_item item;
    fedge_reply_type type;
    uint64_t conn_id;
    fedge_message_type message;
    union {
        fedge_welcome welcome;
        fedge_task task;
        fedge_ack ack;
        fedge_position position; /* RESUME */
        fedge_notice notice;     /* CANCEL, REFUSE, BYE */
        fedge_round_summary summary;
    };
    fedge_blob *blob; /* retained */
    uint64_t offset, size;
} fedge_reply;
void fedge_reply_free(fedge_reply *reply); /* and what it retains; NULL is fine */
/* What a client is told that asks for a blob of a round that is over: a newer TASK is on its way or
 * will come. */
fedge_notice fedge_blob_is_gone(const char *hash);

/* Bytes of messages, counted where they travel. */
typedef struct fedge_traffic {
    _Atomic uint64_t up, down;
} fedge_traffic;

#endif

/* Messages between the network threads and the run: requests one way, replies the other.
 *
 * Each is one allocation that goes through a mailbox and belongs to the thread that takes it out. A
 * connection is named by a number that is never used again, so a reply to one that is gone finds no
 * connection. Network threads and the run share nothing else.
 */
#ifndef FEDGE_AGGREGATOR_EXCHANGE_EXCHANGE_H
#define FEDGE_AGGREGATOR_EXCHANGE_EXCHANGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "aggregator/exchange/blob.h"
#include "aggregator/reduce/accumulator.h"
#include "aggregator/rounds/round_summary.h"
#include "aggregator/rounds/selection.h"
#include "aggregator/threads/mailbox.h"
#include "edge/core/os.h"
#include "edge/core/status.h"
#include "edge/wire/protocol.h"
#include "secure/identity/registry.h"

#define FEDGE_MAX_NETWORK_THREADS 64u /* most network threads of a process */

typedef enum fedge_request_type {
    FEDGE_REQUEST_JOIN,    /* HELLO came: the device waits for WELCOME and tasks */
    FEDGE_REQUEST_LEAVE,   /* the connection closes, or its device declined the plan */
    FEDGE_REQUEST_MESSAGE, /* message, its JSON in meta, and its payload */
    FEDGE_REQUEST_DRAIN,   /* the operator's request to end after this round */
    FEDGE_REQUEST_GPUS,    /* the operator's request to sum on sums.gpus from the next round on */
    FEDGE_REQUEST_REPORT   /* another rank's fedge_report (cluster/protocol/rank_message.h), in
                              payload */
} fedge_request_type;

/* From a connection to the engine. */
typedef struct fedge_request {
    fedge_mailbox_item item;
    fedge_request_type type;
    uint64_t conn_id; /* ≥ 1 */
    uint32_t client_index;
    bool hangs_up; /* JOIN: the client may be sent away until a later time (HELLO) */
    char device_id[FEDGE_UUID_TEXT];
    union {
        fedge_client_message message;  /* MESSAGE */
        fedge_accumulator_config sums; /* GPUS */
    };
    const char *meta; /* (meta_size): lies in frame */
    uint32_t meta_size;
    const uint8_t *payload; /* (payload_size): lies in frame */
    uint32_t payload_size;
    uint8_t *frame; /* malloc'ed bytes of the message */
} fedge_request;
void fedge_request_free(fedge_request *request); /* NULL is fine */

typedef enum fedge_reply_type {
    FEDGE_REPLY_MESSAGE,  /* [message] with its content */
    FEDGE_REPLY_BLOB,     /* [size] bytes of [blob] from [offset] on, replacing one that is under
                             way; 0: all */
    FEDGE_REPLY_WITHDRAW, /* [blob] is no longer served: release it */
    FEDGE_REPLY_CLOSE,    /* [message] (REFUSE or BYE) with the notice, then the end */
    FEDGE_REPLY_PAUSE,    /* stop reading from the peer */
    FEDGE_REPLY_RESUME,   /* read from paused peers again */
    FEDGE_REPLY_ROUND     /* to the service: the summary of a closed phase */
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
void fedge_reply_free(fedge_reply *reply); /* releases its blob; NULL is fine */
/* Refuses a FETCH of a blob that is no longer served: a newer TASK is on its way or will come. */
fedge_notice fedge_stale_blob_notice(const char *hash);

/* Bytes of messages that connections have received and sent. */
typedef struct fedge_traffic {
    _Atomic uint64_t up, down;
} fedge_traffic;

/* ---- what the network may ask of the run ----------------------------------------------------- */

/* The network knows the run by this link alone. The engine of a run fills it
 * (aggregator/run/engine_thread.h); on ranks other than 0 a rank worker does. */

/* Numbers for /metrics, /healthz and the last line of a run. Counters are since the start of the
 * process unless they say run. */
#define FEDGE_RUN_STATE_TEXT 384
typedef struct fedge_run_status {
    char run_id[FEDGE_RUN_ID_TEXT];
    char state[FEDGE_RUN_STATE_TEXT]; /* text such as "round 3: 5 of 8 reported"; while it waits, it
                                         names the missing clients and why */
    bool healthy;                     /* false after a fatal error */
    bool complete;                    /* no round is left */
    uint32_t round, rounds_closed, num_server_rounds, connected, incarnation;
    uint64_t updates_accepted, updates_refused, updates_duplicate;
    uint64_t bytes_up, bytes_down;         /* bytes of this process */
    uint64_t run_bytes_up, run_bytes_down; /* bytes of the run's phases, since it began */
    double seconds; /* time since the run began, without the time when no process ran it */
    uint64_t ingest_queued_bytes;
    double seconds_validate, seconds_journal, seconds_sum;
    double accuracy, loss; /* results of the last evaluation on the test set; NaN before */
    bool stopped_early;    /* early-stopping ended it before the job's last round */
    bool keeps_best;
    fedge_criterion criterion; /* criterion of keep-best */
    fedge_selected best;       /* set at the end; round 0: none; model "": none, or damaged */
    double best_value;
    char accumulator[16]; /* kind of the accumulator */
    uint32_t num_gpus;    /* length of gpus[] */
    fedge_gpu_stats gpus[FEDGE_ACCUMULATOR_MAX_GPUS];
    char model_hash[FEDGE_HASH_TEXT];
    char run_dir[FEDGE_MAX_PATH];
} fedge_run_status;

typedef struct fedge_run_link {
    void *run;
    /* Takes the request. False: the inbox is over its limit; read no more from this peer until
     * FEDGE_REPLY_RESUME comes. */
    bool (*post)(void *run, fedge_request *request);
    void (*status)(void *run, fedge_run_status *status);
    fedge_traffic *traffic; /* counts what connections send and receive */
} fedge_run_link;

/* ---- numbers of connections ------------------------------------------------------------------ */

/* A table of items by number. A number is never given twice, and a lookup is one step. Tables with
 * different tags never give the same number. */

#define FEDGE_SLOTS_MAX_CAPACITY (1u << 20)
#define FEDGE_SLOTS_MAX_TAG ((1u << 12) - 1)

struct fedge_slot;

typedef struct fedge_slots {
    struct fedge_slot *slots; /* (capacity) */
    uint32_t capacity, first_free, tag;
} fedge_slots;

/* [capacity] ≤ FEDGE_SLOTS_MAX_CAPACITY, [tag] ≤ FEDGE_SLOTS_MAX_TAG. */
FEDGE_MUST_USE fedge_status fedge_slots_init(fedge_slots *slots, uint32_t capacity, uint32_t tag,
                                             fedge_error *err);
void fedge_slots_fini(fedge_slots *slots); /* all zero is fine */

/* A number ≥ 1 for [item], which is not NULL. At most [capacity] items have one. */
uint64_t fedge_slots_take(fedge_slots *slots, void *item);
/* Frees the number's slot. */
void fedge_slots_give_back(fedge_slots *slots, uint64_t id);
/* NULL: the number was given back, or is of another tag. */
void *fedge_slots_find(const fedge_slots *slots, uint64_t id);
/* The tag of the table that gave this number. */
uint32_t fedge_slots_tag(uint64_t id);

/* ---- how often something may happen ---------------------------------------------------------- */

/* A limit on events that peers cause, such as log lines: a burst at once, and a rate over time.
 * Plain data, no clock. */

/* All zero: nothing has happened yet. */
typedef struct fedge_quota {
    uint64_t counted_ms; /* [used] is reduced up to this time */
    uint32_t used;       /* events of the burst used */
} fedge_quota;

/* Counts an event and returns true if it is within the limit: at most [burst] at once, and
 * [per_second] (from 1) over time. [now_ms] never goes back. */
bool fedge_quota_take(fedge_quota *quota, uint32_t burst, uint32_t per_second, uint64_t now_ms);

#endif

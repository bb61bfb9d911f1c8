/* A federation in one process: the real engine on a real state directory, and devices that are
 * driven frame by frame instead of over sockets. For the engine's tests.
 *
 * What a device computes depends only on its index and the round, so the model that a run ends with
 * depends only on whose updates counted. A failed expectation inside aborts the process.
 */
#ifndef FEDGE_TESTS_AGGREGATOR_RUN_FEDERATION_H
#define FEDGE_TESTS_AGGREGATOR_RUN_FEDERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/exchange/exchange.h"
#include "aggregator/net/conn.h"
#include "aggregator/run/engine.h"
#include "aggregator/run/server_run.h"

enum {
    FED_DEVICES = 6,
    FED_ELEMENTS = 16,  /* Linear(3, 4) */
    FED_PART_SIZE = 24, /* an update of 64 bytes goes up in three parts */
    FED_MAX_ACKS = 64,
    FED_MAX_SUMMARIES = 32,
    FED_MAX_ISSUED = 2048
};

struct federation;

typedef struct fed_device {
    struct federation *federation;
    uint32_t index;

    /* What outlives its connection and the aggregator. */
    bool has_result;
    fedge_upload result;
    uint8_t bytes[sizeof(float) * FED_ELEMENTS];
    uint64_t acks[FED_MAX_ACKS]; /* task ids, in order */
    uint32_t num_acks;
    uint32_t acked_round;     /* the last in which a training result was acknowledged */
    uint32_t num_asked_again; /* training tasks for a round that it was acknowledged in */

    /* The connection. */
    uint32_t rank; /* where it connects next */
    fedge_conn *conn;
    bool dropped, paused;
    fedge_welcome welcome;
    bool welcomed, announced, sending;
    bool awaiting;   /* all of its result has been sent: an answer must come */
    uint64_t offset; /* of the next part */
    fedge_task task; /* last one; task_id 0: none yet */
    uint32_t num_tasks;

    /* What it does and what it was told. */
    bool idle; /* takes tasks and does nothing */
    bool deaf; /* reads nothing */
    bool hangs_up;
    fedge_reason refusal, farewell;
    uint64_t farewell_after_ms;
    uint64_t refused_task;
    uint32_t num_refusals, num_cancels, num_resumes;
    fedge_ack ack; /* the last */
    uint64_t resumed_at;
    uint64_t fetched;
    fedge_blob_ref chunk; /* the last */
} fed_device;

/* What a task id was used for. */
typedef struct fed_issue {
    uint64_t task_id;
    fedge_task_kind kind;
    uint32_t round, device;
    uint32_t life; /* EVALUATE: no evaluation goes on after a start */
} fed_issue;

typedef struct federation {
    char state_dir[64];
    char job_text[2048];
    fedge_job *job;
    fedge_engine *engine;
    fedge_mailbox *replies;
    fedge_traffic traffic;
    fedge_conn_budget budget;
    uint64_t next_conn_id;
    uint32_t num_workers;
    const char *accumulator; /* "cpu" at first */
    fedge_accumulator_config sums;
    uint32_t turn; /* whose device comes first, and in which direction */
    bool restored;
    uint32_t num_registered, return_every_us;
    uint64_t now_ms;
    fedge_log log;
    fed_device devices[FED_DEVICES];
    fedge_round_summary summaries[FED_MAX_SUMMARIES];
    uint32_t num_summaries;
    fed_issue issued[FED_MAX_ISSUED]; /* in all lives: an id that is used twice aborts */
    uint32_t num_issued;
    uint32_t life; /* of the aggregator */
    /* Sees each whole message of a device, or for it; NULL: nobody does. */
    void (*tell)(uint32_t device, bool by_server, const uint8_t *frame, size_t size);

    /* With other ranks, else NULL. [post] takes what a connection asks, at its rank; [pass_on]
     * sees each answer before the connections of rank 0 do. */
    const fedge_rank_link *ranks;
    void (*post)(struct federation *fed, uint32_t rank, fedge_request *request);
    void (*pass_on)(struct federation *fed, const fedge_reply *reply);
} federation;

/* [rounds]: the inside of the job's "rounds" object. An empty state directory, no engine yet. */
void fed_init(federation *fed, const char *name, const char *rounds);
/* The same by another strategy than FedAvg; [strategy]: the inside of its object. Where clients
 * keep BatchNorm's layers there is one. */
void fed_init_strategy(federation *fed, const char *name, const char *rounds, const char *strategy);
/* Encodes updates as [update] says, the inside of the job's "update" object; before fed_open. */
void fed_encode_by(federation *fed, const char *update);
void fed_fini(federation *fed); /* and removes the state directory */

void fed_open(federation *fed); /* starts the engine */
/* The same where it may fail; fed_close follows either way. */
fedge_status fed_try_open(federation *fed, fedge_error *err);
void fed_close(federation *fed); /* connections go, then the engine */

void fed_join(federation *fed, uint32_t index); /* connects and says HELLO */
void fed_join_all(federation *fed, uint32_t count);
void fed_leave(federation *fed, uint32_t index);

/* One turn: time, completion, and one event of each device. */
void fed_step(federation *fed);
/* Turns until condition(fed) holds; aborts after a minute. */
void fed_until(federation *fed, bool (*condition)(const federation *fed), const char *what);
/* Until the run is over; *failure is FEDGE_OK or why it failed. */
void fed_finish(federation *fed, fedge_error *failure);
/* Ends the process where cmocka's asserts cannot: in a child, or on another thread than its. */
void fed_must(bool holds, const char *what, const char *why);
#define MUST(call)                                                                                 \
    do {                                                                                           \
        fedge_error must_err = {0};                                                                \
        fedge_status must_status = (call);                                                         \
        fed_must(must_status == FEDGE_OK, #call, must_err.message);                                \
    } while (0)
#define ERR &must_err

/* Until nothing happens any more: queues and mailbox are empty, every device waits. */
void fed_settle(federation *fed);

void fed_send(fed_device *device, fedge_message_type type, const char *meta, const void *payload,
              uint32_t payload_size);
/* Makes the result of the device's task; the next turns offer it. */
void fed_make_result(fed_device *device);
void fed_announce(fed_device *device); /* UPLOAD */
void fed_send_part(fed_device *device);
void fed_decline(fed_device *device, bool task); /* by policy, for good */
/* Its task, for so long. */
void fed_put_off(fed_device *device, fedge_reason reason, uint64_t after_ms);
void fed_fetch(fed_device *device, const char *hash, uint64_t offset);
void fed_end_conn(fed_device *device, fedge_reason reason); /* the transport does, with REFUSE */
/* Gives connections and devices what the engine has said; fed_step does, too. */
void fed_take_replies(federation *fed);
/* An answer for connections at a rank has come there. */
void fed_give(federation *fed, uint32_t rank, const fedge_reply *reply);
fedge_run_status fed_status(const federation *fed);

#endif

/* What fedge-simulate and a trainer of one's own say to each other, on a channel (edge/core/os.h).
 *
 *     trainer     HELLO once; afterwards it answers
 *     simulator   PLAN with the plan's JSON and the shared memory  → RESULT
 *     simulator   TRAIN, EVALUATE of the values in that memory     → RESULT, with the metrics
 *     trainer     GET, PUT of the client's stored values, while it works → VALUE
 *
 * One virtual client at a time on each channel. Both are of one release and on one machine, so
 * messages are structs. A simulator that ends its sending cancels; the end of the channel is the
 * end of the simulation.
 */
#ifndef FEDGE_EDGE_PLAN_SIMULATED_H
#define FEDGE_EDGE_PLAN_SIMULATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/plan/plan.h"

/* The environment variable that has the number of the channel. */
#define FEDGE_SIMULATED_CHANNEL "FEDGE_SIMULATOR"
#define FEDGE_SIMULATED_MAX_KEY 64
#define FEDGE_SIMULATED_MAX_KEYS 64 /* keys of one client, as in a device's store */
#define FEDGE_SIMULATED_MAX_VALUE ((uint64_t)1 << 30)

typedef enum fedge_simulated_kind {
    FEDGE_SIMULATED_HELLO = 1,
    FEDGE_SIMULATED_PLAN,
    FEDGE_SIMULATED_TRAIN,
    FEDGE_SIMULATED_EVALUATE,
    FEDGE_SIMULATED_RESULT,
    FEDGE_SIMULATED_PUT,
    FEDGE_SIMULATED_GET,
    FEDGE_SIMULATED_VALUE
} fedge_simulated_kind;

/* First of all, in every release the same. */
typedef struct fedge_simulated_hello {
    char magic[8];    /* FEDGE_SIMULATED_MAGIC */
    char release[56]; /* FEDGE_VERSION */
} fedge_simulated_hello;
#define FEDGE_SIMULATED_MAGIC "fedgesim"

typedef struct fedge_simulated_metric {
    char name[64];
    double value;
} fedge_simulated_metric;

/* Fields that a kind does not use are 0. */
typedef struct fedge_simulated_message {
    uint32_t kind;
    int32_t status; /* RESULT, VALUE: a fedge_status */
    uint64_t size;  /* bytes that follow: plan, value, metrics or a failure's text */
    uint64_t task_id, deadline_ms;
    double learning_rate;
    uint32_t round, client_index, num_clients;
    uint32_t chosen; /* RESULT */
    uint64_t num_examples, num_steps;
    char key[FEDGE_SIMULATED_MAX_KEY + 1]; /* PUT, GET */
} fedge_simulated_message;

/* Shared memory of a plan, in floats; a part that the plan does not need has none. */
typedef struct fedge_simulated_layout {
    size_t values;                                /* at 0: the model */
    size_t correction, personal, others;          /* their numbers of values, … */
    size_t correction_at, personal_at, others_at; /* … and places */
    size_t bytes;
} fedge_simulated_layout;

fedge_simulated_layout fedge_simulated_layout_of(const fedge_plan *plan);

/* Sends a message and message->size bytes of [data]; share: −1 or the shared memory. */
FEDGE_MUST_USE fedge_status fedge_simulated_send(int channel,
                                                 const fedge_simulated_message *message,
                                                 const void *data, int share, fedge_error *err);
/* Receives a message and what follows into *data (malloc'ed with a NUL after it; NULL: nothing
 * follows), at most [limit] bytes. share as fedge_os_channel_receive. FEDGE_CLOSED: the end;
 * FEDGE_TOO_BIG. */
FEDGE_MUST_USE fedge_status fedge_simulated_receive(int channel, fedge_simulated_message *message,
                                                    uint64_t limit, void **data, int *share,
                                                    fedge_error *err);

#endif

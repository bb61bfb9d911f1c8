/* The profiles: how fast each virtual client computes, how fast its connection is, how often it
 * fails. Everything is a function of (settings, seed, client, round), so nothing depends on threads
 * or on what happened before.
 *
 * A task takes
 *
 *     bytes_down / down + examples / compute + bytes_up / up   seconds,
 *
 * the model of FedScale (Lai et al., ICML 2022), with its three passes of a training example
 * (forward, two backward) against the one of an evaluation: an evaluated example counts 1/3.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_TIME_CLIENT_PROFILES_H
#define FEDGE_AGGREGATOR_SIMULATE_TIME_CLIENT_PROFILES_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/round_summary.h"
#include "aggregator/simulate/time/availability.h"
#include "aggregator/simulate/time/distribution.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

#define FEDGE_CLIENT_PROFILES_MAX_TASK_US                                                          \
    ((uint64_t)1 << 50) /* 35 years: a longer task counts as this */

/* What the command line says of the profiles. Plain data; one that is all 0 is a run without
 * virtual time. */
typedef struct fedge_client_profiles_settings {
    const char *compute;      /* examples trained a second: "lognormal:100,0.5"; NULL: no time */
    const char *bandwidth;    /* bytes a second down and up, "DOWN" or "DOWN/UP"; NULL: no time */
    double failure;           /* probability that a task fails, in [0, 1) */
    const char *availability; /* as availability.h has it; NULL: everybody is always there */
    const char *trace;        /* a file that says so of each client (trace.h); NULL: none */
} fedge_client_profiles_settings;

/* One client. */
typedef struct fedge_client_profile {
    float compute;  /* examples trained a second */
    float down, up; /* bytes a second */
    float failure;  /* probability of a task */
} fedge_client_profile;

/* Read by any number of threads once it is made. */
typedef struct fedge_client_profiles {
    uint64_t seed;
    uint32_t num_clients;
    fedge_client_profile *clients; /* (num_clients) */
    /* (num_clients): 0 for the quarter that computes slowest to FEDGE_SPEED_QUANTILES − 1; of
     * equally fast ones the slower connection, then the lower index, comes first. */
    uint8_t *quantile;
    fedge_availability *availability; /* NULL: everybody is always there */
} fedge_client_profiles;

/* What a task moves and works through. */
typedef struct fedge_client_profiles_work {
    uint64_t bytes_down, bytes_up;
    double examples; /* as trained ones */
} fedge_client_profiles_work;

/* Is there anything that takes virtual time? */
bool fedge_client_profiles_is_wanted(const fedge_client_profiles_settings *settings);

/* Draws all clients; a column of the trace takes the place of a draw. FEDGE_INVALID_ARGUMENT names
 * the option: one that is no distribution, or says what a column of the trace says. Others are
 * fedge_trace_load's and fedge_availability_new's. */
FEDGE_MUST_USE fedge_status
fedge_client_profiles_new(const fedge_client_profiles_settings *settings, uint64_t seed,
                          uint32_t num_clients, fedge_client_profiles **profiles, fedge_error *err);
void fedge_client_profiles_free(fedge_client_profiles *profiles); /* NULL is fine */

/* Examples that a client with [count] of them works through in a task of [kind]. */
double fedge_client_profiles_examples(const fedge_training_spec *training, fedge_task_kind kind,
                                      uint32_t count);

/* Microseconds of a task, rounded to the nearest, at most FEDGE_CLIENT_PROFILES_MAX_TASK_US. */
uint64_t fedge_client_profiles_task_us(const fedge_client_profiles *profiles, uint32_t client,
                                       const fedge_client_profiles_work *work);

/* What tells apart draws for one client in one round. An evaluation is attempted once. */
uint16_t fedge_client_profiles_stream(fedge_task_kind kind, uint32_t attempt);

/* Does a task fail? Then after *share of its time, uniform in [0, 1). */
bool fedge_client_profiles_fails(const fedge_client_profiles *profiles, uint32_t client,
                                 uint32_t round, uint32_t attempt, fedge_task_kind kind,
                                 double *share);

#endif

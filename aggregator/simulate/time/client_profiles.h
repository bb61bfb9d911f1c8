/* Client profiles: how fast each virtual client computes, how fast its connection is, how often it
 * fails. Everything is a function of (settings, seed, client, round), so nothing depends on threads
 * or history.
 *
 * A task takes
 *
 *     bytes_down / down + examples / compute + bytes_up / up   seconds,
 *
 * the model of FedScale (Lai et al., ICML 2022), with its three passes of a training example
 * (forward, two backward) against the one of an evaluation: an evaluated example counts 1/3.
 *
 * A trace has the profiles as a CSV file with a header and a row for each client:
 *
 *     client,compute,down,up,failure
 *     0,120.5,2e6,5e5,0.01
 *
 * client is the index, from 0; each has exactly one row, in any order. The other columns are as in
 * fedge_client_profile, in any order, and each may be left out.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_TIME_CLIENT_PROFILES_H
#define FEDGE_AGGREGATOR_SIMULATE_TIME_CLIENT_PROFILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/rounds/round_summary.h"
#include "aggregator/simulate/time/availability.h"
#include "edge/core/rng.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

/* A distribution of positive numbers, as on the command line. */

/* Parameters and draws are in [FEDGE_DISTRIBUTION_MIN, FEDGE_DISTRIBUTION_MAX]; draws are clamped.
 */
#define FEDGE_DISTRIBUTION_MIN 1e-9
#define FEDGE_DISTRIBUTION_MAX 1e15
#define FEDGE_DISTRIBUTION_MAX_SIGMA 10.0
#define FEDGE_DISTRIBUTION_MAX_TEXT 64 /* bytes, with NUL */

typedef enum fedge_distribution_kind {
    FEDGE_DISTRIBUTION_NONE,     /* no distribution; draws are INFINITY */
    FEDGE_DISTRIBUTION_FIXED,    /* fixed:A */
    FEDGE_DISTRIBUTION_UNIFORM,  /* uniform:A,B in [A, B) */
    FEDGE_DISTRIBUTION_LOGNORMAL /* lognormal:A,B = A·exp(B·z), z standard normal: median A */
} fedge_distribution_kind;

/* Plain data; all 0 is NONE. */
typedef struct fedge_distribution {
    fedge_distribution_kind kind;
    double a, b;
} fedge_distribution;

/* Reads [size] bytes such as "lognormal:100,0.5". FEDGE_INVALID_ARGUMENT says what is wrong. */
FEDGE_MUST_USE fedge_status fedge_distribution_parse(const char *text, size_t size,
                                                     fedge_distribution *distribution,
                                                     fedge_error *err);

/* Draws a number; takes up to four words of [rng]. */
double fedge_distribution_draw(const fedge_distribution *distribution, fedge_rng *rng);

#define FEDGE_CLIENT_PROFILES_MAX_TASK_US ((uint64_t)1 << 50) /* 35 years; longer ones are cut */

/* The options of the profiles. Plain data; all 0: no virtual time. */
typedef struct fedge_client_profiles_settings {
    const char *compute;      /* examples trained a second: "lognormal:100,0.5"; NULL: no time */
    const char *bandwidth;    /* bytes a second down and up, "DOWN" or "DOWN/UP"; NULL: no time */
    double failure;           /* probability that a task fails, in [0, 1) */
    const char *availability; /* text of fedge_availability_new; NULL: clients are always online */
    const char *trace;        /* a file of profiles, as above; NULL: none */
} fedge_client_profiles_settings;

/* One client. */
typedef struct fedge_client_profile {
    float compute;  /* examples trained a second */
    float down, up; /* bytes a second */
    float failure;  /* probability that a task fails */
} fedge_client_profile;

/* Immutable, so any number of threads may read it. */
typedef struct fedge_client_profiles {
    uint64_t seed;
    uint32_t num_clients;
    fedge_client_profile *clients; /* (num_clients) */
    /* (num_clients): 0 for the quarter that computes slowest to FEDGE_SPEED_QUANTILES − 1; of
     * equally fast ones the slower connection, then the lower index, comes first. */
    uint8_t *quantile;
    fedge_availability *availability; /* NULL: clients are always online */
} fedge_client_profiles;

/* The bytes and examples of a task. */
typedef struct fedge_client_profiles_work {
    uint64_t bytes_down, bytes_up;
    double examples; /* an evaluated one counts 1/3 */
} fedge_client_profiles_work;

/* Does any option give virtual time? */
bool fedge_client_profiles_is_wanted(const fedge_client_profiles_settings *settings);

/* Draws all clients; the trace's columns replace draws. FEDGE_INVALID_ARGUMENT names an option that
 * is no distribution or that a column of the trace replaces. Errors of the trace name file and
 * line: FEDGE_CORRUPT: a client without a row or with two, or an unknown column;
 * FEDGE_OUT_OF_RANGE: an impossible number; and those of edge/data/formats/csv.h. Other errors as
 * fedge_availability_new. */
FEDGE_MUST_USE fedge_status
fedge_client_profiles_new(const fedge_client_profiles_settings *settings, uint64_t seed,
                          uint32_t num_clients, fedge_client_profiles **profiles, fedge_error *err);
void fedge_client_profiles_free(fedge_client_profiles *profiles); /* NULL is fine */

/* The examples of a task of [kind] for a client that has [count]. */
double fedge_client_profiles_examples(const fedge_training_spec *training, fedge_task_kind kind,
                                      uint32_t count);

/* Microseconds of a task, rounded to the nearest, at most FEDGE_CLIENT_PROFILES_MAX_TASK_US. */
uint64_t fedge_client_profiles_task_us(const fedge_client_profiles *profiles, uint32_t client,
                                       const fedge_client_profiles_work *work);

/* The stream of a client's draws in one round. An evaluation has one attempt. */
uint16_t fedge_client_profiles_stream(fedge_task_kind kind, uint32_t attempt);

/* Does a task fail? Then after *fraction of its time, uniform in [0, 1). */
bool fedge_client_profiles_fails(const fedge_client_profiles *profiles, uint32_t client,
                                 uint32_t round, uint32_t attempt, fedge_task_kind kind,
                                 double *fraction);

#endif

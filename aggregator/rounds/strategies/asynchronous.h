/* Shared by asynchronous strategies: weights by staleness, and old models that clients still train.
 *
 * A client trains the model that was newest when it began. Its staleness s is the number of rounds
 * that closed before its update arrived. Its weight is
 *
 *     constant     w(s) = 1
 *     polynomial   w(s) = (1 + s)^−a
 *     hinge        w(s) = 1 for s ≤ b, else 1 / (a (s − b) + 1)      (Xie et al. 2019)
 *
 * In the sums it is the integer round(2^k · w), at least 1, where 2^k is max-weight rounded down to
 * a power of two. A model is stored until an update on it would be staler than max-staleness; such
 * an update does not count.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_ASYNCHRONOUS_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_ASYNCHRONOUS_H

#include <stdint.h>
#include <stdlib.h>

#include "aggregator/rounds/strategy.h"
#include "edge/core/status.h"
#include "edge/json/json.h"

typedef enum fedge_staleness_weight {
    FEDGE_STALENESS_POLYNOMIAL, /* the default */
    FEDGE_STALENESS_CONSTANT,
    FEDGE_STALENESS_HINGE,
    FEDGE_STALENESS_COUNT
} fedge_staleness_weight;

const char *fedge_staleness_weight_name(unsigned weight); /* NULL: no such weight */

/* The first fields of each strategy's settings; those that it does not have are 0. */
typedef struct fedge_asynchronous {
    fedge_strategy_common common;
    fedge_staleness_weight weight;
    double exponent, slope; /* a of polynomial, a of hinge */
    uint32_t delay;         /* b of hinge */
    uint32_t max_staleness;
    uint32_t buffer_size; /* K: updates per round */
    double alpha;         /* α of FedAsync */
} fedge_asynchronous;

#define FEDGE_ASYNCHRONOUS_FIELDS                                                                  \
    {.key = "staleness-weight",                                                                    \
     .aliases = "staleness_weight",                                                                \
     .kind = FEDGE_JSON_ENUM,                                                                      \
     FEDGE_JSON_AT(fedge_asynchronous, weight),                                                    \
     .name_of = fedge_staleness_weight_name,                                                       \
     .num_names = FEDGE_STALENESS_COUNT},                                                          \
        {"staleness-exponent",                                                                     \
         "staleness_exponent",                                                                     \
         FEDGE_JSON_F64,                                                                           \
         FEDGE_JSON_AT(fedge_asynchronous, exponent),                                              \
         .min = 0,                                                                                 \
         .max = 100,                                                                               \
         .fallback = 0.5},                                                                         \
        {"hinge-slope", "hinge_slope", FEDGE_JSON_F64, FEDGE_JSON_AT(fedge_asynchronous, slope),   \
         .min = 0,      .max = 1e6,    .fallback = 10},                                            \
        {"hinge-delay", "hinge_delay", FEDGE_JSON_U32, FEDGE_JSON_AT(fedge_asynchronous, delay),   \
         .min = 0,      .max = 1000,   .fallback = 4},                                             \
    {                                                                                              \
        "max-staleness", "max_staleness", FEDGE_JSON_U32,                                          \
            FEDGE_JSON_AT(fedge_asynchronous, max_staleness), .min = 1, .max = 1000,               \
                                                              .fallback = 20                       \
    }

/* Serves a strategy's derive: configures the rounds, and refuses settings that need synchronous
 * rounds. */
FEDGE_MUST_USE fedge_status fedge_asynchronous_derive(const fedge_json *json, fedge_job *job,
                                                      void *settings, fedge_error *err);
/* Serves a reader's check: refuses models with state that updates do not carry. */
FEDGE_MUST_USE fedge_status fedge_asynchronous_check_job(const fedge_json *json,
                                                         const fedge_job *job, fedge_error *err);
/* A strategy's init, weight, num_vectors and base. The state is a fedge_strategy_vectors. */
FEDGE_MUST_USE fedge_status fedge_asynchronous_init(const fedge_strategy_config *config,
                                                    void **state, fedge_error *err);
uint32_t fedge_asynchronous_weight(const void *state, const fedge_job *job,
                                   const fedge_update_facts *facts);
uint32_t fedge_asynchronous_num_vectors(const void *settings);
const float *fedge_asynchronous_base(const void *state, uint32_t version);

/* The ops of a strategy with this name, arguments, derive and step. */
#define FEDGE_ASYNCHRONOUS_OPS(title, fields, deriving, stepping)                                  \
    {                                                                                              \
        .reader = {.name = (title),                                                                \
                   .arguments = (fields),                                                          \
                   .settings_size = sizeof(fedge_asynchronous),                                    \
                   .derive = (deriving),                                                           \
                   .check = fedge_asynchronous_check_job},                                         \
        .weight = fedge_asynchronous_weight, .init = fedge_asynchronous_init, .step = (stepping),  \
        .save = fedge_strategy_vectors_save, .load = fedge_strategy_vectors_load, .free = free,    \
        .state_per_value = sizeof(float), .num_vectors = fedge_asynchronous_num_vectors,           \
        .base = fedge_asynchronous_base,                                                           \
    }

/* The integer of w = 1 in the sums. */
double fedge_asynchronous_unit(const fedge_job *job);
/* Checks a step's sum. FEDGE_INTERNAL: an update is staler than the stored models. */
FEDGE_MUST_USE fedge_status fedge_asynchronous_check(const fedge_strategy_vectors *state,
                                                     const fedge_strategy_sum *sum,
                                                     fedge_error *err);
/* Stores [model], which the step of sum->round moves, for clients that still train it. Call it
 * after all older models of the round have been read. */
void fedge_asynchronous_keep(fedge_strategy_vectors *state, const fedge_strategy_sum *sum,
                             const float *model);

#endif

/* Strategies: how the sum of a round's updates becomes the next model.
 *
 * A public vtable: one file per strategy under strategies/, found by name. A linear strategy needs
 * only the weighted sum S = Σ w·v and the total weight W = Σ w (edge/core/fixed.h), so memory does
 * not depend on the number of clients, and the step is a pure function of them: the same sums give
 * the same bits.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGY_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGY_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "edge/core/bytes.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"

#define FEDGE_MAX_STRATEGY_NAME 32
#define FEDGE_STRATEGY_MAX_STATE ((size_t)1 << 35) /* bytes that save() may append */

typedef struct fedge_strategy_config {
    size_t struct_size;          /* sizeof(fedge_strategy_config) of the caller */
    const fedge_schema *schema;  /* of what is trained; outlives the strategy */
    double server_learning_rate; /* η_s > 0; 1 for plain FedAvg */
    uint32_t num_clients;        /* SCAFFOLD: N, of the whole federation; else 0 */
} fedge_strategy_config;

/* One section of a round's updates, summed: S in units of 2^−F per tensor. */
typedef struct fedge_strategy_section {
    const fedge_schema *schema; /* its tensors' offsets are those in the accumulator; NULL: there is
                                   no such section */
    const int8_t *bounds_log2;  /* b of each tensor, F = 30 − b; schema->num_tensors */
} fedge_strategy_section;

/* One round's updates, summed. Points into the caller's memory. */
typedef struct fedge_strategy_sum {
    uint32_t round;        /* from 1 */
    uint32_t num_updates;  /* ≥ 1 */
    uint64_t total_weight; /* W, 1 … FEDGE_FIXED_MAX_TOTAL_WEIGHT */
    fedge_accumulator *accumulator;
    fedge_strategy_section delta;
    fedge_strategy_section control; /* SCAFFOLD's */
} fedge_strategy_sum;

/* values[i] += (float)(rate · (S[i] / W · 2^−F)) for all of a section: values has
 * schema->num_elements. After a failure the values are undefined. */
FEDGE_MUST_USE fedge_status fedge_strategy_move(const fedge_strategy_sum *sum,
                                                const fedge_strategy_section *section, double rate,
                                                float *values, fedge_error *err);

typedef struct fedge_strategy_ops {
    size_t struct_size; /* sizeof(fedge_strategy_ops) when compiled; may grow at its end */
    const char *name;   /* as in a job: "FedAvg" */

    /* Makes the state; FEDGE_INVALID_ARGUMENT for a setting out of range. */
    fedge_status (*init)(const fedge_strategy_config *config, void **state, fedge_error *err);
    /* Moves [model] (schema->num_elements floats) in place. FEDGE_INVALID_ARGUMENT leaves it as it
     * is; after any other failure it is undefined. */
    fedge_status (*step)(void *state, const fedge_strategy_sum *sum, float *model,
                         fedge_error *err);
    /* Appends what the next step depends on (momenta, …) for the checkpoint; nothing when there is
     * nothing. The same state gives the same bytes. */
    fedge_status (*save)(const void *state, fedge_buffer *out, fedge_error *err);
    /* Restores what save wrote, into a fresh state. FEDGE_CORRUPT when it does not fit. */
    fedge_status (*load)(void *state, const uint8_t *bytes, size_t size, fedge_error *err);
    void (*free)(void *state); /* NULL is fine */
    /* What clients are to know of the state, schema->num_elements; lives as long as the state and
     * changes in step and load. NULL for a strategy that tells them nothing. */
    const float *(*control)(const void *state);
    void (*forget)(void *state); /* control is 0 again, as at first; set exactly when control is */
} fedge_strategy_ops;

/* McMahan et al., "Communication-efficient learning of deep networks from decentralized data",
 * AISTATS 2017, with a server learning rate:  x ← x + η_s · S / W · 2^−F. */
extern const fedge_strategy_ops fedge_strategy_fedavg;

/* Karimireddy et al., "SCAFFOLD: Stochastic controlled averaging for federated learning", ICML
 * 2020, with option II for the clients' variates (client/control.h): x ← x + η_s · mean(Δy_i),   c
 * ← c + |S| / N · mean(Δc_i) The means are plain ones, as in the paper: every update has weight 1.
 * |S| / N is cut to 1. */
extern const fedge_strategy_ops fedge_strategy_scaffold;

/* The strategy named [name]. FEDGE_NOT_FOUND names the nearest known one and lists them all. */
FEDGE_MUST_USE fedge_status fedge_strategy_find(const char *name, const fedge_strategy_ops **ops,
                                                fedge_error *err);

#endif

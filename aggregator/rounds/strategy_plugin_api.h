/* A strategy of your own, in a shared object: what it has to offer.
 *
 * fedge-aggregator and fedge-simulate load it with --strategy-plugin FILE and look for one
 * function,
 *
 *     const fedge_strategy_plugin *fedge_strategy_plugin_get(void);
 *
 * whose table describes the strategy. A job names it as any other, with its arguments:
 *
 *     "strategy": {"type": "MyRule", "server-learning-rate": 0.5, "my-argument": 3}
 *
 * What a step returns has to follow from what it is given, and from nothing else (no clock, no
 * random numbers of its own): then a run that is killed goes on with the same bits, and
 * fedge-simulate gives the deployed run's model. A step runs on one thread. A plugin is code in the
 * server's process and can do what the server can: load none that you do not trust.
 *
 * Tables and structs grow at their end alone, and each begins with its size: a table of an older
 * release works with a newer program. FEDGE_STRATEGY_PLUGIN_VERSION changes when that is not so.
 */
#ifndef FEDGE_STRATEGY_PLUGIN_API_H
#define FEDGE_STRATEGY_PLUGIN_API_H

#include <stddef.h>
#include <stdint.h>

#define FEDGE_STRATEGY_PLUGIN_VERSION 1u
#define FEDGE_STRATEGY_PLUGIN_MAX_ARGUMENTS 16u
#define FEDGE_STRATEGY_PLUGIN_MAX_VECTORS 16u
#define FEDGE_STRATEGY_PLUGIN_GET "fedge_strategy_plugin_get"

/* A number that a job may give. */
typedef struct fedge_plugin_argument {
    const char *name;  /* lower case, words joined by "-"; unlike those of every strategy */
    double min, max;   /* a job with another value is refused; min < max */
    double by_default; /* when the job does not say; NaN: it has to */
} fedge_plugin_argument;

/* What a client says of its update. */
typedef struct fedge_plugin_update {
    size_t struct_size;
    uint32_t round;        /* from 1 */
    uint32_t client;       /* index */
    uint64_t num_examples; /* ≥ 1 */
    uint32_t max_weight;   /* the job's */
} fedge_plugin_update;

/* A round that closes. */
typedef struct fedge_plugin_round {
    size_t struct_size;
    uint32_t round;              /* from 1 */
    uint32_t num_updates;        /* ≥ 1 */
    uint64_t total_weight;       /* Σ w_i ≥ 1 */
    double server_learning_rate; /* η_s of this round */
    const double *arguments;     /* in the table's order */
    size_t num_values;           /* of the model's trained parameters, tensor after tensor */
    const double *mean;          /* (num_values): Σ w_i Δ_i / Σ w_i */
    float *vectors;              /* (num_vectors, num_values): kept in checkpoints; 0 at first */
    float *model;                /* (num_values): x, to be moved */
} fedge_plugin_round;

typedef struct fedge_strategy_plugin {
    size_t struct_size; /* sizeof(fedge_strategy_plugin) */
    uint32_t version;   /* FEDGE_STRATEGY_PLUGIN_VERSION */
    uint32_t num_arguments;
    const char *name; /* as in a job: at most 31 bytes, unlike any strategy that fedge has */
    const fedge_plugin_argument *arguments; /* (num_arguments); NULL when there are none */
    uint32_t num_vectors;                   /* that it keeps, of the size of the model */
    /* w_i, at least 1 and at most update->max_weight, else it is cut to that. NULL: the examples.
     */
    uint32_t (*weight)(const double *arguments, const fedge_plugin_update *update);
    /* Moves round->model in place. 0, or any other number to end the run: [message] (of 256 bytes,
     * with its NUL) says why then. */
    int (*step)(const fedge_plugin_round *round, char *message);
} fedge_strategy_plugin;

typedef const fedge_strategy_plugin *(*fedge_strategy_plugin_get_fn)(void);

#endif

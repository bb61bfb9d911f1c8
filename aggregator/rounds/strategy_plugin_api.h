/* The interface of a strategy in a shared object.
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
 * The result of a step must depend only on its arguments, not on clocks or random numbers. A run
 * that is killed then continues with the same bits, and fedge-simulate gives the deployed run's
 * model. A step runs on one thread; combine on several. A plugin runs in the server's process with
 * the server's rights: load only plugins that you trust.
 *
 * Tables and structs grow only at their end, and each begins with its size, so a table of an older
 * release works with a newer program. Incompatible changes raise FEDGE_STRATEGY_PLUGIN_VERSION.
 */
#ifndef FEDGE_STRATEGY_PLUGIN_API_H
#define FEDGE_STRATEGY_PLUGIN_API_H

#include <stddef.h>
#include <stdint.h>

#define FEDGE_STRATEGY_PLUGIN_VERSION 1u
#define FEDGE_STRATEGY_PLUGIN_MAX_ARGUMENTS 16u
#define FEDGE_STRATEGY_PLUGIN_MAX_VECTORS 16u
#define FEDGE_STRATEGY_PLUGIN_GET "fedge_strategy_plugin_get"

/* A numeric argument in a job. */
typedef struct fedge_plugin_argument {
    const char *name;  /* lower case, words joined by "-"; not a common argument of strategies */
    double min, max;   /* other values are refused; min < max */
    double by_default; /* NaN: the job must give a value */
} fedge_plugin_argument;

/* Metadata of an update. */
typedef struct fedge_plugin_update {
    size_t struct_size;
    uint32_t round;        /* number of the round, from 1 */
    uint32_t client;       /* index of the client */
    uint64_t num_examples; /* ≥ 1 */
    uint32_t max_weight;   /* the job's limit */
} fedge_plugin_update;

/* A round that closes. */
typedef struct fedge_plugin_round {
    size_t struct_size;
    uint32_t round;               /* number of the round, from 1 */
    uint32_t num_updates;         /* ≥ 1 */
    uint64_t total_weight;        /* Σ w_i ≥ 1 */
    double server_learning_rate;  /* η_s of this round */
    const double *arguments;      /* values in the order of the table's arguments */
    size_t num_values;            /* trained parameters of the model, tensor after tensor */
    const double *mean;           /* (num_values): Σ w_i Δ_i / Σ w_i */
    float *vectors;               /* (num_vectors, num_values): saved in checkpoints; 0 at first */
    float *model;                 /* (num_values): x; the step changes it */
    const uint64_t *num_examples; /* (num_updates): examples of each update, ≥ 1 */
    const uint32_t *clients;      /* (num_updates): index of each update's client */
} fedge_plugin_round;

/* A range of coordinates of all updates of a round, within one tensor. */
typedef struct fedge_plugin_tile {
    size_t struct_size;
    uint32_t round;               /* number of the round, from 1 */
    uint32_t num_updates;         /* ≥ 1 */
    const double *arguments;      /* as in fedge_plugin_round */
    const uint64_t *num_examples; /* (num_updates): examples of each update, ≥ 1 */
    const uint32_t *clients;      /* (num_updates): index of each update's client */
    uint32_t tensor;              /* index of the tensor among the trained ones */
    size_t first;                 /* first coordinate, counted as in fedge_plugin_round.model */
    size_t count;                 /* coordinates, ≥ 1 */
    double unit;                  /* Δ_i of coordinate first + k is rows[i][k] · unit */
    int32_t **rows; /* (num_updates) pointers to (count) integers, |v| ≤ 2^30, in the order of the
                       round's updates; combine may change them */
} fedge_plugin_tile;

/* A training on the server's own examples, with the job's arguments for clients. */
typedef struct fedge_plugin_root_task {
    size_t struct_size;
    uint32_t round;                     /* number of the round, from 1 */
    double learning_rate;               /* changes with the job's schedule */
    uint32_t local_epochs, local_steps; /* steps where they are not 0 */
    uint32_t batch_size;
    uint64_t seed;
    double momentum, weight_decay;
    const char *config; /* the job's "config", an object of JSON */
    size_t num_values;  /* trained parameters of the model, tensor after tensor */
} fedge_plugin_root_task;

typedef struct fedge_strategy_plugin {
    size_t struct_size; /* sizeof(fedge_strategy_plugin) */
    uint32_t version;   /* FEDGE_STRATEGY_PLUGIN_VERSION */
    uint32_t num_arguments;
    const char *name; /* name in a job: at most 31 bytes, unlike any strategy that fedge has; NULL:
                         no strategy, root_train alone */
    const fedge_plugin_argument *arguments; /* (num_arguments); NULL when there are none */
    uint32_t num_vectors;                   /* vectors of state, each of the model's size */
    /* w_i, clamped to 1 … update->max_weight. NULL: the number of examples. */
    uint32_t (*weight)(const double *arguments, const fedge_plugin_update *update);
    /* Changes round->model in place. Returns 0. Any other number ends the run with [message] (256
     * bytes with its NUL). */
    int (*step)(const fedge_plugin_round *round, char *message);
    /* For strategies that need single updates; NULL: none. Called before the step, once for each
     * tile of the model, by several threads at once. Writes combined (count): what the step sees as
     * the mean. Returns as step does. Updates and tiles take up to --robust-memory bytes, which
     * decides how tiles are cut: a coordinate's result must not depend on it. A model with
     * BatchNorm is refused. Since 0.2. */
    int (*combine)(const fedge_plugin_tile *tile, double *combined, char *message);
    /* For FLTrust without a "root-set": trains values (task->num_values), a copy of the model, in
     * place as a client would, on examples of its own. Returns as step does. Since 0.2. */
    int (*root_train)(const fedge_plugin_root_task *task, float *values, char *message);
} fedge_strategy_plugin;

typedef const fedge_strategy_plugin *(*fedge_strategy_plugin_get_fn)(void);

#endif

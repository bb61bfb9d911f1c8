/* The interface of metrics in a shared object.
 *
 * fedge-aggregator and fedge-simulate load it with --strategy-plugin FILE and look for one
 * function,
 *
 *     const fedge_metric_plugin *fedge_metric_plugin_get(void);
 *
 * A shared object has this function, that of a strategy (fedge/strategy.h), or both. Whenever the
 * global model is evaluated on the server's test set, the metrics see its outputs in the order of
 * the test set, on one thread. Their values go to rounds.jsonl:
 *
 *     "metrics": {"top5_accuracy": 0.971}
 *
 * Tables and structs grow only at their end, and each begins with its size, so a table of an older
 * release works with a newer program. Incompatible changes raise FEDGE_METRIC_PLUGIN_VERSION.
 */
#ifndef FEDGE_METRIC_PLUGIN_API_H
#define FEDGE_METRIC_PLUGIN_API_H

#include <stddef.h>
#include <stdint.h>

#define FEDGE_METRIC_PLUGIN_VERSION 1u
#define FEDGE_METRIC_PLUGIN_MAX_METRICS 16u
#define FEDGE_METRIC_PLUGIN_MAX_NAME 32u /* bytes of a name, with its NUL */
#define FEDGE_METRIC_PLUGIN_MAX_STATE ((size_t)1 << 30)
#define FEDGE_METRIC_PLUGIN_GET "fedge_metric_plugin_get"

/* A batch of the test set, and the model's outputs. */
typedef struct fedge_metric_batch {
    size_t struct_size;
    uint32_t count;        /* examples, ≥ 1 */
    uint32_t num_outputs;  /* outputs of the model for each example */
    const float *outputs;  /* (count, num_outputs): values before softmax or sigmoid */
    const int32_t *labels; /* (count): labels of the test set */
} fedge_metric_batch;

typedef struct fedge_metric_plugin {
    size_t struct_size; /* sizeof(fedge_metric_plugin) */
    uint32_t version;   /* FEDGE_METRIC_PLUGIN_VERSION */
    uint32_t num_metrics;
    const char *const *names; /* (num_metrics): lower case, digits and "_", no two alike */
    size_t state_size;        /* bytes of state, cleared before each evaluation */
    void (*add)(void *state, const fedge_metric_batch *batch);
    /* Writes values (num_metrics); infinite or NaN becomes null. Returns 0. Any other number ends
     * the run with [message] (256 bytes with its NUL). */
    int (*finish)(const void *state, double *values, char *message);
} fedge_metric_plugin;

typedef const fedge_metric_plugin *(*fedge_metric_plugin_get_fn)(void);

#endif

/* Metrics that a plugin counts (metric_plugin_api.h), and the values of an evaluation. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_METRICS_H
#define FEDGE_AGGREGATOR_ROUNDS_METRICS_H

#include "aggregator/rounds/metric_plugin_api.h"
#include "edge/core/bytes.h"
#include "edge/core/status.h"

/* Plain data; all 0: there are none. */
typedef struct fedge_metric_values {
    uint32_t num;
    const char *const *names; /* the plugin's */
    double values[FEDGE_METRIC_PLUGIN_MAX_METRICS];
} fedge_metric_values;

/* What is wrong with a plugin's table, as the end of a sentence; NULL: nothing is. */
const char *fedge_metrics_wrong(const fedge_metric_plugin *table);

/* Appends ,"metrics":{…} to a line of JSON; nothing when there are none. */
FEDGE_MUST_USE fedge_status fedge_metrics_write(const fedge_metric_values *metrics,
                                                fedge_buffer *line, fedge_error *err);

#endif

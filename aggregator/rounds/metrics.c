#include "aggregator/rounds/metrics.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static bool is_name(const char *name)
{
    const size_t size = name ? strlen(name) : 0;
    return size > 0 && size < FEDGE_METRIC_PLUGIN_MAX_NAME &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == size;
}

const char *fedge_metrics_wrong(const fedge_metric_plugin *table)
{
    if (table->num_metrics < 1 || table->num_metrics > FEDGE_METRIC_PLUGIN_MAX_METRICS ||
        !table->names)
        return "it has no metrics, or over 16, or no list of their names";
    for (uint32_t i = 0; i < table->num_metrics; i++) {
        if (!is_name(table->names[i])) {
            return "a metric's name is missing, over 31 bytes, or not of lower case, digits and "
                   "\"_\"";
        }
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(table->names[i], table->names[j]) == 0)
                return "two metrics have one name";
        }
    }
    if (table->state_size > FEDGE_METRIC_PLUGIN_MAX_STATE)
        return "its metrics count in over 1 GiB";
    return !table->add || !table->finish ? "its metrics have no add or no finish" : NULL;
}

fedge_status fedge_metrics_write(const fedge_metric_values *metrics, fedge_buffer *line,
                                 fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < metrics->num && status == FEDGE_OK; i++) {
        const char *before = i > 0 ? "," : ",\"metrics\":{";
        status = isfinite(metrics->values[i])
                     ? fedge_buffer_printf(line, err, "%s\"%s\":%.9g", before, metrics->names[i],
                                           metrics->values[i])
                     : fedge_buffer_printf(line, err, "%s\"%s\":null", before, metrics->names[i]);
    }
    return status == FEDGE_OK && metrics->num > 0 ? fedge_buffer_printf(line, err, "}") : status;
}

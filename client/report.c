#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/fedge_client.h"

fedge_status fedge_client_metric(fedge_client_report *report, const char *name, double value,
                                 fedge_error *err)
{
    if (!isfinite(value))
        return fedge_fail(err, FEDGE_NOT_FINITE, "the metric %s is not a finite number", name);
    if (report->num_metrics >= FEDGE_CLIENT_MAX_METRICS ||
        strlen(name) >= FEDGE_CLIENT_MAX_METRIC_NAME) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "no room for the metric %s: at most %d metrics with names of %d bytes",
                          name, FEDGE_CLIENT_MAX_METRICS, FEDGE_CLIENT_MAX_METRIC_NAME - 1);
    }
    fedge_client_metric_value *metric = &report->metrics[report->num_metrics++];
    snprintf(metric->name, sizeof(metric->name), "%s", name);
    metric->value = value;
    return FEDGE_OK;
}

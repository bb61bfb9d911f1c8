/* A shared object that offers the tables it was last given. */
#include "tests/aggregator/rounds/plugin_of_test.h"

#include "aggregator/rounds/metric_plugin_api.h"
#include "aggregator/rounds/strategy_plugin_api.h"

const fedge_strategy_plugin *fedge_strategy_plugin_get(void);
const fedge_metric_plugin *fedge_metric_plugin_get(void);

static const void *strategy, *metrics;

void plugin_set_tables(const void *of_strategy, const void *of_metrics)
{
    strategy = of_strategy;
    metrics = of_metrics;
}

const fedge_strategy_plugin *fedge_strategy_plugin_get(void)
{
    return strategy;
}

const fedge_metric_plugin *fedge_metric_plugin_get(void)
{
    return metrics;
}

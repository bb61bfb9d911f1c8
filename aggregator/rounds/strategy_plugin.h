/* Strategies and metrics from shared objects (strategy_plugin_api.h, metric_plugin_api.h). */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGY_PLUGIN_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGY_PLUGIN_H

#include "aggregator/rounds/metric_plugin_api.h"
#include "aggregator/rounds/strategy.h"

typedef struct fedge_plugin fedge_plugin;

/* Loads a shared object. FEDGE_NOT_FOUND: it cannot be loaded, or has neither
 * fedge_strategy_plugin_get nor fedge_metric_plugin_get; FEDGE_UNSUPPORTED: a table is of another
 * version; FEDGE_INVALID_ARGUMENT: a table contradicts itself. The message says what to do. */
FEDGE_MUST_USE fedge_status fedge_plugin_load(const char *path, fedge_plugin **plugin,
                                              fedge_error *err);
void fedge_plugin_free(
    fedge_plugin *plugin); /* after all jobs that were read with it; NULL is fine */

/* The table's own strategies, and the plugin's behind them; ends with NULL. Without a plugin
 * (NULL), or one without a strategy: fedge_strategy_readers. Lives as long as the plugin. */
const fedge_strategy_reader *const *fedge_plugin_readers(const fedge_plugin *plugin);

/* A table of [size] bytes as this release has it, of own_size bytes: what that one lacks is 0, what
 * it has behind is left out. */
void fedge_plugin_copy_table(void *to, size_t own_size, const void *from, size_t size);

/* Does a run of the job use all that the plugin offers? Its strategy where the job names it, its
 * metrics where the server has a test set. If not, *why says what is left out and what to write in
 * the job. True without a plugin. */
bool fedge_plugin_is_used(const fedge_plugin *plugin, const fedge_job *job, fedge_error *why);

/* Its metrics; NULL: it has none, or there is no plugin. Lives as long as the plugin. */
const fedge_metric_plugin *fedge_plugin_metrics(const fedge_plugin *plugin);

#endif

/* Strategies and metrics from shared objects (strategy_plugin_api.h, metric_plugin_api.h) and from
 * Python (python_plugin.h). */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGY_PLUGIN_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGY_PLUGIN_H

#include "aggregator/rounds/metric_plugin_api.h"
#include "aggregator/rounds/python_plugin.h"
#include "aggregator/rounds/strategy.h"

typedef struct fedge_plugin fedge_plugin;

/* Loads a shared object, or a script if the path ends in .py; timeout_s: limit of a script's steps
 * (python_process.h). FEDGE_NOT_FOUND: it cannot be loaded, or exports neither
 * fedge_strategy_plugin_get nor fedge_metric_plugin_get. FEDGE_UNSUPPORTED: a table has another
 * version. FEDGE_INVALID_ARGUMENT: a table contradicts itself. The message says what to do. */
FEDGE_MUST_USE fedge_status fedge_plugin_load(const char *path, uint32_t timeout_s,
                                              fedge_plugin **plugin, fedge_error *err);
void fedge_plugin_free(fedge_plugin *plugin); /* free its jobs first; NULL is fine */

/* The readers of fedge's strategies, then the plugin's; ends with NULL. Without a plugin (NULL), or
 * when it has no strategy: fedge_strategy_readers. Lives as long as the plugin. */
const fedge_strategy_reader *const *fedge_plugin_readers(const fedge_plugin *plugin);

/* Copies a plugin's table of [size] bytes into this release's, of to_size bytes. Missing fields
 * become 0; unknown ones are left out. */
void fedge_plugin_copy_table(void *to, size_t to_size, const void *from, size_t size);

/* Whether a run of the job uses all that the plugin offers: its strategy when the job names it, its
 * metrics when the server has a test set. If not, *why says what is unused and what to write in the
 * job. True without a plugin. */
bool fedge_plugin_is_used(const fedge_plugin *plugin, const fedge_job *job, fedge_error *why);

/* Tells a job that was read what the plugin does besides strategies: evaluate, train on examples of
 * the server's. The plugin outlives the job; NULL is fine. */
void fedge_plugin_serve(const fedge_plugin *plugin, fedge_job *job);

/* Whether the plugin evaluates models by itself, without the job's test set. */
bool fedge_plugin_evaluates(const fedge_plugin *plugin);
/* Its evaluation; *evaluation is NULL when it has none. [schema], of the whole model, and the
 * plugin outlive it. */
FEDGE_MUST_USE fedge_status fedge_plugin_evaluation(const fedge_plugin *plugin,
                                                    const fedge_schema *schema,
                                                    fedge_python_model **evaluation,
                                                    fedge_error *err);

/* The plugin's metrics; NULL: it has none, or there is no plugin. Lives as long as the plugin. */
const fedge_metric_plugin *fedge_plugin_metrics(const fedge_plugin *plugin);

#endif

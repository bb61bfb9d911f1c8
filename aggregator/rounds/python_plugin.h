/* Strategies and evaluations in Python, in a child process (python_process.h).
 *
 * A script describes its strategy, whose table is then as that of a shared object
 * (strategy_plugin_api.h); its functions are called by fedge_python_run_step and _combine. Several
 * runs may share a script; their requests take turns.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_PYTHON_PLUGIN_H
#define FEDGE_AGGREGATOR_ROUNDS_PYTHON_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/rounds/round_summary.h"
#include "aggregator/rounds/strategy_plugin_api.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"

typedef struct fedge_python_plugin fedge_python_plugin;

/* Starts the script's child. Errors as fedge_python_new. FEDGE_INVALID_ARGUMENT: the script has
 * neither a strategy nor an evaluation. */
FEDGE_MUST_USE fedge_status fedge_python_plugin_new(const char *script, uint32_t timeout_s,
                                                    fedge_python_plugin **plugin, fedge_error *err);
void fedge_python_plugin_free(fedge_python_plugin *plugin); /* NULL is fine */

/* The strategy's table. It may be wrong, and its functions only say which there are: they are not
 * to be called. NULL: the script has none. Lives as long as the plugin. */
const fedge_strategy_plugin *fedge_python_plugin_table(const fedge_python_plugin *plugin);
bool fedge_python_plugin_evaluates(const fedge_python_plugin *plugin);
bool fedge_python_plugin_root_trains(const fedge_python_plugin *plugin);

/* ---- a strategy's rounds --------------------------------------------------------------------- */

/* The memory that a strategy's state shares with the child: a copy of model, vectors, mean and one
 * tile. */
typedef struct fedge_python_run fedge_python_run;

/* [trained] outlives the run. max_updates: the most in a round. */
FEDGE_MUST_USE fedge_status fedge_python_run_new(fedge_python_plugin *plugin,
                                                 const fedge_schema *trained, uint32_t max_updates,
                                                 fedge_python_run **run, fedge_error *err);
void fedge_python_run_free(fedge_python_run *run); /* NULL is fine */

/* (trained->num_elements): the mean of the next step, for the caller to write. */
double *fedge_python_run_mean(fedge_python_run *run);
/* round->mean is fedge_python_run_mean. After a failure model and vectors are as before. */
FEDGE_MUST_USE fedge_status fedge_python_run_step(fedge_python_run *run,
                                                  const fedge_plugin_round *round,
                                                  fedge_error *err);
/* Any thread may call it. */
FEDGE_MUST_USE fedge_status fedge_python_run_combine(fedge_python_run *run,
                                                     const fedge_plugin_tile *tile,
                                                     double *combined, fedge_error *err);

/* The weight of an update, clamped to 1 … update->max_weight; any thread may call it. A failure
 * ends the next step. */
uint32_t fedge_python_run_weigh(fedge_python_run *run, const double *arguments,
                                const fedge_plugin_update *update);

/* ---- whole models -----------------------------------------------------------------------------
 */

typedef struct fedge_python_model fedge_python_model;

/* A model in memory that the child shares. [schema]: of its tensors; it outlives the model. */
FEDGE_MUST_USE fedge_status fedge_python_model_new(fedge_python_plugin *plugin,
                                                   const fedge_schema *schema,
                                                   fedge_python_model **model, fedge_error *err);
void fedge_python_model_free(fedge_python_model *model); /* NULL is fine */

/* Lets the script train values (schema->num_elements) in place. */
FEDGE_MUST_USE fedge_status fedge_python_root_train(fedge_python_model *model,
                                                    const fedge_plugin_root_task *task,
                                                    float *values, fedge_error *err);

/* Evaluates values (schema->num_elements), the model after [round], and adds the results to
 * [metrics], whose names live as long as the plugin. FEDGE_INVALID_ARGUMENT: a result has no proper
 * name, or there are too many. */
FEDGE_MUST_USE fedge_status fedge_python_evaluate(fedge_python_model *model, uint32_t round,
                                                  const float *values, fedge_metric_values *metrics,
                                                  fedge_error *err);

#endif

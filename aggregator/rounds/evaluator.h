/* Evaluation on the server: on its own test set, and by a plugin. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_EVALUATOR_H
#define FEDGE_AGGREGATOR_ROUNDS_EVALUATOR_H

#include <stdbool.h>

#include "aggregator/rounds/round_summary.h"
#include "aggregator/rounds/strategy_plugin.h"
#include "edge/core/status.h"
#include "edge/data/dataset.h"
#include "edge/plan/plan.h"

#define FEDGE_EVALUATOR_BATCH 100 /* examples of a batch */

typedef struct fedge_evaluator fedge_evaluator;

/* Whether the plan has an accuracy. Losses of real numbers (MSELoss, …) have none; for an external
 * model the reported accuracy is used. */
bool fedge_has_accuracy(const fedge_plan *plan);

/* Loads the job's test set and allocates memory for forward passes. *evaluator is NULL when the job
 * has no test set or an external model. */
FEDGE_MUST_USE fedge_status fedge_evaluator_new(const fedge_job *job, fedge_evaluator **evaluator,
                                                fedge_error *err);
/* Makes one on a loaded, non-empty data set, which outlives the evaluator. */
FEDGE_MUST_USE fedge_status fedge_evaluator_new_on(const fedge_job *job,
                                                   const fedge_dataset *dataset,
                                                   fedge_evaluator **evaluator, fedge_error *err);
/* Adds a plugin's metrics; NULL: none. [metrics] outlives the evaluator. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_evaluator_set_metrics(fedge_evaluator *evaluator,
                                                        const fedge_metric_plugin *metrics,
                                                        fedge_error *err);
/* Adds all that a plugin evaluates and measures; NULL: nothing. *evaluator may be NULL: one without
 * a test set is then made, if the plugin evaluates by itself. The plugin outlives it. */
FEDGE_MUST_USE fedge_status fedge_evaluator_add_plugin(fedge_evaluator **evaluator,
                                                       const fedge_job *job,
                                                       const fedge_plugin *plugin,
                                                       fedge_error *err);
void fedge_evaluator_free(fedge_evaluator *evaluator); /* NULL is fine */

/* Mean loss and accuracy over the test set, NaN without one; accuracy is NaN without
 * fedge_has_accuracy. values: the model's parameters and statistics in schema order. One thread at
 * a time. A model that has diverged gives loss NaN and accuracy 0, not an error. */
FEDGE_MUST_USE fedge_status fedge_evaluator_run(fedge_evaluator *evaluator, const float *values,
                                                double *loss, double *accuracy, fedge_error *err);

/* Computes the plugin's metrics, or without one the errors of the last run, into summary->metrics:
 * those over the test set in its order, whose values are NaN for a model that has diverged, or
 * those of its own evaluation. Without a test set the latter's "loss" and "accuracy" become the
 * summary's. summary->round is set. FEDGE_INTERNAL: the plugin reports a failure. */
FEDGE_MUST_USE fedge_status fedge_evaluator_measure(fedge_evaluator *evaluator, const float *values,
                                                    fedge_round_summary *summary, fedge_error *err);

#endif

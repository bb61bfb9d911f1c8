/* Evaluation on the server's own test set. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_EVALUATOR_H
#define FEDGE_AGGREGATOR_ROUNDS_EVALUATOR_H

#include <stdbool.h>

#include "aggregator/rounds/round_summary.h"
#include "edge/core/status.h"
#include "edge/data/dataset.h"
#include "edge/plan/plan.h"

#define FEDGE_EVALUATOR_BATCH 100 /* examples at once */

typedef struct fedge_evaluator fedge_evaluator;

/* Does an example of the plan have a right answer, so that there is an accuracy? Losses of real
 * numbers (MSELoss, …) know none; what an external model reports is taken for one. */
bool fedge_has_accuracy(const fedge_plan *plan);

/* Loads the job's test set and takes the memory to run the model forward. *evaluator is NULL when
 * the job has no test set or an external model. */
FEDGE_MUST_USE fedge_status fedge_evaluator_new(const fedge_job *job, fedge_evaluator **evaluator,
                                                fedge_error *err);
/* The same on a data set that is loaded, not empty, and outlives the evaluator. */
FEDGE_MUST_USE fedge_status fedge_evaluator_new_on(const fedge_job *job,
                                                   const fedge_dataset *dataset,
                                                   fedge_evaluator **evaluator, fedge_error *err);
/* Counts the metrics of [metrics], too, which outlives the evaluator; NULL: none. FEDGE_NO_MEMORY.
 */
FEDGE_MUST_USE fedge_status fedge_evaluator_set_metrics(fedge_evaluator *evaluator,
                                                        const fedge_metric_plugin *metrics,
                                                        fedge_error *err);
void fedge_evaluator_free(fedge_evaluator *evaluator); /* NULL is fine */

/* Mean loss and share of right answers over the test set; the share is NaN without
 * fedge_has_accuracy. values: the model's parameters and statistics in schema order. One thread at
 * a time. A model that has diverged gives loss NaN and accuracy 0, not an error. */
FEDGE_MUST_USE fedge_status fedge_evaluator_run(fedge_evaluator *evaluator, const float *values,
                                                double *loss, double *accuracy, fedge_error *err);

/* The metrics of fedge_evaluator_set_metrics over the test set, in its order; none where there are
 * none. Values are NaN for a model that has diverged. FEDGE_INTERNAL: the plugin says that it
 * failed. */
FEDGE_MUST_USE fedge_status fedge_evaluator_measure(fedge_evaluator *evaluator, const float *values,
                                                    fedge_metric_values *metrics, fedge_error *err);

#endif

/* What is checked of the options and the job before anything is opened: a mistake is told at the
 * start, not when the run is over. */
#ifndef FEDGE_AGGREGATOR_PROGRAM_CHECKS_H
#define FEDGE_AGGREGATOR_PROGRAM_CHECKS_H

#include <stdbool.h>

#include "aggregator/program/options.h"
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"

/* A model to start from is read once to see whether it can be. */
FEDGE_MUST_USE fedge_status fedge_check_initial_model(const fedge_job *job, fedge_error *err);
/* Keeping the best model and early stopping. Warns where the test set selects: a model that it has
 * chosen is better on it than on examples that it has not seen. [name]: of the job's file. */
FEDGE_MUST_USE fedge_status fedge_check_selection(const fedge_job *job, const char *name,
                                                  const fedge_log *log, fedge_error *err);
/* Can the summary be written to [path]? It is when the run is over: days later, perhaps. */
FEDGE_MUST_USE fedge_status fedge_check_result_path(const char *path, fedge_error *err);
/* Does every path lead to a file or a directory, as it should? One that leads to the wrong thing
 * fails with an I/O error otherwise, as a disk that is broken does. */
bool fedge_check_paths(const fedge_options *options);

#endif

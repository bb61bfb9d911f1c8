/* The global model on sets of examples, all threads together. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_EVALUATION_SET_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_EVALUATION_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/simulate/cohort/training_backend.h"
#include "edge/core/status.h"
#include "edge/data/dataset.h"

#define FEDGE_EVALUATION_PORTION 500u /* examples in one piece of work */

/* A set and what came of it. Plain data. */
typedef struct fedge_evaluation_set {
    fedge_view view;    /* indices are not NULL; count ≥ 1 */
    int32_t *predicted; /* (view.count): the class of each (classification.h); NULL: not wanted */
    bool own;           /* by the model that [client] has for itself, where the plan is personal */
    uint32_t client;
    uint64_t correct;
    double loss;     /* mean; NaN when the model has diverged */
    double accuracy; /* share that is right; 0 when the model has diverged; says nothing without
                      * fedge_has_accuracy */
} fedge_evaluation_set;

/* Evaluates the engine's global model on each of [sets]; the results depend on model and sets
 * alone. With [may_stop] FEDGE_CANCELLED when the engine's cancel says so, and then nothing is
 * known of the sets. FEDGE_NO_MEMORY; what reading examples gives. */
FEDGE_MUST_USE fedge_status fedge_evaluate_sets(fedge_trainer_engine *engine,
                                                fedge_evaluation_set *sets, uint32_t num_sets,
                                                bool may_stop, fedge_error *err);

#endif

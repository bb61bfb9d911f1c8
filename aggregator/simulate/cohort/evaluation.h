/* Evaluates the global model on sets of examples, with all threads. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_EVALUATION_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_EVALUATION_H

#include <stdbool.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "aggregator/rounds/round_summary.h"
#include "aggregator/simulate/cohort/training_backend.h"
#include "edge/core/status.h"
#include "edge/data/dataset.h"
#include "edge/train/model.h"

#define FEDGE_EVALUATION_CHUNK 500u /* examples of one task */

/* A set and its result. Plain data. */
typedef struct fedge_evaluation_set {
    fedge_view view;    /* indices are not NULL; count ≥ 1 */
    int32_t *predicted; /* (view.count): the class of each (fedge_classify); NULL: not wanted */
    bool personal;      /* use [client]'s personal model, where the plan is personal */
    uint32_t client;
    uint64_t correct;
    fedge_errors errors; /* sums, for a plan with targets */
    double loss;         /* mean; NaN when the model has diverged */
    double accuracy;     /* 0 when the model has diverged; meaningless without fedge_has_accuracy */
} fedge_evaluation_set;

/* Evaluates the backend's global model on each of [sets]; the results depend on model and sets
 * alone. With [may_stop] FEDGE_CANCELLED when the backend's cancel says so; then the results are
 * unset. FEDGE_NO_MEMORY; errors of reading examples. */
FEDGE_MUST_USE fedge_status fedge_evaluate_sets(fedge_sim_backend *backend,
                                                fedge_evaluation_set *sets, uint32_t num_sets,
                                                bool may_stop, fedge_error *err);

/* Results of a classification by class.
 *
 * Of class c, with the examples whose label is c (support), those predicted as c (predicted) and
 * those of which both hold (correct): precision = correct / predicted, recall = correct / support,
 * F1 = 2 · correct / (support + predicted), each 0 where its denominator is 0. The macro means go
 * over the classes that occur as label or prediction, as scikit-learn's f1_score(average="macro",
 * zero_division=0) has it.
 */

#define FEDGE_CONFUSION_MAX_CLASSES 128u /* no matrix for more */
#define FEDGE_CLASSES_MAX_LISTED 4096u   /* no numbers of each class for more */

/* The class of each example by its outputs, (batch, outputs): that of the largest, the first of
 * equal ones; with one output 1 where it is over 0, else 0. With BCEWithLogitsLoss and several
 * outputs accuracy is stricter: it needs all outputs on the right side of 0. */
void fedge_classify(const fedge_model_spec *spec, const float *outputs, uint32_t batch,
                    int32_t *predicted);

/* Owns its arrays; all 0: unknown. */
typedef struct fedge_classification {
    uint32_t num_classes;
    uint64_t *support, *predicted, *correct; /* (num_classes) */
    uint64_t *confusion; /* (num_classes, num_classes): rows are labels, columns predictions; NULL
                            for more than FEDGE_CONFUSION_MAX_CLASSES */
    double macro_precision, macro_recall, macro_f1;
} fedge_classification;

/* Compares labels[indices[i]] with predicted[i] for i below [count]; all are below [num_classes].
 * FEDGE_NO_MEMORY: [to] is all 0. */
FEDGE_MUST_USE fedge_status fedge_classification_init(fedge_classification *to,
                                                      uint32_t num_classes, const int32_t *labels,
                                                      const uint32_t *indices,
                                                      const int32_t *predicted, uint32_t count,
                                                      fedge_error *err);
void fedge_classification_fini(fedge_classification *classification); /* all 0 is fine */

/* Adds macro_f1, macro_precision, macro_recall, per_class (arrays over classes; null for a class
 * that occurs nowhere) and confusion_matrix. Unknown values, and those over a limit, are
 * null. False: no memory. */
bool fedge_classification_add(cJSON *json, const fedge_classification *classification);

/* How evenly a model serves its clients: the distribution of accuracy over them. */

/* Each client counts once, except in the weighted mean. Plain data; all 0: unknown. */
typedef struct fedge_client_accuracies {
    uint32_t num_clients;  /* clients that were evaluated */
    uint32_t num_eligible; /* candidates with examples; if more, a random sample was evaluated */
    bool held_out;         /* evaluated on held-out examples, not on the training examples */
    uint64_t num_examples;
    double mean, weighted_mean;     /* weighted by examples: the accuracy over all of them */
    double deviation;               /* over the clients, divided by their number, as the variance
                                       that q-FFL (Li et al., ICLR 2020) reports */
    double worst_tenth, best_tenth; /* means of the ceil(clients / 10) at each end */
    fedge_accuracy_quantiles quantiles;
} fedge_client_accuracies;

/* Fills all but num_eligible and held_out. correct, examples: (num_clients ≥ 1), examples ≥ 1;
 * scratch: (num_clients), overwritten. */
void fedge_client_accuracies_measure(fedge_client_accuracies *to, const uint64_t *correct,
                                     const uint32_t *examples, uint32_t num_clients,
                                     double *scratch);

/* Adds "per_client_accuracy", null when unknown. False: no memory. */
bool fedge_client_accuracies_add(cJSON *json, const fedge_client_accuracies *accuracies);

#endif

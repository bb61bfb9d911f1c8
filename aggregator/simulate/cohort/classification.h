/* Which classes a model tells apart, and which it takes for which.
 *
 * Of class c, with the examples whose label is c (support) and those that are taken for c
 * (predicted): precision = right / predicted, recall = right / support, F1 = 2 · right / (support +
 * predicted), each 0 where its denominator is 0. The macro means go over the classes that occur as
 * label or prediction, as scikit-learn's f1_score(average="macro", zero_division=0) has it.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_CLASSIFICATION_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_CLASSIFICATION_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/train/model.h"

#define FEDGE_CONFUSION_MAX_CLASSES 128u /* of more there is no matrix */
#define FEDGE_CLASSES_MAX_LISTED 4096u   /* of more there are no numbers of each class */

/* The class of each example by its outputs, (batch, outputs): that of the largest, the first of
 * equal ones; with one output 1 where it is over 0, else 0. With BCEWithLogitsLoss and several
 * outputs this may be the label where accuracy does not count it, which wants all outputs on their
 * side of 0. */
void fedge_classify(const fedge_model_spec *spec, const float *outputs, uint32_t batch,
                    int32_t *predicted);

/* Plain data but for the arrays; all 0: nothing is known. */
typedef struct fedge_classification {
    uint32_t num_classes;
    uint64_t *support, *predicted, *right; /* (num_classes) */
    uint64_t *confusion; /* (num_classes, num_classes): rows are labels, columns predictions; NULL
                            for more than FEDGE_CONFUSION_MAX_CLASSES */
    double macro_precision, macro_recall, macro_f1;
} fedge_classification;

/* Counts over examples: labels[indices[i]] and what it was taken for, predicted[i], i below
 * [count], all below [num_classes]. FEDGE_NO_MEMORY, and then [to] is all 0. */
FEDGE_MUST_USE fedge_status fedge_classification_init(fedge_classification *to,
                                                      uint32_t num_classes, const int32_t *labels,
                                                      const uint32_t *indices,
                                                      const int32_t *predicted, uint32_t count,
                                                      fedge_error *err);
void fedge_classification_fini(fedge_classification *classification); /* all 0 is fine */

/* Adds macro_f1, macro_precision, macro_recall, per_class (arrays over classes; null for a class
 * that occurs nowhere) and confusion_matrix. What is not known, or over a limit, is null. False
 * without memory. */
bool fedge_classification_add(cJSON *json, const fedge_classification *classification);

#endif

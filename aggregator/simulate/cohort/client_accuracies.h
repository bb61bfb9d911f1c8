/* How evenly a model serves its clients: the distribution of accuracy over them. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_CLIENT_ACCURACIES_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_CLIENT_ACCURACIES_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/round_summary.h"

/* Each client counts once, but in the weighted mean. Plain data; all 0: nothing is known. */
typedef struct fedge_client_accuracies {
    uint32_t num_clients;  /* that were evaluated */
    uint32_t num_eligible; /* that have such examples; more: the others are a random choice */
    bool held_out; /* on the examples that a client holds out; else on those it trains with */
    uint64_t num_examples;
    double mean, weighted_mean;     /* weighted by examples: the accuracy over all of them */
    double deviation;               /* over the clients, divided by their number, as the variance
                                       that q-FFL (Li et al., ICLR 2020) reports */
    double worst_tenth, best_tenth; /* means of the ceil(clients / 10) at either end (likewise) */
    fedge_accuracy_quantiles quantiles;
} fedge_client_accuracies;

/* Fills all but num_eligible and held_out. correct, examples: (num_clients ≥ 1), examples ≥ 1;
 * room: (num_clients), overwritten. */
void fedge_client_accuracies_measure(fedge_client_accuracies *to, const uint64_t *correct,
                                     const uint32_t *examples, uint32_t num_clients, double *room);

/* Adds "per_client_accuracy", null when nothing is known. False without memory. */
bool fedge_client_accuracies_add(cJSON *json, const fedge_client_accuracies *accuracies);

#endif

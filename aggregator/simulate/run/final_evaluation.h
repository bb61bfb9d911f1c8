/* The evaluation of the last model, class by class and client by client. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_FINAL_EVALUATION_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_FINAL_EVALUATION_H

#include "aggregator/simulate/cohort/client_data.h"
#include "aggregator/simulate/cohort/evaluation.h"
#include "aggregator/simulate/run/simulation.h"
#include "edge/core/status.h"
#include "edge/data/dataset.h"
#include "edge/plan/plan.h"

#define FEDGE_FINAL_EVALUATION_CLIENTS 10000 /* default of --client-accuracy */

/* Owns the classifications' arrays; all 0: unknown. */
typedef struct fedge_final_evaluation {
    fedge_classification test, validation; /* all 0 where there is no such set */
    fedge_client_accuracies clients;
    bool has_backdoor;
    double backdoor; /* fedge_backdoor_measure */
} fedge_final_evaluation;

/* Evaluates the current model on the test set, the examples for validation and the clients' own
 * examples: the held-out ones or, if no client has any, the training ones. More than [max_clients]
 * are sampled by the job's seed. No round may be open. Results are unknown for a model without
 * classes, one that has diverged, or when the simulation's cancel says so. FEDGE_NO_MEMORY; errors
 * of reading examples. Call fedge_final_evaluation_fini also after a failure. */
FEDGE_MUST_USE fedge_status fedge_final_evaluation_init(fedge_final_evaluation *to,
                                                        fedge_simulation *simulation,
                                                        const fedge_plan *plan,
                                                        const fedge_client_data *client_data,
                                                        uint32_t max_clients, fedge_error *err);
void fedge_final_evaluation_fini(fedge_final_evaluation *final_evaluation); /* all 0 is fine */

/* The success of a backdoor (attacks.h): the fraction of the test set's examples of other classes
 * that the current model classifies as FEDGE_BACKDOOR_LABEL once they have its mark; NaN: unknown.
 * Marks all of [test_set], the simulation's, so it must be the last evaluation, by a backend that
 * reads the set in place ("cpu"). FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_backdoor_measure(fedge_simulation *simulation,
                                                   fedge_dataset *test_set, double *fraction,
                                                   fedge_error *err);

#endif

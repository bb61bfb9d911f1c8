/* The last model, looked at closely: class by class and client by client. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_FINAL_EVALUATION_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_FINAL_EVALUATION_H

#include "aggregator/simulate/cohort/client_data.h"
#include "aggregator/simulate/cohort/evaluation.h"
#include "aggregator/simulate/run/simulation.h"
#include "edge/core/status.h"
#include "edge/data/dataset.h"
#include "edge/plan/plan.h"

#define FEDGE_FINAL_EVALUATION_CLIENTS 10000 /* evaluated when nobody says how many */

/* Plain data but for the classifications' arrays; all 0: nothing is known. */
typedef struct fedge_final_evaluation {
    fedge_classification test, validation; /* of the sets that there are */
    fedge_client_accuracies clients;
    bool has_backdoor;
    double backdoor; /* fedge_backdoor_measure */
} fedge_final_evaluation;

/* Evaluates the present model on the test set, the examples for validation and the clients' own:
 * those that they hold out, or where nobody does those that they train with. Of more than
 * [max_clients] as many are taken, by the job's seed. No round may be open. Nothing is known of a
 * model that tells no classes apart or has diverged, nor when the simulation's cancel says so in
 * between. FEDGE_NO_MEMORY, and what reading examples gives; then, too, [to] is for
 * fedge_final_evaluation_fini. */
FEDGE_MUST_USE fedge_status fedge_final_evaluation_init(fedge_final_evaluation *to,
                                                        fedge_simulation *simulation,
                                                        const fedge_plan *plan,
                                                        const fedge_client_data *client_data,
                                                        uint32_t max_clients, fedge_error *err);
void fedge_final_evaluation_fini(fedge_final_evaluation *final_evaluation); /* all 0 is fine */

/* What a backdoor among the attacks (attacks.h) has made of the model. */

/* What a backdoor has reached: the share of the test set's examples of other classes that the
 * present model takes for the backdoor's once they have its mark; NaN when it is not known. All of
 * [test_set], which is the simulation's, has the mark from then on, so it is the last evaluation,
 * and by a backend that reads the set where it lies ("cpu"). FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_backdoor_measure(fedge_simulation *simulation,
                                                   fedge_dataset *test_set, double *fraction,
                                                   fedge_error *err);

#endif

/* What a backdoor among the attacks (attacks.h) has made of the model. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_BACKDOOR_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_BACKDOOR_H

#include "aggregator/simulate/run/simulation.h"
#include "edge/core/status.h"
#include "edge/data/dataset.h"

/* What a backdoor has reached: the share of the test set's examples of other classes that the
 * present model takes for the backdoor's once they have its mark; NaN when it is not known. All of
 * [test_set], which is the simulation's, has the mark from then on, so it is the last evaluation,
 * and by an engine that reads the set where it lies ("cpu"). FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_backdoor_measure(fedge_simulation *simulation,
                                                   fedge_dataset *test_set, double *share,
                                                   fedge_error *err);

#endif

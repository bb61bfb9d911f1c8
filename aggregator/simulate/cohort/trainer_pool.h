/* The engine "cpu": threads that do virtual clients' work, one client per thread at a time.
 *
 * Each thread has a model, a lane of sums and buffers of its own, taken once; a task takes no
 * memory (but the first of a client of which the strategy keeps something). The global model and
 * the data are shared and only read. Tasks are begun in their order. A thread that waits for work,
 * or for the others to end theirs, looks for a tenth of a millisecond before it sleeps.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_TRAINER_POOL_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_TRAINER_POOL_H

#include "aggregator/simulate/cohort/training_backend.h"

extern const fedge_trainer_engine_ops fedge_trainer_engine_cpu;

#endif

/* The engine "cuda": cohorts of virtual clients trained side by side on this
 * machine's GPUs (edge/train/cuda).
 *
 * Each GPU has a thread, which takes clients from one queue as its slots become
 * free, encodes what they have become, and adds it to the sums. The data lie on
 * each GPU. More clients than there are slots are trained one after another.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_TRAINER_CUDA_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_TRAINER_CUDA_H

#include "aggregator/simulate/cohort/training_backend.h"

extern const fedge_trainer_engine_ops fedge_trainer_engine_cuda;

#endif

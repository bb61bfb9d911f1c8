/* FedAvg's step, for strategies that differ from it in what clients do. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_FEDAVG_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_FEDAVG_H

#include "aggregator/rounds/strategy.h"

FEDGE_MUST_USE fedge_status fedge_fedavg_step(void *state, const fedge_strategy_sum *sum,
                                              float *model, fedge_error *err);
#endif

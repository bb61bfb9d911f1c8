/* FedAvg's step, for strategies that differ from it in what clients do. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_FEDAVG_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_FEDAVG_H

#include "aggregator/rounds/strategy.h"

FEDGE_MUST_USE fedge_status fedge_fedavg_init(const fedge_strategy_config *config, void **state,
                                              fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_fedavg_step(void *state, const fedge_strategy_sum *sum,
                                              float *model, fedge_error *err);
void fedge_fedavg_free(void *state);

#endif

/* FedAvg's step, for strategies that differ from it in what clients do. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_FEDAVG_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_FEDAVG_H

#include "aggregator/rounds/strategy.h"

FEDGE_MUST_USE fedge_status fedge_fedavg_init(const fedge_strategy_config *config, void **state,
                                              fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_fedavg_step(void *state, const fedge_strategy_sum *sum,
                                              float *model, fedge_error *err);
void fedge_fedavg_free(void *state);
/* As a reader's derive: fails where the job has a test set, which the server's model cannot be
 * evaluated on, for some of its layers are the clients' own. */
FEDGE_MUST_USE fedge_status fedge_refuse_test_set(const struct fedge_json *json,
                                                  struct fedge_job *job, void *settings,
                                                  fedge_error *err);

#endif

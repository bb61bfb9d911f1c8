/* What FedPer and FedRep share: the server averages the layers that clients share, and they differ
 * in their arguments and in the clients' part alone. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_PERSONAL_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_PERSONAL_H

#include "aggregator/rounds/strategies/fedavg.h"
#include "edge/json/json.h"
#include "edge/plan/client_hooks.h"

typedef struct fedge_personal_settings {
    fedge_strategy_common common;
    fedge_hooks_arguments with;
} fedge_personal_settings;

/* The ops of a strategy with this name and these arguments. */
#define FEDGE_PERSONAL_OPS(title, fields)                                                          \
    {                                                                                              \
        .reader = {.name = (title),                                                                \
                   .arguments = (fields),                                                          \
                   .settings_size = sizeof(fedge_personal_settings),                               \
                   .derive = fedge_refuse_test_set},                                               \
        .init = fedge_strategy_init_settings, .step = fedge_fedavg_step,                           \
        .save = fedge_strategy_save_nothing, .load = fedge_strategy_load_nothing,                  \
        .free = fedge_strategy_free_nothing,                                                       \
    }

#endif

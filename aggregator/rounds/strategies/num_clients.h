/* The argument num-clients, N, of strategies that weigh a round's clients against all there are. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_NUM_CLIENTS_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_NUM_CLIENTS_H

#include <stdbool.h>

#include "aggregator/rounds/strategy.h"
#include "edge/json/json.h"

typedef struct fedge_num_clients {
    uint32_t count; /* N; 0 until it is derived */
    bool given;     /* the job says it */
} fedge_num_clients;

/* A field of the struct [type], whose member [member] is a fedge_num_clients. */
#define FEDGE_NUM_CLIENTS_FIELD(type, member)                                                      \
    {                                                                                              \
        "num-clients", "num_clients", FEDGE_JSON_U32, FEDGE_JSON_AT(type, member.count),           \
            .min = 1, .max = UINT32_MAX                                                            \
    }

/* It is min-available-nodes where the job does not say it, and no less where it does. */
FEDGE_MUST_USE fedge_status fedge_num_clients_derive(const fedge_json *json, const fedge_job *job,
                                                     fedge_num_clients *clients, fedge_error *err);
/* As fedge_strategy_ops.count_clients. */
FEDGE_MUST_USE fedge_status fedge_num_clients_count(fedge_num_clients *clients,
                                                    uint32_t num_clients, fedge_error *err);
/* |S| / N, at most 1 when more took part than there are said to be. */
double fedge_num_clients_share(const fedge_num_clients *clients, uint32_t num_updates);

#endif

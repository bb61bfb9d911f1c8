#include "aggregator/rounds/strategies/num_clients.h"

#include <inttypes.h>

fedge_status fedge_num_clients_derive(const fedge_json *json, const fedge_job *job,
                                      fedge_num_clients *clients, fedge_error *err)
{
    const uint32_t least = job->rounds.min_available_nodes;
    clients->given = clients->count != 0;
    if (!clients->given)
        clients->count = least;
    return clients->count >= least
               ? FEDGE_OK
               : fedge_json_fail_at(json, "strategy.num-clients", err,
                                    "%" PRIu32 " is less than min-available-nodes %" PRIu32
                                    "; raise it",
                                    clients->count, least);
}

fedge_status fedge_num_clients_count(fedge_num_clients *clients, uint32_t num_clients,
                                     fedge_error *err)
{
    if (!clients->given)
        clients->count = num_clients;
    return clients->count == num_clients
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "strategy.num-clients, against which a round's clients are weighed, "
                            "is %" PRIu32 ", and there are %" PRIu32 " clients: set it to %" PRIu32
                            " or leave it out",
                            clients->count, num_clients, num_clients);
}

double fedge_num_clients_share(const fedge_num_clients *clients, uint32_t num_updates)
{
    const double share = (double)num_updates / (double)clients->count;
    return share < 1.0 ? share : 1.0;
}

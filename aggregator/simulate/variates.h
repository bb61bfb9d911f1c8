/* SCAFFOLD's control variates of the virtual clients (edge/io/control.h), in memory: each takes its
 * place when its client first trains. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_VARIATES_H
#define FEDGE_AGGREGATOR_SIMULATE_VARIATES_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* One that is all 0 has no clients. */
typedef struct fedge_variates {
    uint32_t num_clients;
    size_t num_values;
    float **of; /* (num_clients); NULL: c_i is 0 still */
} fedge_variates;

/* [most]: how many clients can train in the whole run. FEDGE_TOO_BIG when their variates together
 * would take more than the machine's memory: says what to change. */
FEDGE_MUST_USE fedge_status fedge_variates_init(fedge_variates *variates, uint32_t num_clients,
                                                uint64_t most, size_t num_values, fedge_error *err);
void fedge_variates_fini(fedge_variates *variates);

/* The variate of a client, made of zeros the first time; NULL: no memory. Different threads may ask
 * for different clients. */
float *fedge_variates_of(fedge_variates *variates, uint32_t client);

#endif

/* A trace of client profiles: a CSV file with a header and a row for each client.
 *
 *     client,compute,down,up,failure
 *     0,120.5,2e6,5e5,0.01
 *
 * client is the index, from 0; each has exactly one row, in any order. The other columns are as in
 * fedge_client_profile, in any order, and each may be left out.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_TIME_TRACE_H
#define FEDGE_AGGREGATOR_SIMULATE_TIME_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/simulate/time/client_profiles.h"
#include "edge/core/status.h"

/* Which columns there are. */
typedef struct fedge_trace_columns {
    bool compute, down, up, failure;
} fedge_trace_columns;

/* Reads the columns that there are into [clients] (num_clients) and leaves the rest. Errors name
 * file and line. FEDGE_CORRUPT: a client without a row or with two, a column that is not known;
 * FEDGE_OUT_OF_RANGE: a number that cannot be; and those of edge/data/formats/csv.h. */
FEDGE_MUST_USE fedge_status fedge_trace_load(const char *path, uint32_t num_clients,
                                             fedge_client_profile *clients,
                                             fedge_trace_columns *columns, fedge_error *err);

#endif

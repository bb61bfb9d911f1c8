/* Availability: when each virtual client is online. A pure function of (client, time), so a run can
 * resume at any time without stored state.
 *
 * Drawn, "SHARE,SECONDS": a client is online for SHARE of the time, in periods of SECONDS on
 * average with periods offline between them, all exponentially distributed (an on-off Markov
 * process). Time is cut into segments of 64 average periods on and off; each begins online with
 * probability SHARE, so that any time can be computed without drawing all before it.
 *
 * Read, "file:CSV": a header and rows of client,from,to in whole seconds, in which the client is
 * online from [from] until before [to]. Each client has at least one row. All of it repeats from
 * the latest [to] on, as FedScale's traces do.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_TIME_AVAILABILITY_H
#define FEDGE_AGGREGATOR_SIMULATE_TIME_AVAILABILITY_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_SIMULATE_MAX_CLIENTS 16777216u
#define FEDGE_AVAILABILITY_NEVER UINT64_MAX
#define FEDGE_AVAILABILITY_MIN_FRACTION 0.001
#define FEDGE_AVAILABILITY_MAX_FRACTION 0.999
#define FEDGE_AVAILABILITY_MAX_SECONDS 31536000.0 /* a year */
#define FEDGE_AVAILABILITY_MAX_ROWS ((uint32_t)1 << 28)

typedef struct fedge_availability fedge_availability;

/* [text]: as above; [file:CSV]'s path is relative to the working directory. FEDGE_INVALID_ARGUMENT,
 * FEDGE_CORRUPT and FEDGE_OUT_OF_RANGE for rows (file and line are named): columns that are not
 * client, from and to, in any order; a client that is not there or has no row; a time below 0; a
 * row that ends before it begins; one that overlaps another. */
FEDGE_MUST_USE fedge_status fedge_availability_new(const char *text, uint64_t seed,
                                                   uint32_t num_clients,
                                                   fedge_availability **availability,
                                                   fedge_error *err);
void fedge_availability_free(fedge_availability *availability); /* NULL is fine */

/* Is the client online at [time_us]? *until_us: the first later time at which this changes, or
 * FEDGE_AVAILABILITY_NEVER. */
bool fedge_availability_at(const fedge_availability *availability, uint32_t client,
                           uint64_t time_us, uint64_t *until_us);

#endif

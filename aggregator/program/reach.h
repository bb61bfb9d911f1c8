/* Which machines of a host file can be reached: mpirun starts nothing when one of them cannot. */
#ifndef FEDGE_AGGREGATOR_PROGRAM_REACH_H
#define FEDGE_AGGREGATOR_PROGRAM_REACH_H

#include <stdint.h>

#include "edge/core/status.h"
#include "edge/plan/plan.h"

#define FEDGE_REACH_LIMIT_MS 20000u /* a machine that takes longer does not answer */
#define FEDGE_REACH_MAX_AT_ONCE 16u /* probes that run side by side */

/* Who is told of each machine that does not answer. */
typedef struct fedge_reach_listener {
    void (*silent)(void *user, const char *name);
    void *user;
} fedge_reach_listener;

/* Runs `mpirun --host NAME:1 -n 1 true` for each machine of the checked file [path], so by the way
 * on which the ranks are started. [out]: a file with the lines of those that answered within
 * [limit_ms]: [path] when all did, otherwise one that lasts as long as this process, exec included.
 * FEDGE_NOT_FOUND: the first machine does not answer; it has the run, and *out is not set. Errors
 * of the file and of the system. The process has no other children. */
FEDGE_MUST_USE fedge_status fedge_reach(const char *path, uint64_t limit_ms,
                                        const fedge_reach_listener *listener,
                                        char out[FEDGE_MAX_PATH], fedge_error *err);

#endif

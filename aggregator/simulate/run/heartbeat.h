/* Heartbeat: lets the ranks of a simulation notice that one of them hangs.
 *
 * A rank is silent while it works, and the others wait for it in calls without a time limit. So a
 * thread of each rank sends a message each second over its own collective: rank 0 to all others,
 * and these to rank 0. A rank that is silent for too long (threads/ranks_watch.h) hangs or cannot
 * be reached. Long work delays no message.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_HEARTBEAT_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_HEARTBEAT_H

#include "aggregator/reduce/collective.h"
#include "aggregator/threads/ranks_watch.h"
#include "edge/core/status.h"

#define FEDGE_HEARTBEAT_EVERY_MS 1000u

typedef struct fedge_heartbeat fedge_heartbeat;

/* All ranks call this. [stuck] is called on another thread and must end all ranks. With one rank
 * *heartbeat is NULL. A failure on one rank does not reach the others, which would wait for it in
 * fedge_heartbeat_end: call fedge_collective_abort. */
FEDGE_MUST_USE fedge_status fedge_heartbeat_new(const fedge_collective *collective,
                                                fedge_ranks_stuck_fn stuck, void *user,
                                                fedge_heartbeat **heartbeat, fedge_error *err);
/* This rank has no more work. Returns when rank 0 has none either, on rank 0 when no rank has. NULL
 * is fine. */
void fedge_heartbeat_end(fedge_heartbeat *heartbeat);

#endif

/* Beats: by which the ranks of a simulation learn that one of them hangs.
 *
 * A rank computes for as long as its share takes and says nothing meanwhile, and the others wait
 * for it in calls without a limit. So a thread of each rank says a word each second, over a
 * collective of its own: rank 0 to all others, and these to rank 0. Whoever has said nothing for
 * too long (workers/ranks_watch.h) hangs or is not reached. A share that takes long keeps no beat
 * back.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_HEARTBEAT_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_HEARTBEAT_H

#include "aggregator/reduce/collective.h"
#include "aggregator/threads/ranks_watch.h"
#include "edge/core/status.h"

#define FEDGE_HEARTBEAT_EVERY_MS 1000u

typedef struct fedge_heartbeat fedge_heartbeat;

/* All ranks call this. [stuck] is called on another thread, and ends all ranks. Alone *beats is
 * NULL. A failure of one rank is none of the others', which would wait for it in
 * fedge_heartbeat_end: fedge_collective_abort. */
FEDGE_MUST_USE fedge_status fedge_heartbeat_new(const fedge_collective *collective,
                                                fedge_ranks_stuck_fn stuck, void *user,
                                                fedge_heartbeat **heartbeat, fedge_error *err);
/* This rank has nothing more to do; returns when rank 0, or on rank 0 all others, have nothing more
 * either. NULL is fine. */
void fedge_heartbeat_end(fedge_heartbeat *heartbeat);

#endif

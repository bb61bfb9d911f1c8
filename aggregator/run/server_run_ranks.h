/* What other ranks have of a run: their acknowledged updates at a start, and their sums. */
#ifndef FEDGE_AGGREGATOR_RUN_SERVER_RUN_RANKS_H
#define FEDGE_AGGREGATOR_RUN_SERVER_RUN_RANKS_H

#include "aggregator/run/server_run.h"
#include "edge/core/status.h"

/* Before recovery: all ranks come together (fedge_rendezvous). [status]: how the start has fared.
 */
FEDGE_MUST_USE fedge_status fedge_server_run_rendezvous(fedge_server_run *server,
                                                        const char *state_dir, fedge_status status,
                                                        fedge_error *err);
/* After it, however it ended; once fedge_server_run_rendezvous has succeeded. */
void fedge_server_run_end_rendezvous(fedge_server_run *server);

/* Recovery, with a journal: every update of it that is on a disk of a rank counts, once, and is in
 * the sums of that rank; what is on a disk that is not there is open again, and the log says how
 * many these are. A phase that was closed with them is open again. */
FEDGE_MUST_USE fedge_status fedge_server_run_recover_updates(fedge_server_run *server,
                                                             fedge_recovery *recovery,
                                                             fedge_error *err);

/* The accumulator of the model sums for all ranks; nothing when alone. After each open of it. */
FEDGE_MUST_USE fedge_status fedge_server_run_wrap_sums(fedge_server_run *server, fedge_error *err);
/* All know how these will be joined. */
FEDGE_MUST_USE fedge_status fedge_server_run_agree_on_sums(fedge_server_run *server,
                                                           fedge_error *err);
/* It has the sums of all. */
FEDGE_MUST_USE fedge_status fedge_server_run_join_sums(fedge_server_run *server, fedge_error *err);

#endif

/* What ranks that the supervisor starts by mpirun have to know of those before them.
 *
 * mpirun passes the supervisor's own part on in a variable of the environment. Which run is open
 * stands in STATE/supervised, where rank 0 leaves it for the next rank 0, beside the number of the
 * supervisor: what an earlier one has left says nothing.
 */
#ifndef FEDGE_AGGREGATOR_PROGRAM_RESTART_STATE_H
#define FEDGE_AGGREGATOR_PROGRAM_RESTART_STATE_H

#include "aggregator/program/supervisor.h"
#include "edge/core/log.h"
#include "edge/core/status.h"

#define FEDGE_RESTART_STATE_VARIABLE "FEDGE_SUPERVISED" /* RESTARTS:NUMBER */

/* In the supervisor's child: sets the variable. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_restart_state_export(const fedge_supervised *self,
                                                       fedge_error *err);

/* In a rank: fills [self] from the variable and from what is in [state_dir]. Without the variable
 * it stays as it is. A damaged file counts as none, and the log says so. */
void fedge_restart_state_import(fedge_supervised *self, const char *state_dir,
                                const fedge_log *log);

/* In rank 0: this run is open. Nothing is done for a process that no supervisor has started by
 * mpirun. Errors are those of the file. */
FEDGE_MUST_USE fedge_status fedge_restart_state_run_opened(const fedge_supervised *self,
                                                           const char *state_dir,
                                                           const char run_id[FEDGE_RUN_ID_TEXT],
                                                           fedge_error *err);

#endif

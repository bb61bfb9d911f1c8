/* Starts the ranks of --supervise --hosts FILE by mpirun on the machines in FILE.
 *
 * The script start_ranks.sh does it; its head describes the file and which machines take part. It
 * is installed as libexec/fedge/start-ranks, which is found relative to the running program
 * (bin/../libexec/fedge), in the build tree too, or by the environment variable FEDGE_LIBEXEC.
 */
#ifndef FEDGE_AGGREGATOR_PROGRAM_RANK_LAUNCHER_H
#define FEDGE_AGGREGATOR_PROGRAM_RANK_LAUNCHER_H

#include <stdbool.h>

#include "aggregator/program/supervisor.h"
#include "edge/core/log.h"
#include "edge/core/status.h"

#define FEDGE_LIBEXEC_VARIABLE "FEDGE_LIBEXEC"

/* Whether mpirun can start ranks for this user on the machines of the file [hosts]. Otherwise
 * prints the reason on stderr, followed by [remark]. */
bool fedge_rank_launcher_check(const char *hosts, const char *remark);

/* Turns this process into an mpirun that starts the program [argv] on the machines of [hosts], with
 * an additional --drain if [self] is draining. Returns only if the script cannot be run. */
FEDGE_MUST_USE fedge_status fedge_rank_launcher_run(const fedge_supervised *self, const char *hosts,
                                                    int argc, char **argv, fedge_error *err);

/* ---- restart state --------------------------------------------------------------------------- */

/* State passed from earlier ranks. mpirun passes the supervisor's part in an environment variable.
 * Rank 0 stores the open run for the next rank 0 in STATE/supervised, with the supervisor's number:
 * a file of another supervisor is ignored. */

#define FEDGE_RESTART_STATE_VARIABLE "FEDGE_SUPERVISED" /* RESTARTS:NUMBER */

/* In the supervisor's child: sets the variable. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_restart_state_export(const fedge_supervised *self,
                                                       fedge_error *err);

/* In a rank: reads [self] from the variable and [state_dir]. Unchanged without the variable. A
 * damaged file is logged and ignored. */
void fedge_restart_state_import(fedge_supervised *self, const char *state_dir,
                                const fedge_log *log);

/* In rank 0: stores that this run is open. Does nothing unless a supervisor started the process by
 * mpirun. Fails with errors of the file. */
FEDGE_MUST_USE fedge_status fedge_restart_state_run_opened(const fedge_supervised *self,
                                                           const char *state_dir,
                                                           const char run_id[FEDGE_RUN_ID_TEXT],
                                                           fedge_error *err);

#endif

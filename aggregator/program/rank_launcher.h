/* Starts the ranks of --supervise --hosts FILE: by mpirun, on the machines that FILE names.
 *
 * The work is done by the script start_ranks.sh, which describes the file and which machines take
 * part. It is installed as libexec/fedge/start-ranks; its folder is found from that of the running
 * program (bin/../libexec/fedge), in the build tree too, or named by the environment variable
 * FEDGE_LIBEXEC.
 */
#ifndef FEDGE_AGGREGATOR_PROGRAM_RANK_LAUNCHER_H
#define FEDGE_AGGREGATOR_PROGRAM_RANK_LAUNCHER_H

#include <stdbool.h>

#include "aggregator/program/supervisor.h"
#include "edge/core/log.h"
#include "edge/core/status.h"

#define FEDGE_LIBEXEC_VARIABLE "FEDGE_LIBEXEC"

/* Whether mpirun can start ranks on the machines of the file [hosts] for this user. If not, the
 * reason is on the standard error, with [remark] behind it. */
bool fedge_rank_launcher_check(const char *hosts, const char *remark);

/* This process becomes an mpirun that starts the program [argv] on the machines of [hosts], with
 * one more option --drain if [self] is draining. Returns only if the script cannot be run. */
FEDGE_MUST_USE fedge_status fedge_rank_launcher_run(const fedge_supervised *self, const char *hosts,
                                                    int argc, char **argv, fedge_error *err);

/* ---- restart state --------------------------------------------------------------------------- */

/* What ranks must know of those before them. mpirun passes the supervisor's own part on in a
 * variable of the environment. Rank 0 leaves the open run for the next rank 0 in STATE/supervised,
 * beside the number of the supervisor: a file of another supervisor counts for nothing. */

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

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
#include "edge/core/status.h"

#define FEDGE_LIBEXEC_VARIABLE "FEDGE_LIBEXEC"

/* Whether mpirun can start ranks on the machines of the file [hosts] for this user. If not, the
 * reason is on the standard error, with [remark] behind it. */
bool fedge_rank_launcher_check(const char *hosts, const char *remark);

/* This process becomes an mpirun that starts the program [argv] on the machines of [hosts], with
 * one more option --drain if [self] is draining. Returns only if the script cannot be run. */
FEDGE_MUST_USE fedge_status fedge_rank_launcher_run(const fedge_supervised *self, const char *hosts,
                                                    int argc, char **argv, fedge_error *err);

#endif

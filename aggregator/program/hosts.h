/* The machines of several ranks: a file as mpirun's --hostfile takes it. */
#ifndef FEDGE_AGGREGATOR_PROGRAM_HOSTS_H
#define FEDGE_AGGREGATOR_PROGRAM_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#include "edge/core/status.h"

#define FEDGE_HOSTS_MAX_SIZE ((size_t)1 << 16) /* bytes of the file */
#define FEDGE_HOSTS_MAX_NAME 256               /* bytes of a name, NUL included */

/* Seconds without an answer until mpirun takes a machine for lost and ends all ranks: asked for the
 * first time after IDLE_S, then each PROBE_S, PROBES times in vain. Open MPI asks by TCP's own
 * probes; a connection that only sits there would otherwise be kept for eight minutes. */
#define FEDGE_HOSTS_IDLE_S 20
#define FEDGE_HOSTS_PROBE_S 5
#define FEDGE_HOSTS_PROBES 4
#define FEDGE_HOSTS_SILENCE_S (FEDGE_HOSTS_IDLE_S + FEDGE_HOSTS_PROBE_S * FEDGE_HOSTS_PROBES)

/* Whether mpirun would start anything for this user. FEDGE_DENIED: it refuses to run as root. */
FEDGE_MUST_USE fedge_status fedge_hosts_check_user(fedge_error *err);

/* One machine a line: NAME, then what mpirun reads (slots=2); # begins a comment. FEDGE_NOT_FOUND:
 * there is none in it; FEDGE_DUPLICATE: one is named twice, be it in capitals; and errors of the
 * file. */
FEDGE_MUST_USE fedge_status fedge_hosts_check(const char *path, fedge_error *err);

/* The machine of a line of [size] bytes: its first word. False: the line is empty. */
bool fedge_hosts_name(const char *line, size_t size, char name[FEDGE_HOSTS_MAX_NAME]);

/* This process becomes an mpirun that starts the program [argv] on the machines of [path], with
 * [drain] one more option --drain. Returns only when there is no mpirun. HUP stays blocked, for
 * mpirun ends its ranks by it. A machine that is silent for FEDGE_HOSTS_SILENCE_S ends the ranks,
 * and ranks are bound to no cores, unless the environment has set Open MPI's parameters for that.
 */
FEDGE_MUST_USE fedge_status fedge_hosts_run(const char *path, int argc, char **argv, bool drain,
                                            fedge_error *err);

#endif

/* The machines of several ranks: a file as mpirun's --hostfile takes it. */
#ifndef FEDGE_AGGREGATOR_SERVER_RANKS_HOSTS_H
#define FEDGE_AGGREGATOR_SERVER_RANKS_HOSTS_H

#include <stdbool.h>

#include "edge/core/status.h"

#define FEDGE_HOSTS_MAX_SIZE ((size_t)1 << 16) /* bytes of the file */
#define FEDGE_HOSTS_MAX_NAME 256               /* bytes of a name, NUL included */

/* One machine a line: NAME, then what mpirun reads (slots=2); # begins a comment. FEDGE_NOT_FOUND:
 * there is none in it; FEDGE_DUPLICATE: one is named twice; and errors of the file. */
FEDGE_MUST_USE fedge_status fedge_hosts_check(const char *path, fedge_error *err);

/* Whether mpirun has started this process. */
bool fedge_hosts_inside(void);

/* This process becomes an mpirun that starts the program [argv] on the machines of [path], with
 * [drain] one more option --drain. Returns only when there is no mpirun. HUP stays blocked, for
 * mpirun ends its ranks by it. */
FEDGE_MUST_USE fedge_status fedge_hosts_run(const char *path, int argc, char **argv, bool drain,
                                            fedge_error *err);

#endif

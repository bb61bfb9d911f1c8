/* A hostile server, which replaces the real one and sends clients what no server should send.
 *
 * It knows the protocol and its job, so clients often get as far as plans, models, tasks and
 * uploads. The seed draws how many of its answers are wrong: wrong WELCOMEs, plans that need
 * unknown features or are of other jobs, other models, chunks beyond the end, huge sizes, offsets
 * of unknown uploads, acknowledgements of unknown tasks, refusals of every kind, redirects, and
 * bytes that are no frames. */
#ifndef FEDGE_TESTS_WORLD_HOSTILE_SERVER_H
#define FEDGE_TESTS_WORLD_HOSTILE_SERVER_H

#include <stdint.h>

#include "edge/plan/plan.h"

typedef struct hostile_server {
    uint64_t seed;
    const fedge_plan *plan; /* the job's plan */
    uint64_t until_ns;      /* it ends then */
} hostile_server;

/* The entry of the process's fiber. The argument is a hostile_server. */
void hostile_server_main(void *server);

#endif

/* A hostile server of a world: in place of the real one it answers real clients with what no server
 * should say.
 *
 * It knows the protocol and its job, so it leads clients far into it at times: to plans, models,
 * tasks and uploads. It answers wrongly in a share of cases that the world's seed draws: wrong
 * WELCOMEs, plans that need unknown features, plans of other jobs, models that are others, chunks
 * beyond the end, huge sizes, offsets of no upload, acknowledgements of no task, every refusal,
 * redirects, and frames that are none.
 */
#ifndef FEDGE_TESTS_WORLD_HOSTILE_SERVER_H
#define FEDGE_TESTS_WORLD_HOSTILE_SERVER_H

#include <stdint.h>

#include "edge/plan/plan.h"

typedef struct hostile_server {
    uint64_t seed;
    const fedge_plan *plan; /* of the job */
    uint64_t until_ns;      /* it ends then */
} hostile_server;

/* The process: a fiber's entry, with a hostile_server. */
void hostile_server_main(void *server);

#endif

/* One simulated federation, from its seed to its verdict. */
#ifndef FEDGE_TESTS_WORLD_WORLD_H
#define FEDGE_TESTS_WORLD_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/world/plan.h"

typedef struct world_outcome {
    bool failed;
    char why[1024];
    uint64_t hash;                       /* of the world's story */
    uint64_t steps;                      /* of the scheduler */
    double seconds;                      /* virtual */
    uint32_t num_kills;                  /* processes that were killed */
    uint32_t num_starts;                 /* of all nodes */
    bool complete;                       /* the run reached its end */
    uint64_t server_bytes, client_bytes; /* most memory that one process held */
} world_outcome;

/* Once, before the first world. */
void world_set_up(void);
void world_run(const world_plan *plan, world_outcome *outcome);

#endif

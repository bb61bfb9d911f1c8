/* Runs one simulated federation from its plan to its outcome. */
#ifndef FEDGE_TESTS_WORLD_WORLD_H
#define FEDGE_TESTS_WORLD_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/world/plan.h"

typedef struct world_outcome {
    bool failed;
    char why[1024];
    uint64_t hash;                       /* hash of the world's trace */
    uint64_t steps;                      /* steps of the scheduler */
    double seconds;                      /* virtual time */
    uint32_t num_kills;                  /* processes that were killed */
    uint32_t num_starts;                 /* starts of all nodes */
    bool complete;                       /* the run was completed */
    uint64_t server_bytes, client_bytes; /* largest heap of one process */
} world_outcome;

/* Called once, before the first world. */
void world_set_up(void);
void world_run(const world_plan *plan, world_outcome *outcome);

#endif

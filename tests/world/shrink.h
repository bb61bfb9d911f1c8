/* Makes a world that fails smaller: fewer faults, rounds and clients, as long as it still fails. */
#ifndef FEDGE_TESTS_WORLD_SHRINK_H
#define FEDGE_TESTS_WORLD_SHRINK_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/world/plan.h"

/* What of a plan is left out; all 0: nothing. Plain data. */
typedef struct shrink_cuts {
    uint32_t without; /* bit i: without fault i */
    uint32_t rounds;  /* 0: as drawn */
    uint32_t clients; /* 0: as drawn */
    bool peaceful;    /* without hostile clients */
    uint32_t order;   /* which order of steps is drawn; 0: the seed's own */
} shrink_cuts;

/* The plan of [seed] without [cuts]. */
void shrink_plan(uint64_t seed, const shrink_cuts *cuts, world_plan *out);

/* [cuts] make a world that fails; they grow while it does. Runs some hundred worlds. */
void shrink(uint64_t seed, shrink_cuts *cuts);

#endif

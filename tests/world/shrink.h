/* Shrinks a failing world: removes faults, rounds and clients as long as it still fails. */
#ifndef FEDGE_TESTS_WORLD_SHRINK_H
#define FEDGE_TESTS_WORLD_SHRINK_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/world/plan.h"

/* What is removed from a plan; all 0: nothing. Plain data. */
typedef struct shrink_cuts {
    uint32_t without; /* bit i: fault i is removed */
    uint32_t rounds;  /* 0: as drawn */
    uint32_t clients; /* 0: as drawn */
    bool peaceful;    /* removes hostile clients */
    uint32_t order;   /* selects another order of steps; 0: the seed's own */
} shrink_cuts;

/* Makes the plan of [seed] without what [cuts] removes. */
void shrink_plan(uint64_t seed, const shrink_cuts *cuts, world_plan *out);

/* Extends [cuts], whose world fails, while it still fails. Runs some hundred worlds. */
void shrink(uint64_t seed, shrink_cuts *cuts);

#endif

/* What Open MPI does for the ranks of a world's server: their collective, in virtual time.
 *
 * Rank 0 is the node WORLD_SERVER, rank r > 0 WORLD_FIRST_RANK + r − 1. The bytes that one rank
 * sends another arrive in their order, after drawn delays; a send may or may not wait for its
 * receive. Calls that do not fit each other are a world_fail. When a rank ends other than by
 * itself, the world ends all (world.c).
 */
#ifndef FEDGE_TESTS_WORLD_RANKS_H
#define FEDGE_TESTS_WORLD_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/collective.h"
#include "tests/world/scheduler.h"

enum { WORLD_MAX_RANKS = 4 };

static inline bool world_is_rank(uint32_t node)
{
    return node == WORLD_SERVER ||
           (node >= WORLD_FIRST_RANK && node < WORLD_FIRST_RANK + WORLD_MAX_RANKS - 1);
}

static inline uint32_t world_rank_node(uint32_t rank)
{
    return rank == 0 ? WORLD_SERVER : WORLD_FIRST_RANK + rank - 1;
}

static inline uint32_t world_rank_of(uint32_t node)
{
    return node == WORLD_SERVER ? 0 : node - WORLD_FIRST_RANK + 1;
}

void world_ranks_begin(void);
void world_ranks_end(void);
/* All ranks are down. The next ones are so many, and bytes take up to [delay_ns] from one to
 * another. */
void world_ranks_start(uint32_t num, uint64_t delay_ns);

/* As fedge_collective_open, for the running fiber's rank. */
void world_ranks_open(fedge_collective *collective);

#endif

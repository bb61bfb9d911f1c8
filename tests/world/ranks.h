/* The collective of a simulated server's ranks in place of Open MPI's, in virtual time.
 *
 * Rank 0 is the node WORLD_SERVER, rank r > 0 the node WORLD_FIRST_RANK + r − 1. Messages from one
 * rank to another keep their order and arrive after random delays. A send may or may not wait for
 * its receive. Calls that do not match each other are a world_fail. When a rank is killed or fails,
 * the world kills all ranks (nodes.c). Messages between ranks that do not reach each other wait, as
 * TCP's do. */
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
/* All ranks are down. The next start has [num] ranks, and bytes take up to [delay_ns] from one rank
 * to another. */
void world_ranks_start(uint32_t num, uint64_t delay_ns);
/* The machines of these ranks do not reach each other until then. */
void world_ranks_part(uint32_t rank, uint32_t other, uint64_t until_ns);

/* Opens the collective of the running fiber's rank, as fedge_collective_open does. */
void world_ranks_open(fedge_collective *collective);

#endif

/* Ranks as threads of one process, with pipes between them, for tests of what ranks do together. */
#ifndef FEDGE_TESTS_AGGREGATOR_REDUCE_LOCAL_RANKS_H
#define FEDGE_TESTS_AGGREGATOR_REDUCE_LOCAL_RANKS_H

#include "aggregator/reduce/collective.h"

#define LOCAL_RANKS_MAX 4

/* Runs [work] once for each of [num_ranks], all at a time, and returns when all have returned. */
void local_ranks_run(uint32_t num_ranks,
                     void (*work)(const fedge_collective *collective, void *user), void *user);

#endif

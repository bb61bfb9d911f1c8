/* Ranks as threads of one process, or as processes, with pipes between them, for tests of what
 * ranks do together. */
#ifndef FEDGE_TESTS_AGGREGATOR_REDUCE_LOCAL_RANKS_H
#define FEDGE_TESTS_AGGREGATOR_REDUCE_LOCAL_RANKS_H

#include "aggregator/reduce/collective.h"

#define LOCAL_RANKS_MAX 4

/* Runs [work] once for each of [num_ranks], all at a time, and returns when all have returned. */
void local_ranks_run(uint32_t num_ranks,
                     void (*work)(const fedge_collective *collective, void *user), void *user);

/* The same with a process for each; codes (num_ranks): their exit codes, 0 when [work] has
 * returned, or -N for signal N. A rank that waits for one that has ended ends by SIGABRT. */
void local_ranks_fork(uint32_t num_ranks,
                      void (*work)(const fedge_collective *collective, void *user), void *user,
                      int *codes);

#endif

/* A scatter: how the sums of several ranks are added up where accumulators have them, so that each
 * rank gets the sums of its shard (a reduce-scatter). A kind of accumulator may have one; any can
 * do by way of the host's memory and MPI (joined.h).
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_SCATTER_H
#define FEDGE_AGGREGATOR_REDUCE_SCATTER_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/reduce/collective.h"
#include "edge/core/status.h"

/* accumulator: the state of one that is open; it outlives what is opened here. */
typedef struct fedge_scatter_ops {
    const char *name; /* "nccl" */

    /* Whether this rank has what it takes; else the message says what is missing. [release]: what
     * has to be the same on all ranks. */
    fedge_status (*prepare)(void *accumulator, char release[FEDGE_COLLECTIVE_FACT_TEXT],
                            fedge_error *err);
    /* All ranks together, for [num_elements] sums. *state is NULL on failure, which may be of this
     * rank alone. */
    fedge_status (*open)(void *accumulator, const fedge_collective *ranks, size_t num_elements,
                         void **state, fedge_error *err);
    void (*close)(void *state); /* waits for no other rank; NULL is fine */
    /* All ranks together. sums (num_elements): those of the rank's shard become the sums over all
     * ranks; the rest stay. FEDGE_GPU_LOST, of this rank or another: the process has to end. */
    fedge_status (*sum)(void *state, int64_t *sums, fedge_error *err);
} fedge_scatter_ops;

#endif

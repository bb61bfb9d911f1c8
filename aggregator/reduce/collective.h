/* Collectives: joining the sums of several processes (ranks).
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_COLLECTIVE_H
#define FEDGE_AGGREGATOR_REDUCE_COLLECTIVE_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/reduce/device.h"
#include "edge/core/status.h"

typedef struct fedge_collective_ops {
    size_t struct_size; /* sizeof(fedge_collective_ops) when compiled; may grow at its end */
    const char *name;   /* "none", "mpi", "nccl" */

    fedge_status (*open)(void **state, fedge_error *err);
    uint32_t (*rank)(const void *state); /* of this process, from 0 */
    uint32_t (*size)(const void *state); /* number of processes, ≥ 1 */
    /* Replaces [sums] (num_elements) and [totals] on every rank by the sum over all ranks. Every
     * rank calls it with the same num_elements. FEDGE_OUT_OF_RANGE when the weights together exceed
     * FEDGE_FIXED_MAX_TOTAL_WEIGHT. */
    fedge_status (*allreduce)(void *state, int64_t *sums, size_t num_elements,
                              fedge_device_totals *totals, fedge_error *err);
    void (*close)(void *state); /* NULL is fine */
} fedge_collective_ops;

/* One process: nothing to join. */
extern const fedge_collective_ops fedge_collective_none;

#endif

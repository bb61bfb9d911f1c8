/* The GPUs that have been lost at work, for the processes that come after this one: in memory that
 * they share, all zero at first. Thread-safe.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_LOST_GPUS_H
#define FEDGE_AGGREGATOR_REDUCE_LOST_GPUS_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct fedge_lost_gpus {
    _Atomic uint64_t numbers; /* a bit for each of the driver's numbers, 0 to 63 */
    _Atomic uint32_t there; /* how many GPUs the driver had then: when it has another number, theirs
                               may be others, and nothing is remembered */
} fedge_lost_gpus;

/* Those of gpus (num_gpus) may be used again; num_gpus 0: all. [lost] may be NULL: nobody
 * remembers. */
void fedge_lost_gpus_forget(fedge_lost_gpus *lost, const uint32_t *gpus, uint32_t num_gpus);

#endif

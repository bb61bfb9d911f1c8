/* Sums of several ranks: an accumulator around a rank's own, whose sums rank 0 can have joined.
 *
 * Until they are joined it does what its own accumulator does, and nothing else. Joined, it has on
 * rank 0 the sums and totals over all ranks, from which it reads and steps on the CPU until it is
 * reset; integers are added, so they are those of one process that had all the updates.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_JOINED_H
#define FEDGE_AGGREGATOR_REDUCE_JOINED_H

#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/collective.h"

/* Puts itself around [*accumulator], which sums [num_elements] values; the collective outlives it.
 * FEDGE_NO_MEMORY leaves it as it was. */
FEDGE_MUST_USE fedge_status fedge_joined_wrap(fedge_accumulator *accumulator,
                                              const fedge_collective *collective,
                                              size_t num_elements, fedge_error *err);

/* All ranks together: adds up what they have. FEDGE_OUT_OF_RANGE, on rank 0, when the total weight
 * exceeds FEDGE_FIXED_MAX_TOTAL_WEIGHT. [status], with [err]:
 * how this rank has fared. What one has failed in, its own accumulator too, all fail in. */
FEDGE_MUST_USE fedge_status fedge_joined_join(fedge_accumulator *accumulator, fedge_status status,
                                              fedge_error *err);

/* The kind of the accumulator inside; of one that is not joined, its own. */
const char *fedge_joined_kind(const fedge_accumulator *accumulator);

#endif

/* The distributed accumulator replaces the sums of a rank's accumulator (fedge_sums_ops) by those
 * of all ranks.
 *
 * Before a join it uses the rank's sums. After it, rank 0 has the sums and totals over all ranks;
 * it reads and steps from them on CPUs until it is reset. Sums are integers, so they equal those of
 * one process with all updates.
 *
 * The accumulators add up their sums when all ranks can open a scatter of one kind
 * (fedge_scatter_ops); otherwise the host's memory and MPI do. The ranks agree on the way at the
 * first join, and again when a rank wraps another accumulator. Rank 0 logs it with the reason
 * ("sums-joined-by").
 *
 * There are two forms of a join:
 *
 *     on rank 0    all ranks call fedge_distributed_join; rank 0 then works alone
 *     on shards    a reduce-scatter gives each rank the sums of its shard of the coordinates. The
 *                  rank steps the shard's values and moments, which it has from the step before,
 *                  and rank 0 gathers the values. The sums go to rank 0 only when it reads them.
 *
 * On shards rank 0 leads: when it joins, steps or reads, its fedge_distributed_together_fn makes
 * the others call fedge_distributed_follow, and calls fedge_distributed_lead. Elements are
 * independent, so the bits are the same for either form and any number of ranks.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_DISTRIBUTED_ACCUMULATOR_H
#define FEDGE_AGGREGATOR_REDUCE_DISTRIBUTED_ACCUMULATOR_H

#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/collective.h"

/* Checks that [name] is a way to join sums, or "auto". FEDGE_INVALID_ARGUMENT lists those of this
 * build. */
FEDGE_MUST_USE fedge_status fedge_distributed_check_name(const char *name, fedge_error *err);

/* Wraps [*accumulator], which sums [num_elements] values; the collective outlives it. Uses join and
 * log of [config]. A join that names a scatter is FEDGE_GPU_LOST when the ranks agree and cannot
 * use it. FEDGE_NO_MEMORY leaves the accumulator unchanged. */
FEDGE_MUST_USE fedge_status fedge_distributed_wrap(fedge_accumulator *accumulator,
                                                   const fedge_collective *collective,
                                                   size_t num_elements,
                                                   const fedge_accumulator_config *config,
                                                   fedge_error *err);

/* Adds up the sums of all ranks on rank 0; all ranks call it together. [status], [err]: this rank's
 * result so far. When one rank or its accumulator fails, all fail. FEDGE_OUT_OF_RANGE, on rank 0:
 * the total weight exceeds FEDGE_FIXED_MAX_TOTAL_WEIGHT. */
FEDGE_MUST_USE fedge_status fedge_distributed_join(fedge_accumulator *accumulator,
                                                   fedge_status status, fedge_error *err);

/* Makes all other ranks call fedge_distributed_follow. Calls fedge_distributed_lead on the thread
 * that uses the collective, and returns its result. */
typedef fedge_status (*fedge_distributed_together_fn)(void *user, fedge_accumulator *accumulator,
                                                      fedge_error *err);

/* Rank 0 calls it after wrapping, to join on shards. */
void fedge_distributed_on_shards(fedge_accumulator *accumulator,
                                 fedge_distributed_together_fn together, void *user);
/* Rank 0 calls it to agree on the way before there are sums, so that errors appear at the start. */
FEDGE_MUST_USE fedge_status fedge_distributed_agree(fedge_accumulator *accumulator,
                                                    fedge_error *err);
/* Rank 0: does the pending operation, or joins if there is none, as fedge_distributed_join with
 * FEDGE_OK. When one rank fails, for lack of memory for its step too, all fail. */
FEDGE_MUST_USE fedge_status fedge_distributed_lead(fedge_accumulator *accumulator,
                                                   fedge_error *err);
/* Any other rank: takes part in rank 0's operation. Its sums are 0 again once rank 0 has used them;
 * the caller resets remaining sums before it adds new updates. [status], [err]: as above. */
FEDGE_MUST_USE fedge_status fedge_distributed_follow(fedge_accumulator *accumulator,
                                                     fedge_status status, fedge_error *err);

#endif

/* The sums of several ranks: replaces the sums of a rank's accumulator (fedge_sums_ops) by those of
 * all ranks.
 *
 * Until the ranks join, it uses the rank's own sums. Then it has on rank 0 the sums and totals over
 * all ranks, from which it reads and steps on CPUs until it is reset. Integers are added, so the
 * sums are those of one process that had all the updates.
 *
 * The accumulators themselves add up their sums where all ranks have a scatter of one kind
 * (fedge_scatter_ops) and it opens; else by way of the host's memory and MPI. The ranks agree on
 * the way when they first join, and again when one of them is wrapped anew; rank 0 logs it with the
 * reason ("sums-joined-by").
 *
 * Sums come together in one of two forms:
 *
 *     on rank 0    all ranks call fedge_distributed_join; rank 0 does the remainder alone
 *     on shards    each rank gets the sums of its shard of the coordinates (a reduce-scatter). It
 *                  takes the step of the shard's values and of the optimizer's vectors, which it
 *                  has from the step before; rank 0 gathers what has moved. The sums come to rank 0
 *                  only when it reads them.
 *
 * On shards rank 0 leads: when it joins, steps or reads, its fedge_distributed_together_fn has the
 * others call fedge_distributed_follow, and calls fedge_distributed_lead. Elements move one by one,
 * so the bits are the same in any way and for any number of ranks.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_DISTRIBUTED_ACCUMULATOR_H
#define FEDGE_AGGREGATOR_REDUCE_DISTRIBUTED_ACCUMULATOR_H

#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/collective.h"

/* Can sums be joined by what is named so, or is it "auto"? FEDGE_INVALID_ARGUMENT lists what this
 * build has. */
FEDGE_MUST_USE fedge_status fedge_distributed_check_name(const char *name, fedge_error *err);

/* Puts itself around [*accumulator], which sums [num_elements] values; the collective outlives it.
 * [config]: its join and its log. With a join that is neither "auto" nor "mpi" a way that cannot be
 * taken is FEDGE_GPU_LOST when they agree on it. FEDGE_NO_MEMORY leaves it as it was. */
FEDGE_MUST_USE fedge_status fedge_distributed_wrap(fedge_accumulator *accumulator,
                                                   const fedge_collective *collective,
                                                   size_t num_elements,
                                                   const fedge_accumulator_config *config,
                                                   fedge_error *err);

/* On rank 0. All ranks together: adds up what they have. FEDGE_OUT_OF_RANGE, on rank 0, when the
 * total weight exceeds FEDGE_FIXED_MAX_TOTAL_WEIGHT. [status], with [err]:
 * how this rank has fared. What one has failed in, its own accumulator too, all fail in. */
FEDGE_MUST_USE fedge_status fedge_distributed_join(fedge_accumulator *accumulator,
                                                   fedge_status status, fedge_error *err);

/* Has all other ranks call fedge_distributed_follow, and fedge_distributed_lead called where this
 * one makes its calls of the collective; returns what that does. */
typedef fedge_status (*fedge_distributed_together_fn)(void *user, fedge_accumulator *accumulator,
                                                      fedge_error *err);

/* On shards, rank 0: once it is wrapped. */
void fedge_distributed_on_shards(fedge_accumulator *accumulator,
                                 fedge_distributed_together_fn together, void *user);
/* Rank 0: finds out how sums are joined before there are any, so that what is wrong shows at the
 * start. */
FEDGE_MUST_USE fedge_status fedge_distributed_agree(fedge_accumulator *accumulator,
                                                    fedge_error *err);
/* Rank 0: what was wanted of it; to join, if nothing was. As fedge_distributed_join with FEDGE_OK;
 * what one rank has failed in, room for its step too, all fail in. */
FEDGE_MUST_USE fedge_status fedge_distributed_lead(fedge_accumulator *accumulator,
                                                   fedge_error *err);
/* Any other rank, at the same time. Its own sums are 0 again when rank 0 has used them; who adds
 * to them anew resets them before, where there are some. [status], with [err]: as above.
 */
FEDGE_MUST_USE fedge_status fedge_distributed_follow(fedge_accumulator *accumulator,
                                                     fedge_status status, fedge_error *err);

#endif

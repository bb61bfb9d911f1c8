/* The scatter "nccl" (aggregator/reduce/accumulator.h): one communicator spans the GPUs of all
 * ranks, and its reduce-scatter adds up their sums from GPU to GPU, on one machine or many.
 *
 * Each GPU has sums of all coordinates, and gets those of its part of its rank's shard, which comes
 * to the host from there. Piece by piece, what goes to each of the others is laid side by side in a
 * buffer, for the sums lie padded, and shards of ranks with different numbers of GPUs are not
 * equal. NCCL's id goes from rank 0 to the others by MPI.
 *
 * What is under way is watched as in comms.h: FEDGE_CUDA_RANKS_TIMEOUT_MS without progress.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_SCATTER_NCCL_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_SCATTER_NCCL_H

#include "aggregator/reduce/accumulator.h"

#ifndef FEDGE_CUDA_RANKS_TIMEOUT_MS
#define FEDGE_CUDA_RANKS_TIMEOUT_MS 60000
#endif

extern const fedge_scatter_ops fedge_scatter_nccl;

#endif

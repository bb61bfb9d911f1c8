/* The accumulator on a machine's GPUs (aggregator/reduce/accumulator.h).
 *
 * Encoded bytes are copied to a GPU as they are read, through pinned buffers, checked and laid on
 * planes there, and summed several updates at a time. Nothing is decoded on the host. GPUs share
 * the work by clients (each sums some updates; the sums are joined by NCCL in the step) or by
 * coordinates (each has a part of every update). An update for which no room is left on the GPUs is
 * only checked by validate, and is read again by add.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_ACCUMULATOR_CUDA_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_ACCUMULATOR_CUDA_H

#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/cuda/team.h"
#include "aggregator/reduce/tile.h"

/* The GPUs of one that is open, for scatter_nccl.c. */
fedge_cuda_team *fedge_accumulator_cuda_team(void *state);

/* The scatter "nccl" (aggregator/reduce/accumulator.h): one communicator spans the GPUs of all
 * ranks, and its reduce-scatter adds up their sums from GPU to GPU, on one machine or many.
 *
 * Each GPU has sums of all coordinates, and gets those of its part of its rank's shard, which comes
 * to the host from there. Piece by piece, what goes to each of the others is laid side by side in a
 * buffer, for the sums lie padded, and shards of ranks with different numbers of GPUs are not
 * equal. NCCL's id goes from rank 0 to the others by MPI.
 *
 * What is under way is watched as in team.h: FEDGE_CUDA_RANKS_TIMEOUT_MS without progress.
 */

#ifndef FEDGE_CUDA_RANKS_TIMEOUT_MS
#define FEDGE_CUDA_RANKS_TIMEOUT_MS 60000
#endif

extern const fedge_scatter_ops fedge_scatter_nccl;

/* Tiles of updates on a machine's GPUs (aggregator/reduce/tile.h).
 *
 * Each thread has a lane of one GPU, in turn: updates are read into pinned memory, go to the GPU in
 * one copy, and what is made of them comes back. Since tiles share no coordinate GPUs do not meet,
 * but for the products of updates, which are integers and added on the host. What was taken for a
 * round stays for the next.
 */

#ifndef FEDGE_CUDA_TILE_SIZE
#define FEDGE_CUDA_TILE_SIZE ((size_t)1 << 16) /* coordinates: a tile of 64 updates has 16 MiB */
#endif

typedef struct fedge_cuda_tile_lane fedge_cuda_tile_lane;

/* What one GPU has for all its lanes. */
typedef struct fedge_cuda_tile_gpu {
    uint32_t *far;                   /* (num, num), with mixing */
    unsigned long long *dots;        /* (2, pairs): high, then low */
    unsigned long long *pinned_dots; /* the same on the host */
} fedge_cuda_tile_gpu;

/* The place of fedge_tile_ops.open; all zero but the team and the log: nothing is taken yet. */
typedef struct fedge_cuda_tiles {
    fedge_cuda_team *team;
    const fedge_log *log;
    fedge_tile_config capacity; /* of what is allocated */
    fedge_cuda_tile_lane *lanes;
    fedge_cuda_tile_gpu gpus[FEDGE_ACCUMULATOR_MAX_GPUS];
    uint32_t num, num_far; /* updates of this round, and those that are far from each */
    uint32_t num_mixed;    /* the first ones, which are mixed */
    bool mixed;
} fedge_cuda_tiles;

extern const fedge_tile_ops fedge_tile_cuda;

void fedge_cuda_tiles_fini(fedge_cuda_tiles *tiles); /* before its team is closed */

#endif

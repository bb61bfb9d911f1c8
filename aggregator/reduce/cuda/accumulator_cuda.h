/* The accumulator on a machine's GPUs (aggregator/reduce/accumulator.h).
 *
 * Encoded bytes are copied to a GPU through pinned buffers as they are read. The GPU checks them,
 * stores them in planes, and sums several updates at a time. The host decodes nothing. GPUs divide
 * the work by clients (each sums some updates, and NCCL adds up the sums in the step) or by
 * coordinates (each has a part of every update). When no slot is free on the GPUs, validate only
 * checks an update and add reads it again.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_ACCUMULATOR_CUDA_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_ACCUMULATOR_CUDA_H

#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/cuda/team.h"
#include "aggregator/reduce/tile.h"

/* The GPUs of an open accumulator, for scatter_nccl.c. */
fedge_cuda_team *fedge_accumulator_cuda_team(void *state);

/* The scatter "nccl" (aggregator/reduce/accumulator.h): one communicator spans the GPUs of all
 * ranks, and its reduce-scatter adds up their sums from GPU to GPU, on one machine or many.
 *
 * Each GPU has sums of all coordinates. It gets the total of its part of its rank's shard and
 * copies that to the host. The sums are padded, and shards of ranks with different numbers of GPUs
 * differ in size, so the sums for each receiver are first packed into a buffer, chunk by chunk.
 * Rank 0 sends NCCL's id to the others by MPI.
 *
 * Operations are watched as in team.h and fail after FEDGE_CUDA_RANKS_TIMEOUT_MS without progress.
 */

#ifndef FEDGE_CUDA_RANKS_TIMEOUT_MS
#define FEDGE_CUDA_RANKS_TIMEOUT_MS 60000
#endif

extern const fedge_scatter_ops fedge_scatter_nccl;

/* Tiles of updates on a machine's GPUs (aggregator/reduce/tile.h).
 *
 * Each thread has a lane on one of the GPUs. Updates are read into pinned memory and go to the GPU
 * in one copy; the results come back. Tiles share no coordinate, so GPUs are independent; the host
 * adds up their products of updates, which are integers. Memory stays allocated for the next round.
 */

#ifndef FEDGE_CUDA_TILE_SIZE
#define FEDGE_CUDA_TILE_SIZE ((size_t)1 << 16) /* coordinates of a tile: 64 updates have 16 MiB */
#endif

typedef struct fedge_cuda_tile_lane fedge_cuda_tile_lane;

/* Buffers of one GPU for all its lanes. */
typedef struct fedge_cuda_tile_gpu {
    uint32_t *far;                   /* (num, num); NULL without mixing */
    unsigned long long *dots;        /* (2, pairs): high words, then low words */
    unsigned long long *pinned_dots; /* [dots] on the host */
} fedge_cuda_tile_gpu;

/* The argument of fedge_tile_ops.open; all zero but the team and the log: nothing is allocated. */
typedef struct fedge_cuda_tiles {
    fedge_cuda_team *team;
    const fedge_log *log;
    fedge_tile_config capacity; /* size of what is allocated */
    fedge_cuda_tile_lane *lanes;
    fedge_cuda_tile_gpu gpus[FEDGE_ACCUMULATOR_MAX_GPUS];
    uint32_t num, num_far; /* updates of this round, and the number that are far from each */
    uint32_t num_mixed;    /* count of mixed updates, which come first */
    bool mixed;
} fedge_cuda_tiles;

extern const fedge_tile_ops fedge_tile_cuda;

void fedge_cuda_tiles_fini(fedge_cuda_tiles *tiles); /* call it before its team is closed */

#endif

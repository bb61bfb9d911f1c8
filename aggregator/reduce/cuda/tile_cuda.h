/* Tiles of updates on a machine's GPUs (aggregator/reduce/tile.h).
 *
 * Each thread has a lane of one GPU, in turn: updates are read into pinned memory, go to the GPU in
 * one copy, and what is made of them comes back. Since tiles share no coordinate GPUs do not meet,
 * but for the products of updates, which are integers and added on the host. What was taken for a
 * round stays for the next.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_TILE_CUDA_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_TILE_CUDA_H

#include "aggregator/reduce/cuda/team.h"
#include "aggregator/reduce/tile.h"

#ifndef FEDGE_CUDA_TILE_SIZE
#define FEDGE_CUDA_TILE_SIZE ((size_t)1 << 16) /* coordinates: a tile of 64 updates has 16 MiB */
#endif

typedef struct fedge_cuda_tile_lane fedge_cuda_tile_lane;

/* What one GPU has for all its lanes. */
typedef struct fedge_cuda_tile_place {
    uint32_t *far;                  /* (num, num), with mixing */
    unsigned long long *dots;       /* (2, pairs): high, then low */
    unsigned long long *dots_there; /* pinned: the same on the host */
} fedge_cuda_tile_place;

/* The place of fedge_tile_ops.open; all zero but the team and the log: nothing is taken yet. */
typedef struct fedge_cuda_tiles {
    fedge_cuda_team *team;
    const fedge_log *log;
    fedge_tile_config room; /* what there is room for */
    fedge_cuda_tile_lane *lanes;
    fedge_cuda_tile_place places[FEDGE_ACCUMULATOR_MAX_GPUS];
    uint32_t num, num_far; /* updates of this round, and those that are far from each */
    uint32_t num_mixed;    /* the first ones, which are mixed */
    bool mixed;
} fedge_cuda_tiles;

extern const fedge_tile_ops fedge_tile_cuda;

void fedge_cuda_tiles_fini(fedge_cuda_tiles *tiles); /* before its team is closed */

#endif

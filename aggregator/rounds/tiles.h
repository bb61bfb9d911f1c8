/* Tiles: a range of coordinates of all updates of a round, processed by several threads.
 *
 * A tile has a row for each update. With mixing (Allouah et al., "Fixing by mixing: a recipe for
 * optimal Byzantine ML under heterogeneity", AISTATS 2023) a row is the mean of an update and its
 * nearest neighbours, rounded to units of 2^−F; the rule then sees mixed updates only.
 *
 * Tiles are reduced on the accumulator's hardware (aggregator/reduce/tile.h), or on the CPU when
 * that lacks memory; the bits are the same.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_TILES_H
#define FEDGE_AGGREGATOR_ROUNDS_TILES_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/reduce/tile.h"
#include "aggregator/rounds/strategy.h"

typedef struct fedge_tile {
    uint32_t tensor; /* index in the delta */
    size_t first;    /* index of its first coordinate in the delta */
    size_t count;    /* ≤ tiles->size */
    uint32_t num;    /* number of rows */
    int32_t **rows;  /* (num) pointers to (count) values; the visit may change them */
    uint32_t thread; /* < tiles->num_threads */
} fedge_tile;

/* Plain data that owns everything but sum and order. */
typedef struct fedge_tiles {
    const fedge_strategy_sum *sum;
    uint32_t num;          /* number of updates */
    const uint32_t *order; /* (num_read): the updates that rows are read from; NULL: all */
    uint32_t num_read;
    uint32_t num_threads;
    size_t size;                       /* coordinates of a tile */
    size_t num_tiles;                  /* tiles of all tensors */
    const fedge_tile_ops *ops;         /* backend that reduces tiles */
    void *state;                       /* state of the backend */
    uint32_t *far;                     /* (num_mixed, num_far): rows farthest from each row */
    struct fedge_worker_pool *helpers; /* all threads but the caller's */
    bool mixed;
} fedge_tiles;

/* Bytes of a step with mixing of [num] updates, its distances included: the minimum, and without a
 * memory limit. */
uint64_t fedge_tiles_least_bytes(uint32_t num);
uint64_t fedge_tiles_bytes(uint32_t num, uint32_t num_threads);

/* Makes tiles for the updates of [sum]. They and the Gram matrix (robust.h) take at most
 * sum->memory bytes, with sum->num_threads threads or as many as fit. The hardware of
 * sum->accumulator reduces them; NULL: the CPU. FEDGE_NO_MEMORY says which limit to raise. */
FEDGE_MUST_USE fedge_status fedge_tiles_init(fedge_tiles *tiles, const fedge_strategy_sum *sum,
                                             bool mixing, fedge_error *err);
void fedge_tiles_fini(fedge_tiles *tiles);

/* Mixes the first [num_mixed] rows of all further tiles: each becomes the mean of all of them but
 * the num_far farthest from it. Of equal distances the first slot is nearer. squares: (num, num),
 * as in a fedge_gram. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_tiles_mix(fedge_tiles *tiles, const double *squares,
                                            uint32_t num_mixed, uint32_t num_far, fedge_error *err);
/* Limits all further tiles to the rows of the [num] updates of [order], in that order. Not with
 * mixed rows. */
void fedge_tiles_read_only(fedge_tiles *tiles, const uint32_t *order, uint32_t num);

/* Visits each tile once, on all threads. Stops at the first failure. */
typedef fedge_status (*fedge_tile_fn)(void *user, const fedge_tile *tile, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_tiles_each(fedge_tiles *tiles, fedge_tile_fn visit, void *user,
                                             fedge_error *err);

#endif

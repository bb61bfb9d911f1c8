/* Tiles: some coordinates of all updates of a round at a time, by several threads.
 *
 * A tile has a row for each update. With mixing (Allouah et al., "Fixing by mixing: a recipe for
 * optimal Byzantine ML under heterogeneity", AISTATS 2023) a row is the mean of an update and of
 * those nearest to it, rounded to units of 2^−F; all that comes behind sees mixed updates only.
 *
 * What is made of tiles is made where the accumulator's hardware is (aggregator/reduce/tile.h), or
 * on the CPU when it has no room; the bits are the same.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_TILES_H
#define FEDGE_AGGREGATOR_ROUNDS_TILES_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/reduce/tile.h"
#include "aggregator/rounds/strategy.h"

typedef struct fedge_tile {
    uint32_t tensor; /* of the delta */
    size_t first;    /* its first coordinate, counted from the delta's */
    size_t count;    /* ≤ tiles->size */
    uint32_t num;    /* rows */
    int32_t **rows;  /* (num) of (count), as they were read; the visit may change them */
    uint32_t thread; /* < tiles->num_threads */
} fedge_tile;

/* Plain data; all of it is its own but sum and order. */
typedef struct fedge_tiles {
    const fedge_strategy_sum *sum;
    uint32_t num;          /* updates */
    const uint32_t *order; /* (num_read): those that rows are read of; NULL: all */
    uint32_t num_read;
    uint32_t num_threads;
    size_t size;                       /* coordinates of a tile */
    size_t num_tiles;                  /* of all tensors */
    const fedge_tile_ops *ops;         /* who reduces them */
    void *state;                       /* its own */
    uint32_t *far;                     /* as ops->mix was told */
    struct fedge_worker_pool *helpers; /* all threads but the caller's */
    bool mixed;
} fedge_tiles;

/* Bytes that a step with mixing takes for [num] updates, distances and all: at least, and with so
 * many threads when it may take what it likes. */
uint64_t fedge_tiles_least_bytes(uint32_t num);
uint64_t fedge_tiles_bytes(uint32_t num, uint32_t num_threads);

/* For the updates of [sum], in at most sum->memory bytes with the Gram matrix (robust.h) of
 * sum->num_threads threads or as many as have room. They are reduced where sum->accumulator says;
 * NULL: on the CPU. FEDGE_NO_MEMORY says what to raise. */
FEDGE_MUST_USE fedge_status fedge_tiles_init(fedge_tiles *tiles, const fedge_strategy_sum *sum,
                                             bool mixing, fedge_error *err);
void fedge_tiles_fini(fedge_tiles *tiles);

/* From now on the first [num_mixed] rows are mixed: of each update with those of them but the
 * num_far farthest from it, itself counted; of equal distances the first slot is nearer. squares:
 * (num, num), as in a fedge_gram. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_tiles_mix(fedge_tiles *tiles, const double *squares,
                                            uint32_t num_mixed, uint32_t num_far, fedge_error *err);
/* From now on there are rows of so many updates only, in this order. Not with mixed rows. */
void fedge_tiles_read_only(fedge_tiles *tiles, const uint32_t *order, uint32_t num);

/* Visits all tiles, each once, on all threads. The first failure ends it. */
typedef fedge_status (*fedge_tile_fn)(void *user, const fedge_tile *tile, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_tiles_each(fedge_tiles *tiles, fedge_tile_fn visit, void *user,
                                             fedge_error *err);

#endif

/* Tiles: some coordinates of all updates of a round at a time, by several threads.
 *
 * A tile has a row for each update. With mixing (Allouah et al., "Fixing by mixing: a recipe for
 * optimal Byzantine ML under heterogeneity", AISTATS 2023) a row is the mean of an update and of
 * those nearest to it, rounded to units of 2^−F; all that comes behind sees mixed updates only.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ROBUST_TILES_H
#define FEDGE_AGGREGATOR_ROUNDS_ROBUST_TILES_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/rounds/strategy.h"

typedef struct fedge_tile {
    uint32_t tensor; /* of the delta */
    size_t first;    /* its first coordinate, counted from the delta's */
    size_t count;    /* ≤ FEDGE_UPDATES_PIECE */
    uint32_t num;    /* rows */
    int32_t **rows;  /* (num) of (count); the visit may change them */
    uint32_t thread; /* < tiles->num_threads */
} fedge_tile;

/* Plain data; all of it is its own but sum. */
typedef struct fedge_tiles {
    const fedge_strategy_sum *sum;
    uint32_t num; /* updates */
    uint32_t num_threads;
    size_t size;      /* coordinates of a tile */
    size_t num_tiles; /* of all tensors */
    int32_t *values;  /* of each thread: the rows of a tile, then with mixing the mixed ones */
    int32_t **rows;   /* likewise */
    uint32_t *far;    /* with mixing, of each update: those that are not in its mean */
    uint32_t num_far; /* of each */
    bool mixed;
} fedge_tiles;

#define FEDGE_GRAM_SUM_BYTES 16 /* of one sum of a Gram matrix while it is made: gram.c */

/* Bytes that a step with mixing takes for [num] updates, distances and all: at least, and with so
 * many threads when it may take what it likes. */
uint64_t fedge_tiles_least_bytes(uint32_t num);
uint64_t fedge_tiles_bytes(uint32_t num, uint32_t num_threads);

/* For the updates of [sum], in at most sum->memory bytes with the Gram matrix (gram.h) of
 * sum->num_threads threads or as many as have room. FEDGE_NO_MEMORY says what to raise. */
FEDGE_MUST_USE fedge_status fedge_tiles_init(fedge_tiles *tiles, const fedge_strategy_sum *sum,
                                             bool mixing, fedge_error *err);
void fedge_tiles_fini(fedge_tiles *tiles);

/* From now on rows are mixed: of each update with those but the num_far farthest from it, itself
 * counted; of equal distances the first slot is nearer. squares: (num, num), as in a fedge_gram. */
void fedge_tiles_mix(fedge_tiles *tiles, const double *squares, uint32_t num_far);

/* Visits all tiles, each once, on all threads. The first failure ends it. */
typedef fedge_status (*fedge_tile_fn)(void *user, const fedge_tile *tile, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_tiles_each(fedge_tiles *tiles, fedge_tile_fn visit, void *user,
                                             fedge_error *err);

#endif

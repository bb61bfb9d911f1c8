/* Tiles: a range of coordinates of all updates of a round, and their reductions for robust rules
 * (aggregator/rounds/robust), on the accumulator's hardware.
 *
 *     open → { _rows, filled by the caller → _load → _dots or _reduce } … → close
 *
 * Values and results are fixed-point integers, |v| ≤ 2^30 (edge/core/fixed.h), so every kind gives
 * the same bits. A kind is one table; accumulators without one use the CPU's.
 *
 * Threads: each thread t < num_threads has one tile, and calls rows, load, dots and reduce for it.
 * While any other call runs, no call may run. FEDGE_GPU_LOST is as in accumulator.h.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_TILE_H
#define FEDGE_AGGREGATOR_REDUCE_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* How the values v_i of a coordinate, one for each selected row, are reduced to one number. */
typedef enum fedge_row_reduction {
    FEDGE_ROW_MEAN,    /* Σ a_i v_i */
    FEDGE_ROW_MEDIAN,  /* the median; for an even number of values the sum of the middle two */
    FEDGE_ROW_TRIMMED, /* the sum without the [cut] lowest and the [cut] highest */
    FEDGE_ROW_NEAREST  /* the sum without the 2 · [cut] values farthest from the median; of two at
                          the same distance the greater is left out first */
} fedge_row_reduction;

/* The reduction of a tile. */
typedef struct fedge_tile_choice {
    fedge_row_reduction reduction;
    uint32_t num;            /* selected rows, ≥ 1 */
    const uint32_t *rows;    /* (num): indices of the rows; NULL: the first ones */
    const uint32_t *weights; /* (num): a_i of MEAN; their sum is at most 2^32 */
    uint32_t cut;            /* 2 · cut < num */
} fedge_tile_choice;

/* The pairs of rows whose products are computed. */
typedef enum fedge_tile_products {
    FEDGE_PRODUCTS_NORMS, /* each row with itself */
    FEDGE_PRODUCTS_LAST,  /* each row with itself, and the last row with all */
    FEDGE_PRODUCTS_ALL
} fedge_tile_products;

/* An exact sum: high · 2^32 + low. A product of 4096 coordinates may be 2^60, and eight of them
 * overflow an int64. Here each adds less than 2^32 to low, so 2^31 of them fit. */
typedef struct fedge_tile_sum {
    int64_t high, low;
} fedge_tile_sum;

#define FEDGE_TILE_APART 160 /* most values of padding between two rows */

typedef struct fedge_tile_config {
    uint32_t num;         /* most rows of a tile, ≥ 1 */
    uint32_t num_threads; /* ≥ 1 */
    size_t size;          /* most coordinates of a tile */
    bool mixes;           /* true if mix will be called */
} fedge_tile_config;

typedef struct fedge_tile_ops {
    const char *name; /* name of the accumulator */
    size_t size;      /* preferred coordinates of a tile */

    /* [hardware]: from fedge_accumulator_ops.tiles. FEDGE_NO_MEMORY names the device. */
    fedge_status (*open)(void *hardware, const fedge_tile_config *config, void **state,
                         fedge_error *err);
    void (*close)(void *state); /* NULL is fine */

    /* Makes load replace each of the first [num_mixed] rows by the mean of all of them but the
     * [far] ones, rounded to the nearest integer, ties to even. Other rows stay unchanged. far:
     * (num_mixed, num_far), which outlives the state. */
    fedge_status (*mix)(void *state, const uint32_t *far, uint32_t num_far, uint32_t num_mixed,
                        fedge_error *err);

    /* Returns (num) rows of [count] values, which the caller fills before load. */
    int32_t **(*rows)(void *state, uint32_t thread, uint32_t num, size_t count);
    fedge_status (*load)(void *state, uint32_t thread, uint32_t num, size_t count,
                         fedge_error *err);

    /* Adds Σ_k u_ik u_jk for those pairs of the loaded rows, u = (v + 2^(shift − 1)) >> shift,
     * |u| ≤ 2^24, shift 1 to 30. Changes the rows. */
    fedge_status (*dots)(void *state, uint32_t thread, uint32_t num, size_t count, int shift,
                         fedge_tile_products products, fedge_error *err);
    /* Takes the sums that dots has added on all threads since the last call, that of pair
     * (i, j ≤ i) at i (i + 1) / 2 + j. sums: (num (num + 1) / 2). */
    fedge_status (*take_dots)(void *state, uint32_t num, fedge_tile_sum *sums, fedge_error *err);

    /* Reduces the loaded rows, which change. *sums (count) is valid until the thread's next call.
     */
    fedge_status (*reduce)(void *state, uint32_t thread, size_t count,
                           const fedge_tile_choice *choice, const int64_t **sums, fedge_error *err);
} fedge_tile_ops;

extern const fedge_tile_ops fedge_tile_cpu;

/* The number of pairs j ≤ i of [num] rows, and the index of pair (i, j). */
static inline size_t fedge_tile_pairs(uint32_t num)
{
    return (size_t)num * (num + 1) / 2;
}
static inline size_t fedge_tile_pair(uint32_t i, uint32_t j)
{
    return j <= i ? (size_t)i * (i + 1) / 2 + j : (size_t)j * (j + 1) / 2 + i;
}

#endif

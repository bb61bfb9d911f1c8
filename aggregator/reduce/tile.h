/* Tiles: some coordinates of all updates of a round side by side, and what robust rules make of
 * them (aggregator/rounds/robust), where an accumulator of that kind has its hardware.
 *
 *     open → { _rows, filled by the caller → _load → _dots or _reduce } … → close
 *
 * Values are fixed-point integers, |v| ≤ 2^30 (edge/core/fixed.h), and so is all that is made of
 * them: every kind gives the same bits. A kind is one table; the CPU's is for all accumulators that
 * have none of their own.
 *
 * Threads: each thread t < num_threads has a tile of its own, and calls rows, load, dots and reduce
 * for it; everything else needs no other call running. A GPU that is lost is FEDGE_GPU_LOST, as in
 * accumulator.h.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_TILE_H
#define FEDGE_AGGREGATOR_REDUCE_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* How the values v_i of a coordinate, one a chosen row, become one number. */
typedef enum fedge_row_reduction {
    FEDGE_ROW_MEAN,    /* Σ a_i v_i */
    FEDGE_ROW_MEDIAN,  /* the middle one; of an even number the sum of the two */
    FEDGE_ROW_TRIMMED, /* the sum without the [cut] least and the [cut] greatest */
    FEDGE_ROW_NEAREST  /* the sum without the 2 · [cut] farthest from the median; of two that are
                             as far the greater one goes first */
} fedge_row_reduction;

/* The reduction of a tile. */
typedef struct fedge_tile_choice {
    fedge_row_reduction reduction;
    uint32_t num;            /* rows that are chosen, ≥ 1 */
    const uint32_t *rows;    /* (num): which; NULL: the first ones */
    const uint32_t *weights; /* (num): a_i of MEAN, together at most 2^32 */
    uint32_t cut;            /* 2 · cut < num */
} fedge_tile_choice;

/* Of which pairs of rows products are wanted. */
typedef enum fedge_tile_products {
    FEDGE_PRODUCTS_NORMS, /* each row with itself */
    FEDGE_PRODUCTS_LAST,  /* the same, and the last row with all */
    FEDGE_PRODUCTS_ALL
} fedge_tile_products;

/* An exact sum: high · 2^32 + low. A product of 4096 coordinates may be 2^60, and eight of them
 * overflow an int64; here low grows by less than 2^32 with each, which leaves room for 2^31. */
typedef struct fedge_tile_sum {
    int64_t high, low;
} fedge_tile_sum;

#define FEDGE_TILE_APART 160 /* values between two rows at most */

typedef struct fedge_tile_config {
    uint32_t num;         /* rows of a tile at most, ≥ 1 */
    uint32_t num_threads; /* ≥ 1 */
    size_t size;          /* coordinates of a tile at most */
    bool mixes;           /* mix will be called */
} fedge_tile_config;

typedef struct fedge_tile_ops {
    const char *name; /* as the accumulator's */
    size_t size;      /* coordinates of a tile where memory suffices */

    /* [place]: of fedge_accumulator_ops.tiles. FEDGE_NO_MEMORY says whose. */
    fedge_status (*open)(void *place, const fedge_tile_config *config, void **state,
                         fedge_error *err);
    void (*close)(void *state); /* NULL is fine */

    /* From now on load makes each of the first [num_mixed] rows the mean of all of these but those
     * [far] from it, rounded to the nearest integer, of two the even one. Other rows stay as they
     * are. far (num_mixed, num_far), which outlives the state. */
    fedge_status (*mix)(void *state, const uint32_t *far, uint32_t num_far, uint32_t num_mixed,
                        fedge_error *err);

    /* (num) rows for [count] coordinates; filled by the caller before load. */
    int32_t **(*rows)(void *state, uint32_t thread, uint32_t num, size_t count);
    fedge_status (*load)(void *state, uint32_t thread, uint32_t num, size_t count,
                         fedge_error *err);

    /* Adds Σ_k u_ik u_jk of those pairs of the rows that were loaded, u = (v + 2^(shift − 1)) >>
     * shift, |u| ≤ 2^24, shift 1 to 30. Changes the rows. */
    fedge_status (*dots)(void *state, uint32_t thread, uint32_t num, size_t count, int shift,
                         fedge_tile_products products, fedge_error *err);
    /* What dots has added since the last call: of all threads, of pair (i, j ≤ i) at i (i + 1) / 2
     * + j. sums (num (num + 1) / 2). */
    fedge_status (*take_dots)(void *state, uint32_t num, fedge_tile_sum *sums, fedge_error *err);

    /* *sums (count), until the thread's next call: of the rows that were loaded. Changes them. */
    fedge_status (*reduce)(void *state, uint32_t thread, size_t count,
                           const fedge_tile_choice *choice, const int64_t **sums, fedge_error *err);
} fedge_tile_ops;

extern const fedge_tile_ops fedge_tile_cpu;

/* Pairs j ≤ i of [num] rows, and where pair (i, j) of them is. */
static inline size_t fedge_tile_pairs(uint32_t num)
{
    return (size_t)num * (num + 1) / 2;
}
static inline size_t fedge_tile_pair(uint32_t i, uint32_t j)
{
    return j <= i ? (size_t)i * (i + 1) / 2 + j : (size_t)j * (j + 1) / 2 + i;
}

#endif

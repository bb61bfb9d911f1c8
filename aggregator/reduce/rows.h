/* Loops over rows of integers, for tiles on the CPU: exact scalar products, and sorting networks.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_ROWS_H
#define FEDGE_AGGREGATOR_REDUCE_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* ---- scalar products ------------------------------------------------------------------------- */

#define FEDGE_DOTS_COUNT 4096 /* most values of a row */

/* out[4]: Σ a_k b_jk of four rows, |a|, |b| ≤ 2^24 and count ≤ FEDGE_DOTS_COUNT, so that nothing
 * overflows. */
void fedge_dots(const int32_t *a, const int32_t *const b[4], size_t count, int64_t out[4]);
/* out[4]: Σ b_jk² of four rows, in the same ranges. */
void fedge_squares(const int32_t *const b[4], size_t count, int64_t out[4]);
/* The references, which also compute the remainder that the fast ones leave. */
void fedge_dots_scalar(const int32_t *a, const int32_t *const b[4], size_t count, int64_t out[4]);
void fedge_squares_scalar(const int32_t *const b[4], size_t count, int64_t out[4]);

/* ---- sorting networks ------------------------------------------------------------------------ */

/* Sorting networks: the values of each coordinate in order, many coordinates side by side. */

/* rows (num) of (count): afterwards rows[0][k] ≤ rows[1][k] ≤ … for every k. Batcher's merge
 * exchange (Knuth, The art of computer programming, 5.2.2 M), so it takes as long whatever is in
 * them. */
void fedge_sort_rows(int32_t *const *rows, uint32_t num, size_t count);

#endif

/* Scalar products of rows of integers, exact. */
#ifndef FEDGE_AGGREGATOR_REDUCE_DOTS_H
#define FEDGE_AGGREGATOR_REDUCE_DOTS_H

#include <stddef.h>
#include <stdint.h>

#define FEDGE_DOTS_COUNT 4096 /* of a row at most */

/* out[4]: Σ a_k b_jk of four rows, |a|, |b| ≤ 2^24 and count ≤ FEDGE_DOTS_COUNT, so that nothing
 * overflows. */
void fedge_dots(const int32_t *a, const int32_t *const b[4], size_t count, int64_t out[4]);
/* out[4]: Σ b_jk² of four rows, likewise. */
void fedge_squares(const int32_t *const b[4], size_t count, int64_t out[4]);
/* The references, and for what the fast ones leave. */
void fedge_dots_scalar(const int32_t *a, const int32_t *const b[4], size_t count, int64_t out[4]);
void fedge_squares_scalar(const int32_t *const b[4], size_t count, int64_t out[4]);

#endif

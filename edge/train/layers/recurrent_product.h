/* Matrix products over sequences: what recurrent.c multiplies by; private to edge/train/layers.
 *
 * A sequence is (steps, batch, width) floats in either order of the first two: number k of example
 * b at step t lies at t · step + b · example + k.
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_RECURRENT_PRODUCT_H
#define FEDGE_EDGE_TRAIN_LAYERS_RECURRENT_PRODUCT_H

#include "edge/train/layers/layer.h"

typedef struct fedge_places {
    size_t step, example; /* floats */
} fedge_places;

/* Steps [first, first + steps) of a batch. */
typedef struct fedge_step_range {
    size_t first, steps, batch;
} fedge_step_range;

/* A matrix b (k, n) for several products: where it lies, or copied to panels (kernels.h). */
typedef struct fedge_factor {
    const float *b;
    size_t k, n, b_row, b_column;
    bool panels;
} fedge_factor;

/* Are factors copied? Not where memory is dear, nor for products in bf16. */
bool fedge_factor_copies(const fedge_kernels *kernels);

/* Floats of the copy, 0 where there is none. */
uint64_t fedge_factor_size(const fedge_kernels *kernels, uint64_t k, uint64_t n);

/* [w]: (k, n), or transposed (n, k) in memory; in use until the last product. [room]: for the copy,
 * aligned to 64 bytes for speed. */
fedge_factor fedge_factor_make(const fedge_kernels *kernels, const float *w, bool transposed,
                               size_t k, size_t n, float *room);

/* c = start + a · b for every step and example of [span]; start: (n), or NULL for c += a · b. */
void fedge_sequence_multiply(const fedge_layer_run *run, const fedge_step_range *span,
                             const float *a, fedge_places a_at, const fedge_factor *b,
                             const float *start, float *c, fedge_places c_at);

/* dw (n, k) += aᵀ · b: b is k wide, its rows of step t + shift for a's step t, zeros where there is
 * no such step. */
typedef struct fedge_outer {
    const float *b;
    fedge_places b_at;
    size_t k;
    int shift; /* −1, 0, 1 */
    float *dw;
} fedge_outer;

#define FEDGE_OUTER_PRODUCTS 2

/* One or two such over all [steps] of [batch] examples; a: n wide. [room]: fedge_outer_size. */
void fedge_sequence_outer(const fedge_layer_run *run, size_t steps, size_t batch, size_t n,
                          const float *a, fedge_places a_at, const fedge_outer *products,
                          size_t count, float *room);

/* Floats of working memory for one or, with [k2] > 0, two products of such widths, for up to
 * [batch] examples. */
uint64_t fedge_outer_size(const fedge_kernels *kernels, uint64_t batch, uint64_t n, uint64_t k,
                          uint64_t k2);

#endif

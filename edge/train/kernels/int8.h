/* Inference in int8 (Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient
 * Integer-Arithmetic-Only Inference"); private to edge/train.
 *
 *   weights       w ≈ scale · q, q in −127 … 127, a scale for each output: scale = max |w| / 127
 *   activations   x ≈ scale · (q − zero), q in 0 … 255, with the range of these values:
 *                 scale = (max(x, 0) − min(x, 0)) / 255, zero = round(−min / scale)
 *   products      Σ x · w ≈ scale_x · scale_w · (Σ q_x · q_w − zero · Σ q_w), sums in int32
 *
 * Rounding is to nearest, ties to even. Integer sums do not depend on their order, so every kernel
 * gives the same bits. A value that is not finite makes its scale NaN, and so every result that
 * depends on it.
 */
#ifndef FEDGE_EDGE_TRAIN_KERNELS_INT8_H
#define FEDGE_EDGE_TRAIN_KERNELS_INT8_H

#include <stddef.h>
#include <stdint.h>

#define FEDGE_INT8_STEP ((size_t)64)          /* rows are padded with zeros to a multiple of this */
#define FEDGE_INT8_COLUMNS ((size_t)4)        /* outputs are padded to a multiple of this */
#define FEDGE_INT8_MAX_LENGTH ((size_t)65536) /* values of a row: 255 · 127 · 65536 < 2^31 */

/* c[i][j] = Σ_k a[i][k] · b[j][k].  a: (m, k), b: (n, k), c: (m, n); k a multiple of
 * FEDGE_INT8_STEP and at most FEDGE_INT8_MAX_LENGTH, n a multiple of FEDGE_INT8_COLUMNS. */
typedef struct fedge_int8_product {
    size_t m, n, k;
    const uint8_t *a;
    const int8_t *b;
    int32_t *c;
} fedge_int8_product;

typedef void (*fedge_int8_multiply)(const fedge_int8_product *args);

/* The fastest product for a CPU with [features] (FEDGE_CPU_ bits). */
fedge_int8_multiply fedge_int8_choose(unsigned features);

void fedge_int8_multiply_scalar(const fedge_int8_product *args);
#if defined(__x86_64__)
void fedge_int8_multiply_avx2(const fedge_int8_product *args);
void fedge_int8_multiply_vnni(const fedge_int8_product *args);
#endif

/* A weight (num_rows, length) in int8. */
typedef struct fedge_int8_weight {
    int8_t *rows;  /* (num_rows + FEDGE_INT8_COLUMNS − 1, stride), padded with zeros */
    float *scales; /* (num_rows) */
    int32_t *sums; /* (num_rows): Σ q */
    size_t num_rows, length, stride;
} fedge_int8_weight;

/* Fills the arrays of [to] from w (num_rows, length). */
void fedge_int8_quantise_weight(const fedge_int8_weight *to, const float *w);

typedef struct fedge_int8_range {
    float scale;
    int32_t zero;
} fedge_int8_range;

/* Quantises x (n) to q (n) and returns its range. */
fedge_int8_range fedge_int8_quantise(const float *x, size_t n, uint8_t *q);

/* Rounded up to a multiple of FEDGE_INT8_STEP or FEDGE_INT8_COLUMNS. */
size_t fedge_int8_stride(size_t length);
size_t fedge_int8_width(size_t num_outputs);

#endif

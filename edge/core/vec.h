/* Float vectors. x and y: (n) floats without alignment demands; they may be the same array, but not
 * overlap otherwise.
 *
 * Each function runs the fastest kernel the machine has. All but the dot product do one rounding
 * per operation in element order (no fused multiply-add) and give the same bits on every kernel.
 * The dot product adds in the kernel's own order, with FMA where there is one: |fedge_vec_dot(x, y)
 * − Σ x·y| ≤ n · 2^−23 · Σ |x·y|, the same on every call on one machine, not from kernel to kernel.
 */
#ifndef FEDGE_EDGE_CORE_VEC_H
#define FEDGE_EDGE_CORE_VEC_H

#include <stddef.h>

float fedge_vec_dot(const float *x, const float *y, size_t n);            /* Σ x·y */
void fedge_vec_axpy(float a, const float *x, float *y, size_t n);         /* y = y + a·x */
void fedge_vec_scale(float a, float *x, size_t n);                        /* x = a·x */
void fedge_vec_sub(const float *x, const float *y, float *out, size_t n); /* out = x − y */
void fedge_vec_fill(float a, float *x, size_t n);                         /* x = a */

/* max |x|, 0 for n = 0; NaN when there is a NaN. */
float fedge_vec_max_abs(const float *x, size_t n);

/* One level of kernels. The table is public so that tests and benchmarks can time and compare them.
 */
typedef struct fedge_vec_kernels {
    const char *name;
    float (*dot)(const float *x, const float *y, size_t n);
    void (*axpy)(float a, const float *x, float *y, size_t n);
    void (*scale)(float a, float *x, size_t n);
    void (*sub)(const float *x, const float *y, float *out, size_t n);
    void (*fill)(float a, float *x, size_t n);
    float (*max_abs)(const float *x, size_t n);
} fedge_vec_kernels;

/* The best level for a machine with [features] (FEDGE_CPU_… of os.h); 0 gives the scalar reference.
 * Kernels of features that the machine lacks must not be called. Static storage. */
const fedge_vec_kernels *fedge_vec_kernels_for(unsigned features);

#endif

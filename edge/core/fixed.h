/* Fixed-point updates and their exact sums.
 *
 * Each tensor has a bound B = 2^b and F = 30 − b fraction bits. A value x with |x| ≤ B becomes
 * v = round-to-nearest-even(x · 2^F), an int32 with |v| ≤ 2^30. Updates are summed in int64 with
 * integer weights 1 ≤ w ≤ w_max, and W = Σ w ≤ 2^32 is demanded when a job is loaded, so
 *     |Σ w·v| ≤ 2^30 · Σ w ≤ 2^30 · 2^32 = 2^62 < 2^63
 * holds for every subset of the updates: no partial sum overflows on any thread, GPU or rank, and
 * integer addition makes the result independent of order and grouping.
 */
#ifndef FEDGE_EDGE_CORE_FIXED_H
#define FEDGE_EDGE_CORE_FIXED_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/core/tensor.h"

#define FEDGE_FIXED_VALUE_BITS 30
#define FEDGE_FIXED_DEFAULT_BOUND_LOG2 2
#define FEDGE_FIXED_MIN_BOUND_LOG2 (-20)
#define FEDGE_FIXED_MAX_BOUND_LOG2 20
#define FEDGE_FIXED_DEFAULT_MAX_WEIGHT ((uint32_t)1 << 20)
#define FEDGE_FIXED_MAX_TOTAL_WEIGHT ((uint64_t)1 << 32)

/* v[i] = round-to-nearest-even(clamp(x[i], −B, B) · 2^F), B = 2^bound_log2. Adds the number of
 * clamped values to *clamped. NaN becomes 0 and is counted in *not_finite. */
void fedge_fixed_quantise(const float *x, size_t n, int bound_log2, int32_t *v, uint64_t *clamped,
                          uint64_t *not_finite);

/* Quantises x − y, then sets x = y. */
void fedge_fixed_quantise_change(float *x, const float *y, size_t n, int bound_log2, int32_t *v,
                                 uint64_t *clamped, uint64_t *not_finite);

/* As fedge_fixed_quantise for values that must be within the bound: FEDGE_NOT_FINITE or
 * FEDGE_OUT_OF_RANGE names the first index that is not. The aggregator runs this on received
 * floats. */
FEDGE_MUST_USE fedge_status fedge_fixed_quantise_strict(const float *x, size_t n, int bound_log2,
                                                        int32_t *v, fedge_error *err);

/* sum[i] += weight · v[i]. */
void fedge_fixed_accumulate(int64_t *sum, const int32_t *v, size_t n, uint32_t weight);

/* sum[i] += other[i]. */
void fedge_fixed_merge(int64_t *sum, const int64_t *other, size_t n);

/* model[i] += (float)(learning_rate · ((double)sum[i] / (double)total_weight · 2^−F)); one cast to
 * float. total_weight ≥ 1. */
void fedge_fixed_step(float *model, const int64_t *sum, size_t n, uint64_t total_weight,
                      int bound_log2, double learning_rate);

/* Scalar references of the functions above, for tests. */
void fedge_fixed_quantise_scalar(const float *x, size_t n, int bound_log2, int32_t *v,
                                 uint64_t *clamped, uint64_t *not_finite);
void fedge_fixed_quantise_change_scalar(float *x, const float *y, size_t n, int bound_log2,
                                        int32_t *v, uint64_t *clamped, uint64_t *not_finite);
void fedge_fixed_accumulate_scalar(int64_t *sum, const int32_t *v, size_t n, uint32_t weight);
void fedge_fixed_step_scalar(float *model, const int64_t *sum, size_t n, uint64_t total_weight,
                             int bound_log2, double learning_rate);

/* Kernels for AVX2 and, on 64-bit ARM, NEON. Each processes whole vectors and returns the number of
 * values done, 0 on other architectures; the caller finishes with the scalar reference, which gives
 * the same bits. Call them only if fedge_os_cpu_features() has FEDGE_CPU_AVX2 or FEDGE_CPU_NEON.
 * Internal to edge/core and its tests. */
size_t fedge_fixed_quantise_avx2(const float *x, size_t n, int bound_log2, int32_t *v,
                                 uint64_t *clamped, uint64_t *not_finite);
size_t fedge_fixed_quantise_change_avx2(float *x, const float *y, size_t n, int bound_log2,
                                        int32_t *v, uint64_t *clamped, uint64_t *not_finite);
/* Stops before the first vector with a value that is NaN or outside the bound. */
size_t fedge_fixed_quantise_strict_avx2(const float *x, size_t n, int bound_log2, int32_t *v);
/* For weights below 2^31. */
size_t fedge_fixed_accumulate_avx2(int64_t *sum, const int32_t *v, size_t n, uint32_t weight);
size_t fedge_fixed_step_avx2(float *model, const int64_t *sum, size_t n, uint64_t total_weight,
                             int bound_log2, double learning_rate);
size_t fedge_fixed_quantise_neon(const float *x, size_t n, int bound_log2, int32_t *v,
                                 uint64_t *clamped, uint64_t *not_finite);
size_t fedge_fixed_quantise_change_neon(float *x, const float *y, size_t n, int bound_log2,
                                        int32_t *v, uint64_t *clamped, uint64_t *not_finite);

#endif

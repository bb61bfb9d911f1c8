/* The AVX2 kernels behind fixed.h; internal to edge/core and its tests.
 *
 * Each does a whole number of vectors and returns how many values it did (0 where the machine's
 * architecture has no AVX2): the caller finishes with the scalar reference, whose bits these match.
 * Call them only when fedge_os_cpu_features() has FEDGE_CPU_AVX2.
 */
#ifndef FEDGE_EDGE_CORE_FIXED_AVX2_H
#define FEDGE_EDGE_CORE_FIXED_AVX2_H

#include <stddef.h>
#include <stdint.h>

/* As fedge_fixed_quantise. */
size_t fedge_fixed_quantise_avx2(const float *x, size_t n, int bound_log2, int32_t *v,
                                 uint64_t *clamped, uint64_t *not_finite);

/* As fedge_fixed_quantise_change. */
size_t fedge_fixed_quantise_change_avx2(float *x, const float *y, size_t n, int bound_log2,
                                        int32_t *v, uint64_t *clamped, uint64_t *not_finite);

/* Stops before the first vector that holds a value outside the bound or NaN. */
size_t fedge_fixed_quantise_strict_avx2(const float *x, size_t n, int bound_log2, int32_t *v);

/* As fedge_fixed_accumulate, for weights below 2^31. */
size_t fedge_fixed_accumulate_avx2(int64_t *sum, const int32_t *v, size_t n, uint32_t weight);

/* As fedge_fixed_step. */
size_t fedge_fixed_step_avx2(float *model, const int64_t *sum, size_t n, uint64_t total_weight,
                             int bound_log2, double learning_rate);

#endif

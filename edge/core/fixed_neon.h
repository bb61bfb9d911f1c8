/* The NEON kernels behind fixed.h, on 64-bit ARM; internal to edge/core.
 *
 * Each does a whole number of vectors and returns how many values it did, 0 on other machines: the
 * caller finishes with the scalar reference, whose bits these match. Call them only when
 * fedge_os_cpu_features() has FEDGE_CPU_NEON.
 */
#ifndef FEDGE_EDGE_CORE_FIXED_NEON_H
#define FEDGE_EDGE_CORE_FIXED_NEON_H

#include <stddef.h>
#include <stdint.h>

/* As fedge_fixed_quantise. */
size_t fedge_fixed_quantise_neon(const float *x, size_t n, int bound_log2, int32_t *v,
                                 uint64_t *clamped, uint64_t *not_finite);

/* As fedge_fixed_quantise_change. */
size_t fedge_fixed_quantise_change_neon(float *x, const float *y, size_t n, int bound_log2,
                                        int32_t *v, uint64_t *clamped, uint64_t *not_finite);

#endif

#include "edge/core/fixed_neon.h"

#include "edge/core/fixed.h"

#if defined(__aarch64__)

#include <arm_neon.h>
#include <math.h>

#define STEP 4 /* values */

/* What values are quantised by, and how many were cut or no numbers. */
typedef struct quantiser {
    float32x4_t bound, least, scale;
    uint64x2_t clamped, not_finite;
} quantiser;

static quantiser quantiser_of(int bound_log2)
{
    const float bound = ldexpf(1.0f, bound_log2);
    return (quantiser){.bound = vdupq_n_f32(bound),
                       .least = vdupq_n_f32(-bound),
                       .scale = vdupq_n_f32(ldexpf(1.0f, FEDGE_FIXED_VALUE_BITS - bound_log2)),
                       .clamped = vdupq_n_u64(0),
                       .not_finite = vdupq_n_u64(0)};
}

/* A place where [is] has all bits set counts as one. */
static inline uint64x2_t count(uint64x2_t counted, uint32x4_t is)
{
    return vpadalq_u32(counted, vshrq_n_u32(is, 31));
}

/* vcvtn rounds to nearest even, as lrintf does in the default mode, and makes 0 of NaN, which
 * minimum and maximum keep. */
static inline int32x4_t quantise(quantiser *self, float32x4_t value)
{
    const uint32x4_t is_number = vceqq_f32(value, value);
    const float32x4_t cut = vmaxq_f32(vminq_f32(value, self->bound), self->least);
    self->clamped = count(self->clamped, vcagtq_f32(value, self->bound));
    self->not_finite = count(self->not_finite, vmvnq_u32(is_number));
    return vcvtnq_s32_f32(vmulq_f32(cut, self->scale));
}

static void add_counts(const quantiser *self, uint64_t *clamped, uint64_t *not_finite)
{
    *clamped += vaddvq_u64(self->clamped);
    *not_finite += vaddvq_u64(self->not_finite);
}

size_t fedge_fixed_quantise_neon(const float *x, size_t n, int bound_log2, int32_t *v,
                                 uint64_t *clamped, uint64_t *not_finite)
{
    quantiser by = quantiser_of(bound_log2);
    size_t i = 0;
    for (; i + STEP <= n; i += STEP)
        vst1q_s32(v + i, quantise(&by, vld1q_f32(x + i)));
    add_counts(&by, clamped, not_finite);
    return i;
}

size_t fedge_fixed_quantise_change_neon(float *x, const float *y, size_t n, int bound_log2,
                                        int32_t *v, uint64_t *clamped, uint64_t *not_finite)
{
    quantiser by = quantiser_of(bound_log2);
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        const float32x4_t start = vld1q_f32(y + i);
        const float32x4_t change = vsubq_f32(vld1q_f32(x + i), start);
        vst1q_f32(x + i, start);
        vst1q_s32(v + i, quantise(&by, change));
    }
    add_counts(&by, clamped, not_finite);
    return i;
}

#else

size_t fedge_fixed_quantise_neon(const float *x, size_t n, int bound_log2, int32_t *v,
                                 uint64_t *clamped, uint64_t *not_finite)
{
    (void)x, (void)n, (void)bound_log2, (void)v, (void)clamped, (void)not_finite;
    return 0;
}

size_t fedge_fixed_quantise_change_neon(float *x, const float *y, size_t n, int bound_log2,
                                        int32_t *v, uint64_t *clamped, uint64_t *not_finite)
{
    (void)x, (void)y, (void)n, (void)bound_log2, (void)v, (void)clamped, (void)not_finite;
    return 0;
}

#endif

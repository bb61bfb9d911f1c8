/* NEON: 64-bit ARM, and 32-bit ARM where the compiler may use it. */
#include "aggregator/reduce/sum.h"

#if defined(__ARM_NEON)

#include <arm_neon.h>
#include <math.h>

#include "edge/core/fixed.h"
#include "edge/core/os.h"

#define AHEAD 512 /* bytes; updates are separate streams in memory */

/* ---- floats ---------------------------------------------------------------------------------- */

/* Rounds x to the nearest integer, ties to even, as lrintf does. */
static inline int32x4_t nearest(float32x4_t x)
{
#if defined(__aarch64__)
    return vcvtnq_s32_f32(x);
#else
    /* From 2^23 on every float is an integer; adding 2^23 to smaller ones rounds their fraction
     * away. */
    const float32x4_t whole = vdupq_n_f32(0x1p23f);
    const float32x4_t size = vabsq_f32(x);
    const int32x4_t rounded = vcvtq_s32_f32(vsubq_f32(vaddq_f32(size, whole), whole));
    const uint32x4_t negative = vcltq_f32(x, vdupq_n_f32(0.0f));
    const int32x4_t with_sign = vbslq_s32(negative, vnegq_s32(rounded), rounded);
    return vbslq_s32(vcltq_f32(size, whole), with_sign, vcvtq_s32_f32(x));
#endif
}

static size_t floats_neon(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n,
                          int bound_log2)
{
    const float32x4_t scale = vdupq_n_f32(ldexpf(1.0f, FEDGE_FIXED_VALUE_BITS - bound_log2));
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        int64x2_t sums[4];
        for (int k = 0; k < 4; k++)
            sums[k] = vld1q_s64(sum + i + 2 * k);
        for (uint32_t u = 0; u < count; u++) {
            const uint8_t *at = updates[u].bytes + i * sizeof(float);
            const int32x2_t weight = vdup_n_s32((int32_t)updates[u].weight);
            const float32x4_t low = vreinterpretq_f32_u8(vld1q_u8(at));
            const float32x4_t high = vreinterpretq_f32_u8(vld1q_u8(at + 16));
            const int32x4_t v = nearest(vmulq_f32(low, scale));
            const int32x4_t w = nearest(vmulq_f32(high, scale));
            __builtin_prefetch(at + AHEAD);
            sums[0] = vmlal_s32(sums[0], vget_low_s32(v), weight);
            sums[1] = vmlal_s32(sums[1], vget_high_s32(v), weight);
            sums[2] = vmlal_s32(sums[2], vget_low_s32(w), weight);
            sums[3] = vmlal_s32(sums[3], vget_high_s32(w), weight);
        }
        for (int k = 0; k < 4; k++)
            vst1q_s64(sum + i + 2 * k, sums[k]);
    }
    return i;
}

/* ---- int8: bytes widened to 16 bits, multiplied by two limbs --------------------------------- */

/* sum (4) += (low + high · 2^15) · 2^[shift]. */
static inline void add_4(int64_t *sum, int32x4_t low, int32x4_t high, int64x2_t shift)
{
    const int32x2_t lows[2] = {vget_low_s32(low), vget_high_s32(low)};
    const int32x2_t highs[2] = {vget_low_s32(high), vget_high_s32(high)};
    for (int k = 0; k < 2; k++) {
        const int64x2_t value =
            vaddq_s64(vmovl_s32(lows[k]), vshlq_n_s64(vmovl_s32(highs[k]), FEDGE_SUM_LIMB_BITS));
        vst1q_s64(sum + 2 * k, vaddq_s64(vld1q_s64(sum + 2 * k), vshlq_s64(value, shift)));
    }
}

static inline void add_limbs(int64_t *sum, const fedge_sum_block *block, size_t i,
                             const int16_t *first, const int16_t *second, int shift)
{
    int32x4_t a[4], b[4];
    for (int k = 0; k < 4; k++)
        a[k] = b[k] = vdupq_n_s32(0);
    for (uint32_t u = 0; u < block->count; u++) {
        const int8x16_t bytes = vld1q_s8(block->q[u] + i);
        const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
        const int16x4_t q[4] = {vget_low_s16(low), vget_high_s16(low), vget_low_s16(high),
                                vget_high_s16(high)};
        for (int k = 0; k < 4; k++) {
            a[k] = vmlal_n_s16(a[k], q[k], first[u]);
            b[k] = vmlal_n_s16(b[k], q[k], second[u]);
        }
    }
    for (int k = 0; k < 4; k++)
        add_4(sum + i + (size_t)4 * (size_t)k, a[k], b[k], vdupq_n_s64(shift));
}

static size_t block_neon(int64_t *sum, const fedge_sum_block *block, size_t n)
{
    fedge_sum_limbs limbs;
    size_t i = 0;
    fedge_sum_split(block, &limbs);
    for (; i + 16 <= n; i += 16) {
        for (uint32_t limb = 0; limb < limbs.num_limbs; limb += 2) {
            add_limbs(sum, block, i, limbs.limbs[limb], limbs.limbs[limb + 1],
                      FEDGE_SUM_SCALE_SHIFT + (int)limb * FEDGE_SUM_LIMB_BITS);
        }
    }
    return i;
}

const fedge_sum_kernels fedge_sum_neon = {
    .name = "neon", .needs = FEDGE_CPU_NEON, .floats = floats_neon, .block = block_neon};

#endif

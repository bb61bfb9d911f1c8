/* NEON on 64-bit ARM, where every CPU has it: 4 lanes, 32 registers. */
#include "edge/train/kernels/kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define LANES 4
#define TILE_ROWS 14
#define FREE_MASKS 0
#define MAX_SEGMENTS 3
#define MAX_VECTORS 5
#define DOT_ROWS 6
#define STEP_ROWS 8
#define GEMM_ROWS 12
#define KERNELS_SYMBOL fedge_kernels_neon
#define KERNELS_NAME "neon"

typedef float32x4_t vec;
typedef int32x4_t vec_int;

#define load(p) vld1q_f32(p)
#define store(p, v) vst1q_f32(p, v)
#define splat(x) vdupq_n_f32(x)
#define splat_int(i) vdupq_n_s32(i)
#define mul_add(a, b, c) vfmaq_f32(c, a, b)
#define add(a, b) vaddq_f32(a, b)
#define mul(a, b) vmulq_f32(a, b)
#define quotient(a, b) vdivq_f32(a, b)
#define round_nearest(v) vrndnq_f32(v)
#define magnitude(v) vabsq_f32(v)

static inline vec load_first(const float *p, size_t n)
{
    vec v = vld1q_lane_f32(p, vdupq_n_f32(0.0f), 0);
    v = n > 1 ? vld1q_lane_f32(p + 1, v, 1) : v;
    return n > 2 ? vld1q_lane_f32(p + 2, v, 2) : v;
}

static inline void store_first(float *p, vec v, size_t n)
{
    vst1q_lane_f32(p, v, 0);
    if (n > 1)
        vst1q_lane_f32(p + 1, v, 1);
    if (n > 2)
        vst1q_lane_f32(p + 2, v, 2);
}

/* fmax returns NaN if an operand is NaN. */
#define max_propagating(a, b) vmaxq_f32(a, b)
#define min_propagating(a, b) vminq_f32(a, b)

static inline vec zero_below(vec v, vec least)
{
    return vreinterpretq_f32_u32(
        vbicq_u32(vreinterpretq_u32_f32(v), vcltq_f32(vabsq_f32(v), least)));
}

static inline vec with_sign(vec v, vec sign)
{
    return vbslq_f32(vdupq_n_u32(0x80000000u), sign, v);
}

static inline vec power_of_two(int32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}

/* In two factors, since 2^n itself may not be a normal number. */
static inline vec times_power_of_two(vec v, vec n)
{
    const int32x4_t whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1);
    return vmulq_f32(vmulq_f32(v, power_of_two(half)), power_of_two(vsubq_s32(whole, half)));
}

static inline vec keep_positive(vec y, vec d)
{
    return vreinterpretq_f32_u32(vandq_u32(vcgtzq_f32(y), vreinterpretq_u32_f32(d)));
}

/* One bit per lane. */
static inline unsigned positive_bits(vec y)
{
    const uint32x4_t lane = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(vcgtzq_f32(y), lane));
}

/* Lanes of d whose bit is set, else 0. */
static inline vec keep_bits(unsigned bits, vec d)
{
    const uint32x4_t lane = {1, 2, 4, 8};
    return vreinterpretq_f32_u32(
        vandq_u32(vtstq_u32(vdupq_n_u32(bits), lane), vreinterpretq_u32_f32(d)));
}

static inline void pool_step(vec x, vec_int index, vec *best, vec_int *indices)
{
    const uint32x4_t take = vorrq_u32(vcgtq_f32(x, *best), vmvnq_u32(vceqq_f32(x, x)));
    *best = vbslq_f32(take, x, *best);
    *indices = vbslq_s32(take, index, *indices);
}

static inline void store_indices(uint8_t *p, vec_int indices)
{
    const uint16x4_t words = vmovn_u32(vreinterpretq_u32_s32(indices));
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(words, words));
    vst1_lane_u32((uint32_t *)(void *)p, vreinterpret_u32_u8(bytes), 0);
}

/* y[i] += sum of the lanes of v[i], i < n. */
static inline __attribute__((always_inline)) void add_sums(float *y, int n, const vec v[4])
{
    for (int i = 0; i < n; i++)
        y[i] += vaddvq_f32(v[i]);
}

#define load_quads(p, stride) ((void)(stride), vld1q_f32(p))

/* v[i] lane j to v[j] lane i. */
static inline __attribute__((always_inline)) void transpose_quads(vec v[4])
{
    const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(v[0], v[1]));
    const float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(v[0], v[1]));
    const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(v[2], v[3]));
    const float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(v[2], v[3]));
    v[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    v[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    v[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    v[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

/* The product of the lower halves of 64-bit lanes. */
#define product_of_words(a, b)                                                                     \
    ((lanes)vmull_u32(vmovn_u64((uint64x2_t)(a)), vmovn_u64((uint64x2_t)(b))))

#include "edge/train/kernels/simd.h"

#endif

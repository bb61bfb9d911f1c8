#include "edge/core/fixed.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>

#define AVX2 __attribute__((target("avx2")))

#define AHEAD 4096 /* prefetch distance in bytes for models and sums */

/* Parameters of quantisation, and counts of clipped values and NaNs. */
typedef struct quantiser {
    __m256 bound, scale;
    uint64_t clamped, not_finite;
} quantiser;

AVX2 static quantiser quantiser_of(int bound_log2)
{
    return (quantiser){
        .bound = _mm256_set1_ps(ldexpf(1.0f, bound_log2)),
        .scale = _mm256_set1_ps(ldexpf(1.0f, FEDGE_FIXED_VALUE_BITS - bound_log2)),
    };
}

/* cvtps rounds to nearest even by default, as lrintf does. */
AVX2 static inline __m256i quantise(quantiser *self, __m256 value)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 magnitude = _mm256_andnot_ps(sign, value);
    const __m256 is_number = _mm256_cmp_ps(value, value, _CMP_ORD_Q);
    const __m256 is_over = _mm256_cmp_ps(magnitude, self->bound, _CMP_GT_OQ);
    __m256 cut = _mm256_or_ps(_mm256_min_ps(magnitude, self->bound), _mm256_and_ps(sign, value));
    cut = _mm256_and_ps(cut, is_number);
    const unsigned over = (unsigned)_mm256_movemask_ps(is_over);
    const unsigned no_number = (unsigned)_mm256_movemask_ps(is_number) ^ 0xFF;
    if ((over | no_number) != 0) {
        self->clamped += (unsigned)__builtin_popcount(over);
        self->not_finite += (unsigned)__builtin_popcount(no_number);
    }
    return _mm256_cvtps_epi32(_mm256_mul_ps(cut, self->scale));
}

AVX2 size_t fedge_fixed_quantise_avx2(const float *x, size_t n, int bound_log2, int32_t *v,
                                      uint64_t *clamped, uint64_t *not_finite)
{
    quantiser by = quantiser_of(bound_log2);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm_prefetch((const char *)(x + i) + AHEAD, _MM_HINT_T0);
        _mm256_storeu_si256((__m256i *)(v + i), quantise(&by, _mm256_loadu_ps(x + i)));
    }
    *clamped += by.clamped;
    *not_finite += by.not_finite;
    return i;
}

AVX2 size_t fedge_fixed_quantise_change_avx2(float *x, const float *y, size_t n, int bound_log2,
                                             int32_t *v, uint64_t *clamped, uint64_t *not_finite)
{
    quantiser by = quantiser_of(bound_log2);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm_prefetch((const char *)(x + i) + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)(y + i) + AHEAD, _MM_HINT_T0);
        const __m256 start = _mm256_loadu_ps(y + i);
        const __m256 change = _mm256_sub_ps(_mm256_loadu_ps(x + i), start);
        _mm256_storeu_ps(x + i, start);
        _mm256_storeu_si256((__m256i *)(v + i), quantise(&by, change));
    }
    *clamped += by.clamped;
    *not_finite += by.not_finite;
    return i;
}

AVX2 size_t fedge_fixed_quantise_strict_avx2(const float *x, size_t n, int bound_log2, int32_t *v)
{
    const __m256 bound = _mm256_set1_ps(ldexpf(1.0f, bound_log2));
    const __m256 scale = _mm256_set1_ps(ldexpf(1.0f, FEDGE_FIXED_VALUE_BITS - bound_log2));
    const __m256 sign = _mm256_set1_ps(-0.0f);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 value = _mm256_loadu_ps(x + i);
        __m256 good = _mm256_cmp_ps(_mm256_andnot_ps(sign, value), bound, _CMP_LE_OQ);
        if (_mm256_movemask_ps(good) != 0xFF)
            break;
        _mm256_storeu_si256((__m256i *)(v + i), _mm256_cvtps_epi32(_mm256_mul_ps(value, scale)));
    }
    return i;
}

/* Whether the 8 values at [v] are 0, as in rows that a client's training never used. */
AVX2 static inline bool are_zeros(const int32_t *v)
{
    const __m256i values = _mm256_loadu_si256((const __m256i *)v);
    return _mm256_testz_si256(values, values) != 0;
}

AVX2 size_t fedge_fixed_accumulate_avx2(int64_t *sum, const int32_t *v, size_t n, uint32_t weight)
{
    const __m256i factor = _mm256_set1_epi64x((long long)weight);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const size_t later = i + AHEAD / sizeof(*sum);
        if (later + 8 <= n && !are_zeros(v + later))
            _mm_prefetch((const char *)(sum + later), _MM_HINT_T0);
        if (are_zeros(v + i))
            continue; /* saves a memory access */
        __m256i low = _mm256_cvtepi32_epi64(_mm_loadu_si128((const __m128i *)(v + i)));
        __m256i high = _mm256_cvtepi32_epi64(_mm_loadu_si128((const __m128i *)(v + i + 4)));
        __m256i *at = (__m256i *)(sum + i);
        _mm256_storeu_si256(
            at, _mm256_add_epi64(_mm256_loadu_si256(at), _mm256_mul_epi32(low, factor)));
        _mm256_storeu_si256(
            at + 1, _mm256_add_epi64(_mm256_loadu_si256(at + 1), _mm256_mul_epi32(high, factor)));
    }
    return i;
}

/* Rounds once, as the conversion does: 2^52 + low and 2^84 + (high + 2^31) · 2^32 are exact
 * doubles, and so is what is subtracted. */
AVX2 static __m256d to_doubles(__m256i x)
{
    const __m256i low_base = _mm256_set1_epi64x(0x4330000000000000);  /* 2^52 */
    const __m256i high_base = _mm256_set1_epi64x(0x4530000080000000); /* 2^84 + 2^63 */
    const __m256i bases = _mm256_set1_epi64x(0x4530000080100000);     /* 2^84 + 2^63 + 2^52 */
    const __m256i low = _mm256_blend_epi32(low_base, x, 0x55);
    const __m256i high = _mm256_xor_si256(_mm256_srli_epi64(x, 32), high_base);
    return _mm256_add_pd(_mm256_sub_pd(_mm256_castsi256_pd(high), _mm256_castsi256_pd(bases)),
                         _mm256_castsi256_pd(low));
}

AVX2 size_t fedge_fixed_step_avx2(float *model, const int64_t *sum, size_t n, uint64_t total_weight,
                                  int bound_log2, double learning_rate)
{
    const __m256d weight = _mm256_set1_pd((double)total_weight);
    const __m256d unit = _mm256_set1_pd(ldexp(1.0, bound_log2 - FEDGE_FIXED_VALUE_BITS));
    const __m256d rate = _mm256_set1_pd(learning_rate);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const __m256d value = to_doubles(_mm256_loadu_si256((const __m256i *)(sum + i)));
        const __m256d mean = _mm256_mul_pd(_mm256_div_pd(value, weight), unit);
        const __m128 move = _mm256_cvtpd_ps(_mm256_mul_pd(rate, mean));
        _mm_storeu_ps(model + i, _mm_add_ps(_mm_loadu_ps(model + i), move));
    }
    return i;
}

#else

size_t fedge_fixed_quantise_avx2(const float *x, size_t n, int bound_log2, int32_t *v,
                                 uint64_t *clamped, uint64_t *not_finite)
{
    (void)x, (void)n, (void)bound_log2, (void)v, (void)clamped, (void)not_finite;
    return 0;
}

size_t fedge_fixed_quantise_change_avx2(float *x, const float *y, size_t n, int bound_log2,
                                        int32_t *v, uint64_t *clamped, uint64_t *not_finite)
{
    (void)x, (void)y, (void)n, (void)bound_log2, (void)v, (void)clamped, (void)not_finite;
    return 0;
}

size_t fedge_fixed_quantise_strict_avx2(const float *x, size_t n, int bound_log2, int32_t *v)
{
    (void)x, (void)n, (void)bound_log2, (void)v;
    return 0;
}

size_t fedge_fixed_accumulate_avx2(int64_t *sum, const int32_t *v, size_t n, uint32_t weight)
{
    (void)sum, (void)v, (void)n, (void)weight;
    return 0;
}

size_t fedge_fixed_step_avx2(float *model, const int64_t *sum, size_t n, uint64_t total_weight,
                             int bound_log2, double learning_rate)
{
    (void)model, (void)sum, (void)n, (void)total_weight, (void)bound_log2, (void)learning_rate;
    return 0;
}

#endif

#if defined(__aarch64__)

#include <arm_neon.h>
#include <math.h>

#define STEP 4 /* values */

/* Parameters of quantisation, and counts of clipped values and NaNs. */
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

/* Counts the lanes whose bits are all set. */
static inline uint64x2_t count(uint64x2_t counted, uint32x4_t is)
{
    return vpadalq_u32(counted, vshrq_n_u32(is, 31));
}

/* vcvtn rounds to nearest even, as lrintf does by default, and converts NaN, which min and max
 * preserve, to 0. */
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

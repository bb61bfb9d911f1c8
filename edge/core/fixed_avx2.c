#include "edge/core/fixed_avx2.h"

#include "edge/core/fixed.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <math.h>

#define AVX2 __attribute__((target("avx2")))

/* cvtps rounds to nearest even in the default mode, as lrintf does. */
AVX2 size_t fedge_fixed_quantise_avx2(const float *x, size_t n, int bound_log2, int32_t *v,
                                      uint64_t *clamped, uint64_t *not_finite)
{
    const __m256 bound = _mm256_set1_ps(ldexpf(1.0f, bound_log2));
    const __m256 scale = _mm256_set1_ps(ldexpf(1.0f, FEDGE_FIXED_VALUE_BITS - bound_log2));
    const __m256 sign = _mm256_set1_ps(-0.0f);
    uint64_t num_clamped = 0;
    uint64_t num_nan = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 value = _mm256_loadu_ps(x + i);
        __m256 magnitude = _mm256_andnot_ps(sign, value);
        __m256 is_number = _mm256_cmp_ps(value, value, _CMP_ORD_Q);
        __m256 is_over = _mm256_cmp_ps(magnitude, bound, _CMP_GT_OQ);
        __m256 cut = _mm256_or_ps(_mm256_min_ps(magnitude, bound), _mm256_and_ps(sign, value));
        cut = _mm256_and_ps(cut, is_number);
        _mm256_storeu_si256((__m256i *)(v + i), _mm256_cvtps_epi32(_mm256_mul_ps(cut, scale)));
        int over = _mm256_movemask_ps(is_over);
        int numbers = _mm256_movemask_ps(is_number);
        if ((over | (numbers ^ 0xFF)) != 0) {
            num_clamped += (unsigned)__builtin_popcount((unsigned)over);
            num_nan += (unsigned)__builtin_popcount((unsigned)(numbers ^ 0xFF));
        }
    }
    *clamped += num_clamped;
    *not_finite += num_nan;
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

AVX2 size_t fedge_fixed_accumulate_avx2(int64_t *sum, const int32_t *v, size_t n, uint32_t weight)
{
    const __m256i factor = _mm256_set1_epi64x((long long)weight);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
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

#else

size_t fedge_fixed_quantise_avx2(const float *x, size_t n, int bound_log2, int32_t *v,
                                 uint64_t *clamped, uint64_t *not_finite)
{
    (void)x, (void)n, (void)bound_log2, (void)v, (void)clamped, (void)not_finite;
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

#endif

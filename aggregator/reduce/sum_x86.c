#include "aggregator/reduce/sum.h"

#include "edge/core/fixed.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define AHEAD 2048 /* bytes: updates lie in memory, each in a stream of its own */
#define SCALE_SHIFT 7

static inline void fetch(const uint8_t *at)
{
    _mm_prefetch((const char *)at + AHEAD, _MM_HINT_T0);
}

/* ---- floats: cvtps rounds to nearest even in the default mode, as lrintf does ---------------- */

AVX2 size_t fedge_sum_floats_avx2(int64_t *sum, const fedge_summand *updates, uint32_t count,
                                  size_t n, int bound_log2)
{
    const __m256 scale = _mm256_set1_ps(ldexpf(1.0f, FEDGE_FIXED_VALUE_BITS - bound_log2));
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i *to = (__m256i *)(sum + i);
        __m256i low = _mm256_loadu_si256(to), high = _mm256_loadu_si256(to + 1);
        for (uint32_t u = 0; u < count; u++) {
            const uint8_t *at = updates[u].bytes + i * sizeof(float);
            const __m256i weight = _mm256_set1_epi64x((long long)updates[u].weight);
            const __m256i v =
                _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps((const float *)at), scale));
            fetch(at);
            low = _mm256_add_epi64(
                low, _mm256_mul_epi32(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(v)), weight));
            high = _mm256_add_epi64(
                high,
                _mm256_mul_epi32(_mm256_cvtepi32_epi64(_mm256_extracti128_si256(v, 1)), weight));
        }
        _mm256_storeu_si256(to, low);
        _mm256_storeu_si256(to + 1, high);
    }
    return i;
}

AVX512 size_t fedge_sum_floats_avx512(int64_t *sum, const fedge_summand *updates, uint32_t count,
                                      size_t n, int bound_log2)
{
    const __m512 scale = _mm512_set1_ps(ldexpf(1.0f, FEDGE_FIXED_VALUE_BITS - bound_log2));
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i *to = (__m512i *)(sum + i);
        __m512i low = _mm512_loadu_si512(to), high = _mm512_loadu_si512(to + 1);
        for (uint32_t u = 0; u < count; u++) {
            const uint8_t *at = updates[u].bytes + i * sizeof(float);
            const __m512i weight = _mm512_set1_epi64((long long)updates[u].weight);
            const __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(at), scale));
            fetch(at);
            low = _mm512_add_epi64(
                low, _mm512_mul_epi32(_mm512_cvtepi32_epi64(_mm512_castsi512_si256(v)), weight));
            high = _mm512_add_epi64(
                high,
                _mm512_mul_epi32(_mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(v, 1)), weight));
        }
        _mm512_storeu_si512(to, low);
        _mm512_storeu_si512(to + 1, high);
    }
    return i;
}

/* ---- int8: bytes of two updates side by side, multiplied by two limbs and added at once ------ */

/* Sixteen values of two updates, in pairs: those of the first eight values, of the other eight. */
AVX2 static inline void pair_16(const int8_t *a, const int8_t *b, __m256i *low, __m256i *high)
{
    const __m128i x = _mm_loadu_si128((const __m128i *)a);
    const __m128i y = _mm_loadu_si128((const __m128i *)b);
    *low = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(x, y));
    *high = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(x, y));
}

/* sum (8) += part · 2^[shift]. */
AVX2 static inline void add_shifted_avx2(int64_t *sum, __m256i part, int shift)
{
    __m256i *to = (__m256i *)sum;
    const __m256i low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(part));
    const __m256i high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(part, 1));
    const __m128i by = _mm_cvtsi32_si128(shift);
    _mm256_storeu_si256(to, _mm256_add_epi64(_mm256_loadu_si256(to), _mm256_sll_epi64(low, by)));
    _mm256_storeu_si256(to + 1,
                        _mm256_add_epi64(_mm256_loadu_si256(to + 1), _mm256_sll_epi64(high, by)));
}

/* Adds one limb of sixteen values at [i]. */
AVX2 static inline void add_limb_avx2(int64_t *sum, const fedge_sum_block *block, size_t i,
                                      uint32_t limb)
{
    __m256i low_sum = _mm256_setzero_si256(), high_sum = _mm256_setzero_si256();
    for (uint32_t p = 0; p < block->num_pairs; p++) {
        __m256i low, high;
        const __m256i factors = _mm256_set1_epi32((int)block->limbs[limb][p]);
        pair_16(block->q[2 * p] + i, block->q[2 * p + 1] + i, &low, &high);
        low_sum = _mm256_add_epi32(low_sum, _mm256_madd_epi16(low, factors));
        high_sum = _mm256_add_epi32(high_sum, _mm256_madd_epi16(high, factors));
    }
    const int shift = SCALE_SHIFT + (int)limb * FEDGE_SUM_LIMB_BITS;
    add_shifted_avx2(sum + i, low_sum, shift);
    add_shifted_avx2(sum + i + 8, high_sum, shift);
}

AVX2 size_t fedge_sum_block_avx2(int64_t *sum, const fedge_sum_block *block, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (uint32_t limb = 0; limb < block->num_limbs; limb++) {
            add_limb_avx2(sum, block, i, limb);
        }
    }
    return i;
}

AVX512 static inline __m512i pairs_16(const int8_t *a, const int8_t *b)
{
    const __m128i x = _mm_loadu_si128((const __m128i *)a);
    const __m128i y = _mm_loadu_si128((const __m128i *)b);
    return _mm512_cvtepi8_epi16(_mm256_set_m128i(_mm_unpackhi_epi8(x, y), _mm_unpacklo_epi8(x, y)));
}

AVX512 static inline void add_shifted_avx512(int64_t *sum, __m512i part, int shift)
{
    const __m512i low = _mm512_cvtepi32_epi64(_mm512_castsi512_si256(part));
    const __m512i high = _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(part, 1));
    const __m128i by = _mm_cvtsi32_si128(shift);
    _mm512_storeu_si512(sum, _mm512_add_epi64(_mm512_loadu_si512(sum), _mm512_sll_epi64(low, by)));
    _mm512_storeu_si512(sum + 8,
                        _mm512_add_epi64(_mm512_loadu_si512(sum + 8), _mm512_sll_epi64(high, by)));
}

/* Two limbs at once, for the bytes of a pair are wanted by both. */
AVX512 static inline void add_limbs_avx512(int64_t *sum, const fedge_sum_block *block, size_t i,
                                           uint32_t limb)
{
    const bool second = limb + 1 < block->num_limbs;
    const uint32_t next = second ? limb + 1 : limb;
    __m512i a = _mm512_setzero_si512(), b = _mm512_setzero_si512();
    for (uint32_t p = 0; p < block->num_pairs; p++) {
        const __m512i pairs = pairs_16(block->q[2 * p] + i, block->q[2 * p + 1] + i);
        a = _mm512_add_epi32(
            a, _mm512_madd_epi16(pairs, _mm512_set1_epi32((int)block->limbs[limb][p])));
        b = _mm512_add_epi32(
            b, _mm512_madd_epi16(pairs, _mm512_set1_epi32((int)block->limbs[next][p])));
    }
    const int shift = SCALE_SHIFT + (int)limb * FEDGE_SUM_LIMB_BITS;
    add_shifted_avx512(sum + i, a, shift);
    if (second) {
        add_shifted_avx512(sum + i, b, shift + FEDGE_SUM_LIMB_BITS);
    }
}

AVX512 size_t fedge_sum_block_avx512(int64_t *sum, const fedge_sum_block *block, size_t n)
{
    size_t i = 0;
    for (uint32_t u = 0; u < 2 * block->num_pairs; u++) {
        for (size_t line = 0; line < n; line += 64) {
            fetch((const uint8_t *)block->q[u] + line);
        }
    }
    for (; i + 16 <= n; i += 16) {
        for (uint32_t limb = 0; limb < block->num_limbs; limb += 2) {
            add_limbs_avx512(sum, block, i, limb);
        }
    }
    return i;
}

#else

size_t fedge_sum_floats_avx2(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n,
                             int bound_log2)
{
    (void)sum, (void)updates, (void)count, (void)n, (void)bound_log2;
    return 0;
}

size_t fedge_sum_floats_avx512(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n,
                               int bound_log2)
{
    (void)sum, (void)updates, (void)count, (void)n, (void)bound_log2;
    return 0;
}

size_t fedge_sum_block_avx2(int64_t *sum, const fedge_sum_block *block, size_t n)
{
    (void)sum, (void)block, (void)n;
    return 0;
}

size_t fedge_sum_block_avx512(int64_t *sum, const fedge_sum_block *block, size_t n)
{
    (void)sum, (void)block, (void)n;
    return 0;
}

#endif

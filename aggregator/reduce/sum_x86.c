#include "aggregator/reduce/sum.h"

#if defined(__x86_64__)

#include <assert.h>
#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "edge/core/fixed.h"
#include "edge/core/os.h"

#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define AHEAD 512 /* bytes; updates are separate streams in memory */

static inline void fetch(const uint8_t *at)
{
    _mm_prefetch((const char *)at + AHEAD, _MM_HINT_T0);
}

/* ---- floats: cvtps rounds to nearest even in the default mode, as lrintf does ---------------- */

AVX2 static size_t floats_avx2(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n,
                               int bound_log2)
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

AVX512 static size_t floats_avx512(int64_t *sum, const fedge_summand *updates, uint32_t count,
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

/* ---- int8: bytes of two updates side by side, multiplied by their limbs and added at once ---- */

/* The limbs of updates [u] and [u] + 1 as one 32-bit number. */
static inline int limb_pair(const int16_t *limbs, uint32_t u)
{
    int pair;
    memcpy(&pair, limbs + u, sizeof(pair));
    return pair;
}

static inline void fetch_block(const fedge_sum_block *block, size_t n)
{
    for (uint32_t u = 0; u < block->count; u++) {
        for (size_t line = 0; line < n; line += 64)
            fetch((const uint8_t *)block->q[u] + line);
    }
}

/* Interleaves sixteen values of two updates: the first eight pairs and the other eight. */
AVX2 static inline void pair_16(const int8_t *a, const int8_t *b, __m256i *low, __m256i *high)
{
    const __m128i x = _mm_loadu_si128((const __m128i *)a);
    const __m128i y = _mm_loadu_si128((const __m128i *)b);
    *low = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(x, y));
    *high = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(x, y));
}

/* sum (4) += (low + high · 2^15) · 2^[shift]. */
AVX2 static inline void add_4_avx2(int64_t *sum, __m128i low, __m128i high, int shift)
{
    const __m256i value =
        _mm256_add_epi64(_mm256_cvtepi32_epi64(low),
                         _mm256_slli_epi64(_mm256_cvtepi32_epi64(high), FEDGE_SUM_LIMB_BITS));
    __m256i *to = (__m256i *)sum;
    _mm256_storeu_si256(to, _mm256_add_epi64(_mm256_loadu_si256(to),
                                             _mm256_sll_epi64(value, _mm_cvtsi32_si128(shift))));
}

AVX2 static inline void add_8_avx2(int64_t *sum, __m256i low, __m256i high, int shift)
{
    add_4_avx2(sum, _mm256_castsi256_si128(low), _mm256_castsi256_si128(high), shift);
    add_4_avx2(sum + 4, _mm256_extracti128_si256(low, 1), _mm256_extracti128_si256(high, 1), shift);
}

/* Two limbs of sixteen values at once, since both need the bytes of a pair. */
AVX2 static inline void add_limbs_avx2(int64_t *sum, const fedge_sum_block *block, size_t i,
                                       const int16_t *first, const int16_t *second, int shift)
{
    __m256i a_low = _mm256_setzero_si256(), a_high = a_low, b_low = a_low, b_high = a_low;
    for (uint32_t u = 0; u < block->count; u += 2) {
        __m256i low, high;
        const __m256i a = _mm256_set1_epi32(limb_pair(first, u));
        const __m256i b = _mm256_set1_epi32(limb_pair(second, u));
        pair_16(block->q[u] + i, block->q[u + 1] + i, &low, &high);
        a_low = _mm256_add_epi32(a_low, _mm256_madd_epi16(low, a));
        a_high = _mm256_add_epi32(a_high, _mm256_madd_epi16(high, a));
        b_low = _mm256_add_epi32(b_low, _mm256_madd_epi16(low, b));
        b_high = _mm256_add_epi32(b_high, _mm256_madd_epi16(high, b));
    }
    add_8_avx2(sum + i, a_low, b_low, shift);
    add_8_avx2(sum + i + 8, a_high, b_high, shift);
}

AVX2 static size_t block_avx2(int64_t *sum, const fedge_sum_block *block, size_t n)
{
    fedge_sum_limbs limbs;
    size_t i = 0;
    fedge_sum_split(block, &limbs);
    fetch_block(block, n);
    for (; i + 16 <= n; i += 16) {
        for (uint32_t limb = 0; limb < limbs.num_limbs; limb += 2) {
            add_limbs_avx2(sum, block, i, limbs.limbs[limb], limbs.limbs[limb + 1],
                           FEDGE_SUM_SCALE_SHIFT + (int)limb * FEDGE_SUM_LIMB_BITS);
        }
    }
    return i;
}

const fedge_sum_kernels fedge_sum_avx2 = {
    .name = "avx2", .needs = FEDGE_CPU_AVX2, .floats = floats_avx2, .block = block_avx2};

AVX512 static inline __m512i pairs_16(const int8_t *a, const int8_t *b)
{
    const __m128i x = _mm_loadu_si128((const __m128i *)a);
    const __m128i y = _mm_loadu_si128((const __m128i *)b);
    return _mm512_cvtepi8_epi16(_mm256_set_m128i(_mm_unpackhi_epi8(x, y), _mm_unpacklo_epi8(x, y)));
}

/* sum (8) += (low + high · 2^15) · 2^[shift]. */
AVX512 static inline void add_8_avx512(int64_t *sum, __m256i low, __m256i high, int shift)
{
    const __m512i value =
        _mm512_add_epi64(_mm512_cvtepi32_epi64(low),
                         _mm512_slli_epi64(_mm512_cvtepi32_epi64(high), FEDGE_SUM_LIMB_BITS));
    _mm512_storeu_si512(sum, _mm512_add_epi64(_mm512_loadu_si512(sum),
                                              _mm512_sll_epi64(value, _mm_cvtsi32_si128(shift))));
}

AVX512 static inline void add_limbs_avx512(int64_t *sum, const fedge_sum_block *block, size_t i,
                                           const int16_t *first, const int16_t *second, int shift)
{
    __m512i a = _mm512_setzero_si512(), b = a;
    for (uint32_t u = 0; u < block->count; u += 2) {
        const __m512i pairs = pairs_16(block->q[u] + i, block->q[u + 1] + i);
        a = _mm512_add_epi32(a, _mm512_madd_epi16(pairs, _mm512_set1_epi32(limb_pair(first, u))));
        b = _mm512_add_epi32(b, _mm512_madd_epi16(pairs, _mm512_set1_epi32(limb_pair(second, u))));
    }
    add_8_avx512(sum + i, _mm512_castsi512_si256(a), _mm512_castsi512_si256(b), shift);
    add_8_avx512(sum + i + 8, _mm512_extracti64x4_epi64(a, 1), _mm512_extracti64x4_epi64(b, 1),
                 shift);
}

/* Adds values [i, n) in groups of sixteen; returns where it stopped. */
AVX512 static size_t add_remainder_avx512(int64_t *sum, const fedge_sum_block *block, size_t i,
                                          size_t n)
{
    if (i + 16 > n)
        return i;
    fedge_sum_limbs limbs;
    fedge_sum_split(block, &limbs);
    for (; i + 16 <= n; i += 16) {
        for (uint32_t limb = 0; limb < limbs.num_limbs; limb += 2) {
            add_limbs_avx512(sum, block, i, limbs.limbs[limb], limbs.limbs[limb + 1],
                             FEDGE_SUM_SCALE_SHIFT + (int)limb * FEDGE_SUM_LIMB_BITS);
        }
    }
    return i;
}

static size_t block_avx512(int64_t *sum, const fedge_sum_block *block, size_t n)
{
    fetch_block(block, n);
    return add_remainder_avx512(sum, block, 0, n);
}

const fedge_sum_kernels fedge_sum_avx512 = {
    .name = "avx512", .needs = FEDGE_CPU_AVX512, .floats = floats_avx512, .block = block_avx512};

/* ---- int8 where there are sums of products of four bytes ------------------------------------- */

#define BYTE_LIMBS 4 /* factors below 2^32; larger ones use the functions above */

/* 127 · (2^16 − 1) · FEDGE_SUM_MAX_UPDATES < 2^31: two limbs of 8 bits are combined in 32 bits. */
static_assert((int64_t)127 * UINT16_MAX * FEDGE_SUM_MAX_UPDATES < INT32_MAX, "two limbs fit");

/* limbs[l][u]: bits 8 l to 8 l + 7 of the factor of update u. */
VNNI static inline void split_bytes(const fedge_sum_block *block,
                                    uint8_t limbs[BYTE_LIMBS][FEDGE_SUM_MAX_UPDATES])
{
    for (uint32_t u = 0; u < block->count; u += 4) {
        const __m256i factors = _mm256_loadu_si256((const __m256i *)(block->factors + u));
        for (int limb = 0; limb < BYTE_LIMBS; limb++) {
            const __m128i bytes = _mm256_cvtepi64_epi8(_mm256_srli_epi64(factors, 8 * limb));
            memcpy(limbs[limb] + u, &bytes, 4);
        }
    }
}

/* Interleaves sixty-four values of four updates: each 32-bit number of x[k] has one value of each
 * update. Quarter l of the vector x[k] holds the values 16 l + 4 k to 16 l + 4 k + 3. */
VNNI static inline void interleave_64(const int8_t *const q[4], size_t i, __m512i x[4])
{
    const __m512i a = _mm512_loadu_si512(q[0] + i), b = _mm512_loadu_si512(q[1] + i);
    const __m512i c = _mm512_loadu_si512(q[2] + i), d = _mm512_loadu_si512(q[3] + i);
    const __m512i ab_low = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b);
    const __m512i cd_low = _mm512_unpacklo_epi8(c, d), cd_high = _mm512_unpackhi_epi8(c, d);
    x[0] = _mm512_unpacklo_epi16(ab_low, cd_low);
    x[1] = _mm512_unpackhi_epi16(ab_low, cd_low);
    x[2] = _mm512_unpacklo_epi16(ab_high, cd_high);
    x[3] = _mm512_unpackhi_epi16(ab_high, cd_high);
}

/* Transposes, so that x[l] holds the values 16 l to 16 l + 15. */
VNNI static inline void order_64(__m512i x[4])
{
    const __m512i a = _mm512_shuffle_i64x2(x[0], x[1], 0x44);
    const __m512i b = _mm512_shuffle_i64x2(x[2], x[3], 0x44);
    const __m512i c = _mm512_shuffle_i64x2(x[0], x[1], 0xee);
    const __m512i d = _mm512_shuffle_i64x2(x[2], x[3], 0xee);
    x[0] = _mm512_shuffle_i64x2(a, b, 0x88);
    x[1] = _mm512_shuffle_i64x2(a, b, 0xdd);
    x[2] = _mm512_shuffle_i64x2(c, d, 0x88);
    x[3] = _mm512_shuffle_i64x2(c, d, 0xdd);
}

/* sum (8) += (low + high · 2^16) · 2^7. */
VNNI static inline void add_8_vnni(int64_t *sum, __m256i low, __m256i high)
{
    const __m512i value = _mm512_add_epi64(_mm512_cvtepi32_epi64(low),
                                           _mm512_slli_epi64(_mm512_cvtepi32_epi64(high), 16));
    _mm512_storeu_si512(sum, _mm512_add_epi64(_mm512_loadu_si512(sum),
                                              _mm512_slli_epi64(value, FEDGE_SUM_SCALE_SHIFT)));
}

/* Sixty-four values at [i]; num_limbs, a constant: 2 to BYTE_LIMBS. */
VNNI static inline __attribute__((always_inline)) void
add_64(int64_t *sum, const fedge_sum_block *block,
       const uint8_t limbs[BYTE_LIMBS][FEDGE_SUM_MAX_UPDATES], size_t i, const int num_limbs)
{
    __m512i parts[BYTE_LIMBS][4];
    memset(parts, 0, sizeof(parts));
    for (uint32_t u = 0; u < block->count; u += 4) {
        __m512i x[4];
        interleave_64(block->q + u, i, x);
        for (int limb = 0; limb < num_limbs; limb++) {
            int four;
            memcpy(&four, limbs[limb] + u, sizeof(four));
            for (int k = 0; k < 4; k++)
                parts[limb][k] = _mm512_dpbusd_epi32(parts[limb][k], _mm512_set1_epi32(four), x[k]);
        }
    }
    for (int k = 0; k < 4; k++) {
        parts[0][k] = _mm512_add_epi32(parts[0][k], _mm512_slli_epi32(parts[1][k], 8));
        parts[2][k] = _mm512_add_epi32(parts[2][k], _mm512_slli_epi32(parts[3][k], 8));
    }
    order_64(parts[0]);
    order_64(parts[2]);
    for (int l = 0; l < 4; l++) {
        int64_t *to = sum + i + (ptrdiff_t)16 * l;
        add_8_vnni(to, _mm512_castsi512_si256(parts[0][l]), _mm512_castsi512_si256(parts[2][l]));
        add_8_vnni(to + 8, _mm512_extracti64x4_epi64(parts[0][l], 1),
                   _mm512_extracti64x4_epi64(parts[2][l], 1));
    }
}

VNNI static size_t block_vnni(int64_t *sum, const fedge_sum_block *block, size_t n)
{
    uint8_t limbs[BYTE_LIMBS][FEDGE_SUM_MAX_UPDATES];
    size_t i = 0;
    fetch_block(block, n);
    if (block->bits <= UINT32_MAX) {
        split_bytes(block, limbs);
        if (block->bits <= UINT16_MAX) {
            for (; i + 64 <= n; i += 64)
                add_64(sum, block, limbs, i, 2);
        } else if (block->bits < 1u << 24) {
            for (; i + 64 <= n; i += 64)
                add_64(sum, block, limbs, i, 3);
        } else {
            for (; i + 64 <= n; i += 64)
                add_64(sum, block, limbs, i, 4);
        }
    }
    return add_remainder_avx512(sum, block, i, n);
}

const fedge_sum_kernels fedge_sum_avx512vnni = {.name = "avx512vnni",
                                                .needs = FEDGE_CPU_AVX512 | FEDGE_CPU_AVX512VNNI,
                                                .floats = floats_avx512,
                                                .block = block_vnni};

#endif

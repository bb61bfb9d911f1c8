/* Integers over a block's scale, as codec_int8.c and codec_int4.c need them; for x86 with AVX2.
 *
 * A division of doubles would give the rounded quotient at once, but takes 8 cycles for four. The
 * product with the reciprocal, in binary32, is less than 2^−15 off where |v / d| ≤ 129, so rounded
 * it is the quotient or its neighbour. Which of them is right the remainder says, exactly. */
#ifndef FEDGE_EDGE_CORE_QUOTIENT_AVX2_H
#define FEDGE_EDGE_CORE_QUOTIENT_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define FEDGE_AVX2 __attribute__((target("avx2")))

/* The largest |v| of count / 8 · 8 values. */
FEDGE_AVX2 static inline int32_t fedge_largest_avx2(const int32_t *v, size_t count)
{
    __m256i most = _mm256_setzero_si256();
    for (size_t i = 0; i + 8 <= count; i += 8) {
        most =
            _mm256_max_epi32(most, _mm256_abs_epi32(_mm256_loadu_si256((const __m256i *)(v + i))));
    }
    int32_t lanes[8], largest = 0;
    _mm256_storeu_si256((__m256i *)lanes, most);
    for (int i = 0; i < 8; i++)
        largest = lanes[i] > largest ? lanes[i] : largest;
    return largest;
}

/* v / d rounded to nearest, halves to even. d: in each place the divisor, below 2^28 and of 24 bits
 * at most; reciprocal: 1 / d. */
FEDGE_AVX2 static inline __m256i fedge_quotients_avx2(__m256i v, __m256i d, __m256 reciprocal)
{
    const __m256i near = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_cvtepi32_ps(v), reciprocal));
    const __m256i rest = _mm256_sub_epi32(v, _mm256_mullo_epi32(near, d));
    const __m256i twice = _mm256_add_epi32(rest, rest);
    /* An odd number loses a half to its even neighbour. */
    const __m256i odd = _mm256_and_si256(near, _mm256_set1_epi32(1));
    const __m256i above = _mm256_cmpgt_epi32(twice, _mm256_sub_epi32(d, odd));
    const __m256i below = _mm256_cmpgt_epi32(_mm256_sub_epi32(odd, d), twice);
    return _mm256_add_epi32(_mm256_sub_epi32(near, above), below);
}

#endif

/* What codec_int8.c and codec_int4.c do with a block's values and its scale; internal to edge/core.
 *
 * On x86 with AVX2 and on 64-bit ARM a division of doubles would give the rounded quotient at once,
 * but takes 8 cycles or more for four. The product with the reciprocal, in binary32, is less than
 * 2^−15 off where |v / d| ≤ 129, so rounded it is the quotient or its neighbour. Which of them is
 * right the remainder says, exactly. */
#ifndef FEDGE_EDGE_CORE_BLOCK_SCALE_H
#define FEDGE_EDGE_CORE_BLOCK_SCALE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* The largest of [start] and |v|. */
static inline int32_t fedge_block_largest(const int32_t *v, size_t count, int32_t start)
{
    for (size_t i = 0; i < count; i++) {
        const int32_t magnitude = v[i] < 0 ? -v[i] : v[i];
        start = magnitude > start ? magnitude : start;
    }
    return start;
}

/* v / divisor rounded to nearest, halves to even, and cut to ±most. It is rounded twice, to double
 * and to an integer, with the result of one rounding: v / d is either exactly halfway between two
 * integers, or at least 1 / (2 d) away, which a double of its size resolves. */
static inline int8_t fedge_block_quotient(int32_t v, double divisor, int8_t most)
{
    const long rounded = lrint((double)v / divisor);
    return (int8_t)(rounded > most ? most : rounded < -most ? -most : rounded);
}

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>

#define FEDGE_AVX2 __attribute__((target("avx2")))
/* Where the processor has this feature, FEDGE_BLOCK_FAST(f) does what f does. Neither is defined
 * for machines without such functions. */
#define FEDGE_BLOCK_FEATURE FEDGE_CPU_AVX2
#define FEDGE_BLOCK_FAST(f) f##_avx2

FEDGE_AVX2 static inline int32_t fedge_block_largest_avx2(const int32_t *v, size_t count)
{
    __m256i most = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        most =
            _mm256_max_epi32(most, _mm256_abs_epi32(_mm256_loadu_si256((const __m256i *)(v + i))));
    }
    int32_t lanes[8];
    _mm256_storeu_si256((__m256i *)lanes, most);
    return fedge_block_largest(v + i, count - i, fedge_block_largest(lanes, 8, 0));
}

/* v / d rounded to nearest, halves to even. d: in each place the divisor, below 2^28 and of 24 bits
 * at most; reciprocal: 1 / d. */
FEDGE_AVX2 static inline __m256i fedge_block_quotients_avx2(__m256i v, __m256i d, __m256 reciprocal)
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

FEDGE_AVX2 static inline __m256i fedge_block_cut_avx2(__m256i v, int32_t most)
{
    return _mm256_max_epi32(_mm256_min_epi32(v, _mm256_set1_epi32(most)), _mm256_set1_epi32(-most));
}

/* 16 integers as bytes, in order, cut to −128 … 127. */
FEDGE_AVX2 static inline __m128i fedge_block_bytes_avx2(__m256i first, __m256i second)
{
    /* Packing goes by halves, so the middle quarters change places first. */
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(first, second), 0xd8);
    return _mm_packs_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
}

#elif defined(__aarch64__)

#include <arm_neon.h>

#define FEDGE_BLOCK_FEATURE FEDGE_CPU_NEON
#define FEDGE_BLOCK_FAST(f) f##_neon

static inline int32_t fedge_block_largest_neon(const int32_t *v, size_t count)
{
    int32x4_t most = vdupq_n_s32(0);
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        most = vmaxq_s32(most, vabsq_s32(vld1q_s32(v + i)));
    return fedge_block_largest(v + i, count - i, vmaxvq_s32(most));
}

/* As fedge_block_quotients_avx2. */
static inline int32x4_t fedge_block_quotients_neon(int32x4_t v, int32x4_t d, float reciprocal)
{
    const int32x4_t near = vcvtnq_s32_f32(vmulq_n_f32(vcvtq_f32_s32(v), reciprocal));
    const int32x4_t rest = vmlsq_s32(v, near, d);
    const int32x4_t twice = vaddq_s32(rest, rest);
    const int32x4_t odd = vandq_s32(near, vdupq_n_s32(1));
    const uint32x4_t above = vcgtq_s32(twice, vsubq_s32(d, odd));
    const uint32x4_t below = vcgtq_s32(vsubq_s32(odd, d), twice);
    return vaddq_s32(vsubq_s32(near, vreinterpretq_s32_u32(above)), vreinterpretq_s32_u32(below));
}

static inline int32x4_t fedge_block_cut_neon(int32x4_t v, int32_t most)
{
    return vmaxq_s32(vminq_s32(v, vdupq_n_s32(most)), vdupq_n_s32(-most));
}

/* 16 integers as bytes, in order, cut to −128 … 127. */
static inline int8x16_t fedge_block_bytes_neon(const int32x4_t v[4])
{
    const int16x8_t first = vqmovn_high_s32(vqmovn_s32(v[0]), v[1]);
    const int16x8_t second = vqmovn_high_s32(vqmovn_s32(v[2]), v[3]);
    return vqmovn_high_s16(vqmovn_s16(first), second);
}

#endif

#endif

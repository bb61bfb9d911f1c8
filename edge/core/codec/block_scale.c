/* On x86 with AVX2 and on 64-bit ARM, a division of doubles gives the rounded quotient, but takes 8
 * cycles or more for four. The product with the reciprocal, in binary32, has an error below 2^−15
 * if |v / d| ≤ 129, so after rounding it is the quotient or a neighbour. The remainder decides
 * exactly. */
#include "edge/core/codec/values.h"

#include <math.h>

#include "edge/core/os.h"

/* max([start], max |v|). */
static int32_t largest_of(const int32_t *v, size_t count, int32_t start)
{
    for (size_t i = 0; i < count; i++) {
        const int32_t magnitude = v[i] < 0 ? -v[i] : v[i];
        start = magnitude > start ? magnitude : start;
    }
    return start;
}

/* v / divisor rounded to nearest even and clipped to ±most. Rounding twice, to double and to an
 * integer, equals rounding once: v / d is either exactly halfway between two integers, or at least
 * 1 / (2 d) away from it, which a double resolves. */
static int8_t quotient(int32_t v, double divisor, int8_t most)
{
    const long rounded = lrint((double)v / divisor);
    return (int8_t)(rounded > most ? most : rounded < -most ? -most : rounded);
}

static uint16_t scale_for(int32_t largest, int shift, int8_t most)
{
    const int32_t unit = most << shift; /* the largest |v| of scale 1 */
    const int32_t scale = (largest + unit - 1) / unit;
    return (uint16_t)(scale < UINT16_MAX ? scale : UINT16_MAX);
}

static void divide(int32_t *v, size_t count, int32_t step, int8_t most, int8_t *q)
{
    for (size_t i = 0; i < count; i++) {
        q[i] = step == 0 ? 0 : quotient(v[i], (double)step, most);
        v[i] = q[i] * step;
    }
}

uint16_t fedge_block_encode_scalar(int32_t *v, size_t count, int shift, int8_t most, int8_t *q)
{
    const uint16_t scale = scale_for(largest_of(v, count, 0), shift, most);
    divide(v, count, (int32_t)scale << shift, most, q);
    return scale;
}

#if defined(__x86_64__) || defined(__i386__)

FEDGE_AVX2 static int32_t largest_avx2(const int32_t *v, size_t count)
{
    __m256i most = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        most =
            _mm256_max_epi32(most, _mm256_abs_epi32(_mm256_loadu_si256((const __m256i *)(v + i))));
    }
    int32_t lanes[8];
    _mm256_storeu_si256((__m256i *)lanes, most);
    return largest_of(v + i, count - i, largest_of(lanes, 8, 0));
}

/* v / d rounded to nearest even. d: the divisor in each lane, below 2^28 with at most 24 bits;
 * reciprocal: 1 / d. */
FEDGE_AVX2 static __m256i quotients_avx2(__m256i v, __m256i d, __m256 reciprocal)
{
    const __m256i near = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_cvtepi32_ps(v), reciprocal));
    const __m256i remainder = _mm256_sub_epi32(v, _mm256_mullo_epi32(near, d));
    const __m256i twice = _mm256_add_epi32(remainder, remainder);
    /* At a half, an odd number becomes its even neighbour. */
    const __m256i odd = _mm256_and_si256(near, _mm256_set1_epi32(1));
    const __m256i above = _mm256_cmpgt_epi32(twice, _mm256_sub_epi32(d, odd));
    const __m256i below = _mm256_cmpgt_epi32(_mm256_sub_epi32(odd, d), twice);
    return _mm256_add_epi32(_mm256_sub_epi32(near, above), below);
}

FEDGE_AVX2 static __m256i cut_avx2(__m256i v, int32_t most)
{
    return _mm256_max_epi32(_mm256_min_epi32(v, _mm256_set1_epi32(most)), _mm256_set1_epi32(-most));
}

/* 16 integers as bytes, in order, saturated to −128 … 127. */
FEDGE_AVX2 static __m128i bytes_avx2(__m256i first, __m256i second)
{
    /* Packing works per 128-bit half, so the middle quarters are swapped first. */
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(first, second), 0xd8);
    return _mm_packs_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
}

FEDGE_AVX2 static uint16_t encode_avx2(int32_t *v, size_t count, int shift, int8_t most, int8_t *q)
{
    const uint16_t scale = scale_for(largest_avx2(v, count), shift, most);
    const int32_t step = (int32_t)scale << shift;
    const __m256i d = _mm256_set1_epi32(step);
    const __m256 reciprocal = _mm256_set1_ps(1.0f / (float)step);
    size_t i = 0;
    for (; step != 0 && i + 16 <= count; i += 16) {
        __m256i *at = (__m256i *)(v + i);
        __m256i quotients[2];
        for (int half = 0; half < 2; half++) {
            quotients[half] =
                cut_avx2(quotients_avx2(_mm256_loadu_si256(at + half), d, reciprocal), most);
            _mm256_storeu_si256(at + half, _mm256_mullo_epi32(quotients[half], d));
        }
        _mm_storeu_si128((__m128i *)(q + i), bytes_avx2(quotients[0], quotients[1]));
    }
    divide(v + i, count - i, step, most, q + i);
    return scale;
}

#elif defined(__aarch64__)

static int32_t largest_neon(const int32_t *v, size_t count)
{
    int32x4_t most = vdupq_n_s32(0);
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        most = vmaxq_s32(most, vabsq_s32(vld1q_s32(v + i)));
    return largest_of(v + i, count - i, vmaxvq_s32(most));
}

/* As quotients_avx2. */
static int32x4_t quotients_neon(int32x4_t v, int32x4_t d, float reciprocal)
{
    const int32x4_t near = vcvtnq_s32_f32(vmulq_n_f32(vcvtq_f32_s32(v), reciprocal));
    const int32x4_t remainder = vmlsq_s32(v, near, d);
    const int32x4_t twice = vaddq_s32(remainder, remainder);
    const int32x4_t odd = vandq_s32(near, vdupq_n_s32(1));
    const uint32x4_t above = vcgtq_s32(twice, vsubq_s32(d, odd));
    const uint32x4_t below = vcgtq_s32(vsubq_s32(odd, d), twice);
    return vaddq_s32(vsubq_s32(near, vreinterpretq_s32_u32(above)), vreinterpretq_s32_u32(below));
}

static int32x4_t cut_neon(int32x4_t v, int32_t most)
{
    return vmaxq_s32(vminq_s32(v, vdupq_n_s32(most)), vdupq_n_s32(-most));
}

/* 16 integers as bytes, in order, saturated to −128 … 127. */
static int8x16_t bytes_neon(const int32x4_t v[4])
{
    const int16x8_t first = vqmovn_high_s32(vqmovn_s32(v[0]), v[1]);
    const int16x8_t second = vqmovn_high_s32(vqmovn_s32(v[2]), v[3]);
    return vqmovn_high_s16(vqmovn_s16(first), second);
}

static uint16_t encode_neon(int32_t *v, size_t count, int shift, int8_t most, int8_t *q)
{
    const uint16_t scale = scale_for(largest_neon(v, count), shift, most);
    const int32_t step = (int32_t)scale << shift;
    const int32x4_t d = vdupq_n_s32(step);
    const float reciprocal = 1.0f / (float)step;
    size_t i = 0;
    for (; step != 0 && i + 16 <= count; i += 16) {
        int32x4_t quotients[4];
        for (size_t k = 0; k < 4; k++) {
            int32_t *at = v + i + 4 * k;
            quotients[k] = cut_neon(quotients_neon(vld1q_s32(at), d, reciprocal), most);
            vst1q_s32(at, vmulq_s32(quotients[k], d));
        }
        vst1q_s8(q + i, bytes_neon(quotients));
    }
    divide(v + i, count - i, step, most, q + i);
    return scale;
}

#endif

uint16_t fedge_block_encode(int32_t *v, size_t count, int shift, int8_t most, int8_t *q)
{
#ifdef FEDGE_BLOCK_FEATURE
    if ((fedge_os_cpu_features() & FEDGE_BLOCK_FEATURE) != 0)
        return FEDGE_BLOCK_FAST(encode)(v, count, shift, most, q);
#endif
    return fedge_block_encode_scalar(v, count, shift, most, q);
}

#include "edge/core/codec/values.h"

#include <math.h>

#include "edge/core/os.h"

void fedge_codec_cut(int bound_log2, const float *x, size_t n, float *cut, fedge_codec_stats *stats)
{
    const float bound = ldexpf(1.0f, bound_log2);
    for (size_t i = fedge_cut_simd(bound, x, n, cut, stats); i < n; i++) {
        stats->not_finite += isnan(x[i]) ? 1 : 0;
        stats->clamped += fabsf(x[i]) > bound ? 1 : 0;
        cut[i] = isnan(x[i]) ? 0 : x[i] > bound ? bound : x[i] < -bound ? -bound : x[i];
    }
}

fedge_status fedge_codec_fail_value(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                    const float *x, fedge_error *err)
{
    const float bound = ldexpf(1.0f, bound_log2);
    size_t i = 0;
    while (fabsf(x[i]) <= bound)
        i++;
    return fedge_fail(err, isfinite(x[i]) ? FEDGE_OUT_OF_RANGE : FEDGE_NOT_FINITE,
                      "value %zu of tensor \"%s\" is %g; |x| <= %g is demanded", first + i,
                      spec->name, (double)x[i], (double)bound);
}

/* ---- many values at a time ------------------------------------------------------------------- */

#if defined(__x86_64__)

#include <immintrin.h>
#include <stdbool.h>

#define AVX2 __attribute__((target("avx2,f16c")))
#define STEP 8 /* values */

static bool able(void)
{
    return (fedge_os_cpu_features() & FEDGE_CPU_AVX2) != 0;
}

AVX2 static size_t cut(float bound, const float *x, size_t n, float *to, fedge_codec_stats *stats)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), most = _mm256_set1_ps(bound);
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        const __m256 value = _mm256_loadu_ps(x + i), size = _mm256_andnot_ps(sign, value);
        const __m256 is_number = _mm256_cmp_ps(value, value, _CMP_ORD_Q);
        const __m256 is_over = _mm256_cmp_ps(size, most, _CMP_GT_OQ);
        const __m256 within = _mm256_or_ps(_mm256_min_ps(size, most), _mm256_and_ps(sign, value));
        const unsigned over = (unsigned)_mm256_movemask_ps(is_over);
        const unsigned none = (unsigned)_mm256_movemask_ps(is_number) ^ 0xff;
        _mm256_storeu_ps(to + i, _mm256_and_ps(within, is_number));
        if ((over | none) != 0) {
            stats->clamped += (unsigned)__builtin_popcount(over);
            stats->not_finite += (unsigned)__builtin_popcount(none);
        }
    }
    return i;
}

AVX2 static size_t f16_narrow(float *x, size_t n, uint8_t *out)
{
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        const __m128i half =
            _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm256_storeu_ps(x + i, _mm256_cvtph_ps(half));
        if (out)
            _mm_storeu_si128((__m128i *)(out + 2 * i), half);
    }
    return i;
}

AVX2 static size_t f16_widen(const uint8_t *in, size_t n, float *x)
{
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        const __m128i half = _mm_loadu_si128((const __m128i *)(in + 2 * i));
        _mm256_storeu_ps(x + i, _mm256_cvtph_ps(half));
    }
    return i;
}

AVX2 static size_t bf16_narrow(float *x, size_t n, uint8_t *out)
{
    const __m256i half_less = _mm256_set1_epi32(0x7fff), one = _mm256_set1_epi32(1);
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        __m256i bits = _mm256_loadu_si256((const __m256i *)(x + i));
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
        bits = _mm256_add_epi32(bits, _mm256_add_epi32(half_less, odd));
        bits = _mm256_srli_epi32(bits, 16);
        _mm256_storeu_si256((__m256i *)(x + i), _mm256_slli_epi32(bits, 16));
        if (out) {
            const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(bits, bits), 0x08);
            _mm_storeu_si128((__m128i *)(out + 2 * i), _mm256_castsi256_si128(packed));
        }
    }
    return i;
}

AVX2 static size_t bf16_widen(const uint8_t *in, size_t n, float *x)
{
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        const __m128i half = _mm_loadu_si128((const __m128i *)(in + 2 * i));
        _mm256_storeu_si256((__m256i *)(x + i), _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
    }
    return i;
}

AVX2 static size_t within(const uint8_t *in, size_t n, uint16_t most)
{
    const __m256i size = _mm256_set1_epi16(0x7fff), limit = _mm256_set1_epi16((short)most);
    size_t i = 0;
    for (; i + 2 * STEP <= n; i += 2 * STEP) {
        const __m256i half = _mm256_loadu_si256((const __m256i *)(in + 2 * i));
        if (_mm256_movemask_epi8(_mm256_cmpgt_epi16(_mm256_and_si256(half, size), limit)) != 0)
            break;
    }
    return i;
}

#elif defined(__aarch64__)

#include <arm_neon.h>
#include <stdbool.h>

#define STEP 4 /* values */

static bool able(void)
{
    return (fedge_os_cpu_features() & FEDGE_CPU_NEON) != 0;
}

static size_t cut(float bound, const float *x, size_t n, float *to, fedge_codec_stats *stats)
{
    const float32x4_t most = vdupq_n_f32(bound), least = vdupq_n_f32(-bound);
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        const float32x4_t value = vld1q_f32(x + i);
        const uint32x4_t is_number = vceqq_f32(value, value);
        const uint32x4_t is_over = vcagtq_f32(value, most);
        const uint32x4_t bits = vreinterpretq_u32_f32(vmaxq_f32(vminq_f32(value, most), least));
        vst1q_f32(to + i, vreinterpretq_f32_u32(vandq_u32(bits, is_number)));
        stats->clamped += vaddvq_u32(vshrq_n_u32(is_over, 31));
        stats->not_finite += 4 - vaddvq_u32(vshrq_n_u32(is_number, 31));
    }
    return i;
}

static size_t f16_narrow(float *x, size_t n, uint8_t *out)
{
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        const float16x4_t half = vcvt_f16_f32(vld1q_f32(x + i));
        vst1q_f32(x + i, vcvt_f32_f16(half));
        if (out)
            vst1_u8(out + 2 * i, vreinterpret_u8_f16(half));
    }
    return i;
}

static size_t f16_widen(const uint8_t *in, size_t n, float *x)
{
    size_t i = 0;
    for (; i + STEP <= n; i += STEP)
        vst1q_f32(x + i, vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(in + 2 * i))));
    return i;
}

static size_t bf16_narrow(float *x, size_t n, uint8_t *out)
{
    const uint32x4_t half_less = vdupq_n_u32(0x7fff), one = vdupq_n_u32(1);
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(x + i));
        const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), one);
        bits = vshrq_n_u32(vaddq_u32(bits, vaddq_u32(half_less, odd)), 16);
        vst1q_f32(x + i, vreinterpretq_f32_u32(vshlq_n_u32(bits, 16)));
        if (out)
            vst1_u8(out + 2 * i, vreinterpret_u8_u16(vmovn_u32(bits)));
    }
    return i;
}

static size_t bf16_widen(const uint8_t *in, size_t n, float *x)
{
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        const uint16x4_t half = vreinterpret_u16_u8(vld1_u8(in + 2 * i));
        vst1q_f32(x + i, vreinterpretq_f32_u32(vshll_n_u16(half, 16)));
    }
    return i;
}

static size_t within(const uint8_t *in, size_t n, uint16_t most)
{
    size_t i = 0;
    for (; i + 2 * STEP <= n; i += 2 * STEP) {
        const uint16x8_t half = vreinterpretq_u16_u8(vld1q_u8(in + 2 * i));
        if (vmaxvq_u16(vandq_u16(half, vdupq_n_u16(0x7fff))) > most)
            break;
    }
    return i;
}

#endif

#if defined(__x86_64__) || defined(__aarch64__)

size_t fedge_cut_simd(float bound, const float *x, size_t n, float *to, fedge_codec_stats *stats)
{
    return able() ? cut(bound, x, n, to, stats) : 0;
}

size_t fedge_f16_narrow_simd(float *x, size_t n, uint8_t *out)
{
    return able() ? f16_narrow(x, n, out) : 0;
}

size_t fedge_bf16_narrow_simd(float *x, size_t n, uint8_t *out)
{
    return able() ? bf16_narrow(x, n, out) : 0;
}

size_t fedge_f16_widen_simd(const uint8_t *in, size_t n, float *x)
{
    return able() ? f16_widen(in, n, x) : 0;
}

size_t fedge_bf16_widen_simd(const uint8_t *in, size_t n, float *x)
{
    return able() ? bf16_widen(in, n, x) : 0;
}

size_t fedge_half_within_simd(const uint8_t *in, size_t n, uint16_t most)
{
    return able() ? within(in, n, most) : 0;
}

#else

size_t fedge_cut_simd(float bound, const float *x, size_t n, float *to, fedge_codec_stats *stats)
{
    (void)bound, (void)x, (void)n, (void)to, (void)stats;
    return 0;
}

size_t fedge_f16_narrow_simd(float *x, size_t n, uint8_t *out)
{
    (void)x, (void)n, (void)out;
    return 0;
}

size_t fedge_bf16_narrow_simd(float *x, size_t n, uint8_t *out)
{
    (void)x, (void)n, (void)out;
    return 0;
}

size_t fedge_f16_widen_simd(const uint8_t *in, size_t n, float *x)
{
    (void)in, (void)n, (void)x;
    return 0;
}

size_t fedge_bf16_widen_simd(const uint8_t *in, size_t n, float *x)
{
    (void)in, (void)n, (void)x;
    return 0;
}

size_t fedge_half_within_simd(const uint8_t *in, size_t n, uint16_t most)
{
    (void)in, (void)n, (void)most;
    return 0;
}

#endif

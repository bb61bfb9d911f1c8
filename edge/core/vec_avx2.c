#include "edge/core/vec_avx2.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2,fma")))

AVX2 static float sum_of_lanes(__m256 v)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* Four sums hide the latency of the fused multiply-add. */
AVX2 static float dot_avx2(const float *x, const float *y, size_t n)
{
    __m256 s0 = _mm256_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        s0 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i), s0);
        s1 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 8), _mm256_loadu_ps(y + i + 8), s1);
        s2 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 16), _mm256_loadu_ps(y + i + 16), s2);
        s3 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 24), _mm256_loadu_ps(y + i + 24), s3);
    }
    for (; i + 8 <= n; i += 8)
        s0 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i), s0);
    float sum = sum_of_lanes(_mm256_add_ps(_mm256_add_ps(s0, s1), _mm256_add_ps(s2, s3)));
    for (; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

AVX2 static void axpy_avx2(float a, const float *x, float *y, size_t n)
{
    const __m256 factor = _mm256_set1_ps(a);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 product = _mm256_mul_ps(factor, _mm256_loadu_ps(x + i));
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), product));
    }
    for (; i < n; i++)
        y[i] += a * x[i];
}

AVX2 static void scale_avx2(float a, float *x, size_t n)
{
    const __m256 factor = _mm256_set1_ps(a);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), factor));
    for (; i < n; i++)
        x[i] *= a;
}

AVX2 static void sub_avx2(const float *x, const float *y, float *out, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_sub_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    for (; i < n; i++)
        out[i] = x[i] - y[i];
}

AVX2 static void fill_avx2(float a, float *x, size_t n)
{
    const __m256 value = _mm256_set1_ps(a);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(x + i, value);
    for (; i < n; i++)
        x[i] = a;
}

/* Compares bits, as the scalar reference does. */
AVX2 static float max_abs_avx2(const float *x, size_t n)
{
    const __m256i mask = _mm256_set1_epi32(INT32_MAX);
    __m256i most = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + i));
        most = _mm256_max_epi32(most, _mm256_and_si256(bits, mask));
    }
    int32_t lanes[8];
    _mm256_storeu_si256((__m256i *)lanes, most);
    int32_t largest = 0;
    for (size_t lane = 0; lane < 8; lane++)
        largest = lanes[lane] > largest ? lanes[lane] : largest;
    for (; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= INT32_MAX;
        largest = bits > largest ? bits : largest;
    }
    float result;
    memcpy(&result, &largest, sizeof result);
    return result;
}

const fedge_vec_kernels *fedge_vec_kernels_avx2(void)
{
    static const fedge_vec_kernels kernels = {
        .name = "avx2",
        .dot = dot_avx2,
        .axpy = axpy_avx2,
        .scale = scale_avx2,
        .sub = sub_avx2,
        .fill = fill_avx2,
        .max_abs = max_abs_avx2,
    };
    return &kernels;
}

#else

const fedge_vec_kernels *fedge_vec_kernels_avx2(void)
{
    return NULL;
}

#endif

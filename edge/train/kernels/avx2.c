/* AVX2 with FMA: 8 lanes, 16 registers. */
#include "edge/train/kernels/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LANES 8
#define TILE_ROWS 6
#define FREE_MASKS 0
#define MAX_SEGMENTS 3
#define MAX_VECTORS 4
#define DOT_ROWS 2
#define STEP_ROWS 4
#define GEMM_ROWS 6
#define KERNELS_SYMBOL fedge_kernels_avx2
#define KERNELS_NAME "avx2"

typedef __m256 vec;
typedef __m256i vec_int;

static inline __m256i first_lanes(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

#define load(p) _mm256_loadu_ps(p)
#define store(p, v) _mm256_storeu_ps(p, v)
#define load_first(p, n) _mm256_maskload_ps(p, first_lanes(n))
#define store_first(p, v, n) _mm256_maskstore_ps(p, first_lanes(n), v)
#define splat(x) _mm256_set1_ps(x)
#define splat_int(i) _mm256_set1_epi32(i)
#define mul_add(a, b, c) _mm256_fmadd_ps(a, b, c)
#define add(a, b) _mm256_add_ps(a, b)
#define mul(a, b) _mm256_mul_ps(a, b)
#define quotient(a, b) _mm256_div_ps(a, b)
#define round_nearest(v) _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define magnitude(v) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v)

/* The result is the second operand if one is NaN. */
#define max_propagating(a, b) _mm256_max_ps(a, b)
#define min_propagating(a, b) _mm256_min_ps(a, b)

static inline vec zero_below(vec v, vec least)
{
    return _mm256_and_ps(v, _mm256_cmp_ps(magnitude(v), least, _CMP_NLT_UQ));
}

static inline vec with_sign(vec v, vec sign)
{
    return _mm256_or_ps(v, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}

static inline vec power_of_two(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* In two factors, since 2^n itself may not be a normal number. */
static inline vec times_power_of_two(vec v, vec n)
{
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(v, power_of_two(half)),
                         power_of_two(_mm256_sub_epi32(whole, half)));
}

static inline vec keep_positive(vec y, vec d)
{
    return _mm256_and_ps(_mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_GT_OQ), d);
}

/* One bit per lane. */
static inline unsigned positive_bits(vec y)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_GT_OQ));
}

/* Lanes of d whose bit is set, else 0. */
static inline vec keep_bits(unsigned bits, vec d)
{
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32((int)bits), lane);
    return _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane)), d);
}

static inline void pool_step(vec x, vec_int index, vec *best, vec_int *indices)
{
    const __m256 take =
        _mm256_or_ps(_mm256_cmp_ps(x, *best, _CMP_GT_OQ), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    *best = _mm256_blendv_ps(*best, x, take);
    *indices = _mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(*indices), _mm256_castsi256_ps(index), take));
}

static inline void store_indices(uint8_t *p, vec_int indices)
{
    const __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(indices), _mm256_extracti128_si256(indices, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packus_epi16(words, words));
}

/* y[i] += sum of the lanes of v[i], i < n. */
static inline __attribute__((always_inline)) void add_sums(float *y, int n, const vec v[4])
{
    const __m256 abcd = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    const __m128 sums = _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1));
    const __m128i mask = _mm256_castsi256_si128(first_lanes((size_t)n));
    _mm_maskstore_ps(y, mask, _mm_add_ps(_mm_maskload_ps(y, mask), sums));
}

/* Lanes 4 l to 4 l + 3 from p + 4 l · stride. */
static inline vec load_quads(const float *p, size_t stride)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)),
                                _mm_loadu_ps(p + 4 * stride), 1);
}

/* v[i] lane 4 l + j to v[j] lane 4 l + i, i and j < 4. */
static inline __attribute__((always_inline)) void transpose_quads(vec v[4])
{
    const __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(v[0], v[1]));
    const __m256d b = _mm256_castps_pd(_mm256_unpackhi_ps(v[0], v[1]));
    const __m256d c = _mm256_castps_pd(_mm256_unpacklo_ps(v[2], v[3]));
    const __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(v[2], v[3]));
    v[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
    v[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, c));
    v[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(b, d));
    v[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(b, d));
}

/* The product of the lower halves of 64-bit lanes. */
#define product_of_words(a, b) ((lanes)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))

#include "edge/train/kernels/simd.h"

#endif

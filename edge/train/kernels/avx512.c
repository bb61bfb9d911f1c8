/* AVX-512 (F, BW, DQ, VL): 16 lanes, 32 registers. */
#include "edge/train/kernels/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__GNUC__) && !defined(__OPTIMIZE__)
/* GCC's intrinsics are macros then, in which masks become signed on the lines of this file. */
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

#define LANES 16
#define TILE_ROWS 14
#define FREE_MASKS 1
#define MAX_SEGMENTS 3
#define MAX_VECTORS 5
#define DOT_ROWS 6
#define STEP_ROWS 8
#define GEMM_ROWS 12
#define KERNELS_SYMBOL fedge_kernels_avx512
#define KERNELS_NAME "avx512"

typedef __m512 vec;
typedef __m512i vec_int;

#define load(p) _mm512_loadu_ps(p)
#define store(p, v) _mm512_storeu_ps(p, v)
#define load_first(p, n) _mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1u), p)
#define store_first(p, v, n) _mm512_mask_storeu_ps(p, (__mmask16)((1u << (n)) - 1u), v)
#define splat(x) _mm512_set1_ps(x)
#define splat_int(i) _mm512_set1_epi32(i)
#define mul_add(a, b, c) _mm512_fmadd_ps(a, b, c)
#define add(a, b) _mm512_add_ps(a, b)
#define mul(a, b) _mm512_mul_ps(a, b)
#define quotient(a, b) _mm512_div_ps(a, b)
#define round_nearest(v) _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define magnitude(v) _mm512_abs_ps(v)
#define times_power_of_two(v, n) _mm512_scalef_ps(v, n)

/* The result is the second operand if one is NaN. */
#define max_propagating(a, b) _mm512_max_ps(a, b)
#define min_propagating(a, b) _mm512_min_ps(a, b)

static inline vec zero_below(vec v, vec least)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(_mm512_abs_ps(v), least, _CMP_NLT_UQ), v);
}

static inline vec with_sign(vec v, vec sign)
{
    const vec bit = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(v, _mm512_and_ps(sign, bit));
}

static inline vec keep_positive(vec y, vec d)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_GT_OQ), d);
}

/* One bit per lane. */
static inline unsigned positive_bits(vec y)
{
    return _mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_GT_OQ);
}

/* Lanes of d whose bit is set, else 0. */
static inline vec keep_bits(unsigned bits, vec d)
{
    return _mm512_maskz_mov_ps((__mmask16)bits, d);
}

static inline void pool_step(vec x, vec_int index, vec *best, vec_int *indices)
{
    const __mmask16 take = (__mmask16)(_mm512_cmp_ps_mask(x, *best, _CMP_GT_OQ) |
                                       _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q));
    *best = _mm512_mask_mov_ps(*best, take, x);
    *indices = _mm512_mask_mov_epi32(*indices, take, index);
}

static inline void store_indices(uint8_t *p, vec_int indices)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(indices));
}

static inline __m256 halves(vec v)
{
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

/* y[i] += sum of the lanes of v[i], i < n. */
static inline __attribute__((always_inline)) void add_sums(float *y, int n, const vec v[4])
{
    const __m256 ab = _mm256_hadd_ps(halves(v[0]), halves(v[1]));
    const __m256 cd = _mm256_hadd_ps(halves(v[2]), halves(v[3]));
    const __m256 abcd = _mm256_hadd_ps(ab, cd);
    const __m128 sums = _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1));
    const __mmask8 mask = (__mmask8)((1u << n) - 1u);
    _mm_mask_storeu_ps(y, mask, _mm_add_ps(_mm_maskz_loadu_ps(mask, y), sums));
}

/* Lanes 4 l to 4 l + 3 from p + 4 l · stride. */
static inline vec load_quads(const float *p, size_t stride)
{
    const vec one = _mm512_castps128_ps512(_mm_loadu_ps(p));
    const vec two = _mm512_insertf32x4(one, _mm_loadu_ps(p + 4 * stride), 1);
    const vec three = _mm512_insertf32x4(two, _mm_loadu_ps(p + 8 * stride), 2);
    return _mm512_insertf32x4(three, _mm_loadu_ps(p + 12 * stride), 3);
}

/* v[i] lane 4 l + j to v[j] lane 4 l + i, i and j < 4. */
static inline __attribute__((always_inline)) void transpose_quads(vec v[4])
{
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1]));
    const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1]));
    const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3]));
    const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3]));
    v[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    v[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    v[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    v[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
}

/* The product of the lower halves of 64-bit lanes. */
#define product_of_words(a, b) ((lanes)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))

#include "edge/train/kernels/simd.h"

#endif

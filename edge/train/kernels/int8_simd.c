/* int8 products with AVX2 and AVX-512 VNNI. Target attributes name the instruction sets, so this
 * file is compiled for every x86-64. */
#include "edge/train/kernels/int8.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* ---- AVX2: widened to 16 bits and added in pairs, which cannot overflow ---- */

#define AVX2 __attribute__((target("avx2")))
#define AVX2_ROWS 2

AVX2 INLINE void tile_avx2(const size_t rows, const fedge_int8_product *args, size_t i, size_t j)
{
    __m256i acc[AVX2_ROWS][4];
    const size_t depth = args->k;
    const uint8_t *a = args->a + i * depth;
    const int8_t *b = args->b + j * depth;
    UNROLL
    for (size_t t = 0; t < rows * 4; t++)
        acc[t / 4][t % 4] = _mm256_setzero_si256();
    for (size_t k = 0; k < depth; k += 16) {
        __m256i x[AVX2_ROWS];
        UNROLL
        for (size_t t = 0; t < rows; t++)
            x[t] = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(a + t * depth + k)));
        UNROLL
        for (size_t v = 0; v < 4; v++) {
            const __m256i w =
                _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(b + v * depth + k)));
            UNROLL
            for (size_t t = 0; t < rows; t++)
                acc[t][v] = _mm256_add_epi32(acc[t][v], _mm256_madd_epi16(x[t], w));
        }
    }
    UNROLL
    for (size_t t = 0; t < rows; t++) {
        const __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(acc[t][0], acc[t][1]),
                                               _mm256_hadd_epi32(acc[t][2], acc[t][3]));
        _mm_storeu_si128(
            (void *)(args->c + (i + t) * args->n + j),
            _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
    }
}

AVX2 void fedge_int8_multiply_avx2(const fedge_int8_product *args)
{
    for (size_t j = 0; j < args->n; j += FEDGE_INT8_COLUMNS) {
        size_t i = 0;
        for (; i + AVX2_ROWS <= args->m; i += AVX2_ROWS)
            tile_avx2(AVX2_ROWS, args, i, j);
        for (; i < args->m; i++)
            tile_avx2(1, args, i, j);
    }
}

/* ---- VNNI: vpdpbusd adds four products to each of 16 sums ---- */

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define VNNI_ROWS 4

VNNI INLINE __m256i halves(__m512i v)
{
    return _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
}

VNNI INLINE void tile_vnni(const size_t rows, const fedge_int8_product *args, size_t i, size_t j)
{
    __m512i acc[VNNI_ROWS][4];
    const size_t depth = args->k;
    const uint8_t *a = args->a + i * depth;
    const int8_t *b = args->b + j * depth;
    UNROLL
    for (size_t t = 0; t < rows * 4; t++)
        acc[t / 4][t % 4] = _mm512_setzero_si512();
    for (size_t k = 0; k < depth; k += 64) {
        __m512i x[VNNI_ROWS];
        UNROLL
        for (size_t t = 0; t < rows; t++)
            x[t] = _mm512_loadu_si512(a + t * depth + k);
        UNROLL
        for (size_t v = 0; v < 4; v++) {
            const __m512i w = _mm512_loadu_si512(b + v * depth + k);
            UNROLL
            for (size_t t = 0; t < rows; t++)
                acc[t][v] = _mm512_dpbusd_epi32(acc[t][v], x[t], w);
        }
    }
    UNROLL
    for (size_t t = 0; t < rows; t++) {
        const __m256i sums =
            _mm256_hadd_epi32(_mm256_hadd_epi32(halves(acc[t][0]), halves(acc[t][1])),
                              _mm256_hadd_epi32(halves(acc[t][2]), halves(acc[t][3])));
        _mm_storeu_si128(
            (void *)(args->c + (i + t) * args->n + j),
            _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
    }
}

VNNI void fedge_int8_multiply_vnni(const fedge_int8_product *args)
{
    for (size_t j = 0; j < args->n; j += FEDGE_INT8_COLUMNS) {
        size_t i = 0;
        for (; i + VNNI_ROWS <= args->m; i += VNNI_ROWS)
            tile_vnni(VNNI_ROWS, args, i, j);
        for (; i < args->m; i++)
            tile_vnni(1, args, i, j);
    }
}

#endif

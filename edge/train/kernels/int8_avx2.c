/* int8 products by widening to 16 bits and adding pairs, which cannot overflow. */
#include "edge/train/kernels/int8.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")
#define ROWS 2

INLINE void tile(const size_t rows, const fedge_int8_product *args, size_t i, size_t j)
{
    __m256i acc[ROWS][4];
    const size_t depth = args->k;
    const uint8_t *a = args->a + i * depth;
    const int8_t *b = args->b + j * depth;
    UNROLL
    for (size_t t = 0; t < rows * 4; t++)
        acc[t / 4][t % 4] = _mm256_setzero_si256();
    for (size_t k = 0; k < depth; k += 16) {
        __m256i x[ROWS];
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

void fedge_int8_multiply_avx2(const fedge_int8_product *args)
{
    for (size_t j = 0; j < args->n; j += FEDGE_INT8_COLUMNS) {
        size_t i = 0;
        for (; i + ROWS <= args->m; i += ROWS)
            tile(ROWS, args, i, j);
        for (; i < args->m; i++)
            tile(1, args, i, j);
    }
}

#endif

#include "aggregator/reduce/rows.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "edge/core/os.h"
#endif

/* ---- scalar products ------------------------------------------------------------------------- */

void fedge_dots_scalar(const int32_t *a, const int32_t *const b[4], size_t count, int64_t out[4])
{
    for (int j = 0; j < 4; j++) {
        int64_t sum = 0;
        for (size_t k = 0; k < count; k++)
            sum += (int64_t)a[k] * b[j][k];
        out[j] = sum;
    }
}

void fedge_squares_scalar(const int32_t *const b[4], size_t count, int64_t out[4])
{
    for (int j = 0; j < 4; j++) {
        int64_t sum = 0;
        for (size_t k = 0; k < count; k++)
            sum += (int64_t)b[j][k] * b[j][k];
        out[j] = sum;
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static size_t dots_avx2(const int32_t *a, const int32_t *const b[4],
                                                        size_t count, int64_t out[4])
{
    __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                      _mm256_setzero_si256()};
    size_t k = 0;
    for (; k + 8 <= count; k += 8) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(a + k));
        /* mul_epi32 multiplies the low, signed half of each 64 bits; a shift moves the other half
         * there. */
        const __m256i x_odd = _mm256_srli_epi64(x, 32);
        for (int j = 0; j < 4; j++) {
            const __m256i y = _mm256_loadu_si256((const __m256i *)(b[j] + k));
            sum[j] = _mm256_add_epi64(sum[j], _mm256_mul_epi32(x, y));
            sum[j] = _mm256_add_epi64(sum[j], _mm256_mul_epi32(x_odd, _mm256_srli_epi64(y, 32)));
        }
    }
    for (int j = 0; j < 4; j++) {
        int64_t parts[4];
        _mm256_storeu_si256((__m256i *)parts, sum[j]);
        out[j] = parts[0] + parts[1] + parts[2] + parts[3];
    }
    return k;
}

__attribute__((target("avx512f"))) static size_t
dots_avx512(const int32_t *a, const int32_t *const b[4], size_t count, int64_t out[4])
{
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                      _mm512_setzero_si512()};
    size_t k = 0;
    for (; k + 16 <= count; k += 16) {
        const __m512i x = _mm512_loadu_si512(a + k);
        const __m512i x_odd = _mm512_srli_epi64(x, 32);
        for (int j = 0; j < 4; j++) {
            const __m512i y = _mm512_loadu_si512(b[j] + k);
            sum[j] = _mm512_add_epi64(sum[j], _mm512_mul_epi32(x, y));
            sum[j] = _mm512_add_epi64(sum[j], _mm512_mul_epi32(x_odd, _mm512_srli_epi64(y, 32)));
        }
    }
    for (int j = 0; j < 4; j++)
        out[j] = _mm512_reduce_add_epi64(sum[j]);
    return k;
}

__attribute__((target("avx2"))) static size_t squares_avx2(const int32_t *const b[4], size_t count,
                                                           int64_t out[4])
{
    __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                      _mm256_setzero_si256()};
    size_t k = 0;
    for (; k + 8 <= count; k += 8) {
        for (int j = 0; j < 4; j++) {
            const __m256i y = _mm256_loadu_si256((const __m256i *)(b[j] + k));
            const __m256i y_odd = _mm256_srli_epi64(y, 32);
            sum[j] = _mm256_add_epi64(sum[j], _mm256_mul_epi32(y, y));
            sum[j] = _mm256_add_epi64(sum[j], _mm256_mul_epi32(y_odd, y_odd));
        }
    }
    for (int j = 0; j < 4; j++) {
        int64_t parts[4];
        _mm256_storeu_si256((__m256i *)parts, sum[j]);
        out[j] = parts[0] + parts[1] + parts[2] + parts[3];
    }
    return k;
}

__attribute__((target("avx512f"))) static size_t squares_avx512(const int32_t *const b[4],
                                                                size_t count, int64_t out[4])
{
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                      _mm512_setzero_si512()};
    size_t k = 0;
    for (; k + 16 <= count; k += 16) {
        for (int j = 0; j < 4; j++) {
            const __m512i y = _mm512_loadu_si512(b[j] + k);
            const __m512i y_odd = _mm512_srli_epi64(y, 32);
            sum[j] = _mm512_add_epi64(sum[j], _mm512_mul_epi32(y, y));
            sum[j] = _mm512_add_epi64(sum[j], _mm512_mul_epi32(y_odd, y_odd));
        }
    }
    for (int j = 0; j < 4; j++)
        out[j] = _mm512_reduce_add_epi64(sum[j]);
    return k;
}
#endif

void fedge_dots(const int32_t *a, const int32_t *const b[4], size_t count, int64_t out[4])
{
    size_t done = 0;
    for (int j = 0; j < 4; j++)
        out[j] = 0;
#if defined(__x86_64__)
    const unsigned features = fedge_os_cpu_features();
    if (features & FEDGE_CPU_AVX512)
        done = dots_avx512(a, b, count, out);
    else if (features & FEDGE_CPU_AVX2)
        done = dots_avx2(a, b, count, out);
#endif
    const int32_t *const tail[4] = {b[0] + done, b[1] + done, b[2] + done, b[3] + done};
    int64_t more[4];
    fedge_dots_scalar(a + done, tail, count - done, more);
    for (int j = 0; j < 4; j++)
        out[j] += more[j];
}

void fedge_squares(const int32_t *const b[4], size_t count, int64_t out[4])
{
    size_t done = 0;
    for (int j = 0; j < 4; j++)
        out[j] = 0;
#if defined(__x86_64__)
    const unsigned features = fedge_os_cpu_features();
    if (features & FEDGE_CPU_AVX512)
        done = squares_avx512(b, count, out);
    else if (features & FEDGE_CPU_AVX2)
        done = squares_avx2(b, count, out);
#endif
    const int32_t *const tail[4] = {b[0] + done, b[1] + done, b[2] + done, b[3] + done};
    int64_t more[4];
    fedge_squares_scalar(tail, count - done, more);
    for (int j = 0; j < 4; j++)
        out[j] += more[j];
}

/* ---- sorting networks ------------------------------------------------------------------------ */

#define CACHE 32768 /* bytes of a block of coordinates, which fits the first-level cache */
#define LEAST 32    /* least coordinates of a block */

/* Puts the minima into [a] and the maxima into [b]. */
typedef void (*exchange_fn)(int32_t *a, int32_t *b, size_t count);

static void exchange_scalar(int32_t *a, int32_t *b, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        const int32_t x = a[k], y = b[k];
        a[k] = x < y ? x : y;
        b[k] = x < y ? y : x;
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void exchange_avx2(int32_t *a, int32_t *b, size_t count)
{
    size_t k = 0;
    for (; k + 8 <= count; k += 8) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(a + k));
        const __m256i y = _mm256_loadu_si256((const __m256i *)(b + k));
        _mm256_storeu_si256((__m256i *)(a + k), _mm256_min_epi32(x, y));
        _mm256_storeu_si256((__m256i *)(b + k), _mm256_max_epi32(x, y));
    }
    exchange_scalar(a + k, b + k, count - k);
}
#endif

static exchange_fn best_exchange(void)
{
#if defined(__x86_64__)
    if (fedge_os_cpu_features() & FEDGE_CPU_AVX2)
        return exchange_avx2;
#endif
    return exchange_scalar;
}

/* Reduces one block: [count] coordinates of every row from [at] on. */
static void sort_block(int32_t *const *rows, uint32_t num, size_t at, size_t count,
                       exchange_fn exchange)
{
    uint32_t top = 1;
    while (top < num)
        top *= 2;
    top /= 2;
    for (uint32_t p = top; p > 0; p /= 2) {
        uint32_t q = top, r = 0, d = p;
        for (;;) {
            for (uint32_t i = 0; i + d < num; i++) {
                if ((i & p) == r)
                    exchange(rows[i] + at, rows[i + d] + at, count);
            }
            if (q == p)
                break;
            d = q - p;
            q /= 2;
            r = p;
        }
    }
}

void fedge_sort_rows(int32_t *const *rows, uint32_t num, size_t count)
{
    const exchange_fn exchange = best_exchange();
    size_t block = CACHE / sizeof(int32_t) / (num > 0 ? num : 1);
    block = block > LEAST ? block / LEAST * LEAST : LEAST;
    for (size_t at = 0; at < count; at += block)
        sort_block(rows, num, at, count - at < block ? count - at : block, exchange);
}

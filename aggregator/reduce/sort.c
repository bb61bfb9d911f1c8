#include "aggregator/reduce/sort.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "edge/core/os.h"
#endif

#define CACHE 32768 /* bytes of a block of coordinates: stays in the first level */
#define LEAST 32    /* coordinates of a block */

/* The lesser ones to [a], the greater to [b]. */
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

/* One block: [count] coordinates of every row from [at] on. */
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

#include "edge/data/levels.h"

#include <stdbool.h>
#include <string.h>

#include "edge/core/os.h"

#define LINE 64u /* bytes that are fetched at a time */

static void read_table(const fedge_levels *levels, const uint8_t *v, size_t n, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = levels->table[v[i]];
}

#if defined(__x86_64__)

#include <immintrin.h>

__attribute__((target("avx2,fma"))) static void
read_avx2(const fedge_levels *levels, const uint8_t *v, size_t n, const uint8_t *next, float *x)
{
    const __m256 d_high = _mm256_set1_ps(levels->divide_by.high);
    const __m256 d_low = _mm256_set1_ps(levels->divide_by.low);
    const __m256 s_high = _mm256_set1_ps(levels->std.high);
    const __m256 s_low = _mm256_set1_ps(levels->std.low);
    const __m256 mean = _mm256_set1_ps(levels->mean);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        if (i % LINE == 0)
            _mm_prefetch((const char *)next + i, _MM_HINT_T0);
        const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(v + i));
        __m256 y = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
        y = _mm256_fmadd_ps(y, d_high, _mm256_mul_ps(y, d_low));
        y = _mm256_sub_ps(y, mean);
        y = _mm256_fmadd_ps(y, s_high, _mm256_mul_ps(y, s_low));
        _mm256_storeu_ps(x + i, y);
    }
    read_table(levels, v + i, n - i, x + i);
}

__attribute__((target("avx512f"))) static void
read_avx512(const fedge_levels *levels, const uint8_t *v, size_t n, const uint8_t *next, float *x)
{
    const __m512 d_high = _mm512_set1_ps(levels->divide_by.high);
    const __m512 d_low = _mm512_set1_ps(levels->divide_by.low);
    const __m512 s_high = _mm512_set1_ps(levels->std.high);
    const __m512 s_low = _mm512_set1_ps(levels->std.low);
    const __m512 mean = _mm512_set1_ps(levels->mean);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        if (i % LINE == 0)
            _mm_prefetch((const char *)next + i, _MM_HINT_T0);
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(v + i));
        __m512 y = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
        y = _mm512_fmadd_ps(y, d_high, _mm512_mul_ps(y, d_low));
        y = _mm512_sub_ps(y, mean);
        y = _mm512_fmadd_ps(y, s_high, _mm512_mul_ps(y, s_low));
        _mm512_storeu_ps(x + i, y);
    }
    read_table(levels, v + i, n - i, x + i);
}

void fedge_levels_fetch(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i += LINE)
        _mm_prefetch((const char *)bytes + i, _MM_HINT_T1);
}

static void choose(fedge_levels *levels, unsigned cpu_features)
{
    levels->read = (cpu_features & FEDGE_CPU_AVX512) != 0 ? read_avx512
                   : (cpu_features & FEDGE_CPU_AVX2) != 0 ? read_avx2
                                                          : NULL;
}

#else

void fedge_levels_fetch(const uint8_t *bytes, size_t size)
{
    (void)bytes, (void)size;
}

static void choose(fedge_levels *levels, unsigned cpu_features)
{
    (void)cpu_features;
    levels->read = NULL;
}

#endif

static fedge_reciprocal reciprocal(float of)
{
    const double exact = 1.0 / (double)of;
    const float high = (float)exact;
    return (fedge_reciprocal){high, (float)(exact - (double)high)};
}

/* Does [read] give the bits of the table? */
static bool is_exact(const fedge_levels *levels)
{
    uint8_t v[FEDGE_LEVELS];
    float x[FEDGE_LEVELS];
    for (unsigned i = 0; i < FEDGE_LEVELS; i++)
        v[i] = (uint8_t)i;
    levels->read(levels, v, FEDGE_LEVELS, v, x);
    uint32_t read[FEDGE_LEVELS], wanted[FEDGE_LEVELS];
    memcpy(read, x, sizeof(read));
    memcpy(wanted, levels->table, sizeof(wanted));
    return memcmp(read, wanted, sizeof(read)) == 0;
}

void fedge_levels_make(fedge_levels *levels, float divide_by, float mean, float std,
                       unsigned cpu_features)
{
    for (unsigned i = 0; i < FEDGE_LEVELS; i++)
        levels->table[i] = ((float)i / divide_by - mean) / std;
    levels->divide_by = reciprocal(divide_by);
    levels->std = reciprocal(std);
    levels->mean = mean;
    choose(levels, cpu_features);
    if (levels->read && !is_exact(levels))
        levels->read = NULL;
}

void fedge_levels_read(const fedge_levels *levels, const uint8_t *v, size_t n, const uint8_t *next,
                       float *x)
{
    if (levels->read)
        levels->read(levels, v, n, next, x);
    else
        read_table(levels, v, n, x);
}

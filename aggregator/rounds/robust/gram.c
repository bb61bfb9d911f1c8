#include "aggregator/rounds/robust/gram.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "edge/core/fixed.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "edge/core/os.h"
#endif

#define BITS 24 /* of |u|: a tile's 4096 squares of differences, of 50 bits, fit in 62 */

static_assert(FEDGE_UPDATES_PIECE <= 4096, "the dots of a tile do not overflow");

/* ---- dots of four rows ----------------------------------------------------------------------- */

void fedge_gram_dots_scalar(const int32_t *a, const int32_t *const b[4], size_t count,
                            int64_t out[4])
{
    for (int j = 0; j < 4; j++) {
        int64_t sum = 0;
        for (size_t k = 0; k < count; k++)
            sum += (int64_t)a[k] * b[j][k];
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
        /* mul_epi32 multiplies the low, signed half of each 64 bits; a shift brings the others
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
#endif

void fedge_gram_dots(const int32_t *a, const int32_t *const b[4], size_t count, int64_t out[4])
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
    const int32_t *const rest[4] = {b[0] + done, b[1] + done, b[2] + done, b[3] + done};
    int64_t more[4];
    fedge_gram_dots_scalar(a + done, rest, count - done, more);
    for (int j = 0; j < 4; j++)
        out[j] += more[j];
}

/* ---- a pass ---------------------------------------------------------------------------------- */

/* An exact sum: high · 2^32 + low. A tile's dot may be 2^60, and eight of them overflow an int64;
 * here low grows by less than 2^32 with each tile, which leaves room for 2^31 of them. */
/* An exact sum: high · 2^32 + low. */
typedef struct wide {
    int64_t high, low;
} wide;
static_assert(sizeof(wide) == FEDGE_GRAM_SUM_BYTES, "what tiles.c counts with");

static void wide_add(wide *to, int64_t value)
{
    to->high += value >> 32;
    to->low += value & 0xffffffff;
}

static double wide_get(wide value)
{
    /* After a subtraction low may be negative: the shift rounds down and the mask has the rest, so
     * what is added is always in [0, 2^32). */
    value.high += value.low >> 32;
    value.low &= 0xffffffff;
    return (double)value.high * 0x1p32 + (double)value.low;
}

typedef struct pass {
    const fedge_strategy_section *delta;
    uint32_t num;
    int8_t most_bound_log2;
    bool norms_only;
    wide *sums; /* of each thread: (num, num), j ≤ i */
} pass;

static size_t num_pairs(uint32_t num)
{
    return (size_t)num * (num + 1) / 2;
}

static size_t pair(uint32_t i, uint32_t j)
{
    return j <= i ? (size_t)i * (i + 1) / 2 + j : (size_t)j * (j + 1) / 2 + i;
}

/* Rounds to BITS bits of the largest bound. */
static void shorten(int32_t *v, size_t count, int bits)
{
    /* No further, or adding [half] would overflow; what a tensor of a far smaller bound still adds
     * is a unit at most. */
    const int shift = bits < FEDGE_FIXED_VALUE_BITS ? bits : FEDGE_FIXED_VALUE_BITS;
    const int32_t half = (int32_t)1 << (shift - 1);
    for (size_t k = 0; k < count; k++)
        v[k] = (v[k] + half) >> shift;
}

static fedge_status add_tile(void *user, const fedge_tile *tile, fedge_error *err)
{
    (void)err;
    pass *self = user;
    wide *sums = self->sums + num_pairs(self->num) * tile->thread;
    const int less = self->most_bound_log2 - self->delta->bounds_log2[tile->tensor];
    for (uint32_t i = 0; i < self->num; i++)
        shorten(tile->rows[i], tile->count, FEDGE_FIXED_VALUE_BITS - BITS + less);
    for (uint32_t i = 0; i < self->num; i++) {
        /* Four rows against one: row i is loaded once for four products. Where fewer are left it
         * stands in for the missing ones, and their sums are not used. */
        for (uint32_t j = self->norms_only ? i : 0; j <= i; j += 4) {
            const int32_t *four[4];
            int64_t dots[4];
            for (uint32_t k = 0; k < 4; k++)
                four[k] = tile->rows[j + k <= i ? j + k : i];
            fedge_gram_dots(tile->rows[i], four, tile->count, dots);
            for (uint32_t k = 0; k < 4 && j + k <= i; k++)
                wide_add(&sums[pair(i, j + k)], dots[k]);
        }
    }
    return FEDGE_OK;
}

/* What the threads have, in the first one's. */
static void join(pass *self, uint32_t num_threads)
{
    const size_t pairs = num_pairs(self->num);
    for (uint32_t t = 1; t < num_threads; t++) {
        for (size_t k = 0; k < pairs; k++) {
            self->sums[k].high += self->sums[pairs * t + k].high;
            self->sums[k].low += self->sums[pairs * t + k].low;
        }
    }
}

static void fill(fedge_gram *gram, const wide *sums)
{
    for (uint32_t i = 0; i < gram->num; i++) {
        for (uint32_t j = 0; j < gram->num; j++) {
            const wide *a = &sums[pair(i, i)], *b = &sums[pair(j, j)], *ab = &sums[pair(i, j)];
            const wide square = {a->high + b->high - 2 * ab->high, a->low + b->low - 2 * ab->low};
            gram->dots[(size_t)i * gram->num + j] = wide_get(*ab);
            gram->squares[(size_t)i * gram->num + j] = wide_get(square);
        }
    }
}

fedge_status fedge_gram_init(fedge_gram *gram, fedge_tiles *tiles, fedge_gram_extent extent,
                             fedge_error *err)
{
    const uint32_t num = tiles->num;
    *gram = (fedge_gram){.num = num};
    if (extent == FEDGE_GRAM_NOTHING)
        return FEDGE_OK;
    const fedge_strategy_section *delta = &tiles->sum->delta;
    pass of = {.delta = delta,
               .num = num,
               .most_bound_log2 = delta->bounds_log2[0],
               .norms_only = extent == FEDGE_GRAM_NORMS};
    for (uint32_t t = 1; t < delta->schema->num_tensors; t++) {
        if (delta->bounds_log2[t] > of.most_bound_log2)
            of.most_bound_log2 = delta->bounds_log2[t];
    }
    of.sums = calloc(num_pairs(num) * tiles->num_threads, sizeof(*of.sums));
    *gram = (fedge_gram){.num = num,
                         .unit = ldexp(1.0, of.most_bound_log2 - BITS),
                         .dots = malloc((size_t)num * num * sizeof(double)),
                         .squares = malloc((size_t)num * num * sizeof(double))};
    fedge_status status =
        of.sums && gram->dots && gram->squares
            ? fedge_tiles_each(tiles, add_tile, &of, err)
            : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the distances of %u updates",
                         (unsigned)num);
    if (status == FEDGE_OK) {
        join(&of, tiles->num_threads);
        fill(gram, of.sums);
    }
    free(of.sums);
    return status;
}

void fedge_gram_fini(fedge_gram *gram)
{
    free(gram->dots);
    free(gram->squares);
    *gram = (fedge_gram){0};
}

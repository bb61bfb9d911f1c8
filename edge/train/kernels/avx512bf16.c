/* bf16 products by vdpbf16ps, which adds two products to each of 16 sums.
 *
 * In blocks of up to FEDGE_BF16_DEPTH of k, rows of a and a panel of FEDGE_BF16_COLUMNS columns of
 * b are packed as pairs of bf16 neighbours in k, 32 bits each: a as tiles (pairs, rows of the
 * tile), which are broadcast, and b as (pairs, columns). A block of a is packed once for all panels
 * of b.
 */
#include "edge/train/kernels/half.h"

#if defined(FEDGE_HAVE_AVX512BF16)
#include <immintrin.h>

#if defined(__GNUC__) && !defined(__OPTIMIZE__)
/* GCC's intrinsics are macros then, in which masks become signed on the lines of this file. */
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define LANES 16
#define COLUMNS FEDGE_BF16_COLUMNS
#define MAX_ROWS 12 /* rows of a tile; two vectors each make 24 sums in registers */
#define MIN_ROWS 4

typedef struct tile_args {
    const uint32_t *a, *b; /* packed */
    size_t pairs;
    float *c;
    size_t c_row, c_next; /* floats from row to row, and from a row's first vector to its second */
    size_t rows, columns; /* shape of c */
    bool add;             /* c += instead of c = */
} tile_args;

INLINE __mmask16 first(size_t n)
{
    return (__mmask16)(n >= LANES ? 0xffffu : (1u << n) - 1u);
}

INLINE void tile(const int rows, const tile_args *args)
{
    __m512 acc[MAX_ROWS][2];
    const uint32_t *a = args->a, *b = args->b;
    UNROLL
    for (int t = 0; t < rows; t++) {
        acc[t][0] = _mm512_setzero_ps();
        acc[t][1] = _mm512_setzero_ps();
    }
    for (size_t p = 0; p < args->pairs; p++) {
        const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b);
        const __m512bh b1 = (__m512bh)_mm512_loadu_si512(b + LANES);
        UNROLL
        for (int t = 0; t < rows; t++) {
            const __m512bh pair = (__m512bh)_mm512_set1_epi32((int)a[t]);
            acc[t][0] = _mm512_dpbf16_ps(acc[t][0], pair, b0);
            acc[t][1] = _mm512_dpbf16_ps(acc[t][1], pair, b1);
        }
        a += rows;
        b += COLUMNS;
    }
    const __mmask16 low = first(args->columns);
    const __mmask16 high = args->columns > LANES ? first(args->columns - LANES) : 0;
    UNROLL
    for (int t = 0; t < rows; t++) {
        if ((size_t)t < args->rows) {
            float *c = args->c + (size_t)t * args->c_row;
            if (args->add) {
                acc[t][0] = _mm512_add_ps(_mm512_maskz_loadu_ps(low, c), acc[t][0]);
                acc[t][1] = _mm512_add_ps(_mm512_maskz_loadu_ps(high, c + args->c_next), acc[t][1]);
            }
            _mm512_mask_storeu_ps(c, low, acc[t][0]);
            _mm512_mask_storeu_ps(c + args->c_next, high, acc[t][1]);
        }
    }
}

/* clang-format off */
static void tile_4(const tile_args *args) { tile(4, args); }
static void tile_6(const tile_args *args) { tile(6, args); }
static void tile_8(const tile_args *args) { tile(8, args); }
static void tile_10(const tile_args *args) { tile(10, args); }
static void tile_12(const tile_args *args) { tile(12, args); }
/* clang-format on */

static void (*const tile_functions[])(const tile_args *) = {tile_4, tile_6, tile_8, tile_10,
                                                            tile_12};

/* The height of the next tile if [left] rows remain: an even number, nearly equal for all tiles. */
static size_t tile_rows(size_t left)
{
    const size_t tiles = (left + MAX_ROWS - 1) / MAX_ROWS;
    const size_t rows = (left + tiles - 1) / tiles;
    return rows < MIN_ROWS ? MIN_ROWS : rows + rows % 2;
}

/* 16 pairs (low[i], high[i]), rounded. */
INLINE __m512i interleave(__m512 low, __m512 high)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

/* 32 contiguous floats, or [n] < 32 of them and zeros, as 16 pairs. */
INLINE __m512i neighbours(const float *from, size_t n)
{
    const __m512 low = _mm512_maskz_loadu_ps(first(n), from);
    const __m512 high =
        n > LANES ? _mm512_maskz_loadu_ps(first(n - LANES), from + LANES) : _mm512_setzero_ps();
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* One pair of an operand whose order vectors cannot read. */
static uint32_t single_pair(const float *from, size_t step, bool both)
{
    const __m128 low = _mm_set_ss(from[0]), high = _mm_set_ss(both ? from[step] : 0.0f);
    const __m128i pair = (__m128i)_mm_cvtne2ps_pbh(high, low);
    return (uint32_t)_mm_extract_epi16(pair, 0) | (uint32_t)_mm_extract_epi16(pair, 4) << 16;
}

/* Packs one tile of a as (pairs, height). Rows after the last of a are left as they are: their
 * sums are never stored. */
static void pack_rows(const fedge_gemm *args, const float *a, size_t rows, size_t k, size_t depth,
                      size_t height, uint32_t *to)
{
    const size_t pairs = (depth + 1) / 2;
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    if (args->a_column == 1 && !args->a_offsets) {
        a += k;
        const __m512i indices = _mm512_mullo_epi32(lanes, _mm512_set1_epi32((int)height));
        for (size_t i = 0; i < rows; i++) {
            for (size_t p = 0; p < pairs; p += LANES) {
                const __m512i v = neighbours(a + i * args->a_row + 2 * p, depth - 2 * p);
                _mm512_mask_i32scatter_epi32(to + p * height + i, first(pairs - p), indices, v, 4);
            }
        }
        return;
    }
    for (size_t p = 0; p < pairs; p++, to += height) {
        const bool both = 2 * p + 1 < depth;
        const size_t at = fedge_gemm_a_column(args, k + 2 * p);
        const size_t step = both ? fedge_gemm_a_column(args, k + 2 * p + 1) - at : 0;
        const float *from = a + at;
        if (args->a_row == 1) {
            const __mmask16 mask = first(rows);
            const __m512 high = _mm512_maskz_loadu_ps(both ? mask : 0, from + step);
            const __m512i v = interleave(_mm512_maskz_loadu_ps(mask, from), high);
            _mm512_mask_storeu_epi32(to, mask, v);
            continue;
        }
        for (size_t i = 0; i < rows; i++)
            to[i] = single_pair(from + i * args->a_row, step, both);
    }
}

static void pack_a(const fedge_gemm *args, size_t i, size_t rows, size_t k, size_t depth,
                   uint32_t *to)
{
    const float *a = args->a + i * args->a_row;
    for (size_t taken; rows > 0; rows -= taken) {
        const size_t height = tile_rows(rows);
        taken = rows < height ? rows : height;
        pack_rows(args, a, taken, k, depth, height, to);
        a += taken * args->a_row;
        to += height * ((depth + 1) / 2);
    }
}

/* Transposes 16 × 16 dwords. */
INLINE void transpose(__m512i v[LANES])
{
    __m512i w[LANES];
    UNROLL
    for (int i = 0; i < LANES; i += 2) {
        w[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        w[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    UNROLL
    for (int i = 0; i < LANES; i += 4) {
        v[i] = _mm512_unpacklo_epi64(w[i], w[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(w[i], w[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(w[i + 1], w[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(w[i + 1], w[i + 3]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        w[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
        w[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
        w[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
        w[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        v[i] = _mm512_shuffle_i32x4(w[i], w[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(w[i], w[i + 8], 0xdd);
        v[i + 4] = _mm512_shuffle_i32x4(w[i + 4], w[i + 12], 0x88);
        v[i + 12] = _mm512_shuffle_i32x4(w[i + 4], w[i + 12], 0xdd);
    }
}

/* Packs columns of b that are contiguous along k, 16 columns by 16 pairs at a time. */
static void pack_transposed(const fedge_gemm *args, size_t k, size_t depth, size_t first_column,
                            size_t columns, uint32_t *to)
{
    const size_t pairs = (depth + 1) / 2;
    for (size_t j = 0; j < COLUMNS; j += LANES) {
        for (size_t p = 0; p < pairs; p += LANES) {
            __m512i v[LANES];
            UNROLL
            for (size_t t = 0; t < LANES; t++) {
                v[t] = j + t < columns
                           ? neighbours(args->b + fedge_gemm_b_column(args, first_column + j + t) +
                                            k + 2 * p,
                                        depth - 2 * p)
                           : _mm512_setzero_si512();
            }
            transpose(v);
            UNROLL
            for (size_t t = 0; t < LANES; t++) {
                if (p + t < pairs)
                    _mm512_storeu_si512(to + (p + t) * COLUMNS + j, v[t]);
            }
        }
    }
}

static void pack_b(const fedge_gemm *args, size_t k, size_t depth, size_t j, size_t columns,
                   uint32_t *to)
{
    if (args->b_row == 1 && args->b_column != 1) {
        pack_transposed(args, k, depth, j, columns, to);
        return;
    }
    const float *b = args->b + fedge_gemm_b_column(args, j);
    const size_t second =
        columns > LANES ? fedge_gemm_b_column(args, j + LANES) - fedge_gemm_b_column(args, j) : 0;
    const __mmask16 low = first(columns), high = columns > LANES ? first(columns - LANES) : 0;
    for (size_t p = 0; 2 * p < depth; p++, to += COLUMNS) {
        const bool both = 2 * p + 1 < depth;
        const float *from = b + fedge_gemm_b_row(args, k + 2 * p);
        const float *next = both ? b + fedge_gemm_b_row(args, k + 2 * p + 1) : from;
        if (args->b_column == 1) {
            const __m512i v = interleave(_mm512_maskz_loadu_ps(low, from),
                                         _mm512_maskz_loadu_ps(both ? low : 0, next));
            const __m512i w = interleave(_mm512_maskz_loadu_ps(high, from + second),
                                         _mm512_maskz_loadu_ps(both ? high : 0, next + second));
            _mm512_storeu_si512(to, v);
            _mm512_storeu_si512(to + LANES, w);
            continue;
        }
        for (size_t t = 0; t < COLUMNS; t++) {
            const size_t column = t < columns ? fedge_gemm_b_column(args, j + t) : 0;
            const float *pair = args->b + column + fedge_gemm_b_row(args, k + 2 * p);
            to[t] = t < columns ? single_pair(pair, args->b_row, both) : 0;
        }
    }
}

/* All tiles of a block of rows times one panel. */
static void run_panel(tile_args args, size_t rows)
{
    for (; rows > 0; rows -= args.rows) {
        const size_t height = tile_rows(rows);
        args.rows = rows < height ? rows : height;
        tile_functions[(height - MIN_ROWS) / 2](&args);
        args.a += height * args.pairs;
        args.c += args.rows * args.c_row;
    }
}

void fedge_bf16_gemm_avx512(const fedge_gemm *args, float *pack)
{
    uint32_t *const packed_b = (uint32_t *)(void *)pack;
    uint32_t *const packed_a = packed_b + FEDGE_BF16_DEPTH * COLUMNS / 2;
    const bool begins = args->k == 0 || args->start;
    for (size_t i = 0; begins && !args->accumulate && i < args->m; i++) {
        for (size_t j = 0; j < args->n; j++) {
            args->c[i * args->c_row + fedge_gemm_c_column(args, j)] =
                !args->start ? 0.0f : args->start[j];
        }
    }
    for (size_t k = 0; k < args->k; k += FEDGE_BF16_DEPTH) {
        const size_t depth = args->k - k < FEDGE_BF16_DEPTH ? args->k - k : FEDGE_BF16_DEPTH;
        /* MIN_ROWS less: the last tile may be padded. */
        const size_t max_rows = FEDGE_BF16_PACKED_A / (depth + depth % 2) - MIN_ROWS;
        for (size_t i = 0; i < args->m; i += max_rows) {
            const size_t rows = args->m - i < max_rows ? args->m - i : max_rows;
            pack_a(args, i, rows, k, depth, packed_a);
            for (size_t j = 0; j < args->n; j += COLUMNS) {
                const size_t columns = args->n - j < COLUMNS ? args->n - j : COLUMNS;
                pack_b(args, k, depth, j, columns, packed_b);
                run_panel((tile_args){.a = packed_a,
                                      .b = packed_b,
                                      .pairs = (depth + 1) / 2,
                                      .c = args->c + i * args->c_row + fedge_gemm_c_column(args, j),
                                      .c_row = args->c_row,
                                      .c_next = columns > LANES
                                                    ? fedge_gemm_c_column(args, j + LANES) -
                                                          fedge_gemm_c_column(args, j)
                                                    : 0,
                                      .columns = columns,
                                      .add = args->accumulate || begins || k > 0},
                          rows);
            }
        }
    }
}

#endif

/* The vector kernels, written once and compiled per instruction set.
 *
 * The including file defines, for its vector types vec and vec_int of LANES elements:
 *   LANES, KERNELS_SYMBOL, KERNELS_NAME        the width; the table to define
 *   TILE_ROWS                                  rows of the register tile, of two vectors each
 *   FREE_MASKS                                 1: load_first and store_first are as fast as load
 *                                              and store, and take n ≤ LANES
 *   MAX_SEGMENTS, MAX_VECTORS                  the largest block of a convolution's gradients
 *   DOT_ROWS, STEP_ROWS                        see simd_linear.h
 *   GEMM_ROWS                                  see simd_gemm.h
 *   load(p), store(p, v)                       unaligned
 *   load_first(p, n), store_first(p, v, n)     the first n < LANES; other lanes 0 or untouched
 *   splat(x), splat_int(i), add(a, b)
 *   mul_add(a, b, c)                           a · b + c, rounded once
 *   max_propagating(a, b), min_propagating     the larger, the smaller; b when b is NaN
 *   mul(a, b), quotient(a, b)
 *   round_nearest(v)                           to a whole number
 *   magnitude(v), with_sign(v, s)              |v|; v ≥ 0 with the sign of s
 *   zero_below(v, least)                       0 where |v| < least; NaN stays
 *   times_power_of_two(v, n)                   v · 2^n, n whole in ±150; anything if n is NaN
 *   keep_positive(y, d)                        d where y > 0, else 0
 *   pool_step(x, index, best, indices)         takes x and index where x > best or x is NaN
 *   store_indices(p, indices)                  LANES bytes
 *   product_of_words(a, b)                     of the lower halves of 64-bit lanes
 *   add_sums(y, n, v)                          y[i] += sum of the lanes of v[i], i < n ≤ 4
 *   load_quads(p, stride)                      lanes 4 l to 4 l + 3 from p + 4 l · stride
 *   transpose_quads(v)                         v[i] lane 4 l + j to v[j] lane 4 l + i, i, j < 4
 *
 * Every inner function is force-inlined with constant sizes, so that accumulators stay in
 * registers.
 */
#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define SELDOM __attribute__((cold, noinline)) /* small before fast */
/* 0: long loops have one copy of their body, which tests at each vector whether it is the last. */
#ifdef FEDGE_SMALL
#define WHOLE_VECTORS 0
#else
#define WHOLE_VECTORS 1
#endif
#define UNROLL _Pragma("GCC unroll 16")

#define TILE_ROWS_ONE (TILE_ROWS < 7 ? TILE_ROWS : 7) /* rows of tiles of one vector */

/* ---- the register tile: acc[t][v] = Σ_k a[t · row_stride + k] · b[k][v] ---- */

/* A sum over segments of A. B's rows are contiguous. */
typedef struct tile_args {
    const float *a;           /* the first row */
    size_t row_stride;        /* floats between rows of A */
    const uint32_t *segments; /* offsets of A's segments, or NULL for one at 0 */
    size_t num_segments, length;
    const float *b;
    size_t b_stride;
    const float *start; /* the sum's first value per column, or NULL for 0 */
    float *c;           /* (rows, …) */
    size_t c_stride;
    size_t columns; /* used lanes of a single vector; < LANES: a partial one */
} tile_args;

INLINE vec load_some(const float *p, bool partial, size_t n)
{
    return partial ? load_first(p, n) : load(p);
}

INLINE void store_some(float *p, vec v, bool partial, size_t n)
{
    if (partial)
        store_first(p, v, n);
    else
        store(p, v);
}

INLINE void tile(const int rows, const int vectors, const bool partial, const tile_args *args)
{
    vec acc[TILE_ROWS][2];
    UNROLL
    for (int t = 0; t < rows; t++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            /* Starting from the bias saves a pass over c, and gives the same bits on every path
             * that does so. */
            acc[t][v] = !args->start ? splat(0.0f)
                                     : load_some(args->start + v * LANES, partial, args->columns);
        }
    }
    const size_t stride = args->row_stride, length = args->length;
    const float *b = args->b;
    for (size_t s = 0; s < args->num_segments; s++) {
        const float *a0 = args->a + (!args->segments ? 0 : args->segments[s]);
        /* Four base pointers and multiples of one stride fit the general registers. */
        const float *a4 = a0 + 4 * stride, *a8 = a0 + 8 * stride, *a12 = a0 + 12 * stride;
        for (size_t k = 0; k < length; k++) {
            vec column[2];
            UNROLL
            for (int v = 0; v < vectors; v++)
                column[v] = load_some(b + v * LANES, partial, args->columns);
            b += args->b_stride;
            UNROLL
            for (int t = 0; t < rows; t++) {
                const float *base = t < 4 ? a0 : t < 8 ? a4 : t < 12 ? a8 : a12;
                const vec a = splat(base[(size_t)(t % 4) * stride + k]);
                UNROLL
                for (int v = 0; v < vectors; v++)
                    acc[t][v] = mul_add(a, column[v], acc[t][v]);
            }
        }
    }
    UNROLL
    for (int t = 0; t < rows; t++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            store_some(args->c + (size_t)t * args->c_stride + v * LANES, acc[t][v], partial,
                       args->columns);
        }
    }
}

#define TILE_TWO(rows)                                                                             \
    static void tile_##rows##_2(const tile_args *args)                                             \
    {                                                                                              \
        tile(rows, 2, false, args);                                                                \
    }
#define TILE_PARTIAL(rows)                                                                         \
    static void tile_##rows##_partial(const tile_args *args)                                       \
    {                                                                                              \
        tile(rows, 1, true, args);                                                                 \
    }
#if FREE_MASKS
#define TILE_FUNCTIONS(rows) TILE_TWO(rows) TILE_PARTIAL(rows)
#define TILE_ONE(rows) tile_##rows##_partial
#else
#define TILE_FUNCTIONS(rows)                                                                       \
    TILE_TWO(rows) TILE_PARTIAL(rows) static void tile_##rows##_1(const tile_args *args)           \
    {                                                                                              \
        tile(rows, 1, false, args);                                                                \
    }
#define TILE_ONE(rows) tile_##rows##_1
#endif
#define TILE_ROW(rows)                                                                             \
    {                                                                                              \
        tile_##rows##_partial, TILE_ONE(rows), tile_##rows##_2                                     \
    }
#define TILE_ROW_TWO(rows)                                                                         \
    {                                                                                              \
        NULL, NULL, tile_##rows##_2                                                                \
    }

TILE_FUNCTIONS(1)
TILE_FUNCTIONS(2)
TILE_FUNCTIONS(3)
TILE_FUNCTIONS(4)
TILE_FUNCTIONS(5)
TILE_FUNCTIONS(6)
#if TILE_ROWS > 6
TILE_FUNCTIONS(7)
TILE_TWO(8)
TILE_TWO(9)
TILE_TWO(10)
TILE_TWO(11)
TILE_TWO(12)
TILE_TWO(13)
TILE_TWO(14)
#endif

/* [rows − 1][0: partial vector, 1: one vector, 2: two]. */
static void (*const tile_functions[TILE_ROWS][3])(const tile_args *) = {
    TILE_ROW(1),      TILE_ROW(2),      TILE_ROW(3),      TILE_ROW(4),
    TILE_ROW(5),      TILE_ROW(6),
#if TILE_ROWS > 6
    TILE_ROW(7),      TILE_ROW_TWO(8),  TILE_ROW_TWO(9),  TILE_ROW_TWO(10),
    TILE_ROW_TWO(11), TILE_ROW_TWO(12), TILE_ROW_TWO(13), TILE_ROW_TWO(14),
#endif
};

/* [rows] rows of A times one strip of B, in tiles of nearly equal heights. */
static void run_tiles(tile_args args, size_t rows, int kind)
{
    const size_t max_height = kind == 2 ? TILE_ROWS : TILE_ROWS_ONE;
    const size_t tiles = (rows + max_height - 1) / max_height;
    for (size_t i = 0; i < tiles; i++) {
        /* 15 rows make tiles of 8 and 7, not of 14 and 1, whose last would load B for one row. */
        const size_t height = (rows + tiles - 1 - i) / tiles; /* the heights add up to rows */
        tile_functions[height - 1][kind](&args);
        args.a += height * args.row_stride;
        args.c += height * args.c_stride;
    }
}

/* ---- convolution ---- */

static void conv_forward_row(const fedge_conv_shape *shape, const float *x, const float *w,
                             const float *bias, float *y)
{
    const size_t patch = (size_t)shape->num_segments * shape->segment_length;
    for (size_t o = 0; o < shape->out_channels; o += 2 * LANES) {
        const int vectors = shape->out_channels - o >= 2 * LANES ? 2 : 1;
        run_tiles((tile_args){.a = x,
                              .row_stride = shape->pixel_stride,
                              .segments = shape->segment_offsets,
                              .num_segments = shape->num_segments,
                              .length = shape->segment_length,
                              .b = w + o * patch,
                              .b_stride = (size_t)vectors * LANES,
                              .start = bias + o,
                              .c = y + o,
                              .c_stride = shape->out_channels,
                              .columns = LANES},
                  shape->out_w, vectors);
    }
}

/* A block of a patch, of some segments by some vectors, and the list to apply. Up to 15 vectors of
 * weights or of gradients stay in registers. */
typedef struct block_args {
    const uint32_t
        *offsets; /* offsets of the block's segments; x or dx includes the first vector's */
    size_t segment_stride;
    const fedge_grad_entry *list;
    uint32_t n;
    const float *x; /* input, for the weight gradient */
    float *dw;
    const float *w; /* weights, for the input gradient */
    float *dx;
} block_args;

INLINE void weight_entry(const int segments, const int vectors, const fedge_grad_entry *entry,
                         const float *const x[MAX_SEGMENTS], vec acc[MAX_SEGMENTS][MAX_VECTORS])
{
    const size_t offset = entry->offset;
    const vec g = splat(entry->value);
    UNROLL
    for (int s = 0; s < segments; s++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            acc[s][v] = mul_add(g, load(x[s] + offset + v * LANES), acc[s][v]);
    }
}

/* Small blocks have two sums, of even and of odd entries, so that consecutive additions do not
 * depend on each other. */
INLINE void weight_block(const int segments, const int vectors, const block_args *args)
{
    const uint32_t ways = segments * vectors < 8 ? 2 : 1;
    vec acc[2][MAX_SEGMENTS][MAX_VECTORS];
    const float *x[MAX_SEGMENTS];
    UNROLL
    for (int s = 0; s < segments; s++) {
        x[s] = args->x + args->offsets[s];
        UNROLL
        for (int v = 0; v < vectors; v++) {
            acc[0][s][v] = load(args->dw + (size_t)s * args->segment_stride + v * LANES);
            acc[1][s][v] = splat(0.0f);
        }
    }
    uint32_t i = 0;
    for (; i + ways <= args->n; i += ways) {
        UNROLL
        for (uint32_t way = 0; way < ways; way++)
            weight_entry(segments, vectors, &args->list[i + way], x, acc[way]);
    }
    if (i < args->n)
        weight_entry(segments, vectors, &args->list[i], x, acc[0]);
    UNROLL
    for (int s = 0; s < segments; s++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            store(args->dw + (size_t)s * args->segment_stride + v * LANES,
                  ways == 2 ? add(acc[0][s][v], acc[1][s][v]) : acc[0][s][v]);
        }
    }
}

INLINE void input_block(const int segments, const int vectors, const block_args *args)
{
    vec w[MAX_SEGMENTS][MAX_VECTORS];
    float *dx[MAX_SEGMENTS];
    UNROLL
    for (int s = 0; s < segments; s++) {
        dx[s] = args->dx + args->offsets[s];
        UNROLL
        for (int v = 0; v < vectors; v++)
            w[s][v] = load(args->w + (size_t)s * args->segment_stride + v * LANES);
    }
    for (uint32_t i = 0; i < args->n; i++) {
        const size_t offset = args->list[i].offset;
        const vec g = splat(args->list[i].value);
        UNROLL
        for (int s = 0; s < segments; s++) {
            UNROLL
            for (int v = 0; v < vectors; v++) {
                float *to = dx[s] + offset + v * LANES;
                store(to, mul_add(g, w[s][v], load(to)));
            }
        }
    }
}

#define BLOCK_FUNCTION(segments, vectors)                                                          \
    static void weight_block_##segments##_##vectors(const block_args *args)                        \
    {                                                                                              \
        weight_block(segments, vectors, args);                                                     \
    }                                                                                              \
    static void input_block_##segments##_##vectors(const block_args *args)                         \
    {                                                                                              \
        input_block(segments, vectors, args);                                                      \
    }
#define BLOCK_FUNCTIONS(vectors)                                                                   \
    BLOCK_FUNCTION(1, vectors) BLOCK_FUNCTION(2, vectors) BLOCK_FUNCTION(3, vectors)
#define BLOCK_COLUMN(kind, segments)                                                               \
    {                                                                                              \
        kind##_block_##segments##_1, kind##_block_##segments##_2, kind##_block_##segments##_3,     \
            kind##_block_##segments##_4, MORE_VECTORS(kind, segments)                              \
    }

#if MAX_VECTORS > 4
#define MORE_VECTORS(kind, segments) kind##_block_##segments##_5
#else
#define MORE_VECTORS(kind, segments)
#endif

BLOCK_FUNCTIONS(1)
BLOCK_FUNCTIONS(2)
BLOCK_FUNCTIONS(3)
BLOCK_FUNCTIONS(4)
#if MAX_VECTORS > 4
BLOCK_FUNCTIONS(5)
#endif

typedef void (*block_function)(const block_args *);
static const block_function weight_functions[MAX_SEGMENTS][MAX_VECTORS] = {
    BLOCK_COLUMN(weight, 1), BLOCK_COLUMN(weight, 2), BLOCK_COLUMN(weight, 3)};
static const block_function input_functions[MAX_SEGMENTS][MAX_VECTORS] = {
    BLOCK_COLUMN(input, 1), BLOCK_COLUMN(input, 2), BLOCK_COLUMN(input, 3)};

/* Covers (segments, segment_stride) with blocks of nearly equal sizes. */
static void run_blocks(const fedge_conv_shape *shape, block_args args,
                       const block_function functions[MAX_SEGMENTS][MAX_VECTORS])
{
    const size_t width = shape->segment_stride / LANES;
    const size_t strips = (width + MAX_VECTORS - 1) / MAX_VECTORS;
    const size_t bands = (shape->num_segments + MAX_SEGMENTS - 1) / MAX_SEGMENTS;
    args.segment_stride = shape->segment_stride;
    for (size_t j = 0; j < bands; j++) {
        const size_t height = (shape->num_segments + bands - 1 - j) / bands;
        block_args at = args;
        at.offsets = args.offsets;
        for (size_t i = 0; i < strips; i++) {
            const size_t vectors = (width + strips - 1 - i) / strips;
            functions[height - 1][vectors - 1](&at);
            at.x += !at.x ? 0 : vectors * LANES;
            at.dw += !at.dw ? 0 : vectors * LANES;
            at.w += !at.w ? 0 : vectors * LANES;
            at.dx += !at.dx ? 0 : vectors * LANES;
        }
        args.offsets += height;
        args.dw += !args.dw ? 0 : height * shape->segment_stride;
        args.w += !args.w ? 0 : height * shape->segment_stride;
    }
}

static void conv_weight_grad(const fedge_conv_shape *shape, const float *x,
                             const fedge_grad_entry *list, uint32_t n, float *dw)
{
    run_blocks(
        shape,
        (block_args){.offsets = shape->segment_offsets, .list = list, .n = n, .x = x, .dw = dw},
        weight_functions);
}

static void conv_input_grad(const fedge_conv_shape *shape, const float *w,
                            const fedge_grad_entry *list, uint32_t n, float *dx)
{
    run_blocks(
        shape,
        (block_args){.offsets = shape->segment_offsets, .list = list, .n = n, .w = w, .dx = dx},
        input_functions);
}

/* ---- pooling and ReLU ---- */

static void maxpool_row(const fedge_pool_shape *shape, const float *x, float *y, uint8_t *argmax)
{
    const size_t channels = shape->channels;
    const size_t line = shape->in_w * channels;
    for (size_t p = 0; p < shape->out_w; p++) {
        const size_t left = p * shape->stride_w; /* counted from −pad_w */
        const size_t end = shape->in_w + shape->pad_w;
        const size_t q0 = left < shape->pad_w ? shape->pad_w - left : 0;
        const size_t q1 = left + shape->kernel_w < end ? shape->kernel_w : end - left;
        for (size_t c = 0; c < channels; c += LANES) {
            vec best = splat(0.0f);
            vec_int indices = splat_int(0);
            bool first = true;
            for (size_t r = shape->row_begin; r < shape->row_end; r++) {
                const float *from =
                    x + (r - shape->row_begin) * line + (left + q0 - shape->pad_w) * channels + c;
                for (size_t q = q0; q < q1; q++, from += channels) {
                    const int32_t index = (int32_t)(r * shape->kernel_w + q);
                    if (first) {
                        best = load(from);
                        indices = splat_int(index);
                        first = false;
                    } else {
                        pool_step(load(from), splat_int(index), &best, &indices);
                    }
                }
            }
            store(y + p * channels + c, best);
            store_indices(argmax + p * channels + c, indices);
        }
    }
}

#define SUM_CHUNK ((size_t)(64 * LANES)) /* values summed in float before double takes over */
#define SUM_WAYS 4                       /* independent sums */

/* With d = x − center: sums of d and d · d; of dy and dy · d; the latter where 0 < z < ceiling. */
typedef enum sum_kind { SUM_MOMENTS, SUM_PRODUCTS, SUM_RECTIFIED } sum_kind;

INLINE void sum_step(const sum_kind kind, vec x, vec dy, const fedge_normal *normal, vec sum[2])
{
    const vec d = add(x, splat(-normal->center));
    vec g = kind == SUM_MOMENTS ? d : dy;
    if (kind == SUM_RECTIFIED) {
        const vec z = add(mul(d, splat(normal->scale)), splat(normal->shift));
        const vec below = add(splat(normal->ceiling), mul(z, splat(-1.0f)));
        g = keep_positive(z, keep_positive(below, g));
    }
    sum[0] = add(sum[0], g);
    sum[1] = mul_add(g, d, sum[1]);
}

INLINE void sum_chunk(const sum_kind kind, const float *x, const float *dy, size_t n,
                      const fedge_normal *normal, double sums[2])
{
    vec sum[SUM_WAYS][2];
    float totals[4] = {0};
    UNROLL
    for (int v = 0; v < SUM_WAYS; v++)
        sum[v][0] = sum[v][1] = splat(0.0f);
    size_t i = 0;
    for (; i + SUM_WAYS * LANES <= n; i += SUM_WAYS * LANES) {
        UNROLL
        for (int v = 0; v < SUM_WAYS; v++) {
            const size_t at = i + (size_t)v * LANES;
            sum_step(kind, load(x + at), kind == SUM_MOMENTS ? splat(0.0f) : load(dy + at), normal,
                     sum[v]);
        }
    }
    for (; i + LANES <= n; i += LANES) {
        sum_step(kind, load(x + i), kind == SUM_MOMENTS ? splat(0.0f) : load(dy + i), normal,
                 sum[0]);
    }
    const vec four[4] = {add(sum[0][0], sum[1][0]), add(sum[0][1], sum[1][1]),
                         add(sum[2][0], sum[3][0]), add(sum[2][1], sum[3][1])};
    add_sums(totals, 4, four);
    for (; i < n; i++) {
        const float d = x[i] - normal->center, z = d * normal->scale + normal->shift;
        const bool counts = kind != SUM_RECTIFIED || (z > 0.0f && z < normal->ceiling);
        const float g = kind == SUM_MOMENTS ? d : counts ? dy[i] : 0.0f;
        totals[0] += g;
        totals[1] += g * d;
    }
    sums[0] += (double)totals[0] + (double)totals[2];
    sums[1] += (double)totals[1] + (double)totals[3];
}

static void moments(const float *x, size_t n, float center, double sums[2])
{
    const fedge_normal normal = {.center = center};
    sums[0] = sums[1] = 0.0;
    for (size_t count; n > 0; x += count, n -= count) {
        count = n < SUM_CHUNK ? n : SUM_CHUNK;
        sum_chunk(SUM_MOMENTS, x, NULL, count, &normal, sums);
    }
}

static void products(const float *x, const float *dy, size_t n, const fedge_normal *normal,
                     double sums[2])
{
    sums[0] = sums[1] = 0.0;
    for (size_t count; n > 0; x += count, dy += count, n -= count) {
        count = n < SUM_CHUNK ? n : SUM_CHUNK;
        if (normal->ceiling > 0.0f)
            sum_chunk(SUM_RECTIFIED, x, dy, count, normal, sums);
        else
            sum_chunk(SUM_PRODUCTS, x, dy, count, normal, sums);
    }
}

static void copy_rows(size_t rows, size_t width, const float *x, size_t x_stride, float bias,
                      float *y, size_t y_stride)
{
    const vec more = splat(bias);
    for (size_t r = 0; r < rows; r++, x += x_stride, y += y_stride) {
        size_t i = 0;
        for (; i + LANES <= width; i += LANES)
            store(y + i, add(load(x + i), more));
        if (i < width)
            store_first(y + i, add(load_first(x + i, width - i), more), width - i);
    }
}

/* Transposes LANES rows of x to (columns, LANES). */
INLINE void transpose_rows(size_t columns, const float *x, size_t x_stride, float *y,
                           size_t y_stride)
{
    size_t i = 0;
    for (; i + 4 <= columns; i += 4) {
        vec v[4];
        UNROLL
        for (size_t r = 0; r < 4; r++)
            v[r] = load_quads(x + r * x_stride + i, x_stride);
        transpose_quads(v);
        UNROLL
        for (size_t c = 0; c < 4; c++)
            store(y + (i + c) * y_stride, v[c]);
    }
    for (; i < columns; i++) {
        for (size_t r = 0; r < LANES; r++)
            y[i * y_stride + r] = x[r * x_stride + i];
    }
}

static void transpose(size_t rows, size_t columns, const float *x, size_t x_stride, float *y,
                      size_t y_stride)
{
    size_t r = 0;
    for (; r + LANES <= rows; r += LANES)
        transpose_rows(columns, x + r * x_stride, x_stride, y + r, y_stride);
    for (; r < rows; r++) {
        for (size_t i = 0; i < columns; i++)
            y[i * y_stride + r] = x[r * x_stride + i];
    }
}

static void relu_forward(float *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(x + i, max_propagating(splat(0.0f), load(x + i)));
    if (i < n)
        store_first(x + i, max_propagating(splat(0.0f), load_first(x + i, n - i)), n - i);
}

static void relu_backward(const float *y, float *dy, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(dy + i, keep_positive(load(y + i), load(dy + i)));
    if (i < n) {
        store_first(dy + i, keep_positive(load_first(y + i, n - i), load_first(dy + i, n - i)),
                    n - i);
    }
}

#define BITS_STEP 16 /* values per iteration, two bytes of bits; a multiple of every LANES */

static void relu_bits(const float *y, size_t n, uint8_t *bits)
{
    size_t i = 0;
    for (; i + BITS_STEP <= n; i += BITS_STEP) {
        unsigned word = 0;
        for (size_t k = 0; k < BITS_STEP; k += LANES)
            word |= positive_bits(load(y + i + k)) << k;
        bits[i / 8] = (uint8_t)(word & 0xffu);
        bits[i / 8 + 1] = (uint8_t)(word >> 8);
    }
    for (; i < n; i += 8) {
        unsigned byte = 0;
        for (size_t k = 0; k < 8 && i + k < n; k++)
            byte |= (unsigned)(y[i + k] > 0.0f) << k;
        bits[i / 8] = (uint8_t)byte;
    }
}

static void relu_from_bits(const uint8_t *bits, const float *dy, float *dx, size_t n)
{
    size_t i = 0;
    for (; i + BITS_STEP <= n; i += BITS_STEP) {
        const unsigned word = bits[i / 8] | (unsigned)bits[i / 8 + 1] << 8;
        for (size_t k = 0; k < BITS_STEP; k += LANES)
            store(dx + i + k, keep_bits(word >> k, load(dy + i + k)));
    }
    for (; i < n; i++)
        dx[i] = bits[i / 8] >> i % 8 & 1 ? dy[i] : 0.0f;
}

/* Later parts call earlier ones. */
#include "edge/train/kernels/simd_linear.h"

#include "edge/train/kernels/simd_gemm.h"

#include "edge/train/kernels/loops.h"
#include "edge/train/kernels/simd_elementwise.h"
#include "edge/train/kernels/simd_rows.h"

#include "edge/train/kernels/simd_depthwise.h"

const fedge_kernels KERNELS_SYMBOL = {
    .name = KERNELS_NAME,
    .lanes = LANES,
    .packed_columns = 2 * LANES,
    .conv_forward_row = conv_forward_row,
    .conv_weight_grad = conv_weight_grad,
    .conv_input_grad = conv_input_grad,
    .maxpool_row = maxpool_row,
    .linear_forward = linear_forward,
    .linear_backward = linear_backward,
    .gemm = gemm,
    .gemm_pack = GEMM_DEPTH * GEMM_COLUMNS,
    .small_gemm = small_gemm,
    .softmax = softmax,
    .softmax_backward = softmax_backward,
    .norm_rows = norm_rows,
    .norm_rows_backward = norm_rows_backward,
    .drop_draw = drop_draw,
    .drop_apply = drop_apply,
    .copy_rows = copy_rows,
    .transpose = transpose,
    .relu_forward = relu_forward,
    .relu_backward = relu_backward,
    .relu_bits = relu_bits,
    .relu_from_bits = relu_from_bits,
    .panels = panels,
    .depthwise = depthwise,
    .depthwise_weight_grad = depthwise_weight_grad,
    .lstm_forward = lstm_forward,
    .lstm_backward = lstm_backward,
    .gru_forward = gru_forward,
    .gru_backward = gru_backward,
    .exp = exp_each,
    .sigmoid = sigmoid_each,
    .tanh = tanh_each,
    .gelu = gelu_each,
    .gelu_backward = gelu_backward,
    .moments = moments,
    .products = products,
    LOOP_KERNELS,
};

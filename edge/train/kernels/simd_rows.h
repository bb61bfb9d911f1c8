/* Kernels over rows: small products, the softmax of attention, the norm of features, and products
 * with panels; included by simd.h.
 */
#define PRODUCT_COLUMNS ((size_t)(2 * LANES))

/* ---- small products ---- */

typedef struct product_tile {
    const float *a;
    size_t a_row, a_column;
    const float *b;
    size_t b_row, depth;
    float *c;
    size_t c_row, last; /* columns of the last vector */
    bool add;           /* c += a · b instead of c = a · b */
} product_tile;

/* Whether the rows or the columns of a are contiguous; PRODUCT_BY_ANY serves both. */
enum { PRODUCT_BY_ROWS, PRODUCT_BY_COLUMNS, PRODUCT_KINDS, PRODUCT_BY_ANY = PRODUCT_KINDS };

/* acc += one column of a times one row of b; a[i] points to row 3 i. */
INLINE void product_step(const int rows, const int vectors, const float *const a[4], size_t row,
                         const float *b, bool partial, size_t last, vec acc[GEMM_ROWS][2])
{
    vec columns[2];
    UNROLL
    for (int v = 0; v < vectors; v++)
        columns[v] = load_some(b + v * LANES, partial && v == vectors - 1, last);
    UNROLL
    for (int t = 0; t < rows; t++) {
        const vec factor = splat(a[t / 3][(size_t)(t % 3) * row]);
        UNROLL
        for (int v = 0; v < vectors; v++)
            acc[t][v] = mul_add(factor, columns[v], acc[t][v]);
    }
}

INLINE void product_rows(const int kind, const int rows, const int vectors, const bool partial,
                         const product_tile *args)
{
    vec acc[GEMM_ROWS][2];
    UNROLL
    for (int t = 0; t < rows; t++) {
        acc[t][0] = splat(0.0f);
        acc[t][1] = splat(0.0f);
    }
    const size_t row = kind == PRODUCT_BY_COLUMNS ? 1 : args->a_row;
    const size_t column = kind == PRODUCT_BY_ROWS ? 1 : args->a_column;
    const size_t last = args->last, b_row = args->b_row;
    const size_t steps = kind == PRODUCT_BY_ROWS ? 4 : 1; /* unrolled: fewer address additions */
    const float *a[4], *b = args->b;
    UNROLL
    for (size_t i = 0; i < 4; i++)
        a[i] = args->a + (3 * i < (size_t)rows ? 3 * i * row : 0);
    size_t k = 0;
    for (; k + steps <= args->depth; k += steps) {
        UNROLL
        for (size_t u = 0; u < steps; u++, b += b_row) {
            const float *const at[4] = {a[0] + u, a[1] + u, a[2] + u, a[3] + u};
            product_step(rows, vectors, at, row, b, partial, last, acc);
        }
        UNROLL
        for (size_t i = 0; i < 4; i++)
            a[i] += steps * column;
    }
    for (; k < args->depth; k++, b += b_row) {
        const float *const at[4] = {args->a + k, args->a + k + 3 * row, args->a + k + 6 * row,
                                    args->a + k + 9 * row};
        product_step(rows, vectors, at, row, b, partial, last, acc);
    }
    UNROLL
    for (int t = 0; t < rows; t++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            float *c = args->c + (size_t)t * args->c_row + v * LANES;
            const bool some = partial && v == vectors - 1;
            store_some(c, args->add ? add(load_some(c, some, last), acc[t][v]) : acc[t][v], some,
                       last);
        }
    }
}

#define PRODUCT_FUNCTION(name, kind, rows, vectors, partial)                                       \
    static void name(const product_tile *args)                                                     \
    {                                                                                              \
        product_rows(kind, rows, vectors, partial, args);                                          \
    }
#define PRODUCT_FUNCTIONS(by, kind, rows)                                                          \
    PRODUCT_FUNCTION(by##_##rows##_1, kind, rows, 1, false)                                        \
    PRODUCT_FUNCTION(by##_##rows##_1_some, kind, rows, 1, true)                                    \
    PRODUCT_FUNCTION(by##_##rows##_2, kind, rows, 2, false)                                        \
    PRODUCT_FUNCTION(by##_##rows##_2_some, kind, rows, 2, true)
#define PRODUCT_SHORT(rows) PRODUCT_FUNCTIONS(product, PRODUCT_BY_ANY, rows)
#define PRODUCT_TALL(rows)                                                                         \
    PRODUCT_FUNCTIONS(product_rows, PRODUCT_BY_ROWS, rows)                                         \
    PRODUCT_FUNCTIONS(product_columns, PRODUCT_BY_COLUMNS, rows)
#define PRODUCT_ENTRY_BY(by, rows)                                                                 \
    {                                                                                              \
        {by##_##rows##_1, by##_##rows##_1_some},                                                   \
        {                                                                                          \
            by##_##rows##_2, by##_##rows##_2_some                                                  \
        }                                                                                          \
    }
#define PRODUCT_ENTRY(rows, by_rows, by_columns)                                                   \
    {                                                                                              \
        rows,                                                                                      \
        {                                                                                          \
            PRODUCT_ENTRY_BY(by_rows, rows), PRODUCT_ENTRY_BY(by_columns, rows)                    \
        }                                                                                          \
    }
#define PRODUCT_SHORT_ENTRY(rows) PRODUCT_ENTRY(rows, product, product)
#define PRODUCT_TALL_ENTRY(rows) PRODUCT_ENTRY(rows, product_rows, product_columns)

PRODUCT_SHORT(1)
PRODUCT_SHORT(2)
PRODUCT_SHORT(4)
#if GEMM_ROWS > 8
PRODUCT_SHORT(8)
PRODUCT_TALL(12)
#else
PRODUCT_TALL(6)
#endif

/* The tallest tile first. Indexed by kind, vectors − 1 and whether the last vector is partial. */
static const struct {
    size_t rows;
    void (*run[PRODUCT_KINDS][2][2])(const product_tile *);
} product_tiles[] = {
#if GEMM_ROWS > 8
    PRODUCT_TALL_ENTRY(12), PRODUCT_SHORT_ENTRY(8),
#else
    PRODUCT_TALL_ENTRY(6),
#endif
    PRODUCT_SHORT_ENTRY(4), PRODUCT_SHORT_ENTRY(2), PRODUCT_SHORT_ENTRY(1),
};

static void small_gemm(const fedge_gemm *args)
{
    const int kind = args->a_column == 1 ? PRODUCT_BY_ROWS : PRODUCT_BY_COLUMNS;
    for (size_t j = 0; j < args->n; j += PRODUCT_COLUMNS) {
        const size_t left = args->n - j;
        const size_t columns = left < PRODUCT_COLUMNS ? left : PRODUCT_COLUMNS;
        const size_t vectors = columns > LANES ? 2 : 1;
        product_tile tile = {.a = args->a,
                             .a_row = args->a_row,
                             .a_column = args->a_column,
                             .b = args->b + j,
                             .b_row = args->b_row,
                             .depth = args->k,
                             .c = args->c + j,
                             .c_row = args->c_row,
                             .last = columns - (vectors - 1) * LANES,
                             .add = args->accumulate};
        size_t m = args->m;
        for (size_t i = 0; m > 0; i++) {
            const size_t rows = product_tiles[i].rows;
            for (; m >= rows; m -= rows) {
                product_tiles[i].run[kind][vectors - 1][tile.last < LANES](&tile);
                tile.a += rows * tile.a_row;
                tile.c += rows * tile.c_row;
            }
        }
    }
}

/* ---- softmax ---- */

#define ROWS_TOGETHER 4 /* rows whose lanes are reduced together */

/* The largest of [n] values, lane by lane. Unused lanes hold -infinity. */
INLINE vec largest_by_lanes(const float *s, size_t n)
{
    static const float NOTHING[2 * LANES] = {
        [LANES] = -INFINITY,
        -INFINITY,
        -INFINITY,
        -INFINITY,
#if LANES > 4
        -INFINITY,
        -INFINITY,
        -INFINITY,
        -INFINITY,
#endif
#if LANES > 8
        -INFINITY,
        -INFINITY,
        -INFINITY,
        -INFINITY,
        -INFINITY,
        -INFINITY,
        -INFINITY,
        -INFINITY,
#endif
    };
    if (n < LANES)
        return add(load_first(s, n), load(NOTHING + LANES - n));
    vec best = load(s + n - LANES); /* the tail may overlap the vectors below */
    for (size_t j = 0; j + LANES <= n; j += LANES)
        best = max_propagating(best, load(s + j));
    return best;
}

/* max[i] = the largest lane of v[i]. */
INLINE void largest_lanes(float max[ROWS_TOGETHER], vec v[ROWS_TOGETHER])
{
    float quads[LANES];
    transpose_quads(v);
    store(quads, max_propagating(max_propagating(v[0], v[1]), max_propagating(v[2], v[3])));
    for (size_t i = 0; i < ROWS_TOGETHER; i++) {
        max[i] = quads[i];
        for (size_t l = ROWS_TOGETHER; l < LANES; l += ROWS_TOGETHER)
            max[i] = max[i] > quads[i + l] ? max[i] : quads[i + l];
    }
}

/* s = e^(scale · s + shift) · factor for the first [n] values, 0 for the others up to [width].
 * Returns the sum without the factor, lane by lane. */
INLINE vec exponentials(float *s, size_t n, size_t width, float scale, float shift, float factor)
{
    vec sum = splat(0.0f);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        const vec e = exp_of(mul_add(load(s + j), splat(scale), splat(shift)));
        store(s + j, mul(e, splat(factor)));
        sum = add(sum, e);
    }
    if (j < n) {
        const size_t left = n - j;
        const vec e = exp_of(mul_add(load_first(s + j, left), splat(scale), splat(shift)));
        store_first(s + j, mul(e, splat(factor)), left);
        sum = add(sum, load_first(s + j, left));
    }
    for (j = n; j < width; j += LANES)
        store_some(s + j, splat(0.0f), width - j < LANES, width - j);
    return sum;
}

INLINE void scale_row(float *s, size_t n, float factor)
{
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        store(s + j, mul(load(s + j), splat(factor)));
    if (j < n)
        store_first(s + j, mul(load_first(s + j, n - j), splat(factor)), n - j);
}

INLINE size_t softmax_visible(const fedge_softmax *args, size_t row)
{
    return args->visible == 0 ? args->width : args->visible + row;
}

/* Up to ROWS_TOGETHER rows from [first] on: their sums do not depend on each other. */
INLINE void softmax_rows(const fedge_softmax *args, size_t first, size_t rows)
{
    float max[ROWS_TOGETHER], sums[ROWS_TOGETHER] = {0};
    float *const s = args->s + first * args->stride, *const saved = args->saved + 2 * first;
    vec v[ROWS_TOGETHER];
    for (size_t r = 0; r < ROWS_TOGETHER; r++) {
        const size_t row = r < rows ? r : 0;
        v[r] = largest_by_lanes(s + row * args->stride, softmax_visible(args, first + row));
    }
    largest_lanes(max, v);
    for (size_t r = 0; r < ROWS_TOGETHER; r++) {
        if (r < rows) {
            saved[2 * r] = -args->scale * max[r];
            v[r] = exponentials(s + r * args->stride, softmax_visible(args, first + r), args->width,
                                args->scale, saved[2 * r], 1.0f);
        }
    }
    add_sums(sums, ROWS_TOGETHER, v);
    for (size_t r = 0; r < rows; r++) {
        saved[2 * r + 1] = 1.0f / sums[r];
        scale_row(s + r * args->stride, softmax_visible(args, first + r), saved[2 * r + 1]);
    }
}

static void softmax(const fedge_softmax *args)
{
    for (size_t r = 0; args->recompute && r < args->rows; r++) {
        const float *saved = args->saved + 2 * r;
        exponentials(args->s + r * args->stride, softmax_visible(args, r), args->width, args->scale,
                     saved[0], saved[1]);
    }
    for (size_t r = 0; !args->recompute && r < args->rows; r += ROWS_TOGETHER) {
        const size_t left = args->rows - r;
        softmax_rows(args, r, left < ROWS_TOGETHER ? left : ROWS_TOGETHER);
    }
}

/* Σ p · dp, lane by lane. */
INLINE vec products_by_lanes(const float *p, const float *dp, size_t n)
{
    vec sum = splat(0.0f);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        sum = mul_add(load(p + j), load(dp + j), sum);
    return j < n ? mul_add(load_first(p + j, n - j), load_first(dp + j, n - j), sum) : sum;
}

/* p = scale · p · (dp + minus) */
INLINE void softmax_gradient(float *p, const float *dp, size_t n, float scale, float minus)
{
    for (size_t j = 0; j < n; j += LANES) {
        const bool some = n - j < LANES;
        const vec factor = mul(load_some(p + j, some, n - j), splat(scale));
        store_some(p + j, mul(factor, add(load_some(dp + j, some, n - j), splat(minus))), some,
                   n - j);
    }
}

static void softmax_backward(const fedge_softmax *args, const float *dp)
{
    for (size_t r = 0; r < args->rows; r += ROWS_TOGETHER) {
        const size_t left = args->rows - r, rows = left < ROWS_TOGETHER ? left : ROWS_TOGETHER;
        float *const p = args->s + r * args->stride, sums[ROWS_TOGETHER] = {0};
        const float *const d = dp + r * args->stride;
        vec v[ROWS_TOGETHER];
        for (size_t i = 0; i < ROWS_TOGETHER; i++) {
            const size_t at = (i < rows ? i : 0) * args->stride;
            v[i] = products_by_lanes(p + at, d + at, args->width);
        }
        add_sums(sums, ROWS_TOGETHER, v);
        for (size_t i = 0; i < rows; i++) {
            softmax_gradient(p + i * args->stride, d + i * args->stride, args->width, args->scale,
                             -sums[i]);
        }
    }
}

/* ---- the norm of rows of features ---- */

INLINE vec load_or(const float *p, size_t at, size_t n, float other)
{
    return !p ? splat(other) : load_some(p + at, n < LANES, n);
}

/* Σ d and Σ d² of each row, with d = x − center. Up to SUM_CHUNK values are summed in float. */
INLINE void norm_sums(const int rows, const float *x, size_t n, const float *center, double *sum,
                      double *squares)
{
    for (int r = 0; r < rows; r++)
        sum[r] = squares[r] = 0.0;
    for (size_t first = 0, end; first < n; first = end) {
        end = n - first < SUM_CHUNK ? n : first + SUM_CHUNK;
        float sums[ROWS_TOGETHER] = {0}, more[ROWS_TOGETHER] = {0};
        vec v[ROWS_TOGETHER], w[ROWS_TOGETHER];
        UNROLL
        for (int r = 0; r < ROWS_TOGETHER; r++)
            v[r] = w[r] = splat(0.0f);
        size_t i = first;
        for (; i + LANES <= end; i += LANES) {
            UNROLL
            for (int r = 0; r < rows; r++) {
                const vec d = add(load(x + (size_t)r * n + i), splat(-center[r]));
                v[r] = add(v[r], d);
                w[r] = mul_add(d, d, w[r]);
            }
        }
        add_sums(sums, ROWS_TOGETHER, v);
        add_sums(more, ROWS_TOGETHER, w);
        for (int r = 0; r < rows; r++) {
            sum[r] += (double)sums[r];
            squares[r] += (double)more[r];
            for (size_t k = i; k < end; k++) {
                const float d = x[(size_t)r * n + k] - center[r];
                sum[r] += (double)d;
                squares[r] += (double)(d * d);
            }
        }
    }
}

INLINE void norm_moments(const int rows, const fedge_norm_rows *args, const float *x, float *mean,
                         float *inverse)
{
    const double n = (double)args->width;
    float center[ROWS_TOGETHER] = {0};
    double sum[ROWS_TOGETHER], squares[ROWS_TOGETHER];
    for (int pass = 0; pass < 2; pass++) {
        norm_sums(rows, x, args->width, center, sum, squares);
        for (int r = 0; r < rows && pass == 0; r++)
            center[r] = (float)(sum[r] / n);
    }
    for (int r = 0; r < rows; r++) {
        const double residual = sum[r] / n; /* the rounding error of center */
        const double variance = squares[r] / n - residual * residual;
        mean[r] = (float)((double)center[r] + residual);
        inverse[r] = (float)(1.0 / sqrt((variance < 0.0 ? 0.0 : variance) + (double)args->eps));
    }
}

INLINE void norm_some_rows(const int rows, const fedge_norm_rows *args, size_t row, const float *x,
                           float *y)
{
    const size_t n = args->width;
    float mean[ROWS_TOGETHER] = {0}, inverse[ROWS_TOGETHER] = {0}, *moments = args->moments;
    x += row * n;
    y += row * n;
    if (!args->recompute)
        norm_moments(rows, args, x, mean, inverse);
    for (int r = 0; r < rows && moments; r++) {
        float *at = moments + 2 * (row + (size_t)r);
        mean[r] = at[0] = args->recompute ? at[0] : mean[r];
        inverse[r] = at[1] = args->recompute ? at[1] : inverse[r];
    }
    for (size_t i = 0; i < n; i += LANES) {
        const size_t left = n - i;
        const vec weight = load_or(args->weight, i, left, 1.0f);
        const vec shift = load_or(args->bias, i, left, 0.0f);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const size_t at = (size_t)r * n + i;
            const vec d = add(load_some(x + at, left < LANES, left), splat(-mean[r]));
            store_some(y + at, mul_add(d, mul(weight, splat(inverse[r])), shift), left < LANES,
                       left);
        }
    }
}

/* For the last rows, fewer than ROWS_TOGETHER. */
static SELDOM void norm_one_row(const fedge_norm_rows *args, size_t row, const float *x, float *y)
{
    norm_some_rows(1, args, row, x, y);
}

static void norm_rows(const fedge_norm_rows *args, const float *x, float *y)
{
    size_t r = 0;
    for (; r + ROWS_TOGETHER <= args->rows; r += ROWS_TOGETHER)
        norm_some_rows(ROWS_TOGETHER, args, r, x, y);
    for (; r < args->rows; r++)
        norm_one_row(args, r, x, y);
}

/* Sums over one row for its gradient: Σ g, Σ g · d and Σ d, the rounding error of the mean times n,
 * with g = dy · weight and d = x − mean. */
typedef struct norm_products {
    double g, g_d, d;
} norm_products;

/* Adds to the gradients of weight and bias, and sums each row. */
INLINE void norm_gradients(const int rows, const fedge_norm_rows *args, const float *moments,
                           const float *x, const float *dy, norm_products *sums)
{
    const size_t n = args->width;
    float *dw = args->weight_gradient, *db = args->bias_gradient;
    for (size_t first = 0, end; first < n; first = end) {
        end = n - first < SUM_CHUNK ? n : first + SUM_CHUNK;
        vec v[3][ROWS_TOGETHER];
        float totals[3][ROWS_TOGETHER] = {{0}};
        UNROLL
        for (int r = 0; r < ROWS_TOGETHER; r++)
            v[0][r] = v[1][r] = v[2][r] = splat(0.0f);
        for (size_t i = first; i < end; i += LANES) {
            const size_t left = n - i;
            const bool some = left < LANES;
            const vec weight = load_or(args->weight, i, left, 1.0f);
            vec to_weight = splat(0.0f), to_bias = splat(0.0f);
            UNROLL
            for (int r = 0; r < rows; r++) {
                const size_t at = (size_t)r * n + i;
                const vec slope = load_some(dy + at, some, left); /* 0 in unused lanes */
                const vec deviation = add(load_some(x + at, some, left), splat(-moments[2 * r]));
                const vec d = some ? keep_bits((1u << left) - 1, deviation) : deviation;
                const vec g = mul(slope, weight);
                v[0][r] = add(v[0][r], g);
                v[1][r] = mul_add(g, d, v[1][r]);
                v[2][r] = add(v[2][r], d);
                to_weight = mul_add(slope, mul(d, splat(moments[2 * r + 1])), to_weight);
                to_bias = add(to_bias, slope);
            }
            if (dw)
                store_some(dw + i, add(load_some(dw + i, some, left), to_weight), some, left);
            if (db)
                store_some(db + i, add(load_some(db + i, some, left), to_bias), some, left);
        }
        for (int k = 0; k < 3; k++)
            add_sums(totals[k], ROWS_TOGETHER, v[k]);
        for (int r = 0; r < rows; r++) {
            sums[r].g += (double)totals[0][r];
            sums[r].g_d += (double)totals[1][r];
            sums[r].d += (double)totals[2][r];
        }
    }
}

INLINE void norm_some_rows_backward(const int rows, const fedge_norm_rows *args, size_t row,
                                    const float *x, const float *dy, float *dx)
{
    const size_t n = args->width;
    const float *moments = args->moments + 2 * row;
    norm_products sums[ROWS_TOGETHER] = {{0}};
    x += row * n;
    dy += row * n;
    norm_gradients(rows, args, moments, x, dy, sums);
    if (!dx)
        return;
    dx += row * n;
    float d_factor[ROWS_TOGETHER], offset[ROWS_TOGETHER];
    for (int r = 0; r < rows; r++) {
        const double scale = (double)moments[2 * r + 1];
        const double tilt = -sums[r].g_d / (double)n * scale * scale * scale;
        d_factor[r] = (float)tilt;
        offset[r] = (float)(-(sums[r].g * scale + sums[r].d * tilt) / (double)n);
    }
    for (size_t i = 0; i < n; i += LANES) {
        const size_t left = n - i;
        const bool some = left < LANES;
        const vec weight = load_or(args->weight, i, left, 1.0f);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const size_t at = (size_t)r * n + i;
            const vec g =
                mul(load_some(dy + at, some, left), mul(weight, splat(moments[2 * r + 1])));
            const vec d = add(load_some(x + at, some, left), splat(-moments[2 * r]));
            store_some(dx + at, mul_add(d, splat(d_factor[r]), add(g, splat(offset[r]))), some,
                       left);
        }
    }
}

static SELDOM void norm_one_row_backward(const fedge_norm_rows *args, size_t row, const float *x,
                                         const float *dy, float *dx)
{
    norm_some_rows_backward(1, args, row, x, dy, dx);
}

static void norm_rows_backward(const fedge_norm_rows *args, const float *x, const float *dy,
                               float *dx)
{
    size_t r = 0;
    for (; r + ROWS_TOGETHER <= args->rows; r += ROWS_TOGETHER)
        norm_some_rows_backward(ROWS_TOGETHER, args, r, x, dy, dx);
    for (; r < args->rows; r++)
        norm_one_row_backward(args, r, x, dy, dx);
}

/* ---- panels: the product with a matrix that is read often ----
 *
 * Panels stay in the second-level cache and stream past a tile of rows of a, PANEL_DEPTH columns at
 * a time; PANEL_ROWS_AHEAD rows of b are prefetched. If rows of a are a multiple of PANEL_SET
 * apart, their cache lines collide in the first-level cache, so the tile's rows are copied close
 * together first, PANEL_COPIED columns at a time. Other rows are not copied: the copy would cost
 * more than it gains.
 */

#define PANEL_COLUMNS ((size_t)(2 * LANES))
#define PANEL_DEPTH ((size_t)1024)
#define PANEL_COPIED ((size_t)256)
#define PANEL_ROW (PANEL_COPIED + 16) /* floats between copied rows: spreads lines over sets */
#define PANEL_LINE ((size_t)16)       /* floats per prefetch */
#define PANEL_ROWS_AHEAD ((size_t)16)
#define PANEL_SET ((size_t)1024) /* floats between addresses that share a cache set */
#define PANEL_GROUPS 3 /* groups of a tile's rows; each has a pointer and is in one block */
#define PANEL_GROUP (GEMM_ROWS / PANEL_GROUPS)
static_assert(GEMM_ROWS % PANEL_GROUPS == 0 && LANES % PANEL_GROUP == 0, "groups of equal size");

typedef struct panel_tile {
    const float *a[PANEL_GROUPS]; /* the first row of each group */
    size_t a_row, a_column;
    const float *b;
    size_t depth;
    size_t ahead;      /* floats from b to what is prefetched; 0: nothing follows */
    const float *from; /* the products are added to it; rows from_row apart */
    size_t from_row;
    float *c;
    size_t c_row, columns; /* 1 to PANEL_COLUMNS */
} panel_tile;

INLINE void panel_rows(const int rows, const panel_tile *args)
{
    vec acc[GEMM_ROWS][2];
    UNROLL
    for (int t = 0; t < rows; t++) {
        acc[t][0] = splat(0.0f);
        acc[t][1] = splat(0.0f);
    }
    const size_t row = args->a_row;
    const float *a0 = args->a[0], *a1 = args->a[1], *a2 = args->a[2], *b = args->b;
    UNROLL
    for (int t = 0; t < rows; t++) { /* c is used last */
        __builtin_prefetch(args->c + (size_t)t * args->c_row, 1);
        __builtin_prefetch(args->c + (size_t)t * args->c_row + args->columns - 1, 1);
    }
    const size_t ahead = args->ahead;
    for (size_t k = 0; k < args->depth; k++) {
        UNROLL
        for (size_t j = 0; j < PANEL_COLUMNS; j += PANEL_LINE)
            __builtin_prefetch(b + ahead + j);
        const vec b0 = load(b), b1 = load(b + LANES);
        UNROLL
        for (int t = 0; t < rows; t++) {
            const float *group = t < PANEL_GROUP ? a0 : t < 2 * PANEL_GROUP ? a1 : a2;
            const vec a = splat(group[(size_t)(t % PANEL_GROUP) * row]);
            acc[t][0] = mul_add(a, b0, acc[t][0]);
            acc[t][1] = mul_add(a, b1, acc[t][1]);
        }
        a0 += args->a_column;
        a1 += args->a_column;
        a2 += args->a_column;
        b += PANEL_COLUMNS;
    }
    const size_t first = args->columns < LANES ? args->columns : LANES;
    const size_t second = args->columns - first;
    UNROLL
    for (int t = 0; t < rows; t++) {
        const float *from = args->from + (size_t)t * args->from_row;
        float *c = args->c + (size_t)t * args->c_row;
        if (second == LANES) {
            store(c, add(load(from), acc[t][0]));
            store(c + LANES, add(load(from + LANES), acc[t][1]));
            continue;
        }
        if (first == LANES)
            store(c, add(load(from), acc[t][0]));
        else
            store_first(c, add(load_first(from, first), acc[t][0]), first);
        if (second > 0)
            store_first(c + LANES, add(load_first(from + LANES, second), acc[t][1]), second);
    }
}

/* clang-format off */
static void panel_rows_1(const panel_tile *args) { panel_rows(1, args); }
static void panel_rows_2(const panel_tile *args) { panel_rows(2, args); }
static void panel_rows_3(const panel_tile *args) { panel_rows(3, args); }
static void panel_rows_4(const panel_tile *args) { panel_rows(4, args); }
static void panel_rows_5(const panel_tile *args) { panel_rows(5, args); }
static void panel_rows_6(const panel_tile *args) { panel_rows(6, args); }
#if GEMM_ROWS > 6
static void panel_rows_7(const panel_tile *args) { panel_rows(7, args); }
static void panel_rows_8(const panel_tile *args) { panel_rows(8, args); }
static void panel_rows_9(const panel_tile *args) { panel_rows(9, args); }
static void panel_rows_10(const panel_tile *args) { panel_rows(10, args); }
static void panel_rows_11(const panel_tile *args) { panel_rows(11, args); }
static void panel_rows_12(const panel_tile *args) { panel_rows(12, args); }
#endif
/* clang-format on */

static void (*const panel_functions[GEMM_ROWS])(const panel_tile *) = {
    panel_rows_1, panel_rows_2, panel_rows_3, panel_rows_4,  panel_rows_5,  panel_rows_6,
#if GEMM_ROWS > 6
    panel_rows_7, panel_rows_8, panel_rows_9, panel_rows_10, panel_rows_11, panel_rows_12,
#endif
};

/* Points the tile to its rows of a, from row [first] and column [k] on, copied to [copy] unless
 * that is NULL. */
static void panel_take(const fedge_panels *args, size_t first, size_t rows, size_t k,
                       panel_tile *tile, float *copy)
{
    const bool blocks = args->a_block > 0;
    const float *a = args->a + (blocks ? k * LANES : first * args->a_row + k);
    tile->a_row = blocks ? 1 : args->a_row;
    tile->a_column = blocks ? LANES : 1;
    if (copy) {
        copy_rows(rows, tile->depth, a, args->a_row, 0.0f, copy, PANEL_ROW);
        a = copy;
        tile->a_row = PANEL_ROW;
    }
    for (size_t g = 0; g < PANEL_GROUPS; g++) {
        const size_t i = first + g * PANEL_GROUP;
        tile->a[g] =
            a + (blocks ? i / LANES * args->a_block + i % LANES : g * PANEL_GROUP * tile->a_row);
    }
}

/* Multiplies the tile's rows by all panels of [args]: rows of c from [first], columns of a from
 * [k]. */
static void panel_multiply(const fedge_panels *args, size_t first, size_t rows, size_t k,
                           panel_tile *tile)
{
    const bool started = k == 0 && args->start;
    tile->c_row = args->c_row;
    tile->from_row = started ? 0 : args->c_row;
    for (size_t j = 0; j < args->n; j += PANEL_COLUMNS) {
        const bool ahead = j + PANEL_COLUMNS < args->n && args->k >= PANEL_ROWS_AHEAD;
        tile->b = args->b + j * args->k + k * PANEL_COLUMNS;
        tile->ahead = ahead ? PANEL_ROWS_AHEAD * PANEL_COLUMNS : 0;
        tile->c = args->c + first * args->c_row + j;
        tile->from = started ? args->start + j : tile->c;
        tile->columns = args->n - j < PANEL_COLUMNS ? args->n - j : PANEL_COLUMNS;
        panel_functions[rows - 1](tile);
    }
}

static void panels(const fedge_panels *args)
{
    _Alignas(64) float copy[GEMM_ROWS * PANEL_ROW];
    const bool blocks = args->a_block > 0, copies = !blocks && args->a_row % PANEL_SET == 0;
    const size_t unit = blocks ? PANEL_GROUP : 1, units = (args->m + unit - 1) / unit;
    const size_t tiles = (args->m + GEMM_ROWS - 1) / GEMM_ROWS;
    const size_t max_depth = copies ? PANEL_COPIED : PANEL_DEPTH;
    for (size_t k = 0; k < args->k; k += max_depth) {
        panel_tile tile = {.depth = args->k - k < max_depth ? args->k - k : max_depth};
        size_t first = 0;
        for (size_t i = 0; i < tiles; i++) {
            const size_t even =
                (units + tiles - 1 - i) / tiles * unit; /* the heights add up to m */
            const size_t rows = even < args->m - first ? even : args->m - first;
            panel_take(args, first, rows, k, &tile, copies ? copy : NULL);
            for (const fedge_panels *to = args; to != NULL; to = to->next)
                panel_multiply(to, first, rows, k, &tile);
            first += rows;
        }
    }
}

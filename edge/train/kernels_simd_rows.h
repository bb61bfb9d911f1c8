/* Kernels over rows: small products, the softmax of attention, the norm of features; the fifth part
 * of kernels_simd.h.
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
    bool add;           /* to what c holds */
} product_tile;

INLINE void product_rows(const int rows, const int vectors, const bool partial,
                         const product_tile *args)
{
    vec acc[GEMM_ROWS][2];
    UNROLL
    for (int t = 0; t < rows; t++) {
        acc[t][0] = splat(0.0f);
        acc[t][1] = splat(0.0f);
    }
    const size_t row = args->a_row, last = args->last;
    const float *a0 = args->a, *a4 = a0 + 4 * row, *a8 = a0 + 8 * row, *b = args->b;
    for (size_t k = 0; k < args->depth; k++) {
        vec right[2];
        UNROLL
        for (int v = 0; v < vectors; v++) {
            right[v] = load_some(b + v * LANES, partial && v == vectors - 1, last);
        }
        UNROLL
        for (int t = 0; t < rows; t++) {
            const vec a = splat(((t < 4) ? a0 : (t < 8) ? a4 : a8)[(size_t)(t % 4) * row]);
            UNROLL
            for (int v = 0; v < vectors; v++) {
                acc[t][v] = mul_add(a, right[v], acc[t][v]);
            }
        }
        a0 += args->a_column;
        a4 += args->a_column;
        a8 += args->a_column;
        b += args->b_row;
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

#define PRODUCT_FUNCTION(rows)                                                                     \
    static void product_##rows##_1(const product_tile *args)                                       \
    {                                                                                              \
        product_rows(rows, 1, false, args);                                                        \
    }                                                                                              \
    static void product_##rows##_1_some(const product_tile *args)                                  \
    {                                                                                              \
        product_rows(rows, 1, true, args);                                                         \
    }                                                                                              \
    static void product_##rows##_2(const product_tile *args)                                       \
    {                                                                                              \
        product_rows(rows, 2, false, args);                                                        \
    }                                                                                              \
    static void product_##rows##_2_some(const product_tile *args)                                  \
    {                                                                                              \
        product_rows(rows, 2, true, args);                                                         \
    }
#define PRODUCT_ENTRY(rows)                                                                        \
    {                                                                                              \
        rows,                                                                                      \
        {                                                                                          \
            {product_##rows##_1, product_##rows##_1_some},                                         \
                {product_##rows##_2, product_##rows##_2_some},                                     \
        }                                                                                          \
    }

PRODUCT_FUNCTION(1)
PRODUCT_FUNCTION(2)
PRODUCT_FUNCTION(4)
#if GEMM_ROWS > 8
PRODUCT_FUNCTION(8)
PRODUCT_FUNCTION(12)
#else
PRODUCT_FUNCTION(6)
#endif

/* The tallest tile first; by vectors and whether the last is partial. */
static const struct {
    size_t rows;
    void (*run[2][2])(const product_tile *);
} product_tiles[] = {
#if GEMM_ROWS > 8
    PRODUCT_ENTRY(12), PRODUCT_ENTRY(8),
#else
    PRODUCT_ENTRY(6),
#endif
    PRODUCT_ENTRY(4),  PRODUCT_ENTRY(2), PRODUCT_ENTRY(1),
};

static void small_gemm(const fedge_gemm *args)
{
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
                product_tiles[i].run[vectors - 1][tile.last < LANES](&tile);
                tile.a += rows * tile.a_row;
                tile.c += rows * tile.c_row;
            }
        }
    }
}

/* ---- softmax ---- */

INLINE float largest_of(const float *s, size_t n)
{
    float lanes[LANES], most = s[0];
    if (n < LANES) {
        for (size_t j = 1; j < n; j++) {
            most = s[j] > most ? s[j] : most;
        }
        return most;
    }
    vec best = load(s + n - LANES); /* the tail, which may overlap the rest */
    for (size_t j = 0; j + LANES <= n; j += LANES) {
        best = max_propagating(best, load(s + j));
    }
    store(lanes, best);
    for (size_t half = LANES / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++) {
            lanes[l] = lanes[l] > lanes[l + half] ? lanes[l] : lanes[l + half];
        }
    }
    return lanes[0];
}

INLINE float sum_of_lanes(vec v)
{
    const vec four[4] = {v, v, v, v};
    float sum = 0.0f;
    add_sums(&sum, 1, four);
    return sum;
}

/* s = e^(scale · s + shift) over [n] values; their sum. */
INLINE float exponentials(float *s, size_t n, float scale, float shift)
{
    vec sum = splat(0.0f);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        const vec e = exp_of(mul_add(load(s + j), splat(scale), splat(shift)));
        store(s + j, e);
        sum = add(sum, e);
    }
    if (j < n) {
        store_first(s + j, exp_of(mul_add(load_first(s + j, n - j), splat(scale), splat(shift))),
                    n - j);
        sum = add(sum, load_first(s + j, n - j));
    }
    return sum_of_lanes(sum);
}

/* s = s · factor over the first [n] values, 0 from there to [width]. */
INLINE void scale_row(float *s, size_t n, size_t width, float factor)
{
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        store(s + j, mul(load(s + j), splat(factor)));
    }
    for (; j < width; j += LANES) {
        const size_t left = width - j;
        const vec some = j < n ? mul(load_first(s + j, n - j), splat(factor)) : splat(0.0f);
        store_some(s + j, some, left < LANES, left);
    }
}

static void softmax(const fedge_softmax *args)
{
    for (size_t r = 0; r < args->rows; r++) {
        float *s = args->s + r * args->stride, *kept = args->kept + 2 * r;
        const size_t n = args->seen == 0 ? args->width : args->seen + r;
        if (!args->again) {
            kept[0] = -args->scale * largest_of(s, n);
        }
        const float sum = exponentials(s, n, args->scale, kept[0]);
        if (!args->again) {
            kept[1] = 1.0f / sum;
        }
        scale_row(s, n, args->width, kept[1]);
    }
}

static void softmax_backward(const fedge_softmax *args, const float *dp)
{
    for (size_t r = 0; r < args->rows; r++, dp += args->stride) {
        float *p = args->s + r * args->stride;
        vec sum = splat(0.0f);
        size_t j = 0;
        for (; j + LANES <= args->width; j += LANES) {
            sum = mul_add(load(p + j), load(dp + j), sum);
        }
        const size_t left = args->width - j;
        if (left > 0) {
            sum = mul_add(load_first(p + j, left), load_first(dp + j, left), sum);
        }
        const vec minus = splat(-sum_of_lanes(sum)), scale = splat(args->scale);
        for (j = 0; j + LANES <= args->width; j += LANES) {
            store(p + j, mul(mul(load(p + j), scale), add(load(dp + j), minus)));
        }
        if (left > 0) {
            store_first(
                p + j,
                mul(mul(load_first(p + j, left), scale), add(load_first(dp + j, left), minus)),
                left);
        }
    }
}

/* ---- the norm of rows of features ---- */

INLINE vec load_or(const float *p, size_t at, size_t n, float other)
{
    return p == NULL ? splat(other) : load_some(p + at, n < LANES, n);
}

/* Sum of (x − center), or of its square, over [n] values, in double. */
INLINE double sum_around(const float *x, size_t n, float center, bool square)
{
    const vec minus = splat(-center);
    wide sum = wide_zero();
    double rest = 0.0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec d = add(load(x + i), minus);
        sum = wide_add(sum, square ? mul(d, d) : d);
    }
    for (; i < n; i++) {
        const float d = x[i] - center;
        rest += (double)(square ? d * d : d);
    }
    return wide_sum(sum) + rest;
}

static void norm_rows(const fedge_norm_rows *args, const float *x, float *y)
{
    const size_t n = args->width;
    for (size_t r = 0; r < args->rows; r++, x += n, y += n) {
        float mean, inverse;
        if (args->again) {
            mean = args->moments[2 * r];
            inverse = args->moments[2 * r + 1];
        } else {
            mean = (float)(sum_around(x, n, 0.0f, false) / (double)n);
            const double variance = sum_around(x, n, mean, true) / (double)n;
            inverse = (float)(1.0 / sqrt(variance + (double)args->eps));
        }
        for (size_t i = 0; i < n; i += LANES) {
            const size_t left = n - i;
            const vec scale = mul(load_or(args->weight, i, left, 1.0f), splat(inverse));
            const vec shift = load_or(args->bias, i, left, 0.0f);
            const vec d = add(load_some(x + i, left < LANES, left), splat(-mean));
            store_some(y + i, mul_add(d, scale, shift), left < LANES, left);
        }
        if (args->moments != NULL) {
            args->moments[2 * r] = mean;
            args->moments[2 * r + 1] = inverse;
        }
    }
}

static void norm_rows_backward(const fedge_norm_rows *args, const float *x, const float *dy,
                               float *dx)
{
    const size_t n = args->width;
    float *dw = args->weight_gradient, *db = args->bias_gradient;
    for (size_t r = 0; r < args->rows; r++, x += n, dy += n) {
        const float mean = args->moments[2 * r], inverse = args->moments[2 * r + 1];
        wide sum = wide_zero(), product = wide_zero();
        wide rest = wide_zero();
        for (size_t i = 0; i < n; i += LANES) {
            const size_t left = n - i;
            const bool some = left < LANES;
            const vec slope = load_some(dy + i, some, left); /* 0 behind the last */
            const vec d = add(load_some(x + i, some, left), splat(-mean));
            const vec g = mul(slope, load_or(args->weight, i, left, 1.0f));
            sum = wide_add(sum, g);
            rest = wide_add(rest, d);
            product = wide_add(product, mul(g, d));
            if (dw != NULL) {
                store_some(dw + i,
                           mul_add(slope, mul(d, splat(inverse)), load_some(dw + i, some, left)),
                           some, left);
            }
            if (db != NULL) {
                store_some(db + i, add(slope, load_some(db + i, some, left)), some, left);
            }
        }
        if (dx == NULL) {
            continue;
        }
        const double scale = (double)inverse, behind = (double)((LANES - n % LANES) % LANES);
        const double tilt = -wide_sum(product) / (double)n * scale * scale * scale;
        /* What rounding took from the mean, n times; lanes behind the last hold −mean. */
        const double off = wide_sum(rest) + behind * (double)mean;
        const vec slant = splat((float)tilt);
        const vec minus = splat((float)(-(wide_sum(sum) * scale + off * tilt) / (double)n));
        for (size_t i = 0; i < n; i += LANES) {
            const size_t left = n - i;
            const bool some = left < LANES;
            const vec g = mul(load_some(dy + i, some, left),
                              mul(load_or(args->weight, i, left, 1.0f), splat(inverse)));
            const vec d = add(load_some(x + i, some, left), splat(-mean));
            store_some(dx + i, mul_add(d, slant, add(g, minus)), some, left);
        }
        dx += n;
    }
}

/* Matrix products whose vectors of b and c begin at offsets from tables (a convolution's patches,
 * and the pixels under its weights), then the general product; included by simd.h.
 *
 * b is read in place, three vectors at a time: with 4 or 8 rows of a they fill the registers. These
 * heights suit channels, which mostly are multiples of four.
 */
#define STARTS_ROWS (GEMM_ROWS > 8 ? 8 : 4)
#define STARTS_DEPTH ((size_t)256)

typedef struct starts_tile {
    const float *a;
    size_t a_row;
    const size_t *a_at, *b_at; /* offsets of column k of a and row k of b: (depth) each */
    size_t depth;
    const float *b[3]; /* the vectors of b's first row */
    float *c[3];
    size_t c_row;
    const float *start; /* (3 · LANES): the sum's first value per column */
    bool add;           /* c += instead of c = */
} starts_tile;

INLINE void starts_rows(const int rows, const int vectors, const starts_tile *args)
{
    vec acc[STARTS_ROWS][3];
    UNROLL
    for (int t = 0; t < rows; t++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            acc[t][v] = load(args->start + v * LANES);
    }
    const size_t row = args->a_row, c_row = args->c_row;
    const size_t *a_at = args->a_at, *b_at = args->b_at, *end = a_at + args->depth;
    const float *const b = args->b[0];
    const ptrdiff_t next = args->b[1] - b, last = args->b[2] - b;
    for (; a_at < end; a_at++, b_at++) {
        const float *from = b + *b_at;
        const float *a0 = args->a + *a_at, *a4 = a0 + 4 * row;
        vec column[3];
        UNROLL
        for (int v = 0; v < vectors; v++)
            column[v] = load(v == 0 ? from : v == 1 ? from + next : from + last);
        UNROLL
        for (int t = 0; t < rows; t++) {
            const vec a = splat((t < 4 ? a0 : a4)[(size_t)(t % 4) * row]);
            UNROLL
            for (int v = 0; v < vectors; v++)
                acc[t][v] = mul_add(a, column[v], acc[t][v]);
        }
    }
    if (args->add) {
        UNROLL
        for (int t = 0; t < rows; t++) {
            UNROLL
            for (int v = 0; v < vectors; v++)
                acc[t][v] = add(load(args->c[v] + (size_t)t * c_row), acc[t][v]);
        }
    }
    UNROLL
    for (int t = 0; t < rows; t++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            store(args->c[v] + (size_t)t * c_row, acc[t][v]);
    }
}

#define STARTS_FUNCTION(rows)                                                                      \
    static void starts_##rows##_1(const starts_tile *args)                                         \
    {                                                                                              \
        starts_rows(rows, 1, args);                                                                \
    }                                                                                              \
    static void starts_##rows##_2(const starts_tile *args)                                         \
    {                                                                                              \
        starts_rows(rows, 2, args);                                                                \
    }                                                                                              \
    static void starts_##rows##_3(const starts_tile *args)                                         \
    {                                                                                              \
        starts_rows(rows, 3, args);                                                                \
    }
#define STARTS_HEIGHT(rows)                                                                        \
    {                                                                                              \
        rows,                                                                                      \
        {                                                                                          \
            starts_##rows##_1, starts_##rows##_2, starts_##rows##_3                                \
        }                                                                                          \
    }

STARTS_FUNCTION(1)
STARTS_FUNCTION(2)
STARTS_FUNCTION(4)
#if GEMM_ROWS > 8
STARTS_FUNCTION(8)
#endif

/* The tallest tile first. */
static const struct {
    size_t rows;
    void (*run[3])(const starts_tile *); /* functions for one, two, three vectors */
} starts_heights[] = {
#if GEMM_ROWS > 8
    STARTS_HEIGHT(8),
#endif
    STARTS_HEIGHT(4),
    STARTS_HEIGHT(2),
    STARTS_HEIGHT(1),
};

/* All rows of a times [width] vectors. */
static void starts_panel(starts_tile tile, size_t width, size_t m)
{
    for (size_t i = 0; m > 0; i++) {
        for (const size_t rows = starts_heights[i].rows; m >= rows; m -= rows) {
            starts_heights[i].run[width - 1](&tile);
            tile.a += rows * tile.a_row;
            for (size_t v = 0; v < width; v++)
                tile.c[v] += rows * tile.c_row;
        }
    }
}

static __attribute__((noinline)) void gemm_starts(const fedge_gemm *args)
{
    const uint32_t *from = args->starts, *to = !args->c_starts ? from : args->c_starts;
    const size_t vectors = args->n / LANES;
    size_t a_at[STARTS_DEPTH], b_at[STARTS_DEPTH];
    float start[3 * LANES] = {0};
    const size_t parts = (args->k + STARTS_DEPTH - 1) / STARTS_DEPTH;
    for (size_t i = 0, k = 0, depth; i < parts; i++, k += depth) {
        depth = (args->k - k + parts - i - 1) / (parts - i); /* the depths add up to k */
        for (size_t t = 0; t < depth; t++) {
            a_at[t] = fedge_gemm_a_column(args, k + t);
            b_at[t] = fedge_gemm_b_row(args, k + t);
        }
        for (size_t j = 0, left, width; j < vectors; j += width) {
            left = vectors - j;
            width = left == 2 || left == 4 ? 2 : left == 1 ? 1 : 3;
            starts_tile tile = {.a = args->a,
                                .a_row = args->a_row,
                                .a_at = a_at,
                                .b_at = b_at,
                                .depth = depth,
                                .c_row = args->c_row,
                                .start = start,
                                .add = args->accumulate || k > 0};
            for (size_t v = 0; v < 3; v++) {
                const size_t at = v < width ? j + v : j;
                tile.b[v] = args->b + from[at];
                tile.c[v] = args->c + to[at];
            }
            if (args->start) {
                memset(start, 0, sizeof(start));
                memcpy(start, args->start + j * LANES,
                       (k == 0 ? width * LANES : 0) * sizeof(*start));
            }
            starts_panel(tile, width, args->m);
        }
    }
}

/* ---- the general matrix product ----
 *
 * A panel of GEMM_COLUMNS columns and GEMM_DEPTH rows of b is read in place, or copied if it is
 * transposed, narrow or used often, and stays in the first-level cache while tiles of rows of a
 * pass over it. Elements of a are broadcast, so a's layout costs nothing. If the sum is long and
 * contiguous in both operands, lanes run along the sum and nothing is copied.
 */

#define GEMM_COLUMNS ((size_t)(2 * LANES))
#define GEMM_DEPTH ((size_t)256)
#define GEMM_COPIES ((size_t)(4 * GEMM_ROWS)) /* least rows of a for which copying b pays */
#define GEMM_LONG ((size_t)(6 * LANES))       /* shortest sum along which lanes may run */

typedef struct gemm_tile {
    const float *a;
    size_t a_row, a_column;
    const float *b;
    size_t b_next;             /* floats from the first vector of a row of b to the second */
    const size_t *a_at, *b_at; /* offsets of column k of a and row k of b: (depth) each */
    size_t depth;
    float *c;
    size_t c_row, c_next;
    size_t columns;     /* 1 to GEMM_COLUMNS */
    bool add;           /* c += instead of c = */
    const float *start; /* (GEMM_COLUMNS): the sum's first value per column */
} gemm_tile;

/* How a tile reads its operands: both at offsets from tables; or b packed and a by contiguous rows,
 * or by contiguous columns. */
enum { GEMM_TABLES, GEMM_BY_ROWS, GEMM_BY_COLUMNS, GEMM_KINDS };

/* acc += one column of a, whose elements are [row] floats apart, times one row of b. */
INLINE void gemm_step(const int rows, const float *a, size_t row, vec b0, vec b1,
                      vec acc[GEMM_ROWS][2])
{
    UNROLL
    for (int t = 0; t < rows; t++) {
        const vec factor = splat(a[(size_t)t * row]);
        acc[t][0] = mul_add(factor, b0, acc[t][0]);
        acc[t][1] = mul_add(factor, b1, acc[t][1]);
    }
}

INLINE void gemm_sum_tables(const int rows, const gemm_tile *args, vec acc[GEMM_ROWS][2])
{
    const size_t row = args->a_row, next = args->b_next;
    const size_t *a_at = args->a_at, *b_at = args->b_at, *end = a_at + args->depth;
    for (; a_at < end; a_at++, b_at++) {
        const float *b = args->b + *b_at, *a0 = args->a + *a_at;
        const float *const a[3] = {a0, a0 + 4 * row, a0 + 8 * row};
        const vec b0 = load(b), b1 = load(b + next);
        UNROLL
        for (int t = 0; t < rows; t++) {
            const vec factor = splat(a[t / 4][(size_t)(t % 4) * row]);
            acc[t][0] = mul_add(factor, b0, acc[t][0]);
            acc[t][1] = mul_add(factor, b1, acc[t][1]);
        }
    }
}

/* Unrolled: address additions would take execution units from the products. */
INLINE void gemm_sum_rows(const int rows, const gemm_tile *args, vec acc[GEMM_ROWS][2])
{
    const size_t row = args->a_row;
    const float *const first = args->a + args->a_at[0], *a[4], *b = args->b;
    UNROLL
    for (size_t i = 0; i < 4; i++)
        a[i] = first + (3 * i < (size_t)rows ? 3 * i * row : 0);
    size_t k = 0;
    for (; k + 4 <= args->depth; k += 4) {
        UNROLL
        for (size_t u = 0; u < 4; u++) {
            const vec b0 = load(b + u * GEMM_COLUMNS), b1 = load(b + u * GEMM_COLUMNS + LANES);
            UNROLL
            for (int t = 0; t < rows; t++) {
                const vec factor = splat(a[t / 3][(size_t)(t % 3) * row + u]);
                acc[t][0] = mul_add(factor, b0, acc[t][0]);
                acc[t][1] = mul_add(factor, b1, acc[t][1]);
            }
        }
        UNROLL
        for (size_t i = 0; i < 4; i++)
            a[i] += 4;
        b += 4 * GEMM_COLUMNS;
    }
    for (; k < args->depth; k++, b += GEMM_COLUMNS)
        gemm_step(rows, first + k, row, load(b), load(b + LANES), acc);
}

INLINE void gemm_sum_columns(const int rows, const gemm_tile *args, vec acc[GEMM_ROWS][2])
{
    const float *a = args->a + args->a_at[0], *b = args->b;
    const size_t column = args->a_column;
    size_t k = 0;
    for (; k + 2 <= args->depth; k += 2) {
        gemm_step(rows, a, 1, load(b), load(b + LANES), acc);
        gemm_step(rows, a + column, 1, load(b + GEMM_COLUMNS), load(b + GEMM_COLUMNS + LANES), acc);
        a += 2 * column;
        b += 2 * GEMM_COLUMNS;
    }
    if (k < args->depth)
        gemm_step(rows, a, 1, load(b), load(b + LANES), acc);
}

INLINE void gemm_store(float *c, vec sum, size_t n, bool add_to)
{
    if (n == LANES)
        store(c, add_to ? add(load(c), sum) : sum);
    else if (n > 0)
        store_first(c, add_to ? add(load_first(c, n), sum) : sum, n);
}

INLINE void gemm_rows(const int kind, const int rows, const gemm_tile *args)
{
    vec acc[GEMM_ROWS][2];
    UNROLL
    for (int t = 0; t < rows; t++) {
        acc[t][0] = load(args->start);
        acc[t][1] = load(args->start + LANES);
    }
    if (kind == GEMM_BY_ROWS)
        gemm_sum_rows(rows, args, acc);
    else if (kind == GEMM_BY_COLUMNS)
        gemm_sum_columns(rows, args, acc);
    else
        gemm_sum_tables(rows, args, acc);
    float *c = args->c;
    const size_t c_row = args->c_row, c_next = args->c_next;
    if (args->columns == GEMM_COLUMNS) {
        if (args->add) {
            UNROLL
            for (int t = 0; t < rows; t++) {
                acc[t][0] = add(load(c + (size_t)t * c_row), acc[t][0]);
                acc[t][1] = add(load(c + (size_t)t * c_row + c_next), acc[t][1]);
            }
        }
        UNROLL
        for (int t = 0; t < rows; t++, c += c_row) {
            store(c, acc[t][0]);
            store(c + c_next, acc[t][1]);
        }
        return;
    }
    const size_t first = args->columns < LANES ? args->columns : LANES;
    UNROLL
    for (int t = 0; t < rows; t++, c += c_row) {
        gemm_store(c, acc[t][0], first, args->add);
        gemm_store(c + c_next, acc[t][1], args->columns - first, args->add);
    }
}

#define GEMM_FUNCTION(name, kind, rows)                                                            \
    static void name(const gemm_tile *args)                                                        \
    {                                                                                              \
        gemm_rows(kind, rows, args);                                                               \
    }
#define GEMM_SHORT(rows) GEMM_FUNCTION(gemm_rows_##rows, GEMM_TABLES, rows)
#define GEMM_TALL(rows)                                                                            \
    GEMM_SHORT(rows)                                                                               \
    GEMM_FUNCTION(gemm_rows_##rows##_by_rows, GEMM_BY_ROWS, rows)                                  \
    GEMM_FUNCTION(gemm_rows_##rows##_by_columns, GEMM_BY_COLUMNS, rows)
#define GEMM_ENTRY(rows, by_rows, by_columns)                                                      \
    {                                                                                              \
        rows,                                                                                      \
        {                                                                                          \
            gemm_rows_##rows, by_rows, by_columns                                                  \
        }                                                                                          \
    }
#define GEMM_SHORT_ENTRY(rows) GEMM_ENTRY(rows, gemm_rows_##rows, gemm_rows_##rows)
#define GEMM_TALL_ENTRY(rows)                                                                      \
    GEMM_ENTRY(rows, gemm_rows_##rows##_by_rows, gemm_rows_##rows##_by_columns)

GEMM_SHORT(1)
GEMM_SHORT(2)
GEMM_SHORT(4)
#if GEMM_ROWS > 8
GEMM_SHORT(6)
GEMM_SHORT(8)
GEMM_TALL(12)
#else
GEMM_TALL(6)
#endif

/* The tallest tile first. Only it is common enough to have a function for each kind; tables serve
 * all kinds. */
static const struct {
    size_t rows;
    void (*run[GEMM_KINDS])(const gemm_tile *);
} gemm_tiles[] = {
#if GEMM_ROWS > 8
    GEMM_TALL_ENTRY(12), GEMM_SHORT_ENTRY(8), GEMM_SHORT_ENTRY(6),
#else
    GEMM_TALL_ENTRY(6),
#endif
    GEMM_SHORT_ENTRY(4), GEMM_SHORT_ENTRY(2), GEMM_SHORT_ENTRY(1),
};

/* All rows of a times one panel. */
static void gemm_panel(gemm_tile tile, size_t m, int kind)
{
    for (size_t i = 0; m > 0; i++) {
        for (const size_t rows = gemm_tiles[i].rows; m >= rows; m -= rows) {
            gemm_tiles[i].run[kind](&tile);
            tile.a += rows * tile.a_row;
            tile.c += rows * tile.c_row;
        }
    }
}

/* Packs rows k to k + depth of b's panel at column j as (depth, GEMM_COLUMNS), zeros after the
 * last column. */
static __attribute__((noinline)) void gemm_pack(const fedge_gemm *args, const gemm_tile *tile,
                                                size_t k, size_t j, float *pack)
{
    const bool straight = args->b_column == 1;
    for (size_t i = 0; straight && i < tile->depth; i++, pack += GEMM_COLUMNS) {
        const float *from = tile->b + tile->b_at[i];
        const size_t first = tile->columns < LANES ? tile->columns : LANES;
        const size_t second = tile->columns - first;
        store(pack, first == LANES ? load(from) : load_first(from, first));
        store(pack + LANES, second == LANES ? load(from + LANES)
                            : second > 0    ? load_first(from + LANES, second)
                                            : splat(0.0f));
    }
    size_t t = 0;
    for (; !straight && args->b_row == 1 && !args->b_offsets && t + LANES <= tile->columns;
         t += LANES) {
        transpose_rows(tile->depth, args->b + (j + t) * args->b_column + k, args->b_column,
                       pack + t, GEMM_COLUMNS);
    }
    for (; !straight && t < GEMM_COLUMNS; t++) {
        const size_t column = t < tile->columns ? fedge_gemm_b_column(args, j + t) : 0;
        const float *from = args->b + column + k * args->b_row;
        for (size_t i = 0; i < tile->depth; i++)
            pack[i * GEMM_COLUMNS + t] = t < tile->columns ? from[i * args->b_row] : 0.0f;
    }
}

static __attribute__((noinline)) void gemm_offsets(const fedge_gemm *args, size_t k, size_t depth,
                                                   size_t *a_at, size_t *b_at)
{
    for (size_t i = 0; i < depth; i++) {
        a_at[i] = fedge_gemm_a_column(args, k + i);
        b_at[i] = fedge_gemm_b_row(args, k + i);
    }
}

/* Sums that are contiguous in both operands, in tiles of dot products. */
static __attribute__((noinline)) void gemm_dots(const fedge_gemm *args)
{
    const size_t tiles = (args->m + DOT_ROWS - 1) / DOT_ROWS;
    for (size_t k = 0; k < args->k; k += CHUNK) {
        for (size_t j = 0, outputs; j < args->n; j += outputs) {
            outputs = dot_width(args->n - j);
            dot_args tile = {.x = args->a + k,
                             .x_stride = args->a_row,
                             .n = args->k - k < CHUNK ? args->k - k : CHUNK,
                             .y = args->c + j,
                             .y_stride = args->c_row};
            for (size_t o = 0; o < outputs; o++)
                tile.w[o] = args->b + k + fedge_gemm_b_column(args, j + o);
            for (size_t i = 0; i < tiles; i++) {
                const size_t rows = (args->m + tiles - 1 - i) / tiles;
                dot_functions[rows - 1][outputs / 4](&tile);
                tile.x += rows * args->a_row;
                tile.y += rows * args->c_row;
            }
        }
    }
}

static void gemm(const fedge_gemm *args, float *pack)
{
    if (args->starts) {
        gemm_starts(args);
        return;
    }
    const bool straight = args->b_column == 1;
    const bool dots = !straight && args->b_row == 1 && args->a_column == 1 && !args->a_offsets &&
                      args->k >= GEMM_LONG && (args->m < GEMM_COPIES || args->b_offsets);
    for (size_t i = 0; (args->k == 0 || dots) && !args->accumulate && i < args->m; i++) {
        float *c = args->c + i * args->c_row;
        if (args->start)
            memcpy(c, args->start, args->n * sizeof(*c));
        else
            memset(c, 0, args->n * sizeof(*c));
    }
    if (dots) {
        gemm_dots(args);
        return;
    }
    const bool copies = !straight || (args->m >= GEMM_COPIES && !args->b_offsets);
    const int kind = !copies || args->a_offsets ? GEMM_TABLES
                     : args->a_column == 1      ? GEMM_BY_ROWS
                     : args->a_row == 1         ? GEMM_BY_COLUMNS
                                                : GEMM_TABLES;
    float start[GEMM_COLUMNS] = {0};
    size_t a_at[GEMM_DEPTH], b_at[GEMM_DEPTH], packed_at[GEMM_DEPTH];
    for (size_t i = 0; i < GEMM_DEPTH; i++)
        packed_at[i] = i * GEMM_COLUMNS;
    for (size_t k = 0; k < args->k; k += GEMM_DEPTH) {
        const size_t depth = args->k - k < GEMM_DEPTH ? args->k - k : GEMM_DEPTH;
        gemm_offsets(args, k, depth, a_at, b_at);
        for (size_t j = 0; j < args->n; j += GEMM_COLUMNS) {
            gemm_tile tile = {
                .a = args->a,
                .a_row = args->a_row,
                .a_column = args->a_column,
                .b = args->b + fedge_gemm_b_column(args, j),
                .b_next = LANES,
                .a_at = a_at,
                .b_at = b_at,
                .depth = depth,
                .c = args->c + j,
                .c_row = args->c_row,
                .c_next = LANES,
                .columns = args->n - j < GEMM_COLUMNS ? args->n - j : GEMM_COLUMNS,
                .add = args->accumulate || k > 0,
                .start = start,
            };
            if (args->start) {
                memset(start, 0, sizeof(start));
                memcpy(start, args->start + j, (k == 0 ? tile.columns : 0) * sizeof(*start));
            }
            if (copies || tile.columns < GEMM_COLUMNS) {
                gemm_pack(args, &tile, k, j, pack);
                tile.b = pack;
                tile.b_at = packed_at;
            }
            gemm_panel(tile, args->m, kind);
        }
    }
}

/* The general matrix product; the third part of kernels_simd.h.
 *
 * A panel of GEMM_COLUMNS columns and GEMM_DEPTH rows of b is read where it lies, or copied when it
 * is transposed, narrow or used often, and stays in the first-level cache while tiles of rows of a
 * pass over it. Elements of a are broadcast, so a's layout costs nothing. Where the sum is long and
 * runs along memory in both operands, lanes run along the sum and nothing is copied.
 */
#define GEMM_COLUMNS ((size_t)(2 * LANES))
#define GEMM_DEPTH ((size_t)256)
#define GEMM_COPIES ((size_t)(4 * GEMM_ROWS)) /* rows of a from which on a copy of b pays */
#define GEMM_LONG ((size_t)(6 * LANES))       /* a sum from which on lanes may run along it */

typedef struct gemm_tile {
    const float *a;
    size_t a_row;
    const float *b;
    size_t b_next;             /* floats from the first vector of a row of b to the second */
    const size_t *a_at, *b_at; /* where column k of a and row k of b begin: (depth) each */
    size_t depth;
    float *c;
    size_t c_row, c_next;
    size_t columns;     /* 1 to GEMM_COLUMNS */
    bool add;           /* to what c holds */
    const float *start; /* (GEMM_COLUMNS): the sum's first value per column */
} gemm_tile;

INLINE void gemm_store(float *c, vec sum, size_t n, bool add_to)
{
    if (n == LANES) {
        store(c, add_to ? add(load(c), sum) : sum);
    } else if (n > 0) {
        store_first(c, add_to ? add(load_first(c, n), sum) : sum, n);
    }
}

INLINE void gemm_rows(const int rows, const gemm_tile *args)
{
    vec acc[GEMM_ROWS][2];
    UNROLL
    for (int t = 0; t < rows; t++) {
        acc[t][0] = load(args->start);
        acc[t][1] = load(args->start + LANES);
    }
    const size_t row = args->a_row, next = args->b_next;
    const size_t *a_at = args->a_at, *b_at = args->b_at, *end = a_at + args->depth;
    for (; a_at < end; a_at++, b_at++) {
        const float *b = args->b + *b_at;
        const float *a0 = args->a + *a_at, *a4 = a0 + 4 * row, *a8 = a0 + 8 * row;
        const vec b0 = load(b), b1 = load(b + next);
        UNROLL
        for (int t = 0; t < rows; t++) {
            const vec a = splat(((t < 4) ? a0 : (t < 8) ? a4 : a8)[(size_t)(t % 4) * row]);
            acc[t][0] = mul_add(a, b0, acc[t][0]);
            acc[t][1] = mul_add(a, b1, acc[t][1]);
        }
    }
    const size_t first = args->columns < LANES ? args->columns : LANES;
    UNROLL
    for (int t = 0; t < rows; t++) {
        float *c = args->c + (size_t)t * args->c_row;
        gemm_store(c, acc[t][0], first, args->add);
        gemm_store(c + args->c_next, acc[t][1], args->columns - first, args->add);
    }
}

/* clang-format off */
static void gemm_rows_1(const gemm_tile *args) { gemm_rows(1, args); }
static void gemm_rows_2(const gemm_tile *args) { gemm_rows(2, args); }
static void gemm_rows_4(const gemm_tile *args) { gemm_rows(4, args); }
static void gemm_rows_6(const gemm_tile *args) { gemm_rows(6, args); }
#if GEMM_ROWS > 8
static void gemm_rows_8(const gemm_tile *args) { gemm_rows(8, args); }
static void gemm_rows_12(const gemm_tile *args) { gemm_rows(12, args); }
#endif
/* clang-format on */

/* The tallest tile first. */
static const struct {
    size_t rows;
    void (*run)(const gemm_tile *);
} gemm_tiles[] = {
#if GEMM_ROWS > 8
    {12, gemm_rows_12}, {8, gemm_rows_8},
#endif
    {6, gemm_rows_6},   {4, gemm_rows_4}, {2, gemm_rows_2}, {1, gemm_rows_1},
};

/* All rows of a against one panel. */
static void gemm_panel(gemm_tile tile, size_t m)
{
    for (size_t i = 0; m > 0; i++) {
        for (const size_t rows = gemm_tiles[i].rows; m >= rows; m -= rows) {
            gemm_tiles[i].run(&tile);
            tile.a += rows * tile.a_row;
            tile.c += rows * tile.c_row;
        }
    }
}

/* Rows k to k + depth of b's panel from column j on to (depth, GEMM_COLUMNS), zeros behind the last
 * column. */
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
    for (; !straight && args->b_row == 1 && args->b_offsets == NULL && t + LANES <= tile->columns;
         t += LANES) {
        turn_rows(tile->depth, args->b + (j + t) * args->b_column + k, args->b_column, pack + t,
                  GEMM_COLUMNS);
    }
    for (; !straight && t < GEMM_COLUMNS; t++) {
        const size_t column = t < tile->columns ? fedge_gemm_b_column(args, j + t) : 0;
        const float *from = args->b + column + k * args->b_row;
        for (size_t i = 0; i < tile->depth; i++) {
            pack[i * GEMM_COLUMNS + t] = t < tile->columns ? from[i * args->b_row] : 0.0f;
        }
    }
}

static __attribute__((noinline)) void gemm_places(const fedge_gemm *args, size_t k, size_t depth,
                                                  size_t *a_at, size_t *b_at)
{
    for (size_t i = 0; i < depth; i++) {
        a_at[i] = fedge_gemm_a_column(args, k + i);
        b_at[i] = fedge_gemm_b_row(args, k + i);
    }
}

/* Sums along memory in both operands: tiles of dot products. */
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
            for (size_t o = 0; o < outputs; o++) {
                tile.w[o] = args->b + k + fedge_gemm_b_column(args, j + o);
            }
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
    const bool straight = args->b_column == 1;
    const bool dots = !straight && args->b_row == 1 && args->a_column == 1 &&
                      args->a_offsets == NULL && args->k >= GEMM_LONG &&
                      (args->m < GEMM_COPIES || args->b_offsets != NULL);
    for (size_t i = 0; (args->k == 0 || dots) && !args->accumulate && i < args->m; i++) {
        float *c = args->c + i * args->c_row;
        if (args->start != NULL) {
            memcpy(c, args->start, args->n * sizeof *c);
        } else {
            memset(c, 0, args->n * sizeof *c);
        }
    }
    if (dots) {
        gemm_dots(args);
        return;
    }
    const bool copies =
        !straight || (args->m >= GEMM_COPIES && args->b_offsets == NULL && args->starts == NULL);
    float start[GEMM_COLUMNS] = {0};
    size_t a_at[GEMM_DEPTH], b_at[GEMM_DEPTH], packed_at[GEMM_DEPTH];
    for (size_t i = 0; i < GEMM_DEPTH; i++) {
        packed_at[i] = i * GEMM_COLUMNS;
    }
    for (size_t k = 0; k < args->k; k += GEMM_DEPTH) {
        const size_t depth = args->k - k < GEMM_DEPTH ? args->k - k : GEMM_DEPTH;
        gemm_places(args, k, depth, a_at, b_at);
        for (size_t j = 0; j < args->n; j += GEMM_COLUMNS) {
            const uint32_t *starts = args->starts == NULL ? NULL : args->starts + j / LANES;
            gemm_tile tile = {
                .a = args->a,
                .a_row = args->a_row,
                .b = args->b + fedge_gemm_b_column(args, j),
                .b_next = starts == NULL ? LANES : starts[1] - starts[0],
                .a_at = a_at,
                .b_at = b_at,
                .depth = depth,
                .c = args->c + fedge_gemm_c_column(args, j),
                .c_row = args->c_row,
                .c_next = starts == NULL ? LANES : starts[1] - starts[0],
                .columns = args->n - j < GEMM_COLUMNS ? args->n - j : GEMM_COLUMNS,
                .add = args->accumulate || k > 0,
                .start = start,
            };
            if (args->start != NULL) {
                memset(start, 0, sizeof start);
                memcpy(start, args->start + j, (k == 0 ? tile.columns : 0) * sizeof *start);
            }
            if (copies || tile.columns < GEMM_COLUMNS) {
                gemm_pack(args, &tile, k, j, pack);
                tile.b = pack;
                tile.b_at = packed_at;
                tile.b_next = LANES;
            }
            gemm_panel(tile, args->m);
        }
    }
}

/* The general matrix product; the third part of kernels_simd.h.
 *
 * A panel of GEMM_COLUMNS columns and GEMM_DEPTH rows of b is read where it lies, or copied when it
 * is transposed or narrow, and stays in the first-level cache while tiles of rows of a pass over
 * it. Elements of a are broadcast, so a's layout costs nothing.
 */
#define GEMM_COLUMNS ((size_t)(2 * LANES))
#define GEMM_DEPTH ((size_t)192)

typedef struct gemm_tile {
    const float *a;
    size_t a_row, a_column;
    const float *b;
    size_t b_row, depth;
    float *c;
    size_t c_row, columns; /* 1 to GEMM_COLUMNS */
    bool add;              /* to what c holds */
} gemm_tile;

INLINE void gemm_rows(const int rows, const gemm_tile *args)
{
    vec acc[GEMM_ROWS][2];
    UNROLL
    for (int t = 0; t < rows; t++) {
        acc[t][0] = splat(0.0f);
        acc[t][1] = splat(0.0f);
    }
    const size_t row = args->a_row;
    const float *a0 = args->a, *a4 = a0 + 4 * row, *a8 = a0 + 8 * row, *b = args->b;
    for (size_t k = 0; k < args->depth; k++) {
        const vec b0 = load(b), b1 = load(b + LANES);
        UNROLL
        for (int t = 0; t < rows; t++) {
            const vec a = splat(((t < 4) ? a0 : (t < 8) ? a4 : a8)[(size_t)(t % 4) * row]);
            acc[t][0] = mul_add(a, b0, acc[t][0]);
            acc[t][1] = mul_add(a, b1, acc[t][1]);
        }
        a0 += args->a_column;
        a4 += args->a_column;
        a8 += args->a_column;
        b += args->b_row;
    }
    const size_t first = args->columns < LANES ? args->columns : LANES;
    const size_t second = args->columns - first;
    UNROLL
    for (int t = 0; t < rows; t++) {
        float *c = args->c + (size_t)t * args->c_row;
        for (int v = 0; v < 2; v++) {
            const size_t n = v == 0 ? first : second;
            float *to = c + v * LANES;
            if (n == LANES) {
                store(to, args->add ? add(load(to), acc[t][v]) : acc[t][v]);
            } else if (n > 0) {
                store_first(to, args->add ? add(load_first(to, n), acc[t][v]) : acc[t][v], n);
            }
        }
    }
}

/* clang-format off */
static void gemm_rows_1(const gemm_tile *args) { gemm_rows(1, args); }
static void gemm_rows_2(const gemm_tile *args) { gemm_rows(2, args); }
static void gemm_rows_4(const gemm_tile *args) { gemm_rows(4, args); }
static void gemm_rows_most(const gemm_tile *args) { gemm_rows(GEMM_ROWS, args); }
#if GEMM_ROWS > 8
static void gemm_rows_8(const gemm_tile *args) { gemm_rows(8, args); }
#endif
/* clang-format on */

/* All rows of a against one panel. */
static void gemm_panel(gemm_tile tile, size_t m)
{
    while (m > 0) {
        size_t rows = 1;
        if (m >= GEMM_ROWS) {
            rows = GEMM_ROWS;
            gemm_rows_most(&tile);
#if GEMM_ROWS > 8
        } else if (m >= 8) {
            rows = 8;
            gemm_rows_8(&tile);
#endif
        } else if (m >= 4) {
            rows = 4;
            gemm_rows_4(&tile);
        } else if (m >= 2) {
            rows = 2;
            gemm_rows_2(&tile);
        } else {
            gemm_rows_1(&tile);
        }
        tile.a += rows * tile.a_row;
        tile.c += rows * tile.c_row;
        m -= rows;
    }
}

/* b's panel to (depth, GEMM_COLUMNS), zeros behind the last column. */
static void gemm_pack(const gemm_tile *tile, size_t b_column, float *pack)
{
    for (size_t j = 0; j < GEMM_COLUMNS; j++) {
        const float *from = tile->b + j * b_column;
        for (size_t k = 0; k < tile->depth; k++) {
            pack[k * GEMM_COLUMNS + j] = j < tile->columns ? from[k * tile->b_row] : 0.0f;
        }
    }
}

static void gemm(const fedge_gemm *args, float *pack)
{
    for (size_t i = 0; args->k == 0 && !args->accumulate && i < args->m; i++) {
        memset(args->c + i * args->c_row, 0, args->n * sizeof *args->c);
    }
    for (size_t k = 0; k < args->k; k += GEMM_DEPTH) {
        for (size_t j = 0; j < args->n; j += GEMM_COLUMNS) {
            gemm_tile tile = {
                .a = args->a + k * args->a_column,
                .a_row = args->a_row,
                .a_column = args->a_column,
                .b = args->b + k * args->b_row + j * args->b_column,
                .b_row = args->b_row,
                .depth = args->k - k < GEMM_DEPTH ? args->k - k : GEMM_DEPTH,
                .c = args->c + j,
                .c_row = args->c_row,
                .columns = args->n - j < GEMM_COLUMNS ? args->n - j : GEMM_COLUMNS,
                .add = args->accumulate || k > 0,
            };
            if (args->b_column != 1 || tile.columns < GEMM_COLUMNS) {
                gemm_pack(&tile, args->b_column, pack);
                tile.b = pack;
                tile.b_row = GEMM_COLUMNS;
            }
            gemm_panel(tile, args->m);
        }
    }
}

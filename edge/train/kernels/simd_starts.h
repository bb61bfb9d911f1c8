/* Matrix products whose vectors of b and c begin where tables say (a convolution's patches, and the
 * pixels under its weights); a part of kernels_simd.h.
 *
 * b is read where it lies, three vectors at a time: with 4 or 8 rows of a they fill the registers,
 * and channels come in fours.
 */
#define STARTS_ROWS (GEMM_ROWS > 8 ? 8 : 4)
#define STARTS_DEPTH ((size_t)256)

typedef struct starts_tile {
    const float *a;
    size_t a_row;
    const size_t *a_at, *b_at; /* where column k of a and row k of b begin: (depth) each */
    size_t depth;
    const float *b[3]; /* the vectors of b's first row */
    float *c[3];
    size_t c_row;
    const float *start; /* (3 · LANES): the sum's first value per column */
    bool add;           /* to what c holds */
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
    void (*run[3])(const starts_tile *); /* of one, two, three vectors */
} starts_heights[] = {
#if GEMM_ROWS > 8
    STARTS_HEIGHT(8),
#endif
    STARTS_HEIGHT(4),
    STARTS_HEIGHT(2),
    STARTS_HEIGHT(1),
};

/* All rows of a against [width] vectors. */
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

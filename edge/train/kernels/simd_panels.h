/* The product with a matrix that is read often; the fifth part of kernels_simd.h.
 *
 * Panels lie in the second-level cache and stream past a tile of rows of a, PANEL_DEPTH columns at
 * a time, PANEL_ROWS_AHEAD of b called for beforehand. Where lines of a would fall on one another
 * in the first-level cache, its rows being a multiple of PANEL_SET apart, the tile's are copied
 * close together first, PANEL_COPIED columns at a time. Copied in vain they cost more than the
 * product gains, since the copy's own lines have left that cache meanwhile.
 */
#define PANEL_COLUMNS ((size_t)(2 * LANES))
#define PANEL_DEPTH ((size_t)1024)
#define PANEL_COPIED ((size_t)256)
#define PANEL_ROW                                                                                  \
    (PANEL_COPIED + 16)         /* floats from row to row, so that lines spread over the sets */
#define PANEL_LINE ((size_t)16) /* floats that are called for at once */
#define PANEL_ROWS_AHEAD ((size_t)16)
#define PANEL_SET ((size_t)1024) /* floats between what falls on the same places */
#define PANEL_GROUPS 3           /* of a tile's rows: each has a pointer, and lies in one block */
#define PANEL_GROUP (GEMM_ROWS / PANEL_GROUPS)
static_assert(GEMM_ROWS % PANEL_GROUPS == 0 && LANES % PANEL_GROUP == 0, "groups of equal size");

typedef struct panel_tile {
    const float *a[PANEL_GROUPS]; /* the first row of each group */
    size_t a_row, a_column;
    const float *b;
    size_t depth, ahead; /* floats to what is called for; 0: nothing follows */
    const float *from;   /* what the products are added to; rows from_row apart */
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
    const float *low = args->a[0], *middle = args->a[1], *high = args->a[2], *b = args->b;
    UNROLL
    for (int t = 0; t < rows; t++) { /* used last, and by then it is here */
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
            const float *group = t < PANEL_GROUP ? low : t < 2 * PANEL_GROUP ? middle : high;
            const vec a = splat(group[(size_t)(t % PANEL_GROUP) * row]);
            acc[t][0] = mul_add(a, b0, acc[t][0]);
            acc[t][1] = mul_add(a, b1, acc[t][1]);
        }
        low += args->a_column;
        middle += args->a_column;
        high += args->a_column;
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

/* The tile's rows of a, from row [first] and column [k] on; copied to [room] unless it is NULL. */
static void panel_take(const fedge_panels *args, size_t first, size_t rows, size_t k,
                       panel_tile *tile, float *room)
{
    const bool blocks = args->a_block > 0;
    const float *a = args->a + (blocks ? k * LANES : first * args->a_row + k);
    tile->a_row = blocks ? 1 : args->a_row;
    tile->a_column = blocks ? LANES : 1;
    if (room) {
        copy_rows(rows, tile->depth, a, args->a_row, 0.0f, room, PANEL_ROW);
        a = room;
        tile->a_row = PANEL_ROW;
    }
    for (size_t g = 0; g < PANEL_GROUPS; g++) {
        const size_t i = first + g * PANEL_GROUP;
        tile->a[g] =
            a + (blocks ? i / LANES * args->a_block + i % LANES : g * PANEL_GROUP * tile->a_row);
    }
}

/* The tile's rows, from row [first] of c on, against all panels of [args]; columns of a from [k].
 */
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
    _Alignas(64) float room[GEMM_ROWS * PANEL_ROW];
    const bool blocks = args->a_block > 0, copies = !blocks && args->a_row % PANEL_SET == 0;
    const size_t unit = blocks ? PANEL_GROUP : 1, units = (args->m + unit - 1) / unit;
    const size_t tiles = (args->m + GEMM_ROWS - 1) / GEMM_ROWS;
    const size_t most = copies ? PANEL_COPIED : PANEL_DEPTH;
    for (size_t k = 0; k < args->k; k += most) {
        panel_tile tile = {.depth = args->k - k < most ? args->k - k : most};
        size_t first = 0;
        for (size_t i = 0; i < tiles; i++) {
            const size_t even = (units + tiles - 1 - i) / tiles * unit; /* they add up to m */
            const size_t rows = even < args->m - first ? even : args->m - first;
            panel_take(args, first, rows, k, &tile, copies ? room : NULL);
            for (const fedge_panels *to = args; to != NULL; to = to->also)
                panel_multiply(to, first, rows, k, &tile);
            first += rows;
        }
    }
}

/* The fully connected layer's vector kernels; included by simd.h.
 *
 * Weights stay as in the state_dict, (out, in), so lanes run along the inputs everywhere: forward
 * is a tile of dot products, backward two tiles of outer products over one block of weight columns,
 * read and written once.
 */
#define CHUNK                                                                                      \
    ((size_t)1024) /* inputs per pass of dot products: four rows of weights stay in L1             \
                    */
#define BLOCK_FLOATS ((size_t)65536) /* weights per backward block: stays in L2 */

/* ---- forward ---- */

/* y[b][o] += Σ_k x[b][k] · w[o][k] for a tile of b and o. */
typedef struct dot_args {
    const float *x, *w[4];
    size_t x_stride, n;
    float *y;
    size_t y_stride;
} dot_args;

INLINE void dot_tile(const int rows, const int outputs, const dot_args *args)
{
    vec acc[DOT_ROWS][4];
    UNROLL
    for (int b = 0; b < DOT_ROWS; b++) {
        UNROLL
        for (int o = 0; o < 4; o++)
            acc[b][o] = splat(0.0f);
    }
    const float *x0 = args->x, *x4 = x0 + 4 * args->x_stride;
    const float *const *w = args->w;
    const size_t xs = args->x_stride;
    size_t k = 0;
    for (; k + LANES <= args->n; k += LANES) {
        vec weights[4];
        UNROLL
        for (int o = 0; o < outputs; o++)
            weights[o] = load(w[o] + k);
        UNROLL
        for (int b = 0; b < rows; b++) {
            const vec x = load((b < 4 ? x0 : x4) + (size_t)(b % 4) * xs + k);
            UNROLL
            for (int o = 0; o < outputs; o++)
                acc[b][o] = mul_add(x, weights[o], acc[b][o]);
        }
    }
    if (k < args->n) {
        const size_t left = args->n - k;
        UNROLL
        for (int b = 0; b < rows; b++) {
            const vec x = load_first((b < 4 ? x0 : x4) + (size_t)(b % 4) * xs + k, left);
            UNROLL
            for (int o = 0; o < outputs; o++)
                acc[b][o] = mul_add(x, load_first(w[o] + k, left), acc[b][o]);
        }
    }
    UNROLL
    for (int b = 0; b < rows; b++)
        add_sums(args->y + (size_t)b * args->y_stride, outputs, acc[b]);
}

#define DOT_FUNCTION(rows)                                                                         \
    static void dot_##rows##_1(const dot_args *args)                                               \
    {                                                                                              \
        dot_tile(rows, 1, args);                                                                   \
    }                                                                                              \
    static void dot_##rows##_4(const dot_args *args)                                               \
    {                                                                                              \
        dot_tile(rows, 4, args);                                                                   \
    }
#define DOT_ROW(rows)                                                                              \
    {                                                                                              \
        dot_##rows##_1, dot_##rows##_4                                                             \
    }

DOT_FUNCTION(1)
DOT_FUNCTION(2)
#if DOT_ROWS > 2
DOT_FUNCTION(3)
DOT_FUNCTION(4)
DOT_FUNCTION(5)
DOT_FUNCTION(6)
#endif

/* [rows − 1][0: one output, 1: four]. */
static void (*const dot_functions[DOT_ROWS][2])(const dot_args *) = {
    DOT_ROW(1), DOT_ROW(2),
#if DOT_ROWS > 2
    DOT_ROW(3), DOT_ROW(4), DOT_ROW(5), DOT_ROW(6),
#endif
};

/* Outputs of the next tiles. */
static size_t dot_width(size_t left)
{
    return left < 4 ? 1 : 4;
}

static void linear_forward(const fedge_linear_shape *shape, const float *x, const float *w,
                           const float *bias, float *y)
{
    const size_t in = shape->in, out = shape->out, batch = shape->batch;
    const size_t tiles = (batch + DOT_ROWS - 1) / DOT_ROWS;
    for (size_t b = 0; b < batch; b++) {
        for (size_t o = 0; o < out; o++)
            y[b * out + o] = !bias ? 0.0f : bias[o];
    }
    for (size_t k = 0; k < in; k += CHUNK) {
        for (size_t o = 0, outputs; o < out; o += outputs) {
            outputs = dot_width(out - o);
            dot_args args = {.x = x + k,
                             .x_stride = in,
                             .n = in - k < CHUNK ? in - k : CHUNK,
                             .y = y + o,
                             .y_stride = out};
            for (size_t i = 0; i < outputs; i++)
                args.w[i] = w + (o + i) * in + k;
            for (size_t i = 0; i < tiles; i++) {
                const size_t rows = (batch + tiles - 1 - i) / tiles;
                dot_functions[rows - 1][outputs / 4](&args);
                args.x += rows * in;
                args.y += rows * out;
            }
        }
    }
}

/* ---- backward ---- */

/* One tile of weights, whose gradient is summed in registers and applied at once. */
typedef struct step_args {
    const float *dy, *x;
    size_t batch, dy_stride, x_stride;
    float *w, *v; /* (outputs, …) */
    size_t w_stride, columns;
    size_t ahead; /* floats to the same columns of the next block, prefetched; 0: none */
    const fedge_optimizer *sgd;
} step_args;

INLINE void step_tile(const int outputs, const int vectors, const bool partial,
                      const step_args *args)
{
    vec acc[STEP_ROWS][2];
    UNROLL
    for (int o = 0; o < outputs; o++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            acc[o][v] = splat(0.0f);
    }
    const float *dy = args->dy, *x = args->x;
    for (size_t b = 0; b < args->batch; b++) {
        vec column[2];
        UNROLL
        for (int v = 0; v < vectors; v++)
            column[v] = load_some(x + v * LANES, partial, args->columns);
        UNROLL
        for (int o = 0; o < outputs; o++) {
            const vec g = splat(dy[o]);
            UNROLL
            for (int v = 0; v < vectors; v++)
                acc[o][v] = mul_add(g, column[v], acc[o][v]);
        }
        dy += args->dy_stride;
        x += args->x_stride;
    }
    const vec decay = splat(args->sgd->weight_decay), momentum = splat(args->sgd->momentum);
    const vec minus_rate = splat(-args->sgd->learning_rate);
    const bool decays = args->sgd->weight_decay != 0.0f;
    UNROLL
    for (int o = 0; o < outputs; o++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            const size_t at = (size_t)o * args->w_stride + (size_t)v * LANES;
            const vec w = load_some(args->w + at, partial, args->columns);
            vec g = acc[o][v];
            if (args->ahead != 0)
                __builtin_prefetch(args->w + at + args->ahead, 1, 2);
            if (decays)
                g = mul_add(decay, w, g);
            if (args->v) {
                g = mul_add(momentum, load_some(args->v + at, partial, args->columns), g);
                store_some(args->v + at, g, partial, args->columns);
            }
            store_some(args->w + at, mul_add(minus_rate, g, w), partial, args->columns);
        }
    }
}

#define STEP_MASKED(outputs)                                                                       \
    static void step_##outputs##_2(const step_args *args)                                          \
    {                                                                                              \
        step_tile(outputs, 2, false, args);                                                        \
    }                                                                                              \
    static void step_##outputs##_partial(const step_args *args)                                    \
    {                                                                                              \
        step_tile(outputs, 1, true, args);                                                         \
    }
#if FREE_MASKS
#define STEP_FUNCTION(outputs) STEP_MASKED(outputs)
#define STEP_ONE(outputs) step_##outputs##_partial
#else
#define STEP_FUNCTION(outputs)                                                                     \
    STEP_MASKED(outputs) static void step_##outputs##_1(const step_args *args)                     \
    {                                                                                              \
        step_tile(outputs, 1, false, args);                                                        \
    }
#define STEP_ONE(outputs) step_##outputs##_1
#endif
#define STEP_ROW(outputs)                                                                          \
    {                                                                                              \
        step_##outputs##_partial, STEP_ONE(outputs), step_##outputs##_2                            \
    }

STEP_FUNCTION(1)
STEP_FUNCTION(2)
STEP_FUNCTION(4)
#if STEP_ROWS > 4
STEP_FUNCTION(8)
#endif

/* The largest tile first. */
static const struct {
    size_t outputs;
    void (*run[3])(const step_args *);
} step_functions[] = {
#if STEP_ROWS > 4
    {8, STEP_ROW(8)},
#endif
    {4, STEP_ROW(4)},
    {2, STEP_ROW(2)},
    {1, STEP_ROW(1)},
};

static void step_strip(const fedge_linear_shape *shape, step_args args, int kind)
{
    size_t size = 0;
    for (size_t o = 0; o < shape->out; o += step_functions[size].outputs) {
        while (step_functions[size].outputs > shape->out - o)
            size++;
        step_args at = args;
        at.dy += o;
        at.w += o * shape->in;
        at.v = !at.v ? NULL : at.v + o * shape->in;
        step_functions[size].run[kind](&at);
    }
}

/* The columns of the strip at [k], and the kind of its tiles. */
static size_t strip_width(size_t k, size_t end, int *kind)
{
    const size_t left = end - k;
    *kind = left >= 2 * LANES ? 2 : left >= LANES ? 1 : 0;
    return *kind == 2 ? 2 * LANES : *kind == 1 ? LANES : left;
}

static void linear_backward(const fedge_linear_shape *shape, const float *x, const float *dy,
                            float *w, float *v, const fedge_optimizer *sgd, float *dx)
{
    const size_t in = shape->in, out = shape->out, batch = shape->batch;
    const size_t fit = BLOCK_FLOATS / out / (2 * LANES) * (2 * LANES);
    const size_t block = fit < 2 * LANES ? 2 * LANES : fit;
    const bool fetch = in * out > 4 * BLOCK_FLOATS; /* smaller weights stay in L2 between steps */
    for (size_t begin = 0; begin < in; begin += block) {
        const size_t end = in - begin < block ? in : begin + block;
        int kind = 0;
        for (size_t k = begin, width; dx && k < end; k += width) {
            width = strip_width(k, end, &kind);
            run_tiles((tile_args){.a = dy,
                                  .row_stride = out,
                                  .num_segments = 1,
                                  .length = out,
                                  .b = w + k,
                                  .b_stride = in,
                                  .c = dx + k,
                                  .c_stride = in,
                                  .columns = width},
                      batch, kind);
        }
        for (size_t k = begin, width; k < end; k += width) {
            width = strip_width(k, end, &kind);
            step_strip(shape,
                       (step_args){.dy = dy,
                                   .x = x + k,
                                   .batch = batch,
                                   .dy_stride = out,
                                   .x_stride = in,
                                   .w = w + k,
                                   .v = !v ? NULL : v + k,
                                   .w_stride = in,
                                   .columns = width,
                                   .ahead = fetch && in - k >= block + width ? block : 0,
                                   .sgd = sgd},
                       kind);
        }
    }
}

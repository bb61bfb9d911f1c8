/* Depthwise convolutions over a padded channel; included by simd.h. A vector holds pixels of one
 * row, and each vector of x is loaded once for all rows of outputs that use it. Windows of 3x3 and
 * 5x5 with strides 1 and 2 have special code.
 */
#define DEPTHWISE_ROWS 4 /* rows of outputs at a time */
#define DEPTHWISE_TAPS 5 /* taps of one row at a time */

/* The outputs of one vector's width: [columns] ≤ LANES of each row from x and y on. */
typedef struct depthwise_strip {
    const float *x, *dy;
    float *y;
    size_t y_row, columns;
    bool add; /* y += instead of y = bias + */
    float bias;
} depthwise_strip;

/* One long row of outputs, seen as rows of one vector each. */
static fedge_depthwise depthwise_vectors(const fedge_depthwise *shape)
{
    fedge_depthwise part = *shape;
    part.rows = shape->width / LANES;
    part.width = part.step = LANES;
    return part;
}

INLINE vec depthwise_start(const depthwise_strip *at, const float *y)
{
    return at->add ? load_some(y, at->columns < LANES, at->columns) : splat(at->bias);
}

INLINE void depthwise_end(const depthwise_strip *at, float *y, vec sum)
{
    store_some(y, sum, at->columns < LANES, at->columns);
}

/* ---- outputs ---- */

INLINE void square_block(const int taps, const int stride, const int rows, const uint32_t *columns,
                         size_t pitch, vec w[DEPTHWISE_TAPS][DEPTHWISE_TAPS],
                         const depthwise_strip *at)
{
    const float *x = at->x;
    vec acc[DEPTHWISE_ROWS];
    UNROLL
    for (int t = 0; t < rows; t++)
        acc[t] = depthwise_start(at, at->y + (size_t)t * at->y_row);
    UNROLL
    for (int i = 0; i < (rows - 1) * stride + taps; i++, x += pitch) {
        UNROLL
        for (int j = 0; j < taps; j++) {
            const vec pixels = load(x + columns[j]);
            UNROLL
            for (int t = 0; t < rows; t++) {
                const int tap = i - t * stride;
                if (tap >= 0 && tap < taps)
                    acc[t] = mul_add(w[tap][j], pixels, acc[t]);
            }
        }
    }
    UNROLL
    for (int t = 0; t < rows; t++)
        depthwise_end(at, at->y + (size_t)t * at->y_row, acc[t]);
}

/* All rows of one strip. */
INLINE void square(const int taps, const int stride, const fedge_depthwise *shape,
                   const float *weights, depthwise_strip at)
{
    vec w[DEPTHWISE_TAPS][DEPTHWISE_TAPS];
    UNROLL
    for (int i = 0; i < taps; i++) {
        UNROLL
        for (int j = 0; j < taps; j++)
            w[i][j] = splat(weights[i * taps + j]);
    }
    size_t r = 0;
    for (; r + DEPTHWISE_ROWS <= shape->rows; r += DEPTHWISE_ROWS) {
        square_block(taps, stride, DEPTHWISE_ROWS, shape->columns, shape->pitch, w, &at);
        at.x += DEPTHWISE_ROWS * shape->step;
        at.y += DEPTHWISE_ROWS * at.y_row;
    }
    for (; r < shape->rows; r++) {
        square_block(taps, stride, 1, shape->columns, shape->pitch, w, &at);
        at.x += shape->step;
        at.y += at.y_row;
    }
}

INLINE void any_block(const int rows, const fedge_depthwise *shape, const float *weights,
                      const depthwise_strip *at)
{
    vec acc[DEPTHWISE_ROWS];
    UNROLL
    for (int t = 0; t < rows; t++)
        acc[t] = depthwise_start(at, at->y + (size_t)t * at->y_row);
    for (size_t i = 0; i < shape->kernel[0]; i++) {
        for (size_t j = 0; j < shape->kernel[1]; j++) {
            const float *x = at->x + i * shape->pitch + shape->columns[j];
            const vec w = splat(*weights++);
            UNROLL
            for (int t = 0; t < rows; t++)
                acc[t] = mul_add(w, load(x + (size_t)t * shape->step), acc[t]);
        }
    }
    UNROLL
    for (int t = 0; t < rows; t++)
        depthwise_end(at, at->y + (size_t)t * at->y_row, acc[t]);
}

static void depthwise_any(const fedge_depthwise *shape, const float *weights, depthwise_strip at)
{
    size_t r = 0;
    for (; r + DEPTHWISE_ROWS <= shape->rows; r += DEPTHWISE_ROWS) {
        any_block(DEPTHWISE_ROWS, shape, weights, &at);
        at.x += DEPTHWISE_ROWS * shape->step;
        at.y += DEPTHWISE_ROWS * at.y_row;
    }
    for (; r < shape->rows; r++) {
        any_block(1, shape, weights, &at);
        at.x += shape->step;
        at.y += at.y_row;
    }
}

#define SQUARE_FUNCTION(taps, stride)                                                              \
    static void depthwise_##taps##_##stride(const fedge_depthwise *shape, const float *weights,    \
                                            depthwise_strip at)                                    \
    {                                                                                              \
        square(taps, stride, shape, weights, at);                                                  \
    }

SQUARE_FUNCTION(3, 1)
SQUARE_FUNCTION(3, 2)
#if GEMM_ROWS > 8 /* 25 weights stay in registers */
SQUARE_FUNCTION(5, 1)
SQUARE_FUNCTION(5, 2)
#endif

/* [0: 3 taps, 1: 5 taps][stride − 1] */
static void (*const square_functions[2][2])(const fedge_depthwise *, const float *,
                                            depthwise_strip) = {
    {depthwise_3_1, depthwise_3_2},
#if GEMM_ROWS > 8
    {depthwise_5_1, depthwise_5_2},
#else
    {depthwise_any, depthwise_any},
#endif
};

/* The stride, 1 or 2, of a window of taps x taps whose output rows share rows of x; else 0. */
static size_t square_stride(const fedge_depthwise *shape, size_t taps)
{
    const size_t stride = shape->step == shape->pitch ? 1 : shape->step == 2 * shape->pitch ? 2 : 0;
    return shape->kernel[0] == taps && shape->kernel[1] == taps ? stride : 0;
}

static void depthwise(const fedge_depthwise *shape, const float *x, const float *w, float bias,
                      bool add, float *y)
{
    const size_t three = square_stride(shape, 3), five = square_stride(shape, 5);
    depthwise_strip at = {.x = x, .y = y, .y_row = shape->width, .add = add, .bias = bias};
    if (shape->rows == 1 && shape->width >= 2 * LANES) {
        const fedge_depthwise part = depthwise_vectors(shape);
        at.y_row = at.columns = LANES;
        depthwise_any(&part, w, at);
        at.x += part.rows * LANES;
        at.y += part.rows * LANES;
        at.columns = shape->width % LANES;
        if (at.columns > 0)
            depthwise_any(shape, w, at);
        return;
    }
    for (size_t q = 0; q < shape->width; q += LANES, at.x += LANES, at.y += LANES) {
        at.columns = shape->width - q < LANES ? shape->width - q : LANES;
        if (three + five > 0)
            square_functions[five > 0][three + five - 1](shape, w, at);
        else
            depthwise_any(shape, w, at);
    }
}

/* ---- gradients of the weights ---- */

/* [taps_h] rows of [taps_w] taps, each with a vector of sums. */
INLINE void depthwise_weights_block(const int taps_h, const int taps_w, const int stride,
                                    const int rows, const fedge_depthwise *shape,
                                    const uint32_t *columns, const depthwise_strip *at,
                                    vec acc[][DEPTHWISE_TAPS])
{
    const size_t pitch = shape->pitch, step = shape->step;
    vec gradient[DEPTHWISE_ROWS];
    UNROLL
    for (int t = 0; t < rows; t++)
        gradient[t] = load_some(at->dy + (size_t)t * at->y_row, at->columns < LANES, at->columns);
    if (taps_h == 1) {
        UNROLL
        for (int t = 0; t < rows; t++) {
            UNROLL
            for (int j = 0; j < taps_w; j++) {
                const vec pixels = load(at->x + (size_t)t * step + columns[j]);
                acc[t % 2][j] = mul_add(gradient[t], pixels, acc[t % 2][j]);
            }
        }
        return;
    }
    const float *x = at->x;
    UNROLL
    for (int i = 0; i < (rows - 1) * stride + taps_h; i++, x += pitch) {
        UNROLL
        for (int j = 0; j < taps_w; j++) {
            const vec pixels = load(x + columns[j]);
            UNROLL
            for (int t = 0; t < rows; t++) {
                const int tap = i - t * stride;
                if (tap >= 0 && tap < taps_h)
                    acc[tap][j] = mul_add(gradient[t], pixels, acc[tap][j]);
            }
        }
    }
}

/* All outputs of shape's rows and width from [at] on. dw: (taps_h, taps_w). */
INLINE void depthwise_weights(const int taps_h, const int taps_w, const int stride,
                              const fedge_depthwise *shape, const uint32_t *columns,
                              depthwise_strip at, float *dw)
{
    const int accs = taps_h == 1 ? 2 : taps_h;
    vec acc[3][DEPTHWISE_TAPS];
    UNROLL
    for (int i = 0; i < accs; i++) {
        UNROLL
        for (int j = 0; j < taps_w; j++)
            acc[i][j] = splat(0.0f);
    }
    for (size_t q = 0; q < shape->width; q += LANES) {
        depthwise_strip strip = at;
        strip.columns = shape->width - q < LANES ? shape->width - q : LANES;
        strip.x += q;
        strip.dy += q;
        size_t r = 0;
        for (; r + DEPTHWISE_ROWS <= shape->rows; r += DEPTHWISE_ROWS) {
            depthwise_weights_block(taps_h, taps_w, stride, DEPTHWISE_ROWS, shape, columns, &strip,
                                    acc);
            strip.x += DEPTHWISE_ROWS * shape->step;
            strip.dy += DEPTHWISE_ROWS * at.y_row;
        }
        for (; r < shape->rows; r++) {
            depthwise_weights_block(taps_h, taps_w, stride, 1, shape, columns, &strip, acc);
            strip.x += shape->step;
            strip.dy += at.y_row;
        }
    }
    UNROLL
    for (int i = 0; i < taps_h; i++) {
        const int pair = taps_h == 1 ? 1 : i; /* the other sum of the same taps */
        UNROLL
        for (int j = 0; j < taps_w; j += 4) {
            vec four[4];
            UNROLL
            for (int k = 0; k < 4; k++) {
                const int from = j + k < taps_w ? j + k : j;
                four[k] = pair == i ? acc[i][from] : add(acc[i][from], acc[pair][from]);
            }
            add_sums(dw + i * taps_w + j, taps_w - j < 4 ? taps_w - j : 4, four);
        }
    }
}

#define WEIGHT_GRAD_FUNCTION(taps_h, taps_w, stride)                                               \
    static void weight_grad_##taps_h##_##taps_w##_##stride(                                        \
        const fedge_depthwise *shape, const uint32_t *columns, depthwise_strip at, float *dw)      \
    {                                                                                              \
        depthwise_weights(taps_h, taps_w, stride, shape, columns, at, dw);                         \
    }

WEIGHT_GRAD_FUNCTION(3, 3, 1)
WEIGHT_GRAD_FUNCTION(3, 3, 2)
WEIGHT_GRAD_FUNCTION(1, 1, 1)
WEIGHT_GRAD_FUNCTION(1, 3, 1)
#if GEMM_ROWS > 8
WEIGHT_GRAD_FUNCTION(1, 5, 1)
#endif

/* One row of taps after the other, up to DEPTHWISE_TAPS at a time. */
static void weight_grad_any(const fedge_depthwise *shape, depthwise_strip at, float *dw)
{
    for (size_t i = 0; i < shape->kernel[0]; i++, at.x += shape->pitch) {
        for (size_t j = 0, taps; j < shape->kernel[1]; j += taps, dw += taps) {
            const size_t left = shape->kernel[1] - j;
            taps = left >= 3 ? 3 : 1;
#if GEMM_ROWS > 8
            if (left >= 5) {
                taps = 5;
                weight_grad_1_5_1(shape, shape->columns + j, at, dw);
                continue;
            }
#endif
            (taps == 3 ? weight_grad_1_3_1 : weight_grad_1_1_1)(shape, shape->columns + j, at, dw);
        }
    }
}

static void depthwise_weight_grad(const fedge_depthwise *shape, const float *x, const float *dy,
                                  float *dw)
{
    const size_t stride = square_stride(shape, 3);
    depthwise_strip at = {.x = x, .dy = dy, .y_row = shape->width};
    if (stride > 0) {
        (stride == 1 ? weight_grad_3_3_1 : weight_grad_3_3_2)(shape, shape->columns, at, dw);
    } else if (shape->rows == 1 && shape->width >= 2 * LANES) {
        const fedge_depthwise part = depthwise_vectors(shape);
        fedge_depthwise remainder = *shape;
        remainder.width = shape->width % LANES;
        at.y_row = LANES;
        weight_grad_any(&part, at, dw);
        at.x += part.rows * LANES;
        at.dy += part.rows * LANES;
        if (remainder.width > 0)
            weight_grad_any(&remainder, at, dw);
    } else {
        weight_grad_any(shape, at, dw);
    }
}

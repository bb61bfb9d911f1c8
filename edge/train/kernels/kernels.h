/* The arithmetic of training, one table per instruction set; private to edge/train.
 *
 * Layouts. "lanes" is the table's vector width in floats. Inside a model, images are channels-last
 * with the channels padded to a multiple of lanes by zeros: (h, w, c). A convolution sees the patch
 * under one output pixel as runs ("segments") of contiguous floats, so nothing is copied per patch:
 *
 *     channels-last input     kernel_h segments of kernel_w · c floats
 *     the caller's (c, h, w)  c · kernel_h segments of kernel_w floats   (first layer only)
 *
 * Every kernel sums in an order that depends on the shapes alone, never on an address, so equal
 * inputs give equal bits on one table. Between tables sums are ordered and fused differently: a sum
 * of n products x·w differs by at most 2 · n · 2^-24 · Σ|x·w|.
 */
#ifndef FEDGE_EDGE_TRAIN_KERNELS_KERNELS_H
#define FEDGE_EDGE_TRAIN_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/rng.h"
#include "edge/train/model.h"

/* What the kernels need to know of a convolution. */
typedef struct fedge_conv_shape {
    const uint32_t *segment_offsets; /* of each segment from the patch's first float */
    uint32_t num_segments;
    uint32_t segment_length; /* floats in a segment */
    uint32_t
        segment_stride;    /* segment_length rounded up to lanes: floats per segment in gradients */
    uint32_t out_channels; /* padded to a multiple of lanes */
    uint32_t out_w;        /* output pixels in a row */
    uint32_t pixel_stride; /* floats between the patches of neighbours in a row */
} fedge_conv_shape;

/* One non-zero gradient of an output channel: where its patch begins, and its value. */
typedef struct fedge_grad_entry {
    uint32_t offset; /* floats from the start of the example's input */
    float value;
} fedge_grad_entry;

/* A row of max-pooling over channels-last images. */
typedef struct fedge_pool_shape {
    uint32_t channels;                  /* padded */
    uint32_t in_w, out_w;               /* pixels in a row */
    uint32_t kernel_w, stride_w, pad_w; /* the window across */
    uint32_t row_begin, row_end; /* rows of the window that exist: [begin, end) of kernel_h */
} fedge_pool_shape;

/* A fully connected layer's sizes. */
typedef struct fedge_linear_shape {
    uint32_t batch, in, out;
} fedge_linear_shape;

/* A matrix product: c = a · b, c = start + a · b or c += a · b. a: (m, k), b: (k, n), c: (m, n);
 * element (i, j) of a lies at a[i · a_row + j · a_column], so either operand may be transposed. An
 * operand may also be a view whose columns or rows begin where a table says (a convolution's
 * patches). */
typedef struct fedge_gemm {
    size_t m, n, k;
    const float *a;
    size_t a_row, a_column;
    const uint32_t *a_offsets; /* NULL, or where each column of a begins, (k), for j · a_column */
    const float *b;
    size_t b_row, b_column;    /* b_column 1 is fastest: b is then read where it is */
    const uint32_t *b_offsets; /* NULL, or with b_column 1 where each row of b begins, (k), for
                                  i · b_row; else each column, (n), for j · b_column */
    const uint32_t *starts;    /* NULL, or with b_column 1 where each run of columns of b and of c
                                  begins, (n / run), for one behind the other */
    const uint32_t *c_starts;  /* NULL, or with starts where each run of c begins, in place of it */
    uint32_t run;              /* with starts: the table's lanes, of which n is a multiple */
    float *c;
    size_t c_row;
    bool accumulate;
    const float *start; /* (n), added to every row; NULL: 0. Not with accumulate */
} fedge_gemm;

/* Rows of scores to shares and back: row r at s + r · stride, of which it sees the first
 * n = seen + r values, or with seen 0 all of [width]. Behind these, to [width], are zeros. */
typedef struct fedge_softmax {
    float *s;
    size_t rows, stride, width, seen;
    float scale;
    float *kept;    /* (rows, 2): −scale · largest score, 1 / sum of exponentials */
    bool recompute; /* from what was kept */
} fedge_softmax;

/* The norm of each of [rows] rows of [width] values: y = (x − mean) / sqrt(variance + eps) · weight
 * + bias. */
typedef struct fedge_norm_rows {
    size_t rows, width;
    float eps;
    const float *weight, *bias;             /* (width); NULL: 1, 0 */
    float *weight_gradient, *bias_gradient; /* (width), to be added to; NULL: not wanted */
    float *moments; /* (rows, 2): mean and 1 / sqrt(variance + eps); forward NULL: not kept */
    bool recompute; /* forward from the moments that were kept */
} fedge_norm_rows;

/* A depthwise convolution of one padded channel x, in which rows of outputs meet rows of taps: the
 * output of row r and place q, and tap (i, j), meet x[r · step + i · pitch + columns[j] + q]. Up to
 * lanes − 1 floats behind the last of a row are read too, and count for nothing if finite. */
typedef struct fedge_depthwise {
    size_t rows, width; /* of outputs, which are dense */
    size_t kernel[2];   /* taps down and across */
    size_t step, pitch;
    const uint32_t *columns; /* (kernel[1]) */
} fedge_depthwise;

/* c += a · b with a b (k, n) that is read often, kept in panels of the table's packed_columns
 * columns: each (k, packed_columns), the last one filled up with zeros. Rows of a are a_row apart;
 * or with a_block > 0 aᵀ is in blocks of the table's lanes columns, each (k, lanes), a_block apart:
 * element (i, j) of a lies at a[i / lanes · a_block + j · lanes + i % lanes]. Else as fedge_gemm.
 * In fp32 in every table. */
typedef struct fedge_panels {
    size_t m, n, k;
    const float *a;
    size_t a_row, a_block;
    const float *b;
    const float *start; /* (n): c = start + a · b; NULL: c += a · b */
    float *c;
    size_t c_row;
    const struct fedge_panels *also; /* NULL, or another n, b, start and c for the same a */
} fedge_panels;

/* Where column k of a, row k of b, column j of b and column j of c begin. */
static inline size_t fedge_gemm_a_column(const fedge_gemm *args, size_t k)
{
    return args->a_offsets ? args->a_offsets[k] : k * args->a_column;
}

static inline size_t fedge_gemm_b_row(const fedge_gemm *args, size_t k)
{
    return args->b_offsets && args->b_column == 1 ? args->b_offsets[k] : k * args->b_row;
}

static inline size_t fedge_gemm_c_column(const fedge_gemm *args, size_t j)
{
    const uint32_t *starts = args->c_starts ? args->c_starts : args->starts;
    return starts ? starts[j / args->run] + j % args->run : j;
}

static inline size_t fedge_gemm_b_column(const fedge_gemm *args, size_t j)
{
    if (args->starts)
        return args->starts[j / args->run] + j % args->run;
    return args->b_offsets && args->b_column != 1 ? args->b_offsets[j] : j * args->b_column;
}

/* z = (x − center) · scale + shift, and y = z or with a ceiling > 0 y = min(max(z, 0), ceiling): a
 * norm and the rectifier behind it. A gradient of y is then one of z where 0 < z < ceiling. */
typedef struct fedge_normal {
    float center, scale, shift, ceiling;
} fedge_normal;

/* dx[i] = dz[i] · dz + (x[i] − center) · x + one. */
typedef struct fedge_norm_slope {
    float dz, x, one;
} fedge_norm_slope;

/* A step of Adam; see edge/train/optimizers/adam.c. */
typedef struct fedge_adam_step {
    float beta1, beta2, epsilon;
    float size, root;    /* lr / (1 − β1^t), sqrt(1 − β2^t) */
    float keep, coupled; /* w's factor (decoupled decay); g += coupled · w */
} fedge_adam_step;

/* One step of one example in a recurrent layer. Arrays of hidden_size, gates of four times as many;
 * what each pass reads and writes is said at the kernels. */
#define FEDGE_CELL_LEAST 0x1p-90f
typedef struct fedge_cell_step {
    size_t hidden;
    float *gates;
    const float *h_before, *c_before; /* of the step before; zeros at the first */
    float *h, *c;                     /* c may be c_before, forward */
    const float *dy;                  /* the output's gradient */
    float *dh; /* in: what the step after adds to dy; out: what goes straight to the step before */
    float *dc; /* in and out: the gradient of c, of the step's and of the one before */
} fedge_cell_step;

typedef struct fedge_kernels {
    const char *name;
    const char *in_bf16;     /* how gemm works in bf16 (half.h); NULL: gemm is fp32 */
    uint32_t lanes;          /* channels are padded to a multiple of this */
    uint32_t packed_columns; /* output channels per block of packed weights, a multiple of lanes */

    /* y[p][o] = bias[o] + Σ_k x[p][k] · w[k][o] for the pixels p of one row.
     * x: the first patch; y: (out_w, out_channels); bias: (out_channels).
     * w: blocks of packed_columns output channels (the last may be narrower), each (k, columns),
     * k over segments and then along them. */
    void (*conv_forward_row)(const fedge_conv_shape *shape, const float *x, const float *w,
                             const float *bias, float *y);

    /* dw[k] += Σ_i list[i].value · x[list[i].offset + k]: one output channel's weight gradient,
     * (segments, segment_stride). Reads up to lanes − 1 floats behind a segment. */
    void (*conv_weight_grad)(const fedge_conv_shape *shape, const float *x,
                             const fedge_grad_entry *list, uint32_t n, float *dw);

    /* dx[list[i].offset + k] += list[i].value · w[k]: one output channel's share of the input's
     * gradient. Needs segment_length = segment_stride. w: (segments, segment_stride). */
    void (*conv_input_grad)(const fedge_conv_shape *shape, const float *w,
                            const fedge_grad_entry *list, uint32_t n, float *dx);

    /* y: (out_w, channels) = maximum of each window; [argmax] the first place of it in the window,
     * row · kernel_w + column. A NaN wins, as in PyTorch. x: the window's rows that exist,
     * (row_end − row_begin, in_w, channels). */
    void (*maxpool_row)(const fedge_pool_shape *shape, const float *x, float *y, uint8_t *argmax);

    /* y = x Wᵀ + bias. x: (batch, in), w: (out, in), bias: (out) or NULL, y: (batch, out). */
    void (*linear_forward)(const fedge_linear_shape *shape, const float *x, const float *w,
                           const float *bias, float *y);

    /* One pass over the weights: dx = dy W (when dx is not NULL), then W and its velocity v
     * (NULL without momentum) take an SGD step with gradient dyᵀ x. No gradient is stored. */
    void (*linear_backward)(const fedge_linear_shape *shape, const float *x, const float *dy,
                            float *w, float *v, const fedge_optimizer *sgd, float *dx);

    /* [pack]: gemm_pack floats of working memory, aligned to 64 bytes. */
    void (*gemm)(const fedge_gemm *args, float *pack);
    size_t gemm_pack;

    /* The same for operands so small that copying them costs more than it gains; b_column is 1, and
     * a_row or a_column. */
    void (*small_gemm)(const fedge_gemm *args);

    /* s = softmax(scale · s). */
    void (*softmax)(const fedge_softmax *args);

    /* s, of shares p, to the gradient of the scores: scale · p · (dp − Σ p · dp) by rows. dp: as s,
     * finite to [width]. */
    void (*softmax_backward)(const fedge_softmax *args, const float *dp);

    /* y may be x; dx may be dy, or NULL: not wanted. */
    void (*norm_rows)(const fedge_norm_rows *args, const float *x, float *y);
    void (*norm_rows_backward)(const fedge_norm_rows *args, const float *x, const float *dy,
                               float *dx);

    /* Dropout: y = x where fedge_rng_float, one number for each in turn, is at least p, scaled by
     * 1 / (1 − p); else 0. y may be x. kept: a bit for each, the first the lowest of the first
     * byte, (n + 7) / 8 bytes; NULL: not wanted. Equal bits on every table. */
    void (*drop_draw)(fedge_rng *rng, float p, size_t n, const float *x, float *y, uint8_t *kept);

    /* dx = dy where it was kept, scaled likewise; else 0. dx may be dy. */
    void (*drop_apply)(float p, size_t n, const uint8_t *kept, const float *dy, float *dx);

    /* c += a · b, or start + a · b, as fedge_panels says. */
    void (*panels)(const fedge_panels *args);
    /* y ← x + [bias]: [rows] rows of [width] floats. */
    void (*copy_rows)(size_t rows, size_t width, const float *x, size_t x_stride, float bias,
                      float *y, size_t y_stride);
    /* y (columns, rows) = xᵀ. x: (rows, columns). */
    void (*transpose)(size_t rows, size_t columns, const float *x, size_t x_stride, float *y,
                      size_t y_stride);

    /* y = bias + Σ w · x over the taps, or with [add] y += Σ; dw += Σ dy · x over the outputs. y,
     * dy: (rows, width), w, dw: (kernel[0], kernel[1]). */
    void (*depthwise)(const fedge_depthwise *shape, const float *x, const float *w, float bias,
                      bool add, float *y);
    void (*depthwise_slopes)(const fedge_depthwise *shape, const float *x, const float *dy,
                             float *dw);

    /* LSTM, gates i, f, g, o. Forward from their sums s:
     *   i, f, o = σ(s)   g = tanh(s)   c = f · c_before + i · g   h = o · tanh(c)
     * Backward from values to the gradients of the sums. GRU, gates n, r, z, q:
     *   r, z = σ(s)   n = tanh(s + r · q)   h = (1 − z) · n + z · h_before   q = s
     * Gradients less than FEDGE_CELL_LEAST become 0: over many steps they fade to numbers below
     * 2^-126, with which a CPU may be a hundred times as slow. */
    void (*lstm_forward)(const fedge_cell_step *step);
    void (*lstm_backward)(const fedge_cell_step *step);
    void (*gru_forward)(const fedge_cell_step *step);
    void (*gru_backward)(const fedge_cell_step *step);

    void (*relu_forward)(float *x, size_t n);                   /* x = max(x, 0); NaN stays */
    void (*relu_backward)(const float *y, float *dy, size_t n); /* dy = y > 0 ? dy : 0 */

    /* The same from one bit per value: bit i % 8 of bits[i / 8] is y[i] > 0. bits: n / 8 bytes,
     * rounded up. dx may be dy. */
    void (*relu_bits)(const float *y, size_t n, uint8_t *bits);
    void (*relu_from_bits)(const uint8_t *bits, const float *dy, float *dx, size_t n);

    /* y[i] = e^x[i], 1 / (1 + e^−x[i]), tanh x[i]. y may be x. The result is less than 2, 4 and 4
     * units in the last place from the exact one, and 2 · 2^-126 where that or e^−x is no normal
     * number. NaN gives NaN. */
    void (*exp)(const float *x, float *y, size_t n);
    void (*sigmoid)(const float *x, float *y, size_t n);
    void (*tanh)(const float *x, float *y, size_t n);

    /* GELU by the error function. gelu: y[i] = x Φ(x) with x = x[i], Φ the normal distribution;
     * y may be x. gelu_backward: dx[i] = dy[i] · (Φ(x) + x φ(x)), φ = Φ', and y[i] as gelu gives it
     * unless y is NULL; dx may be dy. Off by less than 2^-23 · (|exact| + |x| Φ(−|x|) (x² + 8)),
     * the slope by less than 2^-23 · (2 + |x| φ(x) (x² + 8)); of what is not finite
     * comes what is not finite. */
    void (*gelu)(const float *x, float *y, size_t n);
    void (*gelu_backward)(const float *x, const float *dy, float *dx, float *y, size_t n);
    /* Sums of x − center and its square; of dz and dz · (x − center). Up to 64 · lanes values are
     * summed in float, then in double. */
    void (*moments)(const float *x, size_t n, float center, double sums[2]);
    void (*products)(const float *x, const float *dy, size_t n, const fedge_normal *normal,
                     double sums[2]);

    /* What follows gives equal bits on every table (loops.h). Where something is written
     * it may lie on what is read, place upon place. */

    void (*normalize)(const float *x, size_t n, const fedge_normal *normal, float *y);
    void (*normalize_backward)(const float *x, const float *dy, size_t n,
                               const fedge_normal *normal, const fedge_norm_slope *slope,
                               float *dx);
    void (*add)(const float *x, size_t n, float *y); /* y += x */
    /* Of each row, even[i] = x[2i] and odd[i] = x[2i + 1]; y[2i] = x[i] and y[2i + 1] = 0. i <
     * width; x is apart from what is written. */
    void (*split_rows)(size_t rows, size_t width, const float *x, size_t x_stride, float *even,
                       float *odd, size_t y_stride);
    void (*spread_rows)(size_t rows, size_t width, const float *x, size_t x_stride, float *y,
                        size_t y_stride);
    /* Of each row, y[i] = x[2i], i < width; y[2i] = even[i] and y[2i + 1] = odd[i], as far as
     * width. x is apart from what is written. */
    void (*pick_rows)(size_t rows, size_t width, const float *x, size_t x_stride, float *y,
                      size_t y_stride);
    void (*weave_rows)(size_t rows, size_t width, const float *even, const float *odd,
                       size_t x_stride, float *y, size_t y_stride);
    void (*relu6_forward)(const float *x, size_t n, float *y); /* NaN stays */
    /* dx = 0 < y < 6 ? dy : 0 */
    void (*relu6_backward)(const float *y, const float *dy, size_t n, float *dx);
    void (*adam)(const fedge_adam_step *step, size_t n, const float *g, float *w, float *m,
                 float *v);
    bool (*all_finite)(const float *x, size_t n);
} fedge_kernels;

extern const fedge_kernels fedge_kernels_scalar;
#if defined(__x86_64__)
extern const fedge_kernels fedge_kernels_avx2;
extern const fedge_kernels fedge_kernels_avx512;
#elif defined(__aarch64__)
extern const fedge_kernels fedge_kernels_neon;
#endif

/* The best table for a CPU with these FEDGE_CPU_ features. */
const fedge_kernels *fedge_kernels_choose(unsigned cpu_features);

/* One step of torch.optim.SGD without Nesterov of one parameter: g += weight_decay · w;
 * v = momentum · v + g;  w −= lr · v. Without a velocity (momentum 0) v is g. */
static inline void fedge_sgd_apply(const fedge_optimizer *sgd, float g, float *w, float *v)
{
    g += sgd->weight_decay * *w;
    if (v) {
        *v = sgd->momentum * *v + g;
        g = *v;
    }
    *w -= sgd->learning_rate * g;
}

#endif

/* The arithmetic of training, one table per instruction set; private to edge/train.
 *
 * Layouts. "lanes" is the table's vector width in floats. Inside a model, images are channels-last,
 * (h, w, c), with the channels padded with zeros to a multiple of lanes. A convolution reads the
 * patch under one output pixel as segments of contiguous floats, so no patch is copied:
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

/* The shape of a convolution. */
typedef struct fedge_conv_shape {
    const uint32_t *segment_offsets; /* (num_segments): floats from the patch's first */
    uint32_t num_segments;
    uint32_t segment_length; /* floats in a segment */
    uint32_t segment_stride; /* floats per segment in gradients: the length rounded up to lanes */
    uint32_t out_channels;   /* padded to a multiple of lanes */
    uint32_t out_w;          /* output pixels in a row */
    uint32_t pixel_stride;   /* floats between the patches of adjacent pixels */
} fedge_conv_shape;

/* One non-zero gradient of an output channel. */
typedef struct fedge_grad_entry {
    uint32_t offset; /* offset of its patch, in floats from the start of the example's input */
    float value;
} fedge_grad_entry;

/* A row of max-pooling over channels-last images. */
typedef struct fedge_pool_shape {
    uint32_t channels;                  /* padded */
    uint32_t in_w, out_w;               /* pixels in a row */
    uint32_t kernel_w, stride_w, pad_w; /* horizontal */
    uint32_t row_begin, row_end; /* rows of the window inside the image: [begin, end) of kernel_h */
} fedge_pool_shape;

/* A fully connected layer's sizes. */
typedef struct fedge_linear_shape {
    uint32_t batch, in, out;
} fedge_linear_shape;

/* A matrix product: c = a · b, c = start + a · b or c += a · b. a: (m, k), b: (k, n), c: (m, n);
 * element (i, j) of a is at a[i · a_row + j · a_column], so either operand may be transposed. An
 * operand may also be a view whose columns or rows begin at offsets from a table (a convolution's
 * patches). */
typedef struct fedge_gemm {
    size_t m, n, k;
    const float *a;
    size_t a_row, a_column;
    const uint32_t *a_offsets; /* (k): offset of each column of a, replaces j · a_column; or NULL */
    const float *b;
    size_t b_row, b_column; /* fastest if b_column is 1: b is then not copied */
    const uint32_t
        *b_offsets; /* (k) with b_column 1: offset of each row of b, replaces i · b_row; else (n):
                       offset of each column, replaces j · b_column; may be NULL */
    const uint32_t *starts;   /* (n / group), needs b_column 1: offset of each group of columns in a
                                 row of b and of c; NULL: columns are contiguous */
    const uint32_t *c_starts; /* offsets for c if they differ from starts; may be NULL */
    uint32_t group;           /* columns of a group, the table's lanes; divides n; needs starts */
    float *c;
    size_t c_row;
    bool accumulate;
    const float *start; /* (n), added to every row; NULL: 0. NULL with accumulate */
} fedge_gemm;

/* Softmax of rows: row r is at s + r · stride. Its first visible + r values take part, or all of
 * [width] if [visible] is 0; the others up to [width] become 0. */
typedef struct fedge_softmax {
    float *s;
    size_t rows, stride, width, visible;
    float scale;
    float *saved;   /* (rows, 2): −scale · largest score, 1 / sum of exponentials */
    bool recompute; /* use [saved] instead of computing it */
} fedge_softmax;

/* The norm of each of [rows] rows of [width] values: y = (x − mean) / sqrt(variance + eps) · weight
 * + bias. */
typedef struct fedge_norm_rows {
    size_t rows, width;
    float eps;
    const float *weight, *bias;             /* (width); NULL: 1, 0 */
    float *weight_gradient, *bias_gradient; /* (width), accumulated; or NULL */
    float *moments; /* (rows, 2): mean and 1 / sqrt(variance + eps); forward: or NULL */
    bool recompute; /* forward with the given moments */
} fedge_norm_rows;

/* A depthwise convolution of one padded channel x: output (r, q) multiplies tap (i, j) by
 * x[r · step + i · pitch + columns[j] + q]. Up to lanes − 1 floats after the last of a row are
 * read too; they must be finite and do not change the result. */
typedef struct fedge_depthwise {
    size_t rows, width;      /* shape of the outputs, which are contiguous */
    size_t kernel[2];        /* height and width */
    size_t step;             /* floats of x between rows of outputs */
    size_t pitch;            /* floats of x between rows of taps */
    const uint32_t *columns; /* (kernel[1]): tap offsets along a row */
} fedge_depthwise;

/* c += a · b for a matrix b (k, n) that is used often and stored in panels of the table's
 * packed_columns columns: each (k, packed_columns), the last one padded with zeros. Rows of a are
 * a_row apart. If a_block > 0, aᵀ is stored in blocks of the table's lanes columns, each (k,
 * lanes), a_block apart: element (i, j) of a is at a[i / lanes · a_block + j · lanes + i % lanes].
 * Otherwise like fedge_gemm. Always fp32. */
typedef struct fedge_panels {
    size_t m, n, k;
    const float *a;
    size_t a_row, a_block;
    const float *b;
    const float *start; /* (n): c = start + a · b; NULL: c += a · b */
    float *c;
    size_t c_row;
    const struct fedge_panels *next; /* another n, b, start and c for the same a; or NULL */
} fedge_panels;

/* Offsets of column k of a, row k of b, column j of c and column j of b. */
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
    return starts ? starts[j / args->group] + j % args->group : j;
}

static inline size_t fedge_gemm_b_column(const fedge_gemm *args, size_t j)
{
    if (args->starts)
        return args->starts[j / args->group] + j % args->group;
    return args->b_offsets && args->b_column != 1 ? args->b_offsets[j] : j * args->b_column;
}

/* A norm, z = (x − center) · scale + shift, and the rectifier after it: y = z if ceiling is 0,
 * else y = min(max(z, 0), ceiling), whose gradient passes to z where 0 < z < ceiling. */
typedef struct fedge_normal {
    float center, scale, shift, ceiling;
} fedge_normal;

/* Coefficients of dx[i] = dz[i] · dz + (x[i] − center) · x + one. */
typedef struct fedge_norm_gradient {
    float dz, x, one;
} fedge_norm_gradient;

/* The factors of a step of Adam. t is the number of this step, from 1. */
typedef struct fedge_adam_step {
    float beta1, beta2, epsilon;
    float step_size;     /* lr / (1 − β1^t) */
    float root;          /* sqrt(1 − β2^t) */
    float decay_factor;  /* w is multiplied by it first (AdamW) */
    float coupled_decay; /* g += coupled_decay · w (Adam) */
} fedge_adam_step;

/* Gradients of cells whose magnitude is smaller become 0. Over many steps they would fade to
 * numbers below 2^-126, which slow a CPU down up to a hundred times. */
#define FEDGE_MIN_CELL_GRADIENT 0x1p-90f

/* One step of one example in a recurrent layer. */
typedef struct fedge_cell_step {
    size_t hidden;
    float *gates;                 /* (4, hidden) */
    const float *h_prev, *c_prev; /* (hidden), of the previous step; zeros at the first */
    float *h, *c;                 /* (hidden); forward, c may be c_prev */
    const float *dy;              /* (hidden): the output's gradient */
    float *dh; /* (hidden): read as the next step's part of h's gradient, then set to the part of
                  h_prev's that does not pass through the gates */
    float *dc; /* (hidden): the gradient of c, then that of c_prev */
} fedge_cell_step;

typedef struct fedge_kernels {
    const char *name;
    const char *in_bf16;     /* describes gemm's bf16 (half.h); NULL: gemm is fp32 */
    uint32_t lanes;          /* channels are padded to a multiple of this */
    uint32_t packed_columns; /* output channels per block of packed weights, a multiple of lanes */

    /* y[p][o] = bias[o] + Σ_k x[p][k] · w[k][o] for the pixels p of one row.
     * x: the first patch; y: (out_w, out_channels); bias: (out_channels).
     * w: blocks of packed_columns output channels (the last may be narrower), each (k, columns);
     * k counts through all segments. */
    void (*conv_forward_row)(const fedge_conv_shape *shape, const float *x, const float *w,
                             const float *bias, float *y);

    /* dw[k] += Σ_i list[i].value · x[list[i].offset + k]: one output channel's weight gradient,
     * (segments, segment_stride). Reads up to lanes − 1 floats after a segment. */
    void (*conv_weight_grad)(const fedge_conv_shape *shape, const float *x,
                             const fedge_grad_entry *list, uint32_t n, float *dw);

    /* dx[list[i].offset + k] += list[i].value · w[k]: adds one output channel's part of the
     * input's gradient. Needs segment_length = segment_stride. w: (segments, segment_stride). */
    void (*conv_input_grad)(const fedge_conv_shape *shape, const float *w,
                            const fedge_grad_entry *list, uint32_t n, float *dx);

    /* y: (out_w, channels) = maximum of each window; argmax: its first index in the window,
     * row · kernel_w + column. NaN counts as the maximum, as in PyTorch. x: the window's rows
     * inside the image, (row_end − row_begin, in_w, channels). */
    void (*maxpool_row)(const fedge_pool_shape *shape, const float *x, float *y, uint8_t *argmax);

    /* y = x Wᵀ + bias. x: (batch, in), w: (out, in), bias: (out) or NULL, y: (batch, out). */
    void (*linear_forward)(const fedge_linear_shape *shape, const float *x, const float *w,
                           const float *bias, float *y);

    /* One pass over the weights: dx = dy W unless dx is NULL, then an SGD step of W and its
     * velocity v (NULL without momentum) with gradient dyᵀ x, which is not stored. */
    void (*linear_backward)(const fedge_linear_shape *shape, const float *x, const float *dy,
                            float *w, float *v, const fedge_optimizer *sgd, float *dx);

    /* pack: working memory of gemm_pack floats, aligned to 64 bytes. */
    void (*gemm)(const fedge_gemm *args, float *pack);
    size_t gemm_pack;

    /* The same for operands too small to be worth packing. b_column is 1, and so is a_row or
     * a_column. */
    void (*small_gemm)(const fedge_gemm *args);

    /* s = softmax(scale · s). */
    void (*softmax)(const fedge_softmax *args);

    /* Replaces the probabilities p in s by the gradient of the scores, row by row:
     * scale · p · (dp − Σ p · dp). dp: like s, finite up to [width]. */
    void (*softmax_backward)(const fedge_softmax *args, const float *dp);

    /* y may be x. dx may be dy or NULL. */
    void (*norm_rows)(const fedge_norm_rows *args, const float *x, float *y);
    void (*norm_rows_backward)(const fedge_norm_rows *args, const float *x, const float *dy,
                               float *dx);

    /* Dropout: draws one fedge_rng_float per element; y = x / (1 − p) where it is at least p, else
     * 0. y may be x. mask: (n + 7) / 8 bytes, bit i % 8 of mask[i / 8] set if element i is kept; or
     * NULL. Equal bits on every table. */
    void (*drop_draw)(fedge_rng *rng, float p, size_t n, const float *x, float *y, uint8_t *mask);

    /* dx = dy / (1 − p) where the mask is set, else 0. dx may be dy. */
    void (*drop_apply)(float p, size_t n, const uint8_t *mask, const float *dy, float *dx);

    void (*panels)(const fedge_panels *args);
    /* y = x + bias. x, y: (rows, width). */
    void (*copy_rows)(size_t rows, size_t width, const float *x, size_t x_stride, float bias,
                      float *y, size_t y_stride);
    /* y = xᵀ. x: (rows, columns), y: (columns, rows). */
    void (*transpose)(size_t rows, size_t columns, const float *x, size_t x_stride, float *y,
                      size_t y_stride);

    /* y = bias + Σ w · x over the taps, or y += Σ w · x with [add]. dw += Σ dy · x over the
     * outputs. y, dy: (rows, width), w, dw: (kernel[0], kernel[1]). */
    void (*depthwise)(const fedge_depthwise *shape, const float *x, const float *w, float bias,
                      bool add, float *y);
    void (*depthwise_weight_grad)(const fedge_depthwise *shape, const float *x, const float *dy,
                                  float *dw);

    /* LSTM with gates i, f, g, o. Forward replaces their sums s by their values:
     *   i, f, o = σ(s)   g = tanh(s)   c = f · c_prev + i · g   h = o · tanh(c)
     * Backward replaces the values by the gradients of the sums. GRU with gates n, r, z, q:
     *   r, z = σ(s)   n = tanh(s + r · q)   h = (1 − z) · n + z · h_prev   q = s */
    void (*lstm_forward)(const fedge_cell_step *step);
    void (*lstm_backward)(const fedge_cell_step *step);
    void (*gru_forward)(const fedge_cell_step *step);
    void (*gru_backward)(const fedge_cell_step *step);

    void (*relu_forward)(float *x, size_t n);                   /* x = max(x, 0); NaN stays */
    void (*relu_backward)(const float *y, float *dy, size_t n); /* dy = y > 0 ? dy : 0 */

    /* The same with one bit per value: bit i % 8 of bits[i / 8] is y[i] > 0. bits: (n + 7) / 8
     * bytes. dx may be dy. */
    void (*relu_bits)(const float *y, size_t n, uint8_t *bits);
    void (*relu_from_bits)(const uint8_t *bits, const float *dy, float *dx, size_t n);

    /* y[i] = e^x[i], 1 / (1 + e^−x[i]), tanh x[i]. y may be x. The error is less than 2, 4 and 4
     * units in the last place, or less than 2 · 2^-126 where the result or e^−x is not a normal
     * number. NaN gives NaN. */
    void (*exp)(const float *x, float *y, size_t n);
    void (*sigmoid)(const float *x, float *y, size_t n);
    void (*tanh)(const float *x, float *y, size_t n);

    /* GELU by the error function. gelu: y[i] = x Φ(x) with x = x[i] and the normal distribution Φ;
     * y may be x. gelu_backward: dx[i] = dy[i] · (Φ(x) + x φ(x)) with φ = Φ', and y[i] as gelu
     * unless y is NULL; dx may be dy. The error of y is less than
     * 2^-23 · (|exact| + |x| Φ(−|x|) (x² + 8)), that of the derivative less than
     * 2^-23 · (2 + |x| φ(x) (x² + 8)). If x is not finite, neither are the results. */
    void (*gelu)(const float *x, float *y, size_t n);
    void (*gelu_backward)(const float *x, const float *dy, float *dx, float *y, size_t n);

    /* moments: sums of x − center and of its square. products: sums of dz and of dz · (x − center).
     * Up to 64 · lanes values are summed in float, then in double. */
    void (*moments)(const float *x, size_t n, float center, double sums[2]);
    void (*products)(const float *x, const float *dy, size_t n, const fedge_normal *normal,
                     double sums[2]);

    /* The kernels below give equal bits on every table (loops.h). An output may be an input itself
     * unless stated otherwise. */

    void (*normalize)(const float *x, size_t n, const fedge_normal *normal, float *y);
    void (*normalize_backward)(const float *x, const float *dy, size_t n,
                               const fedge_normal *normal, const fedge_norm_gradient *slope,
                               float *dx);
    void (*add)(const float *x, size_t n, float *y); /* y += x */
    /* For each row and i < width, split_rows: even[i] = x[2i] and odd[i] = x[2i + 1]; spread_rows:
     * y[2i] = x[i] and y[2i + 1] = 0. x does not overlap the outputs. */
    void (*split_rows)(size_t rows, size_t width, const float *x, size_t x_stride, float *even,
                       float *odd, size_t y_stride);
    void (*spread_rows)(size_t rows, size_t width, const float *x, size_t x_stride, float *y,
                        size_t y_stride);
    /* For each row, pick_rows: y[i] = x[2i] for i < width; weave_rows: y[2i] = even[i] and
     * y[2i + 1] = odd[i] up to width. Inputs do not overlap y. */
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

/* The fastest table for a CPU with these FEDGE_CPU_ features. */
const fedge_kernels *fedge_kernels_choose(unsigned cpu_features);

/* One step of torch.optim.SGD without Nesterov for one parameter: g += weight_decay · w;
 * v = momentum · v + g;  w −= lr · v. Without momentum v is NULL and stands for g. */
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

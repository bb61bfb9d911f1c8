/* The reference: plain loops with one lane. Used on CPUs without a vector table. */
#include <math.h>

#include "edge/core/os.h"
#include "edge/train/kernels/kernels.h"
#include "edge/train/kernels/loops.h"

static void conv_forward_row(const fedge_conv_shape *shape, const float *x, const float *w,
                             const float *bias, float *y)
{
    const size_t length = shape->segment_length;
    for (size_t p = 0; p < shape->out_w; p++) {
        for (size_t o = 0; o < shape->out_channels; o++) {
            const float *weights = w + o * shape->num_segments * length;
            float sum = bias[o];
            for (size_t s = 0; s < shape->num_segments; s++) {
                const float *run = x + p * shape->pixel_stride + shape->segment_offsets[s];
                for (size_t k = 0; k < length; k++)
                    sum += run[k] * weights[s * length + k];
            }
            y[p * shape->out_channels + o] = sum;
        }
    }
}

static void conv_weight_grad(const fedge_conv_shape *shape, const float *x,
                             const fedge_grad_entry *list, uint32_t n, float *dw)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t s = 0; s < shape->num_segments; s++) {
            const float *run = x + list[i].offset + shape->segment_offsets[s];
            for (size_t k = 0; k < shape->segment_length; k++)
                dw[s * shape->segment_stride + k] += list[i].value * run[k];
        }
    }
}

static void conv_input_grad(const fedge_conv_shape *shape, const float *w,
                            const fedge_grad_entry *list, uint32_t n, float *dx)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t s = 0; s < shape->num_segments; s++) {
            float *run = dx + list[i].offset + shape->segment_offsets[s];
            for (size_t k = 0; k < shape->segment_length; k++)
                run[k] += list[i].value * w[s * shape->segment_stride + k];
        }
    }
}

static void maxpool_row(const fedge_pool_shape *shape, const float *x, float *y, uint8_t *argmax)
{
    const size_t channels = shape->channels;
    for (size_t p = 0; p < shape->out_w; p++) {
        for (size_t c = 0; c < channels; c++) {
            float best = -INFINITY;
            size_t index = SIZE_MAX;
            for (size_t r = shape->row_begin; r < shape->row_end; r++) {
                for (size_t q = 0; q < shape->kernel_w; q++) {
                    const size_t column = p * shape->stride_w + q; /* counted from −pad_w */
                    if (column < shape->pad_w || column >= shape->in_w + shape->pad_w)
                        continue;
                    const size_t row = r - shape->row_begin;
                    const float value =
                        x[(row * shape->in_w + column - shape->pad_w) * channels + c];
                    if (index == SIZE_MAX || value > best || isnan(value)) {
                        best = value;
                        index = r * shape->kernel_w + q;
                    }
                }
            }
            y[p * channels + c] = best;
            argmax[p * channels + c] = (uint8_t)index;
        }
    }
}

/* ---- fully connected ----
 *
 * Microcontrollers run these, so instructions count: inputs are read in groups of four, and groups
 * of zeros (the background of images, units below 0 before a ReLU) are skipped for all rows. A sum
 * still adds its products in the order of the inputs. A skipped product is 0 · w, so a weight that
 * is not finite shows only if its input is not 0.
 */
#define GROUP 4
#define MAX_GROUPS 64 /* per chunk of inputs; their list is on the stack */
#define ROWS 8        /* outputs at a time, forward */
#define STEP_ROWS 4   /* outputs at a time in an update, which needs one more register each */
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

/* A group of weights and its inputs a, b, c, d: sum + w · x in order, and w -= scale · x. Every
 * product is rounded before it is added. Microcontrollers have one instruction for both, and one
 * for four loads, which compilers do not use. */
#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M' && defined(__ARM_FP)
typedef struct weight_group { /* tells the compiler which memory the instructions access */
    float w[GROUP];
} weight_group;

INLINE float dot_group(float sum, const float *w, float a, float b, float c, float d)
{
    __asm__("vldmia %1, {s28-s31}\n\t"
            "vmla.f32 %0, %2, s28\n\tvmla.f32 %0, %3, s29\n\t"
            "vmla.f32 %0, %4, s30\n\tvmla.f32 %0, %5, s31"
            : "+&t"(sum)
            : "r"(w), "t"(a), "t"(b), "t"(c), "t"(d), "m"(*(const weight_group *)(const void *)w)
            : "s28", "s29", "s30", "s31");
    return sum;
}

INLINE void step_group(float *w, float scale, float a, float b, float c, float d)
{
    __asm__("vldmia %1, {s28-s31}\n\t"
            "vmls.f32 s28, %2, %3\n\tvmls.f32 s29, %2, %4\n\t"
            "vmls.f32 s30, %2, %5\n\tvmls.f32 s31, %2, %6\n\t"
            "vstmia %1, {s28-s31}"
            : "+m"(*(weight_group *)(void *)w)
            : "r"(w), "t"(scale), "t"(a), "t"(b), "t"(c), "t"(d)
            : "s28", "s29", "s30", "s31");
}
#else
INLINE float dot_group(float sum, const float *w, float a, float b, float c, float d)
{
    sum += a * w[0];
    sum += b * w[1];
    sum += c * w[2];
    sum += d * w[3];
    return sum;
}

INLINE void step_group(float *w, float scale, float a, float b, float c, float d)
{
    w[0] -= scale * a;
    w[1] -= scale * b;
    w[2] -= scale * c;
    w[3] -= scale * d;
}
#endif

typedef struct group_list {
    uint32_t n;
    uint16_t at[MAX_GROUPS]; /* offsets of the groups' first inputs within the chunk */
} group_list;

/* Lists the groups of x[0..n) that are not all zero, from at most MAX_GROUPS groups. Returns the
 * number of inputs covered. */
static size_t list_groups(const float *x, size_t n, group_list *list)
{
    const size_t max_groups = n / GROUP < MAX_GROUPS ? n / GROUP : MAX_GROUPS;
    uint32_t count = 0;
    for (size_t k = 0; k < max_groups * GROUP; k += GROUP) {
        if (x[k] != 0.0f || x[k + 1] != 0.0f || x[k + 2] != 0.0f || x[k + 3] != 0.0f)
            list->at[count++] = (uint16_t)k;
    }
    list->n = count;
    return max_groups * GROUP;
}

/* y[r] += Σ x · w over the listed groups, for [rows] rows of W. */
INLINE void dot_rows(const size_t rows, const float *x, const float *w, size_t stride,
                     const group_list *list, float *y)
{
    float sum[ROWS];
    UNROLL
    for (size_t r = 0; r < rows; r++)
        sum[r] = y[r];
    for (const uint16_t *at = list->at, *end = at + list->n; at < end; at++) {
        const float *in = x + *at, *weight = w + *at;
        const float a = in[0], b = in[1], c = in[2], d = in[3];
        UNROLL
        for (size_t r = 0; r < rows; r++, weight += stride)
            sum[r] = dot_group(sum[r], weight, a, b, c, d);
    }
    UNROLL
    for (size_t r = 0; r < rows; r++)
        y[r] = sum[r];
}

static void linear_forward_one(const fedge_linear_shape *shape, const float *x, const float *w,
                               float *y)
{
    const size_t in = shape->in, out = shape->out;
    group_list list;
    size_t k = 0;
    while (in - k >= GROUP) {
        const size_t covered = list_groups(x + k, in - k, &list);
        size_t o = 0;
        for (; o + ROWS <= out; o += ROWS)
            dot_rows(ROWS, x + k, w + o * in + k, in, &list, y + o);
        for (; o < out; o++)
            dot_rows(1, x + k, w + o * in + k, in, &list, y + o);
        k += covered;
    }
    for (; k < in; k++) {
        for (size_t o = 0; o < out; o++)
            y[o] += x[k] * w[o * in + k];
    }
}

static void linear_forward(const fedge_linear_shape *shape, const float *x, const float *w,
                           const float *bias, float *y)
{
    for (size_t b = 0; b < shape->batch; b++) {
        for (size_t o = 0; o < shape->out; o++)
            y[b * shape->out + o] = !bias ? 0.0f : bias[o];
        linear_forward_one(shape, x + b * shape->in, w, y + b * shape->out);
    }
}

/* dx = dy W for one example. */
static void linear_input_grad(const fedge_linear_shape *shape, const float *dy, const float *w,
                              float *dx)
{
    const size_t in = shape->in;
    for (size_t k = 0; k < in; k++)
        dx[k] = 0.0f;
    for (size_t o = 0; o < shape->out; o++, w += in) {
        for (size_t k = 0; dy[o] != 0.0f && k < in; k++)
            dx[k] += dy[o] * w[k];
    }
}

/* w[r][k] -= scale[r] · x[k] over the listed groups. */
INLINE void step_rows(const size_t rows, const float *x, const group_list *list, float *const w[],
                      const float scale[])
{
    for (const uint16_t *at = list->at, *end = at + list->n; at < end; at++) {
        const float *in = x + *at;
        const float a = in[0], b = in[1], c = in[2], d = in[3];
        UNROLL
        for (size_t r = 0; r < rows; r++)
            step_group(w[r] + *at, scale[r], a, b, c, d);
    }
}

/* Plain SGD on one example. Skips rows whose gradient is 0 and groups of inputs that are 0. */
static void linear_step_one(const fedge_linear_shape *shape, const float *x, const float *dy,
                            float *w, float learning_rate)
{
    const size_t in = shape->in, out = shape->out;
    group_list list;
    size_t k = 0;
    while (in - k >= GROUP) {
        const size_t covered = list_groups(x + k, in - k, &list);
        float *row[STEP_ROWS];
        float scale[STEP_ROWS];
        size_t rows = 0;
        for (size_t o = 0; o < out; o++) {
            if (dy[o] == 0.0f)
                continue;
            row[rows] = w + o * in + k;
            scale[rows++] = learning_rate * dy[o];
            if (rows == STEP_ROWS) {
                step_rows(STEP_ROWS, x + k, &list, row, scale);
                rows = 0;
            }
        }
        for (size_t r = 0; r < rows; r++)
            step_rows(1, x + k, &list, row + r, scale + r);
        k += covered;
    }
    for (; k < in; k++) {
        for (size_t o = 0; o < out; o++)
            w[o * in + k] -= learning_rate * dy[o] * x[k];
    }
}

static void linear_backward(const fedge_linear_shape *shape, const float *x, const float *dy,
                            float *w, float *v, const fedge_optimizer *sgd, float *dx)
{
    const size_t in = shape->in, out = shape->out;
    for (size_t b = 0; dx && b < shape->batch; b++)
        linear_input_grad(shape, dy + b * out, w, dx + b * in);
    if (shape->batch == 1 && !v && sgd->weight_decay == 0.0f) {
        linear_step_one(shape, x, dy, w, sgd->learning_rate);
        return;
    }
    for (size_t o = 0; o < out; o++) {
        for (size_t k = 0; k < in; k++) {
            float g = 0.0f;
            for (size_t b = 0; b < shape->batch; b++)
                g += dy[b * out + o] * x[b * in + k];
            fedge_sgd_apply(sgd, g, &w[o * in + k], !v ? NULL : &v[o * in + k]);
        }
    }
}

static void gemm(const fedge_gemm *args, float *pack)
{
    (void)pack;
    const bool rows = args->b_column == 1 && !args->starts;
    for (size_t i = 0; i < args->m; i++) {
        float *c = args->c + i * args->c_row;
        const float *a = args->a + i * args->a_row;
        for (size_t j = 0; !args->accumulate && j < args->n; j++)
            c[fedge_gemm_c_column(args, j)] = !args->start ? 0.0f : args->start[j];
        for (size_t k = 0; rows && k < args->k; k++) {
            const float factor = a[fedge_gemm_a_column(args, k)];
            const float *b = args->b + fedge_gemm_b_row(args, k);
            for (size_t j = 0; j < args->n; j++)
                c[j] += factor * b[j];
        }
        for (size_t j = 0; !rows && j < args->n; j++) {
            const float *b = args->b + fedge_gemm_b_column(args, j);
            float sum = c[fedge_gemm_c_column(args, j)];
            for (size_t k = 0; k < args->k; k++)
                sum += a[fedge_gemm_a_column(args, k)] * b[fedge_gemm_b_row(args, k)];
            c[fedge_gemm_c_column(args, j)] = sum;
        }
    }
}

static void moments(const float *x, size_t n, float center, double sums[2])
{
    sums[0] = sums[1] = 0.0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)x[i] - (double)center;
        sums[0] += d;
        sums[1] += d * d;
    }
}

static void products(const float *x, const float *dy, size_t n, const fedge_normal *normal,
                     double sums[2])
{
    sums[0] = sums[1] = 0.0;
    for (size_t i = 0; i < n; i++) {
        const float z = (x[i] - normal->center) * normal->scale + normal->shift;
        if (!(normal->ceiling > 0.0f) || (z > 0.0f && z < normal->ceiling)) {
            sums[0] += (double)dy[i];
            sums[1] += (double)dy[i] * ((double)x[i] - (double)normal->center);
        }
    }
}

static void copy_rows(size_t rows, size_t width, const float *x, size_t x_stride, float bias,
                      float *y, size_t y_stride)
{
    for (size_t r = 0; r < rows; r++, x += x_stride, y += y_stride) {
        for (size_t i = 0; i < width; i++)
            y[i] = x[i] + bias;
    }
}

static void transpose(size_t rows, size_t columns, const float *x, size_t x_stride, float *y,
                      size_t y_stride)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < columns; i++)
            y[i * y_stride + r] = x[r * x_stride + i];
    }
}

/* ---- rows: small products, softmax, norms, dropout ---- */

static void small_gemm(const fedge_gemm *args)
{
    gemm(args, NULL);
}

static void softmax(const fedge_softmax *args)
{
    for (size_t r = 0; r < args->rows; r++) {
        float *s = args->s + r * args->stride, *saved = args->saved + 2 * r;
        const size_t n = args->visible == 0 ? args->width : args->visible + r;
        float max = s[0], sum = 0.0f;
        for (size_t j = 1; j < n; j++)
            max = s[j] > max ? s[j] : max;
        saved[0] = args->recompute ? saved[0] : -args->scale * max;
        for (size_t j = 0; j < n; j++) {
            s[j] = expf(s[j] * args->scale + saved[0]);
            sum += s[j];
        }
        saved[1] = args->recompute ? saved[1] : 1.0f / sum;
        for (size_t j = 0; j < args->width; j++)
            s[j] = j < n ? s[j] * saved[1] : 0.0f;
    }
}

static void softmax_backward(const fedge_softmax *args, const float *dp)
{
    for (size_t r = 0; r < args->rows; r++, dp += args->stride) {
        float *p = args->s + r * args->stride, sum = 0.0f;
        for (size_t j = 0; j < args->width; j++)
            sum += p[j] * dp[j];
        for (size_t j = 0; j < args->width; j++)
            p[j] *= (dp[j] - sum) * args->scale;
    }
}

static void norm_rows(const fedge_norm_rows *args, const float *x, float *y)
{
    const size_t n = args->width;
    for (size_t r = 0; r < args->rows; r++, x += n, y += n) {
        double sum = 0.0, squares = 0.0;
        for (size_t i = 0; !args->recompute && i < n; i++)
            sum += (double)x[i];
        const double center = sum / (double)n;
        for (size_t i = 0; !args->recompute && i < n; i++)
            squares += ((double)x[i] - center) * ((double)x[i] - center);
        const double variance = squares / (double)n + (double)args->eps;
        const float mean = args->recompute ? args->moments[2 * r] : (float)center;
        const float inverse =
            args->recompute ? args->moments[2 * r + 1] : (float)(1.0 / sqrt(variance));
        for (size_t i = 0; i < n; i++) {
            y[i] = (x[i] - mean) * (inverse * (!args->weight ? 1.0f : args->weight[i])) +
                   (!args->bias ? 0.0f : args->bias[i]);
        }
        if (args->moments) {
            args->moments[2 * r] = mean;
            args->moments[2 * r + 1] = inverse;
        }
    }
}

static void norm_rows_backward(const fedge_norm_rows *args, const float *x, const float *dy,
                               float *dx)
{
    const size_t n = args->width;
    for (size_t r = 0; r < args->rows; r++, x += n, dy += n) {
        const float mean = args->moments[2 * r], inverse = args->moments[2 * r + 1];
        double sum = 0.0, product = 0.0;
        for (size_t i = 0; i < n; i++) {
            const float normal = (x[i] - mean) * inverse;
            const float g = dy[i] * (!args->weight ? 1.0f : args->weight[i]);
            sum += (double)g;
            product += (double)(g * normal);
            if (args->weight_gradient)
                args->weight_gradient[i] += dy[i] * normal;
            if (args->bias_gradient)
                args->bias_gradient[i] += dy[i];
        }
        const float g_mean = (float)(sum / (double)n), g_product = (float)(product / (double)n);
        for (size_t i = 0; dx && i < n; i++) {
            const float g = dy[i] * (!args->weight ? 1.0f : args->weight[i]);
            dx[r * n + i] = (g - g_mean - (x[i] - mean) * inverse * g_product) * inverse;
        }
    }
}

static float drop_scale(float p)
{
    return p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
}

static void drop_draw(fedge_rng *rng, float p, size_t n, const float *x, float *y, uint8_t *mask)
{
    const float scale = drop_scale(p);
    for (size_t i = 0; i < n; i++) {
        const bool keep = fedge_rng_float(rng) >= p;
        y[i] = keep ? x[i] * scale : 0.0f;
        if (mask) {
            const unsigned before = i % 8 == 0 ? 0 : mask[i / 8];
            mask[i / 8] = (uint8_t)(before | (unsigned)keep << i % 8);
        }
    }
}

static void drop_apply(float p, size_t n, const uint8_t *mask, const float *dy, float *dx)
{
    const float scale = drop_scale(p);
    for (size_t i = 0; i < n; i++)
        dx[i] = mask[i / 8] >> i % 8 & 1 ? dy[i] * scale : 0.0f;
}

static void relu_forward(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] < 0.0f ? 0.0f : x[i];
}

static void relu_backward(const float *y, float *dy, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dy[i] = y[i] > 0.0f ? dy[i] : 0.0f;
}

/* A panel is one column of b, a block one row of a. */
static void panels(const fedge_panels *args)
{
    const size_t a_row = args->a_block > 0 ? args->a_block : args->a_row;
    for (const fedge_panels *to = args; to != NULL; to = to->next) {
        for (size_t i = 0; i < args->m; i++) {
            for (size_t j = 0; j < to->n; j++) {
                float sum = 0.0f;
                for (size_t k = 0; k < args->k; k++)
                    sum += args->a[i * a_row + k] * to->b[j * args->k + k];
                float *c = &to->c[i * to->c_row + j];
                *c = (!to->start ? *c : to->start[j]) + sum;
            }
        }
    }
}

static void exp_each(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = expf(x[i]);
}

static void sigmoid_each(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = 1.0f / (1.0f + expf(-x[i]));
}

static void tanh_each(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = tanhf(x[i]);
}

static float normal_distribution(float x)
{
    return 0.5f * erfcf(x * -0.70710678118654752f); /* −x / √2 */
}

static void gelu_each(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * normal_distribution(x[i]);
}

static void gelu_backward(const float *x, const float *dy, float *dx, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float cdf = normal_distribution(x[i]);
        const float density = 0.39894228040143268f * expf(-0.5f * x[i] * x[i]); /* / √(2π) */
        dx[i] = dy[i] * (cdf + x[i] * density);
        if (y)
            y[i] = x[i] * cdf;
    }
}

static void relu_bits(const float *y, size_t n, uint8_t *bits)
{
    for (size_t i = 0; i < n; i += 8) {
        unsigned byte = 0;
        for (size_t k = 0; k < 8 && i + k < n; k++)
            byte |= (unsigned)(y[i + k] > 0.0f) << k;
        bits[i / 8] = (uint8_t)byte;
    }
}

static void relu_from_bits(const uint8_t *bits, const float *dy, float *dx, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dx[i] = bits[i / 8] >> i % 8 & 1 ? dy[i] : 0.0f;
}

/* ---- steps of recurrent layers ---- */

static void lstm_forward(const fedge_cell_step *step)
{
    const size_t n = step->hidden;
    float *i = step->gates, *f = i + n, *g = f + n, *o = g + n;
    sigmoid_each(i, i, 2 * n);
    tanh_each(g, g, n);
    sigmoid_each(o, o, n);
    for (size_t k = 0; k < n; k++) {
        step->c[k] = f[k] * step->c_prev[k] + i[k] * g[k];
        step->h[k] = o[k] * tanhf(step->c[k]);
    }
}

static float zero_if_tiny(float gradient)
{
    return fabsf(gradient) < FEDGE_MIN_CELL_GRADIENT ? 0.0f : gradient;
}

static void lstm_backward(const fedge_cell_step *step)
{
    const size_t n = step->hidden;
    float *i = step->gates, *f = i + n, *g = f + n, *o = g + n;
    for (size_t k = 0; k < n; k++) {
        const float tanh_c = tanhf(step->c[k]), dh = step->dy[k] + step->dh[k];
        const float dc = step->dc[k] + dh * o[k] * (1.0f - tanh_c * tanh_c);
        const float di = dc * g[k], df = dc * step->c_prev[k], dg = dc * i[k];
        step->dc[k] = zero_if_tiny(dc * f[k]);
        step->dh[k] = 0.0f;
        i[k] = zero_if_tiny(di * i[k] * (1.0f - i[k]));
        f[k] = zero_if_tiny(df * f[k] * (1.0f - f[k]));
        g[k] = zero_if_tiny(dg * (1.0f - g[k] * g[k]));
        o[k] = zero_if_tiny(dh * tanh_c * o[k] * (1.0f - o[k]));
    }
}

static void gru_forward(const fedge_cell_step *step)
{
    const size_t size = step->hidden;
    float *n = step->gates, *r = n + size, *z = r + size, *q = z + size;
    sigmoid_each(r, r, 2 * size);
    for (size_t k = 0; k < size; k++) {
        n[k] = tanhf(n[k] + r[k] * q[k]);
        step->h[k] = n[k] + z[k] * (step->h_prev[k] - n[k]);
    }
}

static void gru_backward(const fedge_cell_step *step)
{
    const size_t size = step->hidden;
    float *n = step->gates, *r = n + size, *z = r + size, *q = z + size;
    for (size_t k = 0; k < size; k++) {
        const float dh = step->dy[k] + step->dh[k];
        const float dn = dh * (1.0f - z[k]) * (1.0f - n[k] * n[k]);
        const float dr = dn * q[k] * r[k] * (1.0f - r[k]);
        const float dz = dh * (step->h_prev[k] - n[k]) * z[k] * (1.0f - z[k]);
        step->dh[k] = zero_if_tiny(dh * z[k]);
        n[k] = zero_if_tiny(dn);
        q[k] = zero_if_tiny(dn * r[k]);
        r[k] = zero_if_tiny(dr);
        z[k] = zero_if_tiny(dz);
    }
}

/* ---- depthwise convolutions ---- */

static void depthwise(const fedge_depthwise *shape, const float *x, const float *w, float bias,
                      bool add, float *y)
{
    for (size_t r = 0; r < shape->rows; r++, x += shape->step) {
        for (size_t q = 0; q < shape->width; q++, y++) {
            float sum = add ? *y : bias;
            for (size_t i = 0; i < shape->kernel[0]; i++) {
                for (size_t j = 0; j < shape->kernel[1]; j++) {
                    sum +=
                        w[i * shape->kernel[1] + j] * x[i * shape->pitch + shape->columns[j] + q];
                }
            }
            *y = sum;
        }
    }
}

static void depthwise_weight_grad(const fedge_depthwise *shape, const float *x, const float *dy,
                                  float *dw)
{
    for (size_t i = 0; i < shape->kernel[0]; i++) {
        for (size_t j = 0; j < shape->kernel[1]; j++) {
            float sum = 0.0f;
            for (size_t r = 0; r < shape->rows; r++) {
                const float *from = x + r * shape->step + i * shape->pitch + shape->columns[j];
                for (size_t q = 0; q < shape->width; q++)
                    sum += dy[r * shape->width + q] * from[q];
            }
            dw[i * shape->kernel[1] + j] += sum;
        }
    }
}

const fedge_kernels fedge_kernels_scalar = {
    .name = "scalar",
    .lanes = 1,
    .packed_columns = 1,
    .conv_forward_row = conv_forward_row,
    .conv_weight_grad = conv_weight_grad,
    .conv_input_grad = conv_input_grad,
    .maxpool_row = maxpool_row,
    .linear_forward = linear_forward,
    .linear_backward = linear_backward,
    .gemm = gemm,
    .gemm_pack = 0,
    .small_gemm = small_gemm,
    .softmax = softmax,
    .softmax_backward = softmax_backward,
    .norm_rows = norm_rows,
    .norm_rows_backward = norm_rows_backward,
    .drop_draw = drop_draw,
    .drop_apply = drop_apply,
    .copy_rows = copy_rows,
    .transpose = transpose,
    .relu_forward = relu_forward,
    .relu_backward = relu_backward,
    .relu_bits = relu_bits,
    .relu_from_bits = relu_from_bits,
    .panels = panels,
    .depthwise = depthwise,
    .depthwise_weight_grad = depthwise_weight_grad,
    .lstm_forward = lstm_forward,
    .lstm_backward = lstm_backward,
    .gru_forward = gru_forward,
    .gru_backward = gru_backward,
    .exp = exp_each,
    .sigmoid = sigmoid_each,
    .tanh = tanh_each,
    .gelu = gelu_each,
    .gelu_backward = gelu_backward,
    .moments = moments,
    .products = products,
    LOOP_KERNELS,
};

/* ---- which table ---- */

const fedge_kernels *fedge_kernels_choose(unsigned cpu_features)
{
#if defined(__x86_64__)
#if !defined(FEDGE_NO_AVX512)
    if (cpu_features & FEDGE_CPU_AVX512)
        return &fedge_kernels_avx512;
#endif
    if (cpu_features & FEDGE_CPU_AVX2)
        return &fedge_kernels_avx2;
#elif defined(__aarch64__)
    if (cpu_features & FEDGE_CPU_NEON)
        return &fedge_kernels_neon;
#else
    (void)cpu_features;
#endif
    return &fedge_kernels_scalar;
}

/* Small products, transposes, the softmax of attention, the norm of rows and dropout, on every
 * table, against double precision: random shapes, of which many end in a part of a vector. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "edge/train/kernels/kernels.h"
#include "tests/edge/train/support.h"

#define TRIALS 400
#define MOST 70u     /* rows or columns */
#define UNIT 0x1p-24 /* half a unit in the last place, relative */
#define BEFORE 3.25f /* what an array holds where nothing may be written */

/* [n] floats and one behind them. */
static float *room(size_t n)
{
    float *v = malloc((n + 1) * sizeof(*v));
    assert_non_null(v);
    for (size_t i = 0; i <= n; i++)
        v[i] = BEFORE;
    return v;
}

static float *normals(fedge_rng *rng, size_t n, double deviation)
{
    float *v = room(n);
    for (size_t i = 0; i < n; i++)
        v[i] = (float)(fedge_rng_normal(rng) * deviation);
    return v;
}

static uint32_t size(fedge_rng *rng)
{
    return 1 + fedge_rng_below(rng, MOST);
}

static void near(const char *what, const fedge_kernels *kernels, size_t i, float is, double wanted,
                 double bound)
{
    if (!(fabs((double)is - wanted) <= bound)) {
        fail_msg("%s on %s at %zu: %.9g, not %.9g within %.3g", what, kernels->name, i, (double)is,
                 wanted, bound);
    }
}

/* A sum of k products differs by at most 2 · k · UNIT · Σ |a · b|, as kernels.h says. */
static void check_product(const fedge_kernels *kernels, fedge_rng *rng)
{
    const size_t m = size(rng), n = size(rng), k = size(rng), c_row = n + fedge_rng_below(rng, 3);
    const bool turned = fedge_rng_below(rng, 2) != 0;
    const size_t b_row = n + fedge_rng_below(rng, 3);
    float *a = normals(rng, m * k, 1.0), *b = normals(rng, k * b_row, 1.0);
    float *c = room(m * c_row);
    const fedge_gemm args = {.m = m,
                             .n = n,
                             .k = k,
                             .a = a,
                             .a_row = turned ? 1 : k,
                             .a_column = turned ? m : 1,
                             .b = b,
                             .b_row = b_row,
                             .b_column = 1,
                             .c = c,
                             .c_row = c_row,
                             .accumulate = fedge_rng_below(rng, 2) != 0};
    kernels->small_gemm(&args);
    for (size_t i = 0; i < m * c_row - (c_row - n); i++) {
        double sum = args.accumulate ? (double)BEFORE : 0.0, magnitude = fabs(sum);
        if (i % c_row >= n) {
            assert_true(c[i] == BEFORE);
            continue;
        }
        for (size_t q = 0; q < k; q++) {
            const double product = (double)a[i / c_row * args.a_row + q * args.a_column] *
                                   (double)b[q * b_row + i % c_row];
            sum += product;
            magnitude += fabs(product);
        }
        near("small_gemm", kernels, i, c[i], sum, 2.0 * (double)(k + 1) * UNIT * magnitude);
    }
    free(c);
    free(b);
    free(a);
}

static void check_transpose(const fedge_kernels *kernels, fedge_rng *rng)
{
    const size_t rows = size(rng), columns = size(rng);
    const size_t x_stride = columns + fedge_rng_below(rng, 3);
    const size_t y_stride = rows + fedge_rng_below(rng, 3);
    float *x = normals(rng, rows * x_stride, 1.0), *y = room(columns * y_stride);
    kernels->transpose(rows, columns, x, x_stride, y, y_stride);
    for (size_t i = 0; i < columns * y_stride; i++) {
        const size_t r = i % y_stride, c = i / y_stride;
        assert_true(y[i] == (r < rows ? x[r * x_stride + c] : BEFORE));
    }
    free(y);
    free(x);
}

/* The exponent is off by at most 3 UNIT times the largest of what makes it; e^x by 2 units in the
 * last place, and the sum of n positive numbers by n UNIT. */
static void check_softmax(const fedge_kernels *kernels, fedge_rng *rng)
{
    const size_t rows = size(rng), width = rows + size(rng), stride = width + 1;
    const bool causal = fedge_rng_below(rng, 2) != 0;
    float *s = normals(rng, rows * stride, 4.0), *dp = normals(rng, rows * stride, 1.0);
    float *saved = room(2 * rows), *again = room(rows * stride), *given = room(rows * stride);
    fedge_softmax args = {.s = s,
                          .rows = rows,
                          .stride = stride,
                          .width = width,
                          .visible = causal ? width - rows + 1 : 0,
                          .scale = 0.25f + fedge_rng_float(rng),
                          .saved = saved};
    if (fedge_rng_below(rng, 4) == 0) { /* of which e^x alone is next to nothing */
        for (size_t i = 0; i < rows * stride; i++)
            s[i] -= 300.0f;
    }
    memcpy(again, s, rows * stride * sizeof(*s));
    memcpy(given, s, rows * stride * sizeof(*s));
    kernels->softmax(&args);
    for (size_t r = 0; r < rows; r++) {
        const size_t n = causal ? args.visible + r : width;
        double sum = 0.0, most = 0.0;
        for (size_t j = 0; j < n; j++) {
            const double x = (double)given[r * stride + j] * (double)args.scale;
            sum += exp(x);
            most = fmax(most, fabs(x));
        }
        for (size_t j = 0; j <= width; j++) {
            const size_t at = r * stride + j;
            const double p = exp((double)given[at] * (double)args.scale) / sum;
            if (j == width) {
                assert_true(s[at] == given[at]);
            } else if (j >= n) {
                assert_true(s[at] == 0.0f);
            } else {
                near("softmax", kernels, at, s[at], p,
                     (2.0 * 6.0 * most + (double)n + 16.0) * UNIT * p + 1e-37);
            }
        }
    }
    args.s = again;
    args.recompute = true;
    kernels->softmax(&args);
    for (size_t i = 0; i < rows * stride; i++)
        assert_true(again[i] == s[i]);
    kernels->softmax_backward(&args, dp);
    for (size_t r = 0; r < rows; r++) {
        double dot = 0.0, magnitude = 0.0;
        for (size_t j = 0; j < width; j++) {
            dot += (double)s[r * stride + j] * (double)dp[r * stride + j];
            magnitude += fabs((double)s[r * stride + j] * (double)dp[r * stride + j]);
        }
        for (size_t j = 0; j < width; j++) {
            const size_t at = r * stride + j;
            const double p = (double)s[at] * (double)args.scale;
            near("softmax_backward", kernels, at, again[at], p * ((double)dp[at] - dot),
                 2.0 * UNIT * p * ((double)(width + 4) * magnitude + 4.0 * fabs((double)dp[at])));
        }
    }
    free(given);
    free(again);
    free(saved);
    free(dp);
    free(s);
}

typedef struct norm_case {
    fedge_norm_rows args;
    float *x, *dy;
} norm_case;

/* Gradients of row [r] in double, added to dw, db; dx: (width). [off]: how far x − mean may be off,
 * relative to UNIT. */
static void exact_norm(const norm_case *self, size_t r, double *y, double *dx, double *dw,
                       double *db, double *inverse, double *off)
{
    const size_t n = self->args.width;
    const float *x = self->x + r * n, *dy = self->dy + r * n;
    double mean = 0.0, variance = 0.0, sum = 0.0, product = 0.0;
    *off = 0.0;
    for (size_t i = 0; i < n; i++)
        mean += (double)x[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        variance += pow((double)x[i] - mean, 2.0) / (double)n;
        *off = fmax(*off, fabs((double)x[i]) + fabs(mean));
    }
    *inverse = 1.0 / sqrt(variance + (double)self->args.eps);
    for (size_t i = 0; i < n; i++) {
        const double weight = !self->args.weight ? 1.0 : (double)self->args.weight[i];
        const double normal = ((double)x[i] - mean) * *inverse, g = (double)dy[i] * weight;
        y[i] = normal * weight + (!self->args.bias ? 0.0 : (double)self->args.bias[i]);
        dw[i] += (double)dy[i] * normal;
        db[i] += (double)dy[i];
        sum += g;
        product += g * normal;
    }
    for (size_t i = 0; i < n; i++) {
        const double weight = !self->args.weight ? 1.0 : (double)self->args.weight[i];
        const double normal = ((double)x[i] - mean) * *inverse;
        dx[i] =
            ((double)dy[i] * weight - sum / (double)n - normal * product / (double)n) * *inverse;
    }
}

/* x − mean is off by UNIT · (|x| + |mean|), which 1 / deviation and what follows multiply; all else
 * is a few roundings of numbers of at most that size. */
static void check_norm(const fedge_kernels *kernels, fedge_rng *rng)
{
    const size_t rows = size(rng), n = size(rng) + 1;
    const unsigned has = fedge_rng_below(rng, 8);
    norm_case self = {.x = normals(rng, rows * n, 1.0), .dy = normals(rng, rows * n, 1.0)};
    float *weight = normals(rng, n, 1.0), *bias = normals(rng, n, 1.0), *y = room(rows * n);
    float *again = room(rows * n), *dx = room(rows * n), *dw = room(n), *db = room(n);
    double *rest = new_doubles(4 * n), *exact_y = rest, *exact_dx = rest + n;
    for (size_t i = 0; has & 4 && i < rows * n; i++)
        self.x[i] += 100.0f; /* a mean far from 0 */
    self.args = (fedge_norm_rows){.rows = rows,
                                  .width = n,
                                  .eps = 0.01f,
                                  .weight = has & 1 ? weight : NULL,
                                  .bias = has & 2 ? bias : NULL,
                                  .weight_gradient = dw,
                                  .bias_gradient = db,
                                  .moments = room(2 * rows)};
    kernels->norm_rows(&self.args, self.x, y);
    self.args.recompute = true;
    kernels->norm_rows(&self.args, self.x, again);
    assert_memory_equal(y, again, rows * n * sizeof(*y));
    kernels->norm_rows_backward(&self.args, self.x, self.dy, dx);
    double largest = 0.0;
    for (size_t r = 0; r < rows; r++) {
        double inverse, off;
        exact_norm(&self, r, exact_y, exact_dx, rest + 2 * n, rest + 3 * n, &inverse, &off);
        largest = fmax(largest, off * inverse);
        for (size_t i = 0; i < n; i++) {
            const double scale = off * inverse;
            near("norm_rows", kernels, r * n + i, y[r * n + i], exact_y[i],
                 8.0 * UNIT * (scale * 4.0 + 4.0));
            near("norm_rows_backward", kernels, r * n + i, dx[r * n + i], exact_dx[i],
                 16.0 * UNIT * inverse * 16.0 * (1.0 + scale * scale));
        }
    }
    for (size_t i = 0; i < n; i++) {
        const double bound = 2.0 * (double)(rows + 2) * UNIT * (double)(rows + 1) * 4.0;
        near("weight_gradient", kernels, i, dw[i], (double)BEFORE + rest[2 * n + i],
             bound * (1.0 + largest));
        near("bias_gradient", kernels, i, db[i], (double)BEFORE + rest[3 * n + i], bound);
    }
    assert_true(y[rows * n] == BEFORE && dx[rows * n] == BEFORE && dw[n] == BEFORE);
    float *const owned[] = {self.x, self.dy, self.args.moments, weight, bias, y, again, dx, dw, db};
    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
        free(owned[i]);
    free(rest);
}

/* The numbers of the stream one by one, whatever was drawn of it before and will be next. */
static void check_dropout(const fedge_kernels *kernels, fedge_rng *rng)
{
    static const float shares[] = {0.0f, 0.1f, 0.5f, 0.99f, 1.0f};
    const size_t n = size(rng) * (fedge_rng_below(rng, 4) == 0 ? 13 : 1);
    const float p = shares[fedge_rng_below(rng, 5)], scale = p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
    float *x = normals(rng, n, 1.0), *y = room(n), *dx = room(n);
    uint8_t *saved = malloc((n + 7) / 8 + 1);
    assert_non_null(saved);
    fedge_rng stream = fedge_rng_stream(fedge_rng_u64(rng), FEDGE_PURPOSE_DROPOUT, 1, 2, 3);
    stream.counter[0] = fedge_rng_below(rng, 2) ? 7 : UINT32_MAX - 3; /* and where it wraps */
    for (uint32_t i = fedge_rng_below(rng, 5); i > 0; i--)
        (void)fedge_rng_u32(&stream);
    fedge_rng alone = stream, without = stream;
    saved[(n + 7) / 8] = 0xa5;
    kernels->drop_draw(&stream, p, n, x, y, saved);
    kernels->drop_apply(p, n, saved, x, dx);
    for (size_t i = 0; i < n; i++) {
        const bool keep = fedge_rng_float(&alone) >= p;
        assert_true(y[i] == (keep ? x[i] * scale : 0.0f) && dx[i] == y[i]);
        assert_int_equal(saved[i / 8] >> i % 8 & 1, keep);
    }
    assert_true(n % 8 == 0 || saved[n / 8] >> n % 8 == 0);
    assert_true(saved[(n + 7) / 8] == 0xa5 && y[n] == BEFORE && dx[n] == BEFORE);
    kernels->drop_draw(&without, p, n, x, dx, NULL);
    assert_memory_equal(dx, y, n * sizeof(*y));
    for (int i = 0; i < 9; i++) {
        const uint32_t next = fedge_rng_u32(&alone);
        assert_true(fedge_rng_u32(&stream) == next && fedge_rng_u32(&without) == next);
    }
    kernels->drop_apply(p, n, saved, x, x);
    assert_memory_equal(x, y, n * sizeof(*y));
    free(saved);
    free(dx);
    free(y);
    free(x);
}

static void on_every_table(void (*check)(const fedge_kernels *, fedge_rng *))
{
    unsigned levels[MAX_LEVELS];
    const unsigned n = kernel_levels(levels);
    for (unsigned level = 0; level < n; level++) {
        fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TEST, 0, 0, 0);
        for (int trial = 0; trial < TRIALS; trial++)
            check(fedge_kernels_choose(fedge_os_cpu_features() & ~levels[level]), &rng);
    }
}

static void test_small_gemm(void **state)
{
    (void)state;
    on_every_table(check_product);
}

static void test_transpose(void **state)
{
    (void)state;
    on_every_table(check_transpose);
}

static void test_softmax(void **state)
{
    (void)state;
    on_every_table(check_softmax);
}

static void test_norm_rows(void **state)
{
    (void)state;
    on_every_table(check_norm);
}

static void test_dropout(void **state)
{
    (void)state;
    on_every_table(check_dropout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_gemm), cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_softmax),    cmocka_unit_test(test_norm_rows),
        cmocka_unit_test(test_dropout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

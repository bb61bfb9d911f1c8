/* The order of the sums of cohort training's kernels, bit for bit: each is made from its first term
 * to its last by fused products, wherever it lies in a tile. Of fractions, whose sums another order
 * would change. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "tests/cuda/kernel_arrays.h"

/* ---- products ---------------------------------------------------------------------------------
 */

static kernel_product product;
static float expected[MOST];

/* Of slot s: what output p's window sees at its place [window] of a channel. */
static float seen(const fedge_cohort_conv2d *c, uint32_t s, uint32_t b, uint32_t channel,
                  uint32_t window, uint32_t p)
{
    const int64_t row = (int64_t)(p / c->out_size[1]) * c->stride[0] +
                        window / c->kernel[1] * c->dilation[0] - c->padding[0];
    const int64_t column = (int64_t)(p % c->out_size[1]) * c->stride[1] +
                           window % c->kernel[1] * c->dilation[1] - c->padding[1];
    if (row < 0 || column < 0 || row >= c->in_size[0] || column >= c->in_size[1])
        return 0.0f;
    const float *image = product.x.pinned + s * product.x.values +
                         (size_t)b * c->tensors.in * c->in_size[0] * c->in_size[1];
    return image[(channel * c->in_size[0] + row) * c->in_size[1] + column];
}

static void check_y(const fedge_cohort_conv2d *c, uint32_t s)
{
    const uint32_t in = c->tensors.in, out = c->tensors.out, window = c->kernel[0] * c->kernel[1];
    const uint32_t plane = c->out_size[0] * c->out_size[1];
    const float *weight = product.values.pinned + s * product.values.values;
    for (uint32_t i = 0; i < kernel_counts[s] * out * plane; i++) {
        const uint32_t b = i / (out * plane), o = i / plane % out, p = i % plane;
        float sum = 0.0f;
        for (uint32_t k = 0; k < in * window; k++)
            sum = fmaf(weight[o * in * window + k], seen(c, s, b, k / window, k % window, p), sum);
        expected[i] = sum + weight[out * in * window + o];
    }
    kernel_same(&product.y, s, expected, (size_t)kernel_counts[s] * out * plane, "y");
}

static void check_dweight(const fedge_cohort_conv2d *c, uint32_t s)
{
    const uint32_t in = c->tensors.in, out = c->tensors.out, window = c->kernel[0] * c->kernel[1];
    const uint32_t plane = c->out_size[0] * c->out_size[1];
    for (uint32_t i = 0; i < out * in * window; i++) {
        const uint32_t o = i / (in * window), n = i % (in * window);
        float sum = 0.0f;
        for (uint32_t k = 0; k < kernel_counts[s] * plane; k++) {
            const uint32_t b = k / plane, p = k % plane;
            sum = fmaf(product.dy.pinned[s * product.dy.values + (b * out + o) * plane + p],
                       seen(c, s, b, n / window, n % window, p), sum);
        }
        expected[i] = sum;
    }
    kernel_same(&product.gradients, s, expected,
                kernel_counts[s] > 0 ? (size_t)out * in * window : 0, "gradients");
}

/* What output dy gives input (row, column) through the window's place; 0 if no output sees it so.
 */
static float given(const fedge_cohort_conv2d *c, const float *plane, uint32_t window, uint32_t p)
{
    const int64_t row =
        (int64_t)(p / c->in_size[1]) + c->padding[0] - window / c->kernel[1] * c->dilation[0];
    const int64_t column =
        (int64_t)(p % c->in_size[1]) + c->padding[1] - window % c->kernel[1] * c->dilation[1];
    const int64_t down = row / c->stride[0], right = column / c->stride[1];
    const bool there = row >= 0 && column >= 0 && row % c->stride[0] == 0 &&
                       column % c->stride[1] == 0 && down < c->out_size[0] &&
                       right < c->out_size[1];
    return there ? plane[down * c->out_size[1] + right] : 0.0f;
}

static void check_dx(const fedge_cohort_conv2d *c, uint32_t s)
{
    const uint32_t in = c->tensors.in, out = c->tensors.out, window = c->kernel[0] * c->kernel[1];
    const uint32_t in_plane = c->in_size[0] * c->in_size[1];
    const uint32_t plane = c->out_size[0] * c->out_size[1];
    const float *weight = product.values.pinned + s * product.values.values,
                *slope = product.dy.pinned + s * product.dy.values;
    for (uint32_t i = 0; i < kernel_counts[s] * in * in_plane; i++) {
        const uint32_t b = i / (in * in_plane), channel = i / in_plane % in, p = i % in_plane;
        float sum = 0.0f;
        for (uint32_t k = 0; k < out * window; k++) {
            const uint32_t o = k / window;
            sum = fmaf(weight[(o * in + channel) * window + k % window],
                       given(c, slope + (size_t)(b * out + o) * plane, k % window, p), sum);
        }
        expected[i] = sum;
    }
    kernel_same(&product.dx, s, expected, (size_t)kernel_counts[s] * in * in_plane, "dx");
}

static void make_products(fedge_cohort_conv2d *c)
{
    fedge_cohort_linear *t = &c->tensors;
    const size_t in = (size_t)t->in * c->in_size[0] * c->in_size[1];
    const size_t out = (size_t)t->out * c->out_size[0] * c->out_size[1];
    const size_t weights = (size_t)t->out * t->in * c->kernel[0] * c->kernel[1];
    product = kernel_fill_product(t, in, out, weights, kernel_fill_fractions);
}

static void check_products(const fedge_cohort_conv2d *c)
{
    kernel_fetch_product(&product);
    for (uint32_t s = 0; s < SLOTS; s++) {
        check_y(c, s);
        check_dx(c, s);
        check_dweight(c, s);
    }
    kernel_drop_product(&product);
}

static fedge_cohort_conv2d draw_conv(uint64_t seed)
{
    fedge_cohort_conv2d c = {
        .groups = 1,
        .tensors = {.in = 1 + kernel_below(9), .out = 1 + kernel_below(seed % 2 ? 30 : 8)}};
    for (int axis = 0; axis < 2; axis++) {
        c.kernel[axis] = 1 + kernel_below(3);
        c.stride[axis] = 1 + kernel_below(3);
        c.padding[axis] = kernel_below(3);
        c.dilation[axis] = 1 + kernel_below(2);
        c.in_size[axis] = c.dilation[axis] * (c.kernel[axis] - 1) + 1 + kernel_below(5);
        c.out_size[axis] =
            (c.in_size[axis] + 2 * c.padding[axis] - c.dilation[axis] * (c.kernel[axis] - 1) - 1) /
                c.stride[axis] +
            1;
    }
    return c;
}

static void convolutions_sum_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        kernel_begin(seed);
        fedge_cohort_conv2d c = draw_conv(seed);
        make_products(&c);
        kernel_must(fedge_cohort_launch_conv2d(&kernel_shape, &c));
        kernel_must(fedge_cohort_launch_conv2d_backward(&kernel_shape, &c));
        check_products(&c);
        kernel_end();
    }
}

/* A Linear is a convolution of images of one pixel. */
static void linears_sum_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        kernel_begin(seed);
        fedge_cohort_conv2d c = {
            .groups = 1,
            .in_size = {1, 1},
            .out_size = {1, 1},
            .kernel = {1, 1},
            .stride = {1, 1},
            .dilation = {1, 1},
            .tensors = {.in = 1 + kernel_below(90), .out = 1 + kernel_below(90), .steps = 1}};
        make_products(&c);
        kernel_must(fedge_cohort_launch_linear(&kernel_shape, &c.tensors));
        kernel_must(fedge_cohort_launch_linear_backward(&kernel_shape, &c.tensors));
        check_products(&c);
        kernel_end();
    }
}

/* ---- recurrences ------------------------------------------------------------------------------
 */

static kernel_array gates, cell, before, h, weights;
static float expected_gates[MOST], expected_cell[MOST], expected_h[MOST];

static float sigmoid(float of)
{
    return 1.0f / (1.0f + expf(-of));
}

/* Row [row] of W_hh by a state, on top of its bias. */
static float from_state(const fedge_cohort_recurrent *c, uint32_t s, uint32_t row, const float *at)
{
    const uint32_t rows = (c->is_gru ? 3 : 4) * c->hidden;
    const float *weight = weights.pinned + s * weights.values;
    float sum = weight[(size_t)rows * c->hidden + row];
    for (uint32_t k = 0; k < c->hidden; k++)
        sum = fmaf(weight[(size_t)row * c->hidden + k], at[k], sum);
    return sum;
}

/* Number [k] of the state of (example, step) [row], after state and cell [last]. */
static void plain_cell(const fedge_cohort_recurrent *c, uint32_t s, size_t row, uint32_t k,
                       const float *last, float last_cell)
{
    const uint32_t n = c->hidden;
    float *g = expected_gates + row * (c->is_gru ? 3 : 4) * n + k;
    const float first = sigmoid(g[0] + from_state(c, s, k, last));
    const float second = sigmoid(g[n] + from_state(c, s, n + k, last));
    const float third = from_state(c, s, 2 * n + k, last);
    g[0] = first;
    g[n] = second;
    if (c->is_gru) {
        g[2 * n] = tanhf(g[2 * n] + first * third);
        expected_cell[row * n + k] = third;
        expected_h[row * n + k] = g[2 * n] + second * (last[k] - g[2 * n]);
        return;
    }
    g[2 * n] = tanhf(g[2 * n] + third);
    g[3 * n] = sigmoid(g[3 * n] + from_state(c, s, 3 * n + k, last));
    expected_cell[row * n + k] = second * last_cell + first * g[2 * n];
    expected_h[row * n + k] = g[3 * n] * tanhf(expected_cell[row * n + k]);
}

static void plain_steps(const fedge_cohort_recurrent *c, uint32_t s)
{
    const uint32_t n = c->hidden;
    static const float nothing[MOST];
    memcpy(expected_gates, gates.pinned + s * gates.values, gates.values * sizeof(float));
    for (uint32_t i = 0; i < kernel_counts[s] * c->steps; i++) {
        const uint32_t step = i % c->steps, t = c->reverse ? c->steps - 1 - step : step;
        const size_t row = (size_t)i / c->steps * c->steps + t,
                     last = c->reverse ? row + 1 : row - 1;
        for (uint32_t k = 0; k < n; k++) {
            if (step == 0)
                plain_cell(c, s, row, k, nothing, 0.0f);
            else
                plain_cell(c, s, row, k, expected_h + last * n, expected_cell[last * n + k]);
        }
    }
}

static void check_steps(const fedge_cohort_recurrent *c)
{
    kernel_array made = {kernel_pin(gates.values * SLOTS * sizeof(float)), gates.gpu, gates.values};
    kernel_fetch(&made);
    kernel_fetch(&cell);
    kernel_fetch(&h);
    for (uint32_t s = 0; s < SLOTS; s++) {
        const size_t rows = (size_t)kernel_counts[s] * c->steps;
        plain_steps(c, s);
        kernel_same(&made, s, expected_gates, rows * (c->is_gru ? 3 : 4) * c->hidden, "gates");
        kernel_same(&cell, s, expected_cell, rows * c->hidden, "cell");
        kernel_same(&h, s, expected_h, rows * c->hidden, "h");
    }
    kernel_must(cudaFreeHost(made.pinned));
    kernel_drop(&gates);
    kernel_drop(&cell);
    kernel_drop(&before);
    kernel_drop(&h);
    kernel_drop(&weights);
}

/* Of more numbers and examples than a block has, and of fewer. */
static void recurrences_sum_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        kernel_begin(seed);
        fedge_cohort_recurrent c = {.is_gru = seed % 2,
                                    .reverse = seed / 4 % 2,
                                    .steps = 1 + kernel_below(3),
                                    .hidden = 1 + kernel_below(seed / 2 % 2 ? 20 : 80)};
        const size_t rows = (size_t)kernel_shape.batch * c.steps,
                     wide = (c.is_gru ? 3 : 4) * c.hidden;
        gates = kernel_fill_fractions(rows * wide);
        cell = kernel_fill_fractions(rows * c.hidden);
        before = kernel_fill_fractions(rows * c.hidden);
        h = kernel_fill_fractions(rows * c.hidden);
        weights = kernel_fill_fractions(wide * c.hidden + wide);
        c.weight = (fedge_cohort_weights){weights.gpu, weights.values};
        c.bias = (fedge_cohort_weights){weights.gpu + wide * c.hidden, weights.values};
        c.gates = gates.gpu;
        c.cell = cell.gpu;
        c.before = before.gpu;
        c.h = h.gpu;
        c.h_row = c.hidden;
        kernel_must(fedge_cohort_launch_recurrent(&kernel_shape, &c));
        check_steps(&c);
        kernel_end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linears_sum_in_order),
        cmocka_unit_test(convolutions_sum_in_order),
        cmocka_unit_test(recurrences_sum_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

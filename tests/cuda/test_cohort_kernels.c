/* The kernels of cohort training on small whole numbers, whose sums are exact: each value is that
 * of a plain loop, whatever the shapes, the examples of each slot and the order of threads. Here
 * the products; test_cohort_kernels_other.c has those that only move, add or choose. */
#include "tests/edge/core/cmocka_all.h"

#include <string.h>

#include "tests/cuda/kernel_arrays.h"

static kernel_product product;

/* ---- products ---------------------------------------------------------------------------------
 */

static float expected[MOST], expected_dx[MOST], expected_dw[MOST];

static uint32_t out_of(const fedge_cohort_conv2d *c, int axis)
{
    const uint32_t reach = c->dilation[axis] * (c->kernel[axis] - 1) + 1;
    const uint32_t padded = c->in_size[axis] + 2 * c->padding[axis];
    return padded < reach ? 0 : (padded - reach) / c->stride[axis] + 1;
}

/* Small whole numbers lose nothing when they are rounded: what each precision multiplies is exact.
 */
static uint32_t dropped_of(uint64_t seed)
{
    static const uint32_t DROPPED[] = {0, FEDGE_COHORT_TF32, FEDGE_COHORT_BF16};
    return DROPPED[seed / 2 % 3];
}

static fedge_cohort_conv2d draw_conv(uint64_t seed)
{
    fedge_cohort_conv2d c = {.groups = 1,
                             .tensors = {.dropped = dropped_of(seed),
                                         .relu = seed / 6 % 2,
                                         .in = 1 + kernel_below(seed % 3 ? 4 : 18),
                                         .out = 1 + kernel_below(seed % 4 ? 5 : 19)}};
    for (int axis = 0; axis < 2; axis++) {
        do {
            c.in_size[axis] = 1 + kernel_below(7);
            c.kernel[axis] = 1 + kernel_below(3);
            c.stride[axis] = 1 + kernel_below(3);
            c.padding[axis] = kernel_below(3);
            c.dilation[axis] = 1 + kernel_below(2);
            c.out_size[axis] = out_of(&c, axis);
        } while (c.out_size[axis] == 0);
    }
    return c;
}

/* Of slot s: y, dx and the parameters' gradients, all at once. */
static void plain_conv(const fedge_cohort_conv2d *c, uint32_t s)
{
    const uint32_t in = c->tensors.in, out = c->tensors.out, each = in / c->groups;
    const uint32_t window = c->kernel[0] * c->kernel[1];
    const uint32_t in_plane = c->in_size[0] * c->in_size[1];
    const uint32_t plane = c->out_size[0] * c->out_size[1];
    const size_t bias = (size_t)out * each * window;
    const float *w = product.values.pinned + s * product.values.values,
                *image = product.x.pinned + s * product.x.values;
    const float *slope = product.dy.pinned + s * product.dy.values;
    memset(expected_dx, 0, sizeof(expected_dx));
    memset(expected_dw, 0, sizeof(expected_dw));
    for (uint32_t i = 0; i < kernel_counts[s] * out * plane; i++) {
        const uint32_t b = i / (out * plane), o = i / plane % out, p = i % plane;
        expected[i] = w[bias + o];
        expected_dw[bias + o] += slope[i];
        for (uint32_t k = 0; k < each * window; k++) {
            const int64_t row = (int64_t)(p / c->out_size[1]) * c->stride[0] +
                                k % window / c->kernel[1] * c->dilation[0] - c->padding[0];
            const int64_t column = (int64_t)(p % c->out_size[1]) * c->stride[1] +
                                   k % window % c->kernel[1] * c->dilation[1] - c->padding[1];
            if (row < 0 || column < 0 || row >= c->in_size[0] || column >= c->in_size[1])
                continue;
            const uint32_t channel = o / (out / c->groups) * each + k / window;
            const size_t at = (size_t)(b * in + channel) * in_plane + (size_t)row * c->in_size[1] +
                              (size_t)column;
            expected[i] += w[(size_t)o * each * window + k] * image[at];
            expected_dx[at] += w[(size_t)o * each * window + k] * slope[i];
            expected_dw[(size_t)o * each * window + k] += slope[i] * image[at];
        }
    }
}

static void check_products(const fedge_cohort_conv2d *c)
{
    const size_t in = (size_t)c->tensors.in * c->in_size[0] * c->in_size[1];
    const size_t out = (size_t)c->tensors.out * c->out_size[0] * c->out_size[1];
    kernel_fetch_product(&product);
    for (uint32_t s = 0; s < SLOTS; s++) {
        plain_conv(c, s);
        for (size_t i = 0; i < kernel_counts[s] * out && c->tensors.relu; i++)
            expected[i] = expected[i] < 0.0f ? 0.0f : expected[i];
        kernel_same(&product.y, s, expected, kernel_counts[s] * out, "y");
        kernel_same(&product.dx, s, expected_dx, kernel_counts[s] * in, "dx");
        kernel_same(&product.gradients, s, expected_dw,
                    kernel_counts[s] > 0 ? product.gradients.values : 0, "gradients");
    }
    kernel_drop_product(&product);
}

static void convolutions_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kernel_begin(seed);
        fedge_cohort_conv2d c = draw_conv(seed);
        product = kernel_fill_product(
            &c.tensors, (size_t)c.tensors.in * c.in_size[0] * c.in_size[1],
            (size_t)c.tensors.out * c.out_size[0] * c.out_size[1],
            (size_t)c.tensors.out * c.tensors.in * c.kernel[0] * c.kernel[1], kernel_fill);
        kernel_must(fedge_cohort_launch_conv2d(&kernel_shape, &c));
        kernel_must(fedge_cohort_launch_conv2d_backward(&kernel_shape, &c));
        check_products(&c);
        kernel_end();
    }
}

/* Of 1 to 4 groups, depthwise ones and those that give several outputs for an input among them. */
static void grouped_convolutions_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kernel_begin(seed);
        fedge_cohort_conv2d c = draw_conv(seed);
        c.tensors.dropped = 0; /* these kernels round nothing */
        c.groups = 1 + kernel_below(4);
        c.tensors.in = c.groups * (1 + kernel_below(seed % 2 ? 3 : 1));
        c.tensors.out = c.groups * (1 + kernel_below(3));
        product = kernel_fill_product(
            &c.tensors, (size_t)c.tensors.in * c.in_size[0] * c.in_size[1],
            (size_t)c.tensors.out * c.out_size[0] * c.out_size[1],
            (size_t)c.tensors.out * (c.tensors.in / c.groups) * c.kernel[0] * c.kernel[1],
            kernel_fill);
        kernel_must(fedge_cohort_launch_grouped(&kernel_shape, &c));
        kernel_must(fedge_cohort_launch_grouped_backward(&kernel_shape, &c));
        check_products(&c);
        kernel_end();
    }
}

/* A Linear is a convolution of images of one pixel. */
static void linears_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kernel_begin(seed);
        fedge_cohort_conv2d c = {.groups = 1,
                                 .in_size = {1, 1},
                                 .out_size = {1, 1},
                                 .kernel = {1, 1},
                                 .stride = {1, 1},
                                 .dilation = {1, 1}};
        c.tensors.in = 1 + kernel_below(80);
        c.tensors.out = 1 + kernel_below(80);
        c.tensors.steps = 1;
        c.tensors.dropped = dropped_of(seed);
        c.tensors.relu = seed / 6 % 2;
        product = kernel_fill_product(&c.tensors, c.tensors.in, c.tensors.out,
                                      (size_t)c.tensors.in * c.tensors.out, kernel_fill);
        kernel_must(fedge_cohort_launch_linear(&kernel_shape, &c.tensors));
        kernel_must(fedge_cohort_launch_linear_backward(&kernel_shape, &c.tensors));
        check_products(&c);
        kernel_end();
    }
}

#ifndef RACES
/* More rows than a grid is high in tiles, of which all but a few are there in name only. */
static void products_may_be_tall(void **state)
{
    (void)state;
    enum { TALLEST = 65535 * 64 };
    fedge_cohort_conv2d c = {.groups = 1,
                             .in_size = {1, 1},
                             .out_size = {1, 1},
                             .kernel = {1, 1},
                             .stride = {1, 1},
                             .dilation = {1, 1},
                             .tensors = {.in = 3, .out = 5, .steps = 1}};
    kernel_begin(1);
    product = kernel_fill_product(&c.tensors, c.tensors.in, c.tensors.out,
                                  (size_t)c.tensors.in * c.tensors.out, kernel_fill);
    kernel_shape.slots = 1;
    kernel_shape.batch = TALLEST + 1;
    kernel_must(fedge_cohort_launch_linear(&kernel_shape, &c.tensors));
    kernel_must(fedge_cohort_launch_linear_backward(&kernel_shape, &c.tensors));
    memset(kernel_counts + 1, 0, sizeof(kernel_counts) - sizeof(*kernel_counts));
    check_products(&c);
    kernel_end();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linears_are_exact),
        cmocka_unit_test(convolutions_are_exact),
        cmocka_unit_test(grouped_convolutions_are_exact),
#ifndef RACES /* where four million rows take long, and no other threads meet */
        cmocka_unit_test(products_may_be_tall),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

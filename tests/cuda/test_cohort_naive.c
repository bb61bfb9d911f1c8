/* The fast kernels of cohort training beside their naive versions (kernels/naive.cu): products of
 * small whole numbers exactly, norms and attention as near as other orders of adding allow. */
#include "tests/edge/core/cmocka_all.h"

#include <stdbool.h>
#include <string.h>

#include "edge/train/cuda/kernels/naive.h"
#include "tests/cuda/kernel_arrays.h"

#define ROUNDING 1e-4 /* of values of up to about 10, and sums of up to 24 terms */

static float fast[SLOTS * MOST];

/* Keeps what the fast kernel made, and puts other values in its place. */
static void take_fast(kernel_array *at, float *to)
{
    kernel_fetch(at);
    memcpy(to, at->pinned, at->values * SLOTS * sizeof(*to));
    for (size_t i = 0; i < at->values * SLOTS; i++)
        at->pinned[i] = 99.0f;
    kernel_send_again(at);
}

/* The naive kernel's result, of which each slot has [values] for an example, beside the fast one's
 * [was]. [allowed] 0: exactly. */
static void compare(kernel_array *at, const float *was, size_t values, double allowed,
                    const char *what)
{
    static double expected[MOST], near[MOST];
    kernel_fetch(at);
    for (uint32_t s = 0; s < SLOTS; s++) {
        const size_t n = kernel_counts[s] * values;
        assert_true(n <= MOST);
        for (size_t i = 0; i < n; i++) {
            expected[i] = (double)was[s * at->values + i];
            near[i] = allowed;
        }
        kernel_near(at, s, expected, near, n, what);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

static float fast_dx[SLOTS * MOST], fast_dw[SLOTS * MOST];

static void take_product(kernel_product *product)
{
    take_fast(&product->y, fast);
    take_fast(&product->dx, fast_dx);
    take_fast(&product->gradients, fast_dw);
}

static void compare_product(kernel_product *product, size_t in, size_t out)
{
    compare(&product->y, fast, out, 0.0, "y");
    compare(&product->dx, fast_dx, in, 0.0, "dx");
    kernel_fetch(&product->gradients);
    for (uint32_t s = 0; s < SLOTS; s++) {
        const size_t n = kernel_counts[s] > 0 ? product->gradients.values : 0;
        kernel_same(&product->gradients, s, fast_dw + s * product->gradients.values, n,
                    "gradients");
    }
    kernel_drop_product(product);
}

static void linears_equal_naive_ones(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kernel_begin(seed);
        fedge_cohort_linear t = {.in = 1 + kernel_below(80),
                                 .out = 1 + kernel_below(80),
                                 .steps = 1 + kernel_below(3),
                                 .relu = seed % 2};
        const size_t in = (size_t)t.in * t.steps, out = (size_t)t.out * t.steps;
        kernel_product product =
            kernel_fill_product(&t, in, out, (size_t)t.in * t.out, kernel_fill);
        kernel_must(fedge_cohort_launch_linear(&kernel_shape, &t));
        kernel_must(fedge_cohort_launch_linear_backward(&kernel_shape, &t));
        take_product(&product);
        kernel_must(fedge_naive_launch_linear(&kernel_shape, &t));
        kernel_must(fedge_naive_launch_linear_backward(&kernel_shape, &t));
        compare_product(&product, in, out);
        kernel_end();
    }
}

/* Of one group by conv2d.cu, of several by grouped.cu. */
static void convolutions_equal_naive_ones(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kernel_begin(seed);
        const bool grouped = seed % 2;
        fedge_cohort_conv2d c = {.groups = grouped ? 1 + kernel_below(4) : 1,
                                 .tensors = {.relu = seed / 2 % 2}};
        fedge_cohort_linear *t = &c.tensors;
        t->in = c.groups * (1 + kernel_below(3));
        t->out = c.groups * (1 + kernel_below(4));
        for (int axis = 0; axis < 2; axis++) {
            c.kernel[axis] = 1 + kernel_below(3);
            c.stride[axis] = 1 + kernel_below(2);
            c.padding[axis] = kernel_below(2);
            c.dilation[axis] = 1 + kernel_below(2);
            c.in_size[axis] = 5 + kernel_below(4);
            c.out_size[axis] = (c.in_size[axis] + 2 * c.padding[axis] -
                                c.dilation[axis] * (c.kernel[axis] - 1) - 1) /
                                   c.stride[axis] +
                               1;
        }
        const size_t in = (size_t)t->in * c.in_size[0] * c.in_size[1];
        const size_t out = (size_t)t->out * c.out_size[0] * c.out_size[1];
        kernel_product product = kernel_fill_product(
            t, in, out, (size_t)t->out * (t->in / c.groups) * c.kernel[0] * c.kernel[1],
            kernel_fill);
        kernel_must((grouped ? fedge_cohort_launch_grouped
                             : fedge_cohort_launch_conv2d)(&kernel_shape, &c));
        kernel_must((grouped ? fedge_cohort_launch_grouped_backward
                             : fedge_cohort_launch_conv2d_backward)(&kernel_shape, &c));
        take_product(&product);
        kernel_must(fedge_naive_launch_conv2d(&kernel_shape, &c));
        kernel_must(fedge_naive_launch_conv2d_backward(&kernel_shape, &c));
        compare_product(&product, in, out);
        kernel_end();
    }
}

/* ---- norms and attention --------------------------------------------------------------------- */

static void norms_are_near_naive_ones(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kernel_begin(seed);
        fedge_cohort_norm p = {.rows = 1 + kernel_below(3),
                               .groups = 1,
                               .channels = 2 + kernel_below(8),
                               .spatial = 1 + kernel_below(3),
                               .eps = 0.5f};
        const size_t values = (size_t)p.rows * p.channels * p.spatial;
        kernel_array x = kernel_fill(kernel_shape.batch * values), y = kernel_fill(x.values);
        kernel_array dy = kernel_fill(x.values), dx = kernel_fill(x.values);
        kernel_array weight = kernel_fill(2 * p.channels);
        kernel_array moments = kernel_fill(2 * (size_t)kernel_shape.batch * p.rows);
        p.weight = (fedge_cohort_weights){weight.gpu, weight.values};
        p.bias = (fedge_cohort_weights){weight.gpu + p.channels, weight.values};
        p.x = x.gpu;
        p.y = y.gpu;
        p.moments = moments.gpu;
        p.dy = dy.gpu;
        p.dx = dx.gpu;
        kernel_must(fedge_cohort_launch_norm(&kernel_shape, &p));
        kernel_must(fedge_cohort_launch_norm_backward(&kernel_shape, &p));
        take_fast(&y, fast);
        take_fast(&dx, fast_dx);
        take_fast(&moments, fast_dw);
        kernel_must(fedge_naive_launch_norm(&kernel_shape, &p));
        kernel_must(fedge_naive_launch_norm_backward(&kernel_shape, &p));
        compare(&y, fast, values, ROUNDING, "y");
        compare(&dx, fast_dx, values, ROUNDING, "dx");
        compare(&moments, fast_dw, (size_t)2 * p.rows, ROUNDING, "moments");
        kernel_array *const all[] = {&x, &y, &dy, &dx, &weight, &moments};
        for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
            kernel_drop(all[i]);
        kernel_end();
    }
}

static void attention_is_near_the_naive_one(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kernel_begin(seed);
        fedge_cohort_attention a = {
            .steps = 1 + kernel_below(5), .heads = 1 + kernel_below(3), .causal = seed % 2};
        a.dim = a.heads * (1 + kernel_below(3));
        const size_t dims = (size_t)a.steps * a.dim, shares = (size_t)a.heads * a.steps * a.steps;
        kernel_array qkv = kernel_fill(3 * kernel_shape.batch * dims);
        kernel_array dqkv = kernel_fill(qkv.values);
        kernel_array p = kernel_fill(kernel_shape.batch * shares);
        kernel_array ds = kernel_fill(p.values);
        kernel_array context = kernel_fill(kernel_shape.batch * dims);
        kernel_array dcontext = kernel_fill(context.values);
        a.qkv = qkv.gpu;
        a.shares = p.gpu;
        a.context = context.gpu;
        a.dcontext = dcontext.gpu;
        a.dscores = ds.gpu;
        a.dqkv = dqkv.gpu;
        kernel_must(fedge_cohort_launch_attention(&kernel_shape, &a));
        kernel_must(fedge_cohort_launch_attention_backward(&kernel_shape, &a));
        take_fast(&context, fast);
        take_fast(&dqkv, fast_dx);
        kernel_must(fedge_naive_launch_attention(&kernel_shape, &a));
        kernel_must(fedge_naive_launch_attention_backward(&kernel_shape, &a));
        compare(&context, fast, dims, ROUNDING, "context");
        compare(&dqkv, fast_dx, 3 * dims, ROUNDING, "dqkv");
        kernel_array *const all[] = {&qkv, &dqkv, &p, &ds, &context, &dcontext};
        for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
            kernel_drop(all[i]);
        kernel_end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linears_equal_naive_ones),
        cmocka_unit_test(convolutions_equal_naive_ones),
        cmocka_unit_test(norms_are_near_naive_ones),
        cmocka_unit_test(attention_is_near_the_naive_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

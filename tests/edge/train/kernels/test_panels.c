/* The product with panels of every kernel table against sums in double precision. */
#include <float.h>
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

#define MOST_M 40
#define MOST_N 70
#define MOST_K 2100 /* more than two depths */
#define GAP 3       /* floats between rows */
#define SET 1024    /* rows so far apart are copied */
#define CANARY 7.0f

static float *fill(fedge_rng *rng, size_t n)
{
    float *v = malloc(n * sizeof(*v));
    assert_non_null(v);
    for (size_t i = 0; i < n; i++)
        v[i] = (float)fedge_rng_normal(rng);
    return v;
}

/* b (k, n) in panels of [wide] columns. */
static float *to_panels(const float *b, size_t k, size_t n, size_t wide)
{
    float *panels = calloc((n + wide) * k, sizeof(*panels));
    assert_non_null(panels);
    for (size_t i = 0; i < k; i++) {
        for (size_t j = 0; j < n; j++)
            panels[j / wide * wide * k + i * wide + j % wide] = b[i * n + j];
    }
    return panels;
}

/* aᵀ (k, m) in blocks of [wide] rows of a, some room behind each. */
static float *to_blocks(const float *a, size_t a_row, size_t k, size_t m, size_t wide)
{
    float *blocks = calloc((m + wide) / wide * (k * wide + GAP), sizeof(*blocks));
    assert_non_null(blocks);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < k; j++)
            blocks[i / wide * (k * wide + GAP) + j * wide + i % wide] = a[i * a_row + j];
    }
    return blocks;
}

static void check_product(const fedge_kernels *kernels, fedge_rng *rng)
{
    const size_t m = 1 + fedge_rng_below(rng, MOST_M), n = 1 + fedge_rng_below(rng, MOST_N);
    const size_t k = fedge_rng_below(rng, 4) == 0 ? 1 + fedge_rng_below(rng, MOST_K)
                                                  : 1 + fedge_rng_below(rng, 20);
    const bool in_blocks = fedge_rng_below(rng, 2) == 0, far = fedge_rng_below(rng, 3) == 0;
    const size_t apart = far ? (k + SET - 1) / SET * SET : k + GAP, c_row = n + GAP;
    float *a = fill(rng, apart * m), *b = fill(rng, k * n);
    float *c = fill(rng, m * c_row), *start = fill(rng, n);
    float *panels = to_panels(b, k, n, kernels->packed_columns);
    float *blocks = to_blocks(a, apart, k, m, kernels->lanes);
    double *sums = new_doubles(m * n), *sizes = new_doubles(m * n);
    const fedge_panels args = {.m = m,
                               .n = n,
                               .k = k,
                               .a = in_blocks ? blocks : a,
                               .a_row = apart,
                               .a_block = in_blocks ? k * kernels->lanes + GAP : 0,
                               .b = panels,
                               .start = fedge_rng_below(rng, 2) == 0 ? start : NULL,
                               .c = c,
                               .c_row = c_row};
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            sums[i * n + j] = (double)(!args.start ? c[i * c_row + j] : start[j]);
            sizes[i * n + j] = fabs(sums[i * n + j]);
            for (size_t q = 0; q < k; q++) {
                const double x = (double)a[i * apart + q] * (double)b[q * n + j];
                sums[i * n + j] += x;
                sizes[i * n + j] += fabs(x);
            }
        }
        for (size_t j = n; j < c_row; j++)
            c[i * c_row + j] = CANARY;
    }
    kernels->panels(&args);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < c_row; j++) {
            /* k + 1 sums, each rounded by at most 2^-24 of what it may have grown to */
            const double bound = j < n ? (double)(k + 2) * ldexp(1.0, -24) * sizes[i * n + j] : 0.0;
            const double wanted = j < n ? sums[i * n + j] : (double)CANARY;
            if (!(fabs((double)c[i * c_row + j] - wanted) <= bound)) {
                fail_msg("%s, m %zu n %zu k %zu%s: [%zu][%zu] is %.9g, not %.9g", kernels->name, m,
                         n, k, in_blocks ? ", in blocks" : "", i, j, (double)c[i * c_row + j],
                         wanted);
            }
        }
    }
    free(sizes);
    free(sums);
    free(blocks);
    free(panels);
    free(start);
    free(c);
    free(b);
    free(a);
}

static void test_products(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    for (unsigned level = 0; level < num_levels; level++) {
        fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TEST, 3, level, 0);
        for (int round = 0; round < 300; round++)
            check_product(fedge_kernels_choose(fedge_os_cpu_features() & ~levels[level]), &rng);
    }
}

/* Two products with the same a give the bits that each gives alone. */
static void check_also(const fedge_kernels *kernels, fedge_rng *rng)
{
    const size_t m = 1 + fedge_rng_below(rng, MOST_M), k = 1 + fedge_rng_below(rng, MOST_K);
    const bool in_blocks = fedge_rng_below(rng, 2) == 0;
    float *a = fill(rng, m * k), *blocks = to_blocks(a, k, k, m, kernels->lanes);
    fedge_panels parts[2];
    float *b[2], *c[2], *alone[2], *start = fill(rng, MOST_N);
    for (size_t i = 0; i < 2; i++) {
        const size_t n = 1 + fedge_rng_below(rng, MOST_N);
        float *rows = fill(rng, k * n);
        b[i] = to_panels(rows, k, n, kernels->packed_columns);
        c[i] = fill(rng, m * n);
        alone[i] = malloc(m * n * sizeof(*alone[i]));
        assert_non_null(alone[i]);
        memcpy(alone[i], c[i], m * n * sizeof(*alone[i]));
        parts[i] = (fedge_panels){.m = m,
                                  .n = n,
                                  .k = k,
                                  .a = in_blocks ? blocks : a,
                                  .a_row = k,
                                  .a_block = in_blocks ? k * kernels->lanes + GAP : 0,
                                  .b = b[i],
                                  .start = fedge_rng_below(rng, 2) == 0 ? start : NULL,
                                  .c = alone[i],
                                  .c_row = n};
        kernels->panels(&parts[i]);
        parts[i].c = c[i];
        free(rows);
    }
    parts[0].next = &parts[1];
    kernels->panels(parts);
    for (size_t i = 0; i < 2; i++) {
        assert_memory_equal(c[i], alone[i], m * parts[i].n * sizeof(*c[i]));
        free(alone[i]);
        free(c[i]);
        free(b[i]);
    }
    free(start);
    free(blocks);
    free(a);
}

static void test_two_products(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    for (unsigned level = 0; level < num_levels; level++) {
        fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TEST, 4, level, 0);
        for (int round = 0; round < 50; round++)
            check_also(fedge_kernels_choose(fedge_os_cpu_features() & ~levels[level]), &rng);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_two_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

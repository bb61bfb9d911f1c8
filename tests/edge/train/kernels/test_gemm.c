/* Matrix products of every table against double precision: random shapes, transposed operands, and
 * views whose rows, columns and vectors begin where tables say. */
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
#include "edge/train/kernels/half.h"
#include "edge/train/kernels/kernels.h"

#define MAX_ROWS 60 /* so many that b is copied */
#define MAX_COLUMNS 100
#define MAX_SUM 530                        /* more than two blocks */
#define ROOM (4 * MAX_SUM * (MAX_SUM + 1)) /* floats of an operand with any strides */
#define PACK 65536

static float a[ROOM], b[ROOM], c[ROOM], before[ROOM], first[MAX_COLUMNS + 16];
static _Alignas(64) float pack[PACK];
static uint32_t a_offsets[MAX_SUM], b_offsets[MAX_SUM], starts[2 * MAX_COLUMNS],
    c_starts[2 * MAX_COLUMNS];

static uint32_t up_to(fedge_rng *rng, uint32_t most)
{
    return 1 + fedge_rng_below(rng, most);
}

/* Runs of columns that do not meet in c; in b, where c's begin elsewhere, they may. Returns c's
 * width. */
static size_t make_starts(fedge_gemm *args, fedge_rng *rng, uint32_t lanes)
{
    const uint32_t runs = up_to(rng, MAX_COLUMNS / lanes);
    uint32_t at = 0;
    for (uint32_t i = 0; i < runs; i++) {
        at += fedge_rng_below(rng, 3);
        starts[i] = c_starts[i] = at;
        at += lanes;
    }
    args->starts = starts;
    args->group = lanes;
    args->n = (size_t)runs * lanes;
    if (fedge_rng_below(rng, 2) == 0) {
        for (uint32_t i = 0; i < runs; i++)
            starts[i] = fedge_rng_below(rng, MAX_COLUMNS);
        args->c_starts = c_starts;
    }
    return at;
}

static fedge_gemm random_product(fedge_rng *rng, uint32_t lanes)
{
    const bool view = fedge_rng_below(rng, 2) == 0, rows = fedge_rng_below(rng, 2) == 0;
    fedge_gemm args = {.m = up_to(rng, MAX_ROWS),
                       .n = up_to(rng, MAX_COLUMNS),
                       .k = up_to(rng, fedge_rng_below(rng, 2) == 0 ? 20 : MAX_SUM),
                       .a = a,
                       .b = b,
                       .c = c,
                       .accumulate = fedge_rng_below(rng, 2) == 0};
    const size_t slack = fedge_rng_below(rng, 4);
    size_t width = args.n;
    if (rows && view && fedge_rng_below(rng, 2) == 0)
        width = make_starts(&args, rng, lanes);
    const bool transposed = fedge_rng_below(rng, 2) == 0;
    args.a_row = transposed ? 1 : args.k + slack;
    args.a_column = transposed ? args.m + slack : 1;
    args.b_row = rows ? width + slack : 1;
    args.b_column = rows ? 1 : args.k + slack;
    args.c_row = width + slack;
    for (size_t i = 0; view && i < MAX_SUM; i++) {
        a_offsets[i] = fedge_rng_below(rng, MAX_SUM);
        b_offsets[i] = fedge_rng_below(rng, MAX_SUM);
    }
    if (!args.accumulate && fedge_rng_below(rng, 2) == 0)
        args.start = first;
    if (view) {
        args.b_offsets = b_offsets;
        if (fedge_rng_below(rng, 2) == 0) {
            args.a_offsets = a_offsets;
            args.a_row = up_to(rng, 9);
        }
    }
    return args;
}

/* Element (i, j) in double precision, and the sum of its terms' sizes. */
static double element(const fedge_gemm *args, size_t i, size_t j, double *size)
{
    double sum = 0.0;
    *size = 0.0;
    const size_t run = args->group == 0 ? 1 : args->group;
    const size_t column = !args->starts ? j : args->starts[j / run] + j % run;
    for (size_t k = 0; k < args->k; k++) {
        const size_t a_at = !args->a_offsets ? k * args->a_column : args->a_offsets[k];
        size_t b_at = k * args->b_row + column * args->b_column;
        if (args->b_offsets) {
            b_at = args->b_column == 1 ? args->b_offsets[k] + column
                                       : args->b_offsets[j] + k * args->b_row;
        }
        const double term = (double)a[i * args->a_row + a_at] * (double)b[b_at];
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

/* [unit]: the rounding of operands, of which each term has two; sums are in float. */
static void check(const fedge_kernels *kernels, double unit)
{
    fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TEST, 1, 0, 0);
    assert_true(kernels->gemm_pack <= PACK);
    for (size_t i = 0; i < ROOM; i++) {
        a[i] = 2.0f * fedge_rng_float(&rng) - 1.0f;
        b[i] = 2.0f * fedge_rng_float(&rng) - 1.0f;
    }
    for (size_t j = 0; j < sizeof(first) / sizeof(first[0]); j++)
        first[j] = fedge_rng_float(&rng) + 1.0f;
    for (int round = 0; round < 200; round++) {
        const fedge_gemm args = random_product(&rng, kernels->lanes);
        const size_t columns =
            !args.starts ? args.n : c_starts[args.n / args.group - 1] + args.group;
        for (size_t i = 0; i < args.m * args.c_row; i++)
            before[i] = c[i] = fedge_rng_float(&rng);
        kernels->gemm(&args, pack);
        for (size_t i = 0; i < args.m; i++) {
            for (size_t j = 0; j < args.n; j++) {
                float *at = &c[i * args.c_row + fedge_gemm_c_column(&args, j)];
                double size;
                double expected = element(&args, i, j, &size);
                if (args.accumulate) {
                    expected += (double)before[at - c];
                    size += 1.0;
                }
                if (args.start) {
                    expected += (double)first[j];
                    size += (double)first[j];
                }
                const double bound = (2.0 * unit + ldexp((double)args.k + 2.0, -23)) * size;
                if (!(fabs((double)*at - expected) <= bound)) {
                    fail_msg("%s: product %d, (%zu, %zu) of (%zu, %zu) over %zu is %g, not %g",
                             kernels->name, round, i, j, args.m, args.n, args.k, (double)*at,
                             expected);
                }
                *at = before[at - c];
            }
        }
        /* Nothing else was written. */
        assert_true(columns <= args.c_row);
        assert_memory_equal(c, before, args.m * args.c_row * sizeof(*c));
    }
}

static void check_both(const fedge_kernels *kernels, unsigned features)
{
    const fedge_kernels in_bf16 = fedge_kernels_in_bf16(kernels, features);
    const fedge_kernels portable = fedge_kernels_in_bf16(kernels, 0);
    check(kernels, 0.0);
    check(&portable, ldexp(1.0, -8));
    check(&in_bf16, ldexp(1.0, -8));
}

static void test_products(void **state)
{
    (void)state;
    check_both(&fedge_kernels_scalar, 0);
#if defined(__x86_64__)
    const unsigned features = fedge_os_cpu_features();
    if (features & FEDGE_CPU_AVX2)
        check_both(&fedge_kernels_avx2, 0);
    if (features & FEDGE_CPU_AVX512)
        check_both(&fedge_kernels_avx512, features);
#elif defined(__aarch64__)
    check_both(&fedge_kernels_neon, fedge_os_cpu_features());
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

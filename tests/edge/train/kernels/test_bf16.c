/* Products in bf16: the portable version against its definition in double precision, the CPU's dot
 * products against the portable version bit by bit, and models that ask for them. */
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
#include "tests/edge/train/support.h"

#define MAX_SIDE 300
#define MAX_FLOATS ((size_t)MAX_SIDE * MAX_SIDE)

static float *a, *b, *c, *expected, *pack;
static float begin[MAX_SIDE];

static int set_up(void **state)
{
    (void)state;
    float **all[] = {&a, &b, &c, &expected};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        *all[i] = malloc(MAX_FLOATS * sizeof(float));
        assert_non_null(*all[i]);
    }
    pack = aligned_alloc(64, (size_t)1 << 18);
    assert_non_null(pack);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(a);
    free(b);
    free(c);
    free(expected);
    free(pack);
    return 0;
}

static void test_rounding(void **state)
{
    (void)state;
    static const struct {
        uint32_t from;
        uint16_t to;
    } CASES[] = {
        {0x3f800000u, 0x3f80u}, {0x3f808000u, 0x3f80u}, {0x3f808001u, 0x3f81u}, /* ties to even */
        {0x3f818000u, 0x3f82u}, {0xbf818000u, 0xbf82u}, {0x7f7fffffu, 0x7f80u}, /* to infinity */
        {0x7f800000u, 0x7f80u}, {0x7f800001u, 0x7fc0u}, {0xffc12345u, 0xffc1u}, /* NaN stays */
        {0x80000000u, 0x8000u}, {0x00018000u, 0x0002u},                         /* subnormal */
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const float x = fedge_float_of_bits(CASES[i].from);
        assert_int_equal(fedge_bf16_from_float(x), CASES[i].to);
        const uint32_t kept = fedge_float_bits(fedge_bf16_operand(x));
        const bool small = (CASES[i].from & 0x7fffffffu) < 0x800000u;
        assert_int_equal(kept, small ? CASES[i].from & 0x80000000u : (uint32_t)CASES[i].to << 16);
    }
}

/* Random sizes, often at the edges of tiles, panels and blocks, and any strides. */
static fedge_gemm random_product(fedge_rng *rng)
{
    static const uint32_t EDGES[] = {1, 2, 3, 4, 12, 13, 31, 32, 33, 64, 124, 125, 255, 256, 257};
    size_t side[3];
    for (int i = 0; i < 3; i++) {
        side[i] = fedge_rng_below(rng, 2) ? EDGES[fedge_rng_below(rng, 15)]
                                          : 1 + fedge_rng_below(rng, MAX_SIDE - 1);
    }
    fedge_gemm args = {.m = side[0], .n = side[1], .k = side[2], .a = a, .b = b, .c = c};
    const uint32_t layout = fedge_rng_below(rng, 9);
    args.a_row = layout % 3 == 0 ? args.k : layout % 3 == 1 ? 1 : 2;
    args.a_column = layout % 3 == 0 ? 1 : args.m * (layout % 3);
    args.b_row = layout / 3 == 0 ? args.n : layout / 3 == 1 ? 1 : 2;
    args.b_column = layout / 3 == 0 ? 1 : args.k * (layout / 3);
    if (layout % 3 == 2 && 2 * args.m * args.k > MAX_FLOATS) {
        args.a_row = args.k;
        args.a_column = 1;
    }
    if (layout / 3 == 2 && 2 * args.n * args.k > MAX_FLOATS) {
        args.b_row = args.n;
        args.b_column = 1;
    }
    args.c_row = args.n;
    args.accumulate = fedge_rng_below(rng, 2) != 0;
    args.start = args.accumulate || fedge_rng_below(rng, 2) != 0 ? NULL : begin;
    return args;
}

static void fill(fedge_rng *rng)
{
    for (size_t i = 0; i < MAX_FLOATS; i++) {
        a[i] = (float)fedge_rng_normal(rng);
        b[i] = fedge_rng_below(rng, 8) == 0 ? 0.0f : (float)fedge_rng_normal(rng);
        expected[i] = c[i] = (float)fedge_rng_normal(rng);
    }
    for (size_t j = 0; j < MAX_SIDE; j++)
        begin[j] = (float)fedge_rng_normal(rng);
}

/* The bound of half.h, what c holds counted among the products. */
static void test_portable_is_near_the_definition(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 2, 0, 0);
    for (int round = 0; round < 30; round++) {
        const fedge_gemm args = random_product(&rng);
        fill(&rng);
        fedge_bf16_gemm_portable(&args, pack);
        for (size_t i = 0; i < args.m * args.n; i++) {
            const double start = args.accumulate ? (double)expected[i]
                                 : args.start    ? (double)begin[i % args.n]
                                                 : 0.0;
            double sum = start, absolute = fabs(start), rounded = start;
            for (size_t k = 0; k < args.k; k++) {
                const float x = a[i / args.n * args.a_row + k * args.a_column];
                const float y = b[k * args.b_row + i % args.n * args.b_column];
                sum += (double)x * (double)y;
                rounded += (double)fedge_bf16_operand(x) * (double)fedge_bf16_operand(y);
                absolute += fabs((double)x * (double)y);
            }
            const double n = (double)args.k + 3.0, sums = n * 0x1p-24 * (1.0 + 0x1p-6) * absolute;
            assert_true(fabs((double)c[i] - rounded) <= sums);
            assert_true(fabs((double)c[i] - sum) <= (0x1p-7 + 0x1p-16) * absolute + sums);
        }
    }
}

static void test_dot_products_give_the_portable_bits(void **state)
{
    (void)state;
    const fedge_kernels table =
        fedge_kernels_in_bf16(&fedge_kernels_scalar, fedge_os_cpu_features());
    if (table.gemm == fedge_bf16_gemm_portable)
        skip();
    assert_true(table.gemm_pack * sizeof(float) <= (size_t)1 << 18);
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 3, 0, 0);
    for (int round = 0; round < 150; round++) {
        fedge_gemm args = random_product(&rng);
        fill(&rng);
        memset(pack, 0xff, (size_t)1 << 18); /* NaN where nothing was packed */
        table.gemm(&args, pack);
        args.c = expected;
        fedge_bf16_gemm_portable(&args, pack);
        assert_memory_equal(c, expected, MAX_FLOATS * sizeof(*c));
    }
}

/* More rows than a packed block holds. */
static void test_many_rows(void **state)
{
    (void)state;
    const fedge_kernels table =
        fedge_kernels_in_bf16(&fedge_kernels_scalar, fedge_os_cpu_features());
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 4, 0, 0);
    fill(&rng);
    const size_t rows = MAX_FLOATS / 2;
    fedge_gemm args = {.m = rows,
                       .n = 1,
                       .k = 2,
                       .a = a,
                       .a_row = 2,
                       .a_column = 1,
                       .b = b,
                       .b_row = 1,
                       .b_column = 1,
                       .c = c,
                       .c_row = 2};
    table.gemm(&args, pack);
    args.c = expected;
    fedge_bf16_gemm_portable(&args, pack);
    assert_memory_equal(c, expected, MAX_FLOATS * sizeof(*c));
}

/* ---- models ---- */

/* Smooth throughout: a maximum or a ReLU that rounding tips over would move a gradient by more than
 * rounding does. */
static void spec_small_cnn(fedge_model_spec *spec)
{
    spec_input(spec, 3, 1, 12, 12);
    spec_conv(spec, 1, 8, 3, 1, 1);
    spec_add(spec, FEDGE_LAYER_TANH);
    fedge_layer_spec *pool = spec_add(spec, FEDGE_LAYER_AVGPOOL2D);
    pool->u.avgpool2d.kernel_size[0] = pool->u.avgpool2d.kernel_size[1] = 2;
    spec_conv(spec, 8, 12, 3, 1, 0);
    spec_add(spec, FEDGE_LAYER_TANH);
    spec_flatten(spec);
    spec_linear(spec, 192, 40);
    spec_add(spec, FEDGE_LAYER_TANH);
    spec_linear(spec, 40, 4);
}

#define BATCH 16

/* Examples of four classes: a bright quadrant in noise. */
static void fill_quadrants(fedge_rng *rng, float *x, int32_t *labels, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        labels[i] = (int32_t)fedge_rng_below(rng, 4);
        for (uint32_t p = 0; p < 144; p++) {
            const bool inside = (p / 12 / 6) * 2 + p % 12 / 6 == (uint32_t)labels[i];
            x[i * 144 + p] = 0.7f * (float)fedge_rng_normal(rng) + (inside ? 1.0f : 0.0f);
        }
    }
}

/* Steps from equal starts; the last loss. Values at the end to [values]. */
static double train(const fedge_model_options *options, int steps, float *values, char name[64])
{
    static fedge_model_spec spec;
    static float x[BATCH * 144];
    memset(&spec, 0, sizeof(spec));
    spec_small_cnn(&spec);
    test_model under;
    model_open(&under, &spec, options, 7, 0);
    const fedge_optimizer sgd = {.learning_rate = 0.1f};
    fedge_rng rng = fedge_rng_stream(7, FEDGE_PURPOSE_TEST, 5, 0, 0);
    double loss = 0.0;
    for (int i = 0; i < steps; i++) {
        int32_t labels[BATCH];
        uint32_t correct;
        fill_quadrants(&rng, x, labels, BATCH);
        assert_int_equal(
            fedge_model_step(under.model, x, labels, BATCH, &sgd, &loss, &correct, NULL), FEDGE_OK);
    }
    if (values) {
        memcpy(values, fedge_model_values(under.model),
               fedge_model_num_values(under.model) * sizeof(*values));
    }
    strcpy(name, fedge_model_kernels(under.model));
    model_close(&under);
    return loss / BATCH;
}

/* One step differs from fp32's by the rounding of operands: each of the few products on the way to
 * a gradient is off by up to 2^-7 of its terms, and most by far less, so values move alike within 1
 * %. */
static void test_a_step_is_near_fp32(void **state)
{
    (void)state;
    static float start[16384], exact[16384], half[16384];
    char name[64];
    fedge_model_options options = {.max_batch = BATCH, .training = true, .general = true};
    (void)train(&options, 0, start, name);
    (void)train(&options, 1, exact, name);
    assert_null(strstr(name, "bf16"));
    options.precision = FEDGE_PRECISION_BF16;
    (void)train(&options, 1, half, name);
    assert_non_null(strstr(name, "bf16"));
    double moved = 0.0, apart = 0.0;
    for (size_t i = 0; i < 9000; i++) {
        moved += pow((double)exact[i] - (double)start[i], 2.0);
        apart += pow((double)exact[i] - (double)half[i], 2.0);
    }
    assert_true(moved > 0.0 && apart > 0.0);
    assert_true(sqrt(apart) <= 0.01 * sqrt(moved));
}

static void test_it_learns_as_fp32_does(void **state)
{
    (void)state;
    char name[64];
    fedge_model_options options = {.max_batch = BATCH, .training = true, .general = true};
    const double first = train(&options, 1, NULL, name);
    const double exact = train(&options, 150, NULL, name);
    options.precision = FEDGE_PRECISION_BF16;
    const double half = train(&options, 150, NULL, name);
    assert_true(first > 1.0 && exact < 0.2 && half < 0.2);
}

static void test_unknown_precision_is_refused(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    fedge_model_memory memory;
    fedge_error err = {0};
    spec_small_cnn(&spec);
    const fedge_model_options options = {.max_batch = 1, .precision = FEDGE_PRECISION_COUNT};
    assert_int_equal(fedge_model_size(&spec, &options, &memory, &err), FEDGE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "precision"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_portable_is_near_the_definition),
        cmocka_unit_test(test_dot_products_give_the_portable_bits),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_a_step_is_near_fp32),
        cmocka_unit_test(test_it_learns_as_fp32_does),
        cmocka_unit_test(test_unknown_precision_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* Partitions: every example has one owner, the skew is there, the same seed gives the same, and
 * what cannot be is refused with advice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/edge/data/data_files.h"
#include "tests/edge/data/partitions/partitions.h"

#define NUM_EXAMPLES 6000u
#define NUM_LABELS 10u
#define MAX_PARTS 600u
#define PIN_DIRICHLET UINT64_C(0xe44c526dde5df8c5)
#define PIN_IID UINT64_C(0xd1563ea47956b2c5)

static int32_t labels[NUM_EXAMPLES];
static uint32_t owner[NUM_EXAMPLES];
static uint32_t sizes[MAX_PARTS];
static uint32_t of_class[MAX_PARTS][NUM_LABELS];

static int set_up(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_EXAMPLES; i++)
        labels[i] = (int32_t)((i * 7 + i / 13) % NUM_LABELS);
    return 0;
}

/* Divides; counts sizes and classes of the parts. */
static void divide(const fedge_partition_spec *spec, uint32_t num_parts)
{
    fedge_error err = {.status = FEDGE_OK};
    memset(owner, 0xFF, sizeof(owner));
    const fedge_partition_data data = {
        .num_examples = NUM_EXAMPLES, .num_labels = NUM_LABELS, .labels = labels};
    if (fedge_partition_assign(spec, &data, num_parts, owner, &err))
        fail_msg("%s", err.message);
    memset(sizes, 0, sizeof(sizes));
    memset(of_class, 0, sizeof(of_class));
    for (uint32_t i = 0; i < NUM_EXAMPLES; i++) {
        assert_true(owner[i] < num_parts);
        sizes[owner[i]]++;
        of_class[owner[i]][labels[i]]++;
    }
}

/* Mean over the parts of the largest class's share of a part: 0.1 without skew, 1 at most. */
static double skew(uint32_t num_parts)
{
    double sum = 0;
    for (uint32_t j = 0; j < num_parts; j++) {
        uint32_t largest = 0;
        for (uint32_t k = 0; k < NUM_LABELS; k++)
            largest = of_class[j][k] > largest ? of_class[j][k] : largest;
        sum += (double)largest / sizes[j];
    }
    return sum / num_parts;
}

static void test_parse(void **state)
{
    (void)state;
    assert_int_equal(parsed_partition("iid", 3).scheme, FEDGE_PARTITION_IID);
    const fedge_partition_spec spec = parsed_partition("dirichlet:0.5", 4);
    assert_int_equal(spec.scheme, FEDGE_PARTITION_DIRICHLET);
    assert_true(spec.alpha == 0.5);
    static const struct {
        const char *text;
        fedge_status status;
    } BAD[] = {
        {"", FEDGE_INVALID_ARGUMENT},
        {"IID", FEDGE_INVALID_ARGUMENT},
        {"iid ", FEDGE_INVALID_ARGUMENT},
        {"dirichlet", FEDGE_INVALID_ARGUMENT},
        {"dirichlet:", FEDGE_INVALID_ARGUMENT},
        {"dirichlet:x", FEDGE_INVALID_ARGUMENT},
        {"dirichlet:nan", FEDGE_INVALID_ARGUMENT},
        {"dirichlet:-1", FEDGE_INVALID_ARGUMENT},
        {"dirichlet: 1", FEDGE_INVALID_ARGUMENT},
        {"dirichlet:0.5x", FEDGE_INVALID_ARGUMENT},
        {"dirichlet:0", FEDGE_OUT_OF_RANGE},
        {"dirichlet:1e-4", FEDGE_OUT_OF_RANGE},
        {"dirichlet:1e7", FEDGE_OUT_OF_RANGE},
        {"dirichlet:1e999", FEDGE_OUT_OF_RANGE},
    };
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        fedge_partition_spec ignored;
        fedge_error err = {.status = FEDGE_OK};
        assert_int_equal(fedge_partition_parse(BAD[i].text, &ignored, &err), BAD[i].status);
        assert_non_null(strstr(err.message, "partition"));
    }
}

static void test_iid_parts_are_equal(void **state)
{
    (void)state;
    const fedge_partition_spec spec = parsed_partition("iid", 1);
    divide(&spec, 7);
    for (uint32_t j = 0; j < 7; j++)
        assert_in_range(sizes[j], NUM_EXAMPLES / 7, NUM_EXAMPLES / 7 + 1);
    assert_true(skew(7) < 0.15);
    divide(&spec, 600);
    for (uint32_t j = 0; j < 600; j++)
        assert_int_equal(sizes[j], 10);
}

static void test_dirichlet_is_skewed_and_has_its_minimum(void **state)
{
    (void)state;
    double last = 1;
    static const char *const SCHEMES[] = {"dirichlet:0.1", "dirichlet:0.5", "dirichlet:5",
                                          "dirichlet:100000"};
    for (size_t s = 0; s < 4; s++) {
        double mean = 0;
        for (uint64_t seed = 1; seed <= 5; seed++) {
            const fedge_partition_spec spec = parsed_partition(SCHEMES[s], seed);
            divide(&spec, 8);
            for (uint32_t j = 0; j < 8; j++)
                assert_true(sizes[j] >= FEDGE_PARTITION_MIN_EXAMPLES);
            mean += skew(8) / 5;
        }
        assert_true(mean < last);
        last = mean;
        if (s == 0)
            assert_true(mean > 0.5);
        if (s == 3)
            assert_true(mean < 0.12);
    }
}

/* NIID-Bench's rule: who has the fair share before a class gets nothing of it. Only the last part
 * may take what rounding leaves. */
static void test_full_parts_get_no_more(void **state)
{
    (void)state;
    const fedge_partition_spec spec = parsed_partition("dirichlet:0.1", 2);
    divide(&spec, 8);
    uint32_t closed = 0;
    for (uint32_t j = 0; j < 8; j++) {
        uint32_t before = 0;
        for (uint32_t k = 0; k < NUM_LABELS; k++) {
            if (before >= NUM_EXAMPLES / 8) {
                closed++;
                assert_true(of_class[j][k] <= (j == 7 ? 1 : 0));
            }
            before += of_class[j][k];
        }
    }
    assert_true(closed > 0);
}

/* The division is a contract: a device that is updated must keep its part. */
static void test_pinned(void **state)
{
    (void)state;
    fedge_partition_spec spec = parsed_partition("dirichlet:0.5", 1);
    divide(&spec, 8);
    assert_true(hash_of_owners(owner, NUM_EXAMPLES) == PIN_DIRICHLET);
    divide(&spec, 8);
    assert_true(hash_of_owners(owner, NUM_EXAMPLES) == PIN_DIRICHLET);
    spec.seed = 2;
    divide(&spec, 8);
    assert_true(hash_of_owners(owner, NUM_EXAMPLES) != PIN_DIRICHLET);
    spec = parsed_partition("iid", 1);
    divide(&spec, 8);
    assert_true(hash_of_owners(owner, NUM_EXAMPLES) == PIN_IID);
    spec.seed = UINT64_C(1) << 32;
    divide(&spec, 8);
    assert_true(hash_of_owners(owner, NUM_EXAMPLES) != PIN_IID);
}

static void test_a_class_may_be_empty(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_EXAMPLES; i++)
        labels[i] = i % 2 ? 0 : 9;
    const fedge_partition_spec spec = parsed_partition("dirichlet:0.5", 1);
    divide(&spec, 8);
}

static void expect_undivided(const fedge_partition_spec *spec, uint32_t num_examples,
                             uint32_t num_labels, uint32_t num_parts, fedge_status status,
                             const char *part)
{
    fedge_error err = {.status = FEDGE_OK};
    const fedge_partition_data data = {
        .num_examples = num_examples, .num_labels = num_labels, .labels = labels};
    const fedge_status got = fedge_partition_assign(spec, &data, num_parts, owner, &err);
    expect_failure(got, &err, status, part);
}

static void test_refuses_what_cannot_be(void **state)
{
    (void)state;
    fedge_partition_spec spec = parsed_partition("dirichlet:0.5", 1);
    expect_undivided(&spec, 99, NUM_LABELS, 10, FEDGE_INVALID_ARGUMENT, "at most 9 clients");
    expect_undivided(&spec, 9, NUM_LABELS, 1, FEDGE_INVALID_ARGUMENT, "at most 0 clients");
    expect_undivided(&spec, NUM_EXAMPLES, NUM_LABELS, 0, FEDGE_INVALID_ARGUMENT, "0 parts");
    expect_undivided(&spec, 0, NUM_LABELS, 1, FEDGE_INVALID_ARGUMENT, "0 examples");
    expect_undivided(&spec, NUM_EXAMPLES, 9, 8, FEDGE_OUT_OF_RANGE, "[0, 9)");
    expect_undivided(&spec, NUM_EXAMPLES, UINT32_MAX, 8, FEDGE_TOO_BIG, "labels are over");
    expect_undivided(&spec, NUM_EXAMPLES, FEDGE_PARTITION_MAX_LABELS, 33, FEDGE_TOO_BIG,
                     "use fewer clients");
    labels[17] = -1;
    expect_undivided(&spec, NUM_EXAMPLES, NUM_LABELS, 8, FEDGE_OUT_OF_RANGE, "example 17 is -1");
    labels[17] = 0;
    /* Not impossible, but so unlikely that it must be given up. */
    spec.alpha = 0.05;
    expect_undivided(&spec, NUM_EXAMPLES, NUM_LABELS, 60, FEDGE_INVALID_ARGUMENT,
                     "10000 attempts no division of 6000 examples among 60 clients");
    expect_undivided(&spec, NUM_EXAMPLES, NUM_LABELS, 60, FEDGE_INVALID_ARGUMENT,
                     "use a larger alpha, fewer clients");
    spec.alpha = 1e-3; /* gammas underflow: classes go to one part each */
    expect_undivided(&spec, NUM_EXAMPLES, NUM_LABELS, 20, FEDGE_INVALID_ARGUMENT, "best: 0");
    spec.alpha = 0;
    expect_undivided(&spec, NUM_EXAMPLES, NUM_LABELS, 8, FEDGE_OUT_OF_RANGE, "alpha");
    spec = parsed_partition("iid", 1);
    expect_undivided(&spec, 5, NUM_LABELS, 6, FEDGE_INVALID_ARGUMENT, "at most 5 clients");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test_setup(test_iid_parts_are_equal, set_up),
        cmocka_unit_test_setup(test_dirichlet_is_skewed_and_has_its_minimum, set_up),
        cmocka_unit_test_setup(test_full_parts_get_no_more, set_up),
        cmocka_unit_test_setup(test_pinned, set_up),
        cmocka_unit_test_setup(test_a_class_may_be_empty, set_up),
        cmocka_unit_test_setup(test_refuses_what_cannot_be, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

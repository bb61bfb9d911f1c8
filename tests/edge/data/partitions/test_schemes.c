/* Shards, the Dirichlet of a client, labels and quantity: what each promises of every part, what
 * their distributions must be, and what they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/edge/data/partitions/partitions.h"

#define NUM_EXAMPLES 60000u
#define NUM_LABELS 10u
#define MAX_PARTS 1000u
#define SKIPPED_LABEL 4u
#define PIN_SHARDS UINT64_C(0x8ca7017c8b98d855)
#define PIN_CLIENT UINT64_C(0x1bc2d599aab90365)
#define PIN_LABELS UINT64_C(0x336c59dea41ceee5)
#define PIN_QUANTITY UINT64_C(0xada96b160e7974c2)

static int32_t labels[NUM_EXAMPLES];
static uint32_t owner[NUM_EXAMPLES];
static uint32_t sizes[MAX_PARTS];
static uint32_t of_label[MAX_PARTS][NUM_LABELS];

static int set_up(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_EXAMPLES; i++)
        labels[i] = (int32_t)((i * 7 + i / 10) % NUM_LABELS); /* as many of each */
    return 0;
}

/* Divides the first [num_examples], every one of which must get an owner; counts. */
static void divide(const char *text, uint64_t seed, uint32_t num_examples, uint32_t num_parts)
{
    const fedge_partition_spec spec = parsed_partition(text, seed);
    const fedge_partition_data data = {
        .num_examples = num_examples, .num_labels = NUM_LABELS, .labels = labels};
    fedge_error err = {.status = FEDGE_OK};
    memset(owner, 0xFF, sizeof(owner));
    if (fedge_partition_assign(&spec, &data, num_parts, owner, &err))
        fail_msg("%s", err.message);
    memset(sizes, 0, sizeof(sizes));
    memset(of_label, 0, sizeof(of_label));
    for (uint32_t i = 0; i < num_examples; i++) {
        assert_true(owner[i] < num_parts);
        sizes[owner[i]]++;
        of_label[owner[i]][labels[i]]++;
    }
    for (uint32_t j = 0; j < num_parts; j++)
        assert_true(sizes[j] > 0);
}

static uint32_t labels_of(uint32_t part)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < NUM_LABELS; k++)
        count += of_label[part][k] > 0;
    return count;
}

/* --- shards ----------------------------------------------------------------------------------- */

/* Walks through the examples by label: owners must come in runs of [shard] examples. */
static void check_shards(uint32_t num_examples, uint32_t num_parts, uint32_t per_part)
{
    const uint64_t num_shards = (uint64_t)num_parts * per_part;
    uint32_t runs[MAX_PARTS] = {0};
    uint64_t at = 0, shard = 0;
    for (uint32_t k = 0; k < NUM_LABELS; k++) {
        for (uint32_t i = 0; i < num_examples; i++) {
            if ((uint32_t)labels[i] != k)
                continue;
            static uint32_t holder;
            if (at == shard * num_examples / num_shards) {
                holder = owner[i];
                runs[holder]++;
                shard++;
            }
            assert_int_equal(owner[i], holder);
            at++;
        }
    }
    assert_int_equal(shard, num_shards);
    for (uint32_t j = 0; j < num_parts; j++)
        assert_int_equal(runs[j], per_part);
}

/* McMahan's: 100 parts of two shards of 300, so at most four labels (a shard may cross one border),
 * and two for most. */
static void test_shards_are_contiguous_and_equal(void **state)
{
    (void)state;
    divide("shards:2", 1, NUM_EXAMPLES, 100);
    check_shards(NUM_EXAMPLES, 100, 2);
    uint32_t two = 0;
    for (uint32_t j = 0; j < 100; j++) {
        assert_int_equal(sizes[j], 600);
        assert_in_range(labels_of(j), 1, 4);
        two += labels_of(j) <= 2;
    }
    assert_true(two >= 80);
    divide("shards:3", 5, 1009, 17); /* nothing divides evenly */
    check_shards(1009, 17, 3);
    divide("shards:1", 5, 1000, 1000);
    check_shards(1000, 1000, 1);
}

/* --- dirichlet-client ------------------------------------------------------------------------- */

static void test_dirichlet_client_parts_are_equal(void **state)
{
    (void)state;
    static const char *const SCHEMES[] = {"dirichlet-client:0.001", "dirichlet-client:0.1",
                                          "dirichlet-client:1", "dirichlet-client:1000000"};
    for (size_t s = 0; s < sizeof(SCHEMES) / sizeof(SCHEMES[0]); s++) {
        divide(SCHEMES[s], 3, NUM_EXAMPLES, 100);
        for (uint32_t j = 0; j < 100; j++)
            assert_int_equal(sizes[j], 600);
        divide(SCHEMES[s], 3, 1009, 17);
        for (uint32_t j = 0; j < 17; j++)
            assert_in_range(sizes[j], 1009 / 17, 1009 / 17 + 1);
    }
    divide("dirichlet-client:0.5", 3, 1000, 1000);
}

/* The count x of a label in a part of s examples is Dirichlet-multinomial while no label is used
 * up: with A = L · alpha, p = 1 / L
 *
 *   E x = s p,   Var x = s p (1 − p) (s + A) / (1 + A).
 *
 * The demand for a label differs from its 6,000 by √(1000 · Var x), 1.5 to 5 %, so about as much is
 * drawn after the first was used up; the error of an estimate over 10,000 counts is 2 %. Together
 * 10 %. */
static void test_dirichlet_client_has_its_distribution(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double alpha;
    } CASES[] = {
        {"dirichlet-client:10", 10}, {"dirichlet-client:1", 1}, {"dirichlet-client:0.3", 0.3}};
    const double p = 1.0 / NUM_LABELS, s = NUM_EXAMPLES / 1000.0;
    for (size_t c = 0; c < sizeof(CASES) / sizeof(CASES[0]); c++) {
        const double total = NUM_LABELS * CASES[c].alpha;
        const double expected = s * p * (1 - p) * (s + total) / (1 + total);
        double squares = 0;
        divide(CASES[c].text, 11, NUM_EXAMPLES, 1000);
        for (uint32_t j = 0; j < 1000; j++) {
            for (uint32_t k = 0; k < NUM_LABELS; k++)
                squares += (of_label[j][k] - s * p) * (of_label[j][k] - s * p);
        }
        const double variance = squares / (1000.0 * NUM_LABELS);
        if (fabs(variance / expected - 1) > 0.1)
            fail_msg("%s: variance %g, not %g", CASES[c].text, variance, expected);
    }
}

/* --- labels ----------------------------------------------------------------------------------- */

static void test_every_part_has_k_labels(void **state)
{
    (void)state;
    for (uint32_t k = 1; k <= NUM_LABELS; k++) {
        const char text[] = {'l', 'a', 'b', 'e', 'l', 's', ':', (char)('0' + k % 10), '\0'};
        divide(k == 10 ? "labels:10" : text, k, NUM_EXAMPLES, 23);
        for (uint32_t j = 0; j < 23; j++) {
            assert_int_equal(labels_of(j), k);
            assert_true(of_label[j][j % NUM_LABELS] > 0);
        }
        /* A label's parts have the same of it, but for one example. */
        for (uint32_t l = 0; l < NUM_LABELS; l++) {
            uint32_t least = NUM_EXAMPLES, most = 0;
            for (uint32_t j = 0; j < 23; j++) {
                const uint32_t n = of_label[j][l];
                least = n > 0 && n < least ? n : least;
                most = n > most ? n : most;
            }
            assert_true(most - least <= 1);
        }
    }
}

/* Every other label is as likely as the next: with 1,000 parts of three labels each of the 9 others
 * is had by 200 of the 900 that do not start with it (s = √(900 · 2/9 · 7/9) = 12.5; five of them).
 */
static void test_labels_are_drawn_evenly(void **state)
{
    (void)state;
    divide("labels:3", 7, NUM_EXAMPLES, 1000);
    for (uint32_t k = 0; k < NUM_LABELS; k++) {
        uint32_t others = 0;
        for (uint32_t j = 0; j < 1000; j++)
            others += j % NUM_LABELS != k && of_label[j][k] > 0;
        assert_in_range(others, 200 - 63, 200 + 63);
    }
}

static void test_labels_without_examples_do_not_count(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_EXAMPLES; i++) {
        if (labels[i] == SKIPPED_LABEL)
            labels[i] = 9;
    }
    divide("labels:2", 1, NUM_EXAMPLES, 20);
    for (uint32_t j = 0; j < 20; j++)
        assert_int_equal(labels_of(j), 2);
    divide("dirichlet-client:0.1", 1, NUM_EXAMPLES, 20);
    divide("shards:2", 1, NUM_EXAMPLES, 20);
}

/* --- quantity --------------------------------------------------------------------------------- */

/* Sizes ~ n Dir(a): a part's variance is n² p (1 − p) / (1 + A) with p = 1 / N, A = N a. That each
 * must have ten examples does not bend it here: fewer than 10 of 600 have a probability below 1e-6
 * at alpha 5. Over 20 seeds of 100 parts the estimate's error is about 4 %; 20 % is five of them.
 * Labels are as in all the data. */
static void test_quantity_has_its_distribution(void **state)
{
    (void)state;
    const double p = 0.01, mean = NUM_EXAMPLES * p;
    const double expected = (double)NUM_EXAMPLES * NUM_EXAMPLES * p * (1 - p) / (1 + 100 * 5.0);
    double squares = 0, chi = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        divide("quantity:5", seed, NUM_EXAMPLES, 100);
        for (uint32_t j = 0; j < 100; j++) {
            squares += (sizes[j] - mean) * (sizes[j] - mean);
            const double share = sizes[j] / (double)NUM_LABELS;
            for (uint32_t k = 0; k < NUM_LABELS; k++)
                chi += (of_label[j][k] - share) * (of_label[j][k] - share) / share;
        }
    }
    if (fabs(squares / 2000 / expected - 1) > 0.2)
        fail_msg("variance %g, not %g", squares / 2000, expected);
    /* χ² of 99 · 9 degrees of freedom for each seed, 17,820 in all, s = √(2 · 17820) = 189. */
    assert_true(fabs(chi - 17820) < 5 * 189);
}

static void test_quantity_has_its_minimum(void **state)
{
    (void)state;
    double mean_largest = 0;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        divide("quantity:0.5", seed, NUM_EXAMPLES, 10);
        uint32_t largest = 0;
        for (uint32_t j = 0; j < 10; j++) {
            assert_true(sizes[j] >= FEDGE_PARTITION_MIN_EXAMPLES);
            largest = sizes[j] > largest ? sizes[j] : largest;
        }
        mean_largest += largest / 5.0;
    }
    assert_true(mean_largest > NUM_EXAMPLES / 5.0);
}

/* --- all -------------------------------------------------------------------------------------- */

static void test_pinned(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t pin;
    } CASES[] = {{"shards:2", PIN_SHARDS},
                 {"dirichlet-client:0.5", PIN_CLIENT},
                 {"labels:3", PIN_LABELS},
                 {"quantity:2", PIN_QUANTITY}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        divide(CASES[i].text, 1, 6000, 8);
        if (hash_of_owners(owner, 6000) != CASES[i].pin)
            fail_msg("%s: 0x%llx", CASES[i].text, (unsigned long long)hash_of_owners(owner, 6000));
        divide(CASES[i].text, UINT64_C(1) << 32, 6000, 8);
        assert_true(hash_of_owners(owner, 6000) != CASES[i].pin);
    }
}

static void test_texts_are_read_back(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {
        "iid",          "shards:2",       "dirichlet:0.1", "dirichlet-client:0.30000000000000004",
        "labels:65535", "quantity:1e+06", "natural:a b:c", "file:/tmp/x.csv"};
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        const fedge_partition_spec spec = parsed_partition(TEXTS[i], 1);
        char text[FEDGE_PARTITION_MAX_TEXT];
        fedge_partition_text(&spec, text);
        assert_string_equal(text, TEXTS[i]);
        assert_int_equal(spec.scheme, i);
    }
}

static void test_what_cannot_be_read_is_refused(void **state)
{
    (void)state;
    static char long_text[600] = "file:";
    memset(long_text + 5, 'x', FEDGE_PARTITION_MAX_SOURCE);
    const struct {
        const char *text;
        fedge_status status;
        const char *part;
    } CASES[] = {
        {"shard:2", FEDGE_INVALID_ARGUMENT, "did you mean \"shards\"?"},
        {"dirichlet_client:2", FEDGE_INVALID_ARGUMENT, "did you mean \"dirichlet-client\"?"},
        {"zipf:2", FEDGE_INVALID_ARGUMENT,
         "not known; use one of iid, shards:K, dirichlet:ALPHA, dirichlet-client:ALPHA, labels:K, "
         "quantity:ALPHA, natural:COLUMN, file:CSV"},
        {"iid:2", FEDGE_INVALID_ARGUMENT, "write \"iid\""},
        {"labels", FEDGE_INVALID_ARGUMENT, "write \"labels:K\""},
        {"shards:", FEDGE_INVALID_ARGUMENT, "a whole number must follow"},
        {"shards:2.5", FEDGE_INVALID_ARGUMENT, "a whole number must follow"},
        {"shards:-1", FEDGE_INVALID_ARGUMENT, "a whole number must follow"},
        {"shards:0", FEDGE_OUT_OF_RANGE, "K must be within 1 to 65535"},
        {"labels:65536", FEDGE_OUT_OF_RANGE, "K must be within 1 to 65535"},
        {"labels:99999999999999999999", FEDGE_OUT_OF_RANGE, "K must be within 1 to 65535"},
        {"quantity:0", FEDGE_OUT_OF_RANGE, "quantity:ALPHA: alpha 0 must be within"},
        {"dirichlet-client:2e6", FEDGE_OUT_OF_RANGE, "alpha"},
        {"natural:", FEDGE_INVALID_ARGUMENT, "write natural:COLUMN"},
        {"file:", FEDGE_INVALID_ARGUMENT, "write file:CSV"},
        {long_text, FEDGE_OUT_OF_RANGE, "512 bytes behind the colon; at most 511"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        fedge_partition_spec spec = {.scheme = FEDGE_PARTITION_LABELS, .count = 3};
        fedge_error err = {.status = FEDGE_OK};
        const fedge_status got = fedge_partition_parse(CASES[i].text, &spec, &err);
        if (got != CASES[i].status || !strstr(err.message, CASES[i].part))
            fail_msg("%s: %s: %s", CASES[i].text, fedge_status_text(got), err.message);
        assert_int_equal(spec.count, 3); /* as it was */
    }
}

static void test_what_cannot_be_divided_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t num_examples, num_labels, num_parts;
        fedge_status status;
        const char *part;
    } CASES[] = {
        {"shards:2", 9, NUM_LABELS, 5, FEDGE_INVALID_ARGUMENT, "at least 2 each; use at most 4"},
        {"shards:2", 100, 9, 5, FEDGE_OUT_OF_RANGE, "[0, 9)"},
        {"labels:3", 100, NUM_LABELS, 40, FEDGE_INVALID_ARGUMENT, "use at most 33 clients"},
        {"labels:11", 1000, NUM_LABELS, 20, FEDGE_INVALID_ARGUMENT, "use labels:10 or less"},
        {"labels:2", 1000, NUM_LABELS, 2, FEDGE_INVALID_ARGUMENT, "use 10 or more clients"},
        {"shards:999", 600, NUM_LABELS, 20, FEDGE_INVALID_ARGUMENT, "each; use shards:30 or less"},
        {"shards:200", 600, NUM_LABELS, 20, FEDGE_INVALID_ARGUMENT,
         "use at most 3 clients, or shards:30 or less"},
        {"labels:5", 100, NUM_LABELS, 20, FEDGE_INVALID_ARGUMENT, "of which there are 10 examples"},
        {"dirichlet-client:1", 5, NUM_LABELS, 6, FEDGE_INVALID_ARGUMENT, "at most 5 clients"},
        {"dirichlet-client:1", 100, FEDGE_PARTITION_MAX_LABELS, 33, FEDGE_TOO_BIG,
         "use fewer clients"},
        {"quantity:1", 99, NUM_LABELS, 10, FEDGE_INVALID_ARGUMENT, "at least 10 each"},
        {"quantity:0.1", 6000, NUM_LABELS, 300, FEDGE_INVALID_ARGUMENT,
         "partition quantity:0.1: in 10000 attempts no division of 6000 examples among 300 "
         "clients"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const fedge_partition_spec spec = parsed_partition(CASES[i].text, 1);
        const fedge_partition_data data = {.num_examples = CASES[i].num_examples,
                                           .num_labels = CASES[i].num_labels,
                                           .labels = labels};
        fedge_error err = {.status = FEDGE_OK};
        const fedge_status got =
            fedge_partition_assign(&spec, &data, CASES[i].num_parts, owner, &err);
        if (got != CASES[i].status || !strstr(err.message, CASES[i].part))
            fail_msg("%s: %s: %s", CASES[i].text, fedge_status_text(got), err.message);
    }
}

static void test_only_some_need_labels(void **state)
{
    (void)state;
    const fedge_partition_data data = {.num_examples = 1000};
    static const char *const TEXTS[] = {"iid",           "quantity:5", "shards:2",
                                        "dirichlet:0.5", "labels:2",   "dirichlet-client:1"};
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        const fedge_partition_spec spec = parsed_partition(TEXTS[i], 1);
        fedge_error err = {.status = FEDGE_OK};
        const fedge_status got = fedge_partition_assign(&spec, &data, 10, owner, &err);
        assert_int_equal(got, i < 2 ? FEDGE_OK : FEDGE_INVALID_ARGUMENT);
        if (i >= 2)
            assert_non_null(strstr(err.message, "no labels to divide by; use iid"));
    }
}

static void test_examples_are_grouped(void **state)
{
    (void)state;
    static const uint32_t OWNER[] = {2, 0, FEDGE_PARTITION_UNUSED, 2, 0, 2};
    static const uint32_t EXAMPLES[] = {1, 4, 0, 3, 5}, START[] = {0, 2, 2, 5, 5};
    uint32_t start[5], examples[6];
    fedge_partition_group(OWNER, 6, 4, start, examples);
    assert_memory_equal(start, START, sizeof(START));
    assert_memory_equal(examples, EXAMPLES, sizeof(EXAMPLES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_shards_are_contiguous_and_equal, set_up),
        cmocka_unit_test_setup(test_dirichlet_client_parts_are_equal, set_up),
        cmocka_unit_test_setup(test_dirichlet_client_has_its_distribution, set_up),
        cmocka_unit_test_setup(test_every_part_has_k_labels, set_up),
        cmocka_unit_test_setup(test_labels_are_drawn_evenly, set_up),
        cmocka_unit_test_setup(test_labels_without_examples_do_not_count, set_up),
        cmocka_unit_test_setup(test_quantity_has_its_distribution, set_up),
        cmocka_unit_test_setup(test_quantity_has_its_minimum, set_up),
        cmocka_unit_test_setup(test_pinned, set_up),
        cmocka_unit_test_setup(test_texts_are_read_back, set_up),
        cmocka_unit_test_setup(test_what_cannot_be_read_is_refused, set_up),
        cmocka_unit_test_setup(test_what_cannot_be_divided_is_refused, set_up),
        cmocka_unit_test_setup(test_only_some_need_labels, set_up),
        cmocka_unit_test(test_examples_are_grouped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Setting a share of the examples apart before the rest is divided. */
#include "tests/edge/core/cmocka_all.h"

#include <string.h>

#include "tests/edge/data/partitions/partitions.h"

#define COUNT 1000u
#define LABELS 10u
#define PARTS 10u
#define SPLIT "test_partition_validation.csv"

static int32_t labels[COUNT];
static uint32_t owner[COUNT];
static fedge_error err;

static fedge_status assign(const char *text, uint64_t seed, double share, uint32_t num_parts)
{
    const fedge_partition_spec spec = parsed_partition(text, seed);
    const fedge_partition_data data = {
        .num_examples = COUNT, .num_labels = LABELS, .labels = labels};
    memset(owner, 0xAB, sizeof(owner));
    return fedge_partition_assign_with_validation(&spec, &data, share, num_parts, owner, &err);
}

static int set_up(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < COUNT; i++)
        labels[i] = (int32_t)(i * 7 % LABELS);
    return 0;
}

/* The others are divided as a data set without those that are set apart would be. */
static void the_rest_is_divided_by_itself(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {
        "iid", "shards:2", "dirichlet:5", "dirichlet-client:1", "labels:5", "quantity:5"};
    uint8_t first[COUNT];
    for (size_t t = 0; t < sizeof(TEXTS) / sizeof(TEXTS[0]); t++) {
        int32_t rest_labels[COUNT];
        uint32_t rest_owner[COUNT], num_rest = 0, next = 0;
        if (assign(TEXTS[t], 3, 0.2505, PARTS))
            fail_msg("%s", err.message);
        for (uint32_t i = 0; i < COUNT; i++) {
            const uint8_t apart = owner[i] == FEDGE_PARTITION_VALIDATION;
            if (t == 0)
                first[i] = apart;
            assert_int_equal(first[i], apart); /* whatever the scheme */
            if (!apart)
                rest_labels[num_rest++] = labels[i];
        }
        assert_int_equal(num_rest, COUNT - 250);
        const fedge_partition_spec spec = parsed_partition(TEXTS[t], 3);
        const fedge_partition_data rest = {
            .num_examples = num_rest, .num_labels = LABELS, .labels = rest_labels};
        assert_int_equal(fedge_partition_assign(&spec, &rest, PARTS, rest_owner, &err), FEDGE_OK);
        for (uint32_t i = 0; i < COUNT; i++) {
            if (!first[i])
                assert_int_equal(owner[i], rest_owner[next++]);
        }
    }
}

static void the_seed_chooses(void **state)
{
    (void)state;
    uint32_t seen[4][COUNT], same[4] = {0};
    static const uint64_t SEEDS[] = {3, 3, 4, 5};
    for (uint32_t s = 0; s < 4; s++) {
        assert_int_equal(assign("iid", SEEDS[s], 0.1, PARTS), FEDGE_OK);
        memcpy(seen[s], owner, sizeof(owner));
        for (uint32_t i = 0; i < COUNT; i++)
            same[s] += seen[0][i] == FEDGE_PARTITION_VALIDATION && seen[s][i] == seen[0][i];
    }
    assert_int_equal(same[1], 100);
    assert_true(same[2] < 30 && same[3] < 30); /* 10 on average, deviation 2.85 */
    assert_int_equal(assign("iid", 3, 0.0, PARTS), FEDGE_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(owner[i] < PARTS);
}

/* Of a file only examples that somebody has are set apart. */
static void examples_of_a_file_leave_their_parts(void **state)
{
    (void)state;
    uint32_t whole[COUNT], apart = 0;
    for (uint32_t i = 0; i < COUNT; i++)
        whole[i] = i % 2 ? FEDGE_PARTITION_UNUSED : i / 2 % PARTS;
    assert_int_equal(fedge_partition_write_csv(SPLIT, whole, COUNT, &err), FEDGE_OK);
    assert_int_equal(assign("file:" SPLIT, 3, 0.3, PARTS), FEDGE_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        if (owner[i] == FEDGE_PARTITION_VALIDATION)
            assert_true(whole[i] < PARTS);
        else
            assert_int_equal(owner[i], whole[i]);
        apart += owner[i] == FEDGE_PARTITION_VALIDATION;
    }
    assert_int_equal(apart, COUNT / 2 * 3 / 10);
    /* What was written so is read so, and not set apart from once more. */
    memcpy(whole, owner, sizeof(owner));
    assert_int_equal(fedge_partition_write_csv(SPLIT, whole, COUNT, &err), FEDGE_OK);
    assert_int_equal(assign("file:" SPLIT, 9, 0.0, PARTS), FEDGE_OK);
    assert_memory_equal(owner, whole, sizeof(owner));
    assert_int_equal(assign("file:" SPLIT, 9, 0.3, PARTS), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "has examples for validation (client -1) already"));
}

static void what_leaves_too_little_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double share;
        const char *part;
    } CASES[] = {
        {"iid", 1.0, "at least 0 and below 1"},
        {"iid", -0.1, "at least 0 and below 1"},
        {"iid", 0.0009, "less than one: raise it to 0.001 or more"},
        {"iid", 0.995, "with 995 of 1000 examples set apart for validation: 5 examples cannot"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        assert_int_equal(assign(CASES[i].text, 3, CASES[i].share, PARTS), FEDGE_INVALID_ARGUMENT);
        if (!strstr(err.message, CASES[i].part))
            fail_msg("not '%s': %s", CASES[i].part, err.message);
    }
    uint32_t whole[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        whole[i] = i < 2 ? i : 2;
    assert_int_equal(fedge_partition_write_csv(SPLIT, whole, COUNT, &err), FEDGE_OK);
    assert_int_equal(assign("file:" SPLIT, 3, 0.999, 3), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "partition file:"));
    assert_non_null(
        strstr(err.message, "with 0.999 of the examples set apart for validation client"));
    assert_non_null(strstr(err.message, "of 3 has none left to train with; set less apart"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_rest_is_divided_by_itself, set_up),
        cmocka_unit_test_setup(the_seed_chooses, set_up),
        cmocka_unit_test_setup(examples_of_a_file_leave_their_parts, set_up),
        cmocka_unit_test_setup(what_leaves_too_little_is_refused, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

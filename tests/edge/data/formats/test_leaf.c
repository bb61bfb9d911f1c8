/* LEAF's data files: numbers and texts, users as owners, several files, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/data/formats/leaf.h"
#include "tests/edge/data/data_files.h"
#include "tests/edge/data/partitions/partitions.h"

#define FILE_A "test_leaf_0.json"
#define FILE_B "test_leaf_1.json"
#define BOTH "test_leaf_*.json"

/* Users b, a and c have 2, 1 and 1 examples of three values. */
static const char NUMBERS[] =
    "{\"users\": [\"a\", \"b\", \"c\"], \"num_samples\": [1, 2, 1], \"hierarchies\": [[], {\"k\": "
    "1}],\n"
    " \"user_data\": {\"b\": {\"x\": [[0.5, -1, 2e1], [3, [4], 5.25]], \"y\": [7, 0]},\n"
    "  \"a\": {\"y\": [3], \"x\": [ [ 6 ,7.0,\t8 ] ], \"raw\": \"]}\\\"\"},\n"
    "  \"c\": {\"x\": [[1, 1, 1]], \"y\": [9]}}}\n";

static bytes file;

static int set_up(void **state)
{
    (void)state;
    save_text(FILE_A, NUMBERS);
    save_text(FILE_B, "{\"user_data\": {\"d\": {\"x\": [[2, 2, 2]], \"y\": [1]},"
                      " \"a\": {\"x\": [[3, 3, 3]], \"y\": [2]}}}");
    return 0;
}

static void expect_example(const fedge_data_spec *spec, const char *path, uint32_t count,
                           uint32_t index, int32_t label, const float *values, size_t n)
{
    float x[96];
    assert_int_equal(load_and_read(spec, path, "", count, index, x), label);
    assert_memory_equal(x, values, n * sizeof(*x));
}

static void test_reads_numbers(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 3, 0, 0);
    for (int gz = 0; gz < 2; gz++) {
        expect_example(&spec, FILE_A, 4, 0, 7, (const float[]){0.5f, -1, 20}, 3);
        expect_example(&spec, FILE_A, 4, 1, 0, (const float[]){3, 4, 5.25f}, 3);
        expect_example(&spec, FILE_A, 4, 2, 3, (const float[]){6, 7, 8}, 3);
        expect_example(&spec, FILE_A, 4, 3, 9, (const float[]){1, 1, 1}, 3);
        set_text(&file, NUMBERS);
        save_gz(FILE_A, &file, 0);
    }
    expect_example(&spec, BOTH, 6, 5, 2, (const float[]){3, 3, 3}, 3);
    const fedge_data_spec bytes_spec = toy_spec(FEDGE_U8, 3, 1, 3, 1);
    expect_example(&bytes_spec, FILE_B, 2, 0, 1, (const float[]){2, 2, 2}, 3);
    const fedge_data_spec one = toy_spec(FEDGE_F32, 1, 1, 0, 0); /* then lists are not needed */
    save_text(FILE_A, "{\"user_data\": {\"b\": {\"x\": [4, [5]], \"y\": [1, 2]}}}");
    expect_example(&one, FILE_A, 2, 0, 1, (const float[]){4}, 1);
    expect_example(&one, FILE_A, 2, 1, 2, (const float[]){5}, 1);
}

/* Numbers that lie across the ends of what is read at a time. */
static void test_reads_long_files(void **state)
{
    (void)state;
    fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 7, 0, 0);
    spec.num_labels = 1000;
    set_text(&file, "{\"user_data\": {\"u\": {\"x\": [");
    for (int i = 0; i < 900; i++) {
        for (int j = 0; j < 7; j++) {
            char text[64];
            (void)snprintf(text, sizeof(text), "%s%d.125%s", j ? ", " : "[", 1000 * j + i,
                           j < 6     ? ""
                           : i < 899 ? "], "
                                     : "]");
            add_text(&file, text);
        }
    }
    add_text(&file, "], \"y\": [0");
    for (int i = 1; i < 900; i++) {
        char text[16];
        (void)snprintf(text, sizeof(text), ", %d", i);
        add_text(&file, text);
    }
    add_text(&file, "]}}}");
    save_file(FILE_A, &file, 0);
    for (uint32_t i = 0; i < 900; i += 31) {
        float values[7];
        for (int j = 0; j < 7; j++)
            values[j] = (float)(1000 * j) + (float)i + 0.125f;
        expect_example(&spec, FILE_A, 900, i, (int32_t)i, values, 7);
    }
}

static void test_numbers_characters_as_leaf_does(void **state)
{
    (void)state;
    fedge_data_spec spec = toy_spec(FEDGE_U8, 1, 80, 0, 0);
    spec.num_labels = FEDGE_LEAF_NUM_LETTERS;
    float values[80];
    for (int i = 0; i < 80; i++)
        values[i] = (float)i;
    save_text(
        FILE_A,
        "{\"user_data\": {\"ROMEO\": {\"x\": [\"\\n !\\\"&'(),-.0123456789:;>?"
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxy\\u007a}\"], \"y\": [\"}\"]}}}");
    expect_example(&spec, FILE_A, 1, 0, 79, values, 80);
    spec.dtype = FEDGE_F32;
    expect_example(&spec, FILE_A, 1, 0, 79, values, 80);
    spec.shape[0] = 3;
    save_text(FILE_A, "{\"user_data\": {\"R\": {\"x\": [\"T\\u006fY\"], \"y\": [\"\\\"\"]}}}");
    expect_example(&spec, FILE_A, 1, 0, 3, (const float[]){44, 67, 49}, 3);
}

/* --- division --------------------------------------------------------------------------------- */

static fedge_status divided(const char *scheme, const char *path, uint32_t clients,
                            uint32_t *num_parts, uint32_t *owners, fedge_error *err)
{
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 3, 0, 0);
    fedge_partition_spec partition = {.seed = 1};
    fedge_dataset *dataset = NULL;
    uint32_t *owner = NULL;
    fedge_status status = fedge_partition_parse(scheme, &partition, err);
    if (!status)
        status = fedge_partition_num_parts(&partition, path, num_parts, err);
    if (!status) {
        status = fedge_dataset_load_divided(
            &spec, path, "", &(fedge_division){&partition, clients, 0}, &dataset, &owner, err);
    }
    if (!status)
        memcpy(owners, owner, fedge_dataset_size(dataset) * sizeof(*owner));
    free(owner);
    fedge_dataset_free(dataset);
    return status;
}

static void test_users_are_owners(void **state)
{
    (void)state;
    const uint32_t expected[] = {0, 0, 1, 2, 3, 1}; /* b b a c, d a */
    uint32_t owners[6], num_parts = 0;
    fedge_error err = {0};
    if (divided("natural:user", BOTH, 4, &num_parts, owners, &err))
        fail_msg("%s", err.message);
    assert_int_equal(num_parts, 4);
    assert_memory_equal(owners, expected, sizeof(expected));
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 3, 0, 0);
    const fedge_partition_spec partition = parsed_partition("natural:user", 1);
    fedge_dataset *own = NULL;
    if (fedge_dataset_load_part(&spec, BOTH, "", &partition, 1, 4, &own, &err))
        fail_msg("%s", err.message);
    assert_int_equal(fedge_dataset_size(own), 2);
    const fedge_view view = {own, NULL, 2};
    const fedge_examples examples = fedge_view_examples(&view);
    float x[6];
    int32_t labels[2];
    assert_int_equal(examples.read(examples.user, (const uint32_t[]){0, 1}, 2, 0, x, labels, &err),
                     FEDGE_OK);
    assert_memory_equal(x, ((const float[]){6, 7, 8, 3, 3, 3}), sizeof(x));
    assert_true(labels[0] == 3 && labels[1] == 2);
    fedge_dataset_free(own);

    assert_int_equal(divided("natural:user", BOTH, 3, &num_parts, owners, &err), FEDGE_MISMATCH);
    assert_non_null(strstr(err.message, "4 owners, but there are to be 3 clients"));
    assert_int_equal(divided("natural:writer", BOTH, 4, &num_parts, owners, &err), FEDGE_NOT_FOUND);
    assert_non_null(strstr(err.message, "write natural:user"));
    const uint32_t files[] = {0, 0, 0, 0, 1, 1};
    assert_int_equal(divided("per-file", BOTH, 2, &num_parts, owners, &err), FEDGE_OK);
    assert_memory_equal(owners, files, sizeof(files));
}

/* Names that differ only in how they are spelt are one; those of other characters are others. */
static void test_names_are_compared_as_texts(void **state)
{
    (void)state;
    const uint32_t expected[] = {0, 0, 1, 2, 2};
    uint32_t owners[5], num_parts = 0;
    fedge_error err = {0};
    save_text(FILE_A, "{\"user_data\": {\"a\\u00e9/\": {\"x\": [[1, 1, 1]], \"y\": [1]},"
                      " \"a\303\251\\/\": {\"x\": [[1, 1, 1]], \"y\": [1]},"
                      " \"a\\u00e8/\": {\"x\": [[1, 1, 1]], \"y\": [1]},"
                      " \"\342\202\254\": {\"x\": [[1, 1, 1]], \"y\": [1]},"
                      " \"\\u20AC\": {\"x\": [[1, 1, 1]], \"y\": [1]}}}");
    if (divided("natural:user", FILE_A, 3, &num_parts, owners, &err))
        fail_msg("%s", err.message);
    assert_memory_equal(owners, expected, sizeof(expected));
}

/* --- refusals --------------------------------------------------------------------------------- */

#define USER(examples) "{\"user_data\": {\"u\": {" examples "}}}"

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        fedge_status status;
        const char *part;
    } CASES[] = {
        {"{", FEDGE_TRUNCATED, "test_leaf_0.json: byte 1: "},
        {"{}", FEDGE_CORRUPT, "JSON without \"user_data\""},
        {"{\"data\": {}}", FEDGE_CORRUPT, "JSON without \"user_data\""},
        {"{\"user_data\": {}}", FEDGE_TRUNCATED, "there are no examples in it"},
        {"{\"user_data\": []}", FEDGE_CORRUPT, "byte 14: an object is missing"},
        {"{\"user_data\": {}, \"user_data\": {}}", FEDGE_CORRUPT, "a key that is given twice"},
        {USER("\"x\": [], \"y\": []"), FEDGE_TRUNCATED,
         "user \"u\": test_leaf_0.json: byte 38: there are no examples; leave the user out"},
        {USER("\"x\": [[1, 2, 3]], \"y\": [1, 2]"), FEDGE_MISMATCH,
         "user \"u\": test_leaf_0.json: 1 x, but 2 y"},
        {USER("\"x\": [[1, 2, 3]]"), FEDGE_MISMATCH, "1 x, but 0 y"},
        {USER("\"x\": [[1, 2, 3], [1, 2]], \"y\": [1, 2]"), FEDGE_MISMATCH,
         "user \"u\": x 1: test_leaf_0.json: byte 44: an x of 2 values; the job's data has 3"},
        {USER("\"x\": [[1, 2, 3, 4]], \"y\": [1]"), FEDGE_MISMATCH,
         "an x of more than the job's 3 values"},
        {USER("\"x\": [\"abcd\"], \"y\": [1]"), FEDGE_MISMATCH, "more than the job's 3 values"},
        {USER("\"x\": [\"ab\"], \"y\": [1]"), FEDGE_MISMATCH, "an x of 2 values"},
        {USER("\"x\": [\"a#c\"], \"y\": [1]"), FEDGE_OUT_OF_RANGE,
         "character U+0023 is none of LEAF's 80"},
        {USER("\"x\": [\"a\\u00e9c\"], \"y\": [1]"), FEDGE_OUT_OF_RANGE, "character U+00E9"},
        {USER("\"x\": [[1, 2, NaN]], \"y\": [1]"), FEDGE_NOT_FINITE, "NaN or Infinity"},
        {USER("\"x\": [[1, 2, -Infinity]], \"y\": [1]"), FEDGE_NOT_FINITE, "NaN or Infinity"},
        {USER("\"x\": [[1, 2, 03]], \"y\": [1]"), FEDGE_CORRUPT, "a number that begins with 0"},
        {USER("\"x\": [[1, 2, 1e39]], \"y\": [1]"), FEDGE_NOT_FINITE, "not a finite float"},
        {USER("\"x\": [[1, 2, 0x3]], \"y\": [1]"), FEDGE_CORRUPT, "no ',' or ']'"},
        {USER("\"x\": [[1, 2, +3]], \"y\": [1]"), FEDGE_CORRUPT, "not a JSON value"},
        {USER("\"x\": [[1, 2, true]], \"y\": [1]"), FEDGE_CORRUPT, "a number is missing"},
        {USER("\"x\": [[1, 2, 3]], \"y\": [10]"), FEDGE_OUT_OF_RANGE,
         "user \"u\": y 0: test_leaf_0.json: the label of example 0 is 10; the job has labels 0"},
        {USER("\"x\": [[1, 2, 3]], \"y\": [1.5]"), FEDGE_CORRUPT, "a label must be an integer"},
        {USER("\"x\": [[1, 2, 3]], \"y\": [1e30]"), FEDGE_CORRUPT, "a label must be an integer"},
        {USER("\"x\": [[1, 2, 3]], \"y\": [[1]]"), FEDGE_CORRUPT, "a number is missing"},
        {USER("\"x\": [[1, 2, 3]], \"y\": [\"ab\"]"), FEDGE_CORRUPT, "must have one character"},
        {USER("\"x\": [[1, 2, 3]], \"y\": [\"\"]"), FEDGE_CORRUPT, "must have one character"},
        {USER("\"x\": [[1, 2, 3}], \"y\": [1]"), FEDGE_CORRUPT, "no ',' or ']' after a value"},
        {USER("\"x\": [[1, 2, 3],], \"y\": [1]"), FEDGE_CORRUPT, "a comma too many"},
        {USER("\"x\": [[1, 2, 3]], \"y\": [1]") "x", FEDGE_CORRUPT, "something behind the end"},
        {USER("\"x\": [\"a\\qc\"], \"y\": [1]"), FEDGE_CORRUPT, "an escape that JSON does not"},
        {USER("\"x\": [\"a\\u00g0\"], \"y\": [1]"), FEDGE_CORRUPT, "\\u without four hex digits"},
        {USER("\"x\": [[1, 2, 3]], \"y\": [1]") "{", FEDGE_CORRUPT, "something behind the end"},
        {"{\"users\": [\"u\", \"v\"], \"user_data\": {\"u\": {\"x\": [[1, 2, 3]], \"y\": [1]}}}",
         FEDGE_MISMATCH, "\"users\" has 2, but \"user_data\" 1"},
        {"{\"num_samples\": [2], \"user_data\": {\"u\": {\"x\": [[1, 2, 3]], \"y\": [1]}}}",
         FEDGE_MISMATCH, "\"num_samples\" are 2 in all, but \"user_data\" has 1"},
        {"{\"num_samples\": [1.5]}", FEDGE_CORRUPT, "a number of samples that is none"},
        {"{\"user_data\": {\"\": {\"x\": [[1, 2, 3]], \"y\": [1]}}}", FEDGE_CORRUPT,
         "a user without a name"},
        {"{\"user_data\": {\"u\\u0000\": {}}}", FEDGE_CORRUPT, "the character U+0000"},
    };
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 3, 0, 0);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        save_text(FILE_A, CASES[i].text);
        expect_refused(&spec, FILE_A, "", CASES[i].status, CASES[i].part);
    }
    expect_refused(&spec, FILE_B, FILE_B, FEDGE_INVALID_ARGUMENT, "a file with labels of its own");
    const fedge_data_spec bytes_spec = toy_spec(FEDGE_U8, 1, 3, 0, 0);
    save_text(FILE_A, USER("\"x\": [[1, 2, 0.5]], \"y\": [1]"));
    expect_refused(&bytes_spec, FILE_A, "", FEDGE_OUT_OF_RANGE, "the job's data must be f32");
    save_text(FILE_A, USER("\"x\": [[1, 2, 256]], \"y\": [1]"));
    expect_refused(&bytes_spec, FILE_A, "", FEDGE_OUT_OF_RANGE, "not an integer within 0 to 255");
}

static void test_every_cut_is_noticed(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 3, 0, 0);
    set_text(&file, NUMBERS);
    for (size_t cut = 2; cut < sizeof(NUMBERS) - 1; cut++) {
        save_file(FILE_A, &file, cut);
        expect_refused(&spec, FILE_A, "", FEDGE_TRUNCATED, "test_leaf_0.json: byte ");
    }
}

static void test_limits(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 3, 0, 0);
    char deep[128] = "", text[1024];
    memset(deep, '[', FEDGE_LEAF_MAX_DEPTH + 1);
    (void)snprintf(text, sizeof(text), USER("\"x\": [%s"), deep);
    save_text(FILE_A, text);
    expect_refused(&spec, FILE_A, "", FEDGE_TOO_BIG, "arrays and objects nested too deep");
    (void)snprintf(text, sizeof(text), "{\"user_data\": {\"%0300d\": {}}}", 1);
    save_text(FILE_A, text);
    expect_refused(&spec, FILE_A, "", FEDGE_TOO_BIG, "a name of over 250 bytes");
    (void)snprintf(text, sizeof(text), "{\"user_data\": {\"u\": {\"y\": [1%069d]}}}", 1);
    save_text(FILE_A, text);
    expect_refused(&spec, FILE_A, "", FEDGE_TOO_BIG, "a number of too many digits");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_reads_numbers, set_up),
        cmocka_unit_test_setup(test_reads_long_files, set_up),
        cmocka_unit_test_setup(test_numbers_characters_as_leaf_does, set_up),
        cmocka_unit_test_setup(test_users_are_owners, set_up),
        cmocka_unit_test_setup(test_names_are_compared_as_texts, set_up),
        cmocka_unit_test_setup(test_refusals, set_up),
        cmocka_unit_test_setup(test_every_cut_is_noticed, set_up),
        cmocka_unit_test_setup(test_limits, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

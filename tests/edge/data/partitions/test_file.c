/* Divisions that files decide, natural and file, the writing of one, and that a device's part is
 * what a simulation gives that client. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "tests/edge/data/data_files.h"
#include "tests/edge/data/partitions/partitions.h"

#define VALUES "test_partition_file.values"
#define LABELS "test_partition_file.labels"
#define SPLIT "test_partition_file.csv"
#define COUNT 120u
#define MANY 100000u

static bytes file;

static fedge_status assign(const char *text, uint32_t num_examples, uint32_t num_parts,
                           uint32_t *owner, fedge_error *err)
{
    const fedge_partition_spec spec = parsed_partition(text, 1);
    const fedge_partition_data data = {.num_examples = num_examples, .values_path = VALUES};
    return fedge_partition_assign(&spec, &data, num_parts, owner, err);
}

static void expect_owners(const char *text, uint32_t num_examples, uint32_t num_parts,
                          const uint32_t *expected)
{
    uint32_t owner[COUNT], counted = 0;
    fedge_error err = {.status = FEDGE_OK};
    if (assign(text, num_examples, num_parts, owner, &err))
        fail_msg("%s: %s", text, err.message);
    assert_memory_equal(owner, expected, num_examples * sizeof(*owner));
    const fedge_partition_spec spec = parsed_partition(text, 1);
    assert_int_equal(fedge_partition_num_parts(&spec, VALUES, &counted, &err), FEDGE_OK);
    assert_int_equal(counted, num_parts);
}

static void expect_refusal(const char *text, uint32_t num_examples, uint32_t num_parts,
                           fedge_status status, const char *part)
{
    uint32_t owner[COUNT];
    fedge_error err = {.status = FEDGE_OK};
    const fedge_status got = assign(text, num_examples, num_parts, owner, &err);
    expect_failure(got, &err, status, part);
}

/* --- file ------------------------------------------------------------------------------------- */

static void test_a_file_decides(void **state)
{
    (void)state;
    const uint32_t expected[] = {1, FEDGE_PARTITION_UNUSED, 0, 1, 2};
    static const char *const TEXTS[] = {
        "example,client\n0,1\n2,0\n3,1\n4,2\n",
        "example,client\r\n4,2\r\n3,1\r\n\r\n2,0\r\n0,1", /* any order */
        "\357\273\277example,client\n 4 , 2\n3,1\n2,0\n0,1\n",
        "\"example\",\"client\"\n4,2\n3,1\n2,0\n0,1\n", /* names in quotes */
    };
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        save_text(SPLIT, TEXTS[i]);
        expect_owners("file:" SPLIT, 5, 3, expected);
    }
    set_text(&file, TEXTS[0]);
    save_gz(SPLIT, &file, 0);
    expect_owners("file:" SPLIT, 5, 3, expected);
}

static void test_bad_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *rows;
        fedge_status status;
        const char *part;
    } CASES[] = {
        {"0,0\n1,1\n", FEDGE_CORRUPT, "csv:1: a number, where a header must name the columns"},
        {"client,example\n0,0\n", FEDGE_CORRUPT, "\"client,example\" is not \"example,client\""},
        {"example,client\n0,0\n5,1\n", FEDGE_OUT_OF_RANGE, "csv:3: example 5; the data has 5"},
        {"example,client\n-1,0\n", FEDGE_OUT_OF_RANGE, "csv:2: example -1"},
        {"example,client\n0,3\n", FEDGE_OUT_OF_RANGE,
         "csv:2: client 3; there are to be 3, counted from 0"},
        {"example,client\n0,-2\n", FEDGE_OUT_OF_RANGE, "csv:2: client -2"},
        {"example,client\n0,-1\n0,0\n", FEDGE_DUPLICATE, "client -1 has it already"},
        {"example,client\n0,0\n1,1\n0,2\n", FEDGE_DUPLICATE,
         "csv:4: example 0 is given twice; client 0 has it already"},
        {"example,client\n0,0\n1,2\n", FEDGE_INVALID_ARGUMENT, "client 1 of 3 has no examples"},
        {"example,client\n", FEDGE_INVALID_ARGUMENT, "client 0 of 3 has no examples"},
        {"\"example,client\"\n0,0\n", FEDGE_CORRUPT, "csv:1: \"example?client\" is not \"example,"},
        {"\"example\"x,client\n0,0\n", FEDGE_CORRUPT, "csv:1: column 1: what begins with a quote"},
        {"\"example,client\n0,0\n", FEDGE_CORRUPT, "must end with one, on the same line"},
        {"example,client\n0,0,0\n", FEDGE_CORRUPT, "csv:2: 3 comma-separated fields"},
        {"example,client\n0,x\n", FEDGE_CORRUPT, "csv:2: column 2: \"x\" is not an integer"},
        {"example,client\n0.5,0\n", FEDGE_CORRUPT, "csv:2: column 1: \"0.5\" is not an integer"},
        {"example,client\n99999999999999999999,0\n", FEDGE_OUT_OF_RANGE, "csv:2: example 922"},
        {"", FEDGE_TRUNCATED, "test_partition_file.csv"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        save_text(SPLIT, CASES[i].rows);
        expect_refusal("file:" SPLIT, 5, 3, CASES[i].status, CASES[i].part);
    }
    expect_refusal("file:no-such-file.csv", 5, 3, FEDGE_NOT_FOUND, "no-such-file.csv");
    expect_refusal("file:" SPLIT, 5, 6, FEDGE_INVALID_ARGUMENT, "at most 5 clients");
}

/* Client -1: nobody trains with it. */
static void test_a_file_sets_examples_apart(void **state)
{
    (void)state;
    static const uint32_t EXPECTED[] = {1, FEDGE_PARTITION_VALIDATION, 0, 1,
                                        FEDGE_PARTITION_UNUSED};
    const fedge_partition_spec spec = parsed_partition("file:" SPLIT, 0);
    uint32_t num_parts = 0;
    fedge_error err = {.status = FEDGE_OK};
    save_text(SPLIT, "example,client\n0,1\n1,-1\n2,0\n3,1\n");
    expect_owners("file:" SPLIT, 5, 2, EXPECTED);
    assert_int_equal(fedge_partition_num_parts(&spec, "", &num_parts, &err), FEDGE_OK);
    assert_int_equal(num_parts, 2);
}

static void test_a_file_without_clients_is_refused(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"example,client\n0,-1\n1,-1\n", "every row's client is -1, for validation, and nobody"},
        {"example,client\n", "there is no row in it; give examples to clients"}};
    const fedge_partition_spec spec = parsed_partition("file:" SPLIT, 0);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        uint32_t num_parts = 0;
        fedge_error err = {.status = FEDGE_OK};
        save_text(SPLIT, CASES[i][0]);
        expect_failure(fedge_partition_num_parts(&spec, "", &num_parts, &err), &err,
                       FEDGE_INVALID_ARGUMENT, CASES[i][1]);
    }
    const fedge_partition_spec natural = parsed_partition("natural:user", 0);
    uint32_t num_parts = 0;
    fedge_error err = {.status = FEDGE_OK};
    save_text(SPLIT, "x,user,label\n");
    expect_failure(fedge_partition_num_parts(&natural, SPLIT, &num_parts, &err), &err,
                   FEDGE_INVALID_ARGUMENT, "there is no row in test_partition_file");
}

static void test_a_file_with_impossible_clients_is_refused(void **state)
{
    (void)state;
    static const char *const ROWS[] = {"example,client\n0,4294967294\n", "example,client\n0,-2\n"};
    const fedge_partition_spec spec = parsed_partition("file:" SPLIT, 0);
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        uint32_t num_parts = 0;
        fedge_error err = {.status = FEDGE_OK};
        save_text(SPLIT, ROWS[i]);
        expect_failure(fedge_partition_num_parts(&spec, "", &num_parts, &err), &err,
                       FEDGE_OUT_OF_RANGE, "is not in 0 to 4294967293; give clients numbers");
    }
}

static void test_what_is_written_is_read_back(void **state)
{
    (void)state;
    uint32_t *owner = malloc(MANY * sizeof(*owner)), *again = malloc(MANY * sizeof(*again));
    assert_non_null(owner);
    assert_non_null(again);
    fedge_error err = {.status = FEDGE_OK};
    assert_int_equal(assign("quantity:5", MANY, 100, owner, &err), FEDGE_OK);
    for (uint32_t i = 0; i < MANY; i += 7)
        owner[i] = i % 2 ? FEDGE_PARTITION_UNUSED : FEDGE_PARTITION_VALIDATION;
    save_text(SPLIT ".part", "what a crash has left");
    assert_int_equal(fedge_partition_write_csv(SPLIT, owner, MANY, &err), FEDGE_OK);
    assert_false(fedge_os_exists(SPLIT ".part"));
    if (assign("file:" SPLIT, MANY, 100, again, &err))
        fail_msg("%s", err.message);
    assert_memory_equal(owner, again, MANY * sizeof(*owner));
    assert_int_equal(fedge_partition_write_csv("no-such-dir/x.csv", owner, 1, &err),
                     FEDGE_NOT_FOUND);
    free(owner);
    free(again);
}

/* --- natural ---------------------------------------------------------------------------------- */

static void test_a_column_decides(void **state)
{
    (void)state;
    static const uint32_t EXPECTED[] = {0, 1, 0, 2, 1};
    static const char *const TEXTS[] = {
        "a,b,user,label\n1,2,eve,0\n3,4,bob,1\n5,6,eve,2\n7,8,al,3\n9,10,bob,4\n",
        "user,a,b,label\neve,1,2,0\n bob ,3,4,1\neve,5,6,2\nal,7,8,3\nbob,9,10,4\n",
        "\"a\",\"b\", \"user\" ,label\n1,2,x,0\n3,4,y,1\n5,6,x,2\n7,8,z,3\n9,10,y,4\n",
        "a,b,user,label\n1,2,Hall A,0\n3,4,\"B\",1\n5,6, \" Hall A\" ,2\n7,8,5\",3\n9,10,B,4\n",
        "a,\"b, c\",user,label\n1,2,\"A, 1\",0\n3,\"4\",\"\"\"B\"\"\",1\n5,6,\"A, 1\",2\n7,8,z,3\n"
        "9,10,\"\"\"B\"\"\",4\n",
        "a,b,label, user \n1,2,0,7\n3,4,1,5\n5,6,2, 7\n\n7,8,3,6\n9,10,4,5",
    };
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    const fedge_partition_spec natural = parsed_partition("natural:user", 0);
    for (size_t t = 0; t < sizeof(TEXTS) / sizeof(TEXTS[0]); t++) {
        save_text(VALUES, TEXTS[t]);
        expect_owners("natural:user", 5, 3, EXPECTED);
        fedge_error err = {.status = FEDGE_OK};
        fedge_dataset *dataset = NULL;
        if (fedge_dataset_load_part(&spec, VALUES, "", &natural, 1, 3, &dataset, &err))
            fail_msg("%s", err.message);
        const fedge_view view = {dataset, NULL, fedge_dataset_size(dataset)};
        const fedge_examples examples = fedge_view_examples(&view);
        static const float VALUES_OF_BOB[] = {3, 4, 9, 10};
        float x[4];
        int32_t labels[2];
        assert_int_equal(view.count, 2);
        assert_int_equal(
            examples.read(examples.user, (const uint32_t[]){0, 1}, 2, 0, x, labels, &err),
            FEDGE_OK);
        assert_memory_equal(x, VALUES_OF_BOB, sizeof(x));
        assert_true(labels[0] == 1 && labels[1] == 4);
        fedge_dataset_free(dataset);
    }
}

static void test_labels_may_lie_beside(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 1, 2, 0, 0);
    const fedge_partition_spec natural = parsed_partition("natural:user", 0);
    fedge_error err = {.status = FEDGE_OK};
    fedge_dataset *dataset = NULL;
    uint32_t *owner = NULL;
    save_text(VALUES, "user,a,b\nx,1,2\ny,3,4\n");
    save_text(LABELS, "label\n5\n6\n");
    if (fedge_dataset_load_divided(&spec, VALUES, LABELS, &(fedge_division){&natural, 2, 0},
                                   &dataset, &owner, &err))
        fail_msg("%s", err.message);
    assert_true(owner[0] == 0 && owner[1] == 1);
    assert_int_equal(fedge_dataset_labels(dataset)[1], 6);
    free(owner);
    fedge_dataset_free(dataset);
    /* Columns are counted as in the file. */
    save_text(VALUES, "user,a,b\nx,1,2\ny,3,400\n");
    assert_int_equal(fedge_dataset_load_divided(&spec, VALUES, LABELS,
                                                &(fedge_division){&natural, 2, 0}, &dataset, &owner,
                                                &err),
                     FEDGE_OUT_OF_RANGE);
    assert_non_null(strstr(err.message, "values:3: column 3: \"400\""));
    assert_null(dataset);
    assert_null(owner);
}

#define NO_COLUMNS "values has no columns with names, as only csv with a header has; write who"

static void test_bad_columns_are_refused(void **state)
{
    (void)state;
    static char long_name[400] = "user\n";
    memset(long_name + 5, 'n', FEDGE_PARTITION_MAX_SOURCE / 2);
    const struct {
        const char *rows;
        fedge_status status;
        const char *part;
    } CASES[] = {
        {"a,usr\n1,x\n2,y\n3,z\n", FEDGE_NOT_FOUND,
         "values:1: the header names no column \"user\"; did you mean \"usr\"?; name one of a,usr"},
        {"height,width\n1,x\n2,y\n", FEDGE_NOT_FOUND,
         "names no column \"user\"; name one of height,width"},
        {"1,x\n2,y\n3,z\n", FEDGE_CORRUPT, "values:1: a number, where a header"},
        {"a,user\n1,x\n2,\n3,z\n", FEDGE_CORRUPT, "values:3: column 2 is empty"},
        {"a,user\n1,x\n2,y\n", FEDGE_MISMATCH, "2 rows, but 3 examples"},
        {"a,user\n1,x\n2,y\n3,z\n4,w\n", FEDGE_MISMATCH, "values:5: more rows than the 3"},
        {"a,user\n1,x\n2,\"\"\n3,z\n", FEDGE_CORRUPT, "values:3: column 2 is empty"},
        {"a,user\n1,x\n2,\"y, z\",4\n3,z\n", FEDGE_CORRUPT,
         "values:3: 3 comma-separated fields, but there should be 2"},
        {"\"b, c\",\"\"\"users\"\"\"\n1,x\n", FEDGE_NOT_FOUND, "name one of b, c,\"users\""},
        {"a,user\n1,x\n2,\" \"\n3,z\n", FEDGE_CORRUPT, "values:3: column 2 is empty"},
        {"a,user\n1,x\n2\n3,z\n", FEDGE_CORRUPT, "values:3: 1 comma-separated fields"},
        {"a,user\n1,x\n2,y\n3,x\n", FEDGE_MISMATCH, "has 2 owners, but there are to be 3 clients"},
        {long_name, FEDGE_TOO_BIG, "values:2: column 1 has 256 bytes; the limit is 255"},
        {"", FEDGE_TRUNCATED, "the file is empty"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        save_text(VALUES, CASES[i].rows);
        expect_refusal("natural:user", 3, 3, CASES[i].status, CASES[i].part);
    }
    save_text(VALUES, "a,user\n1,x\n2,\"y\",\n3,z\n"); /* the comma is not in the quotes */
    uint32_t owner[COUNT];
    fedge_error err = {.status = FEDGE_OK};
    assert_int_equal(assign("natural:user", 3, 3, owner, &err), FEDGE_CORRUPT);
    assert_string_equal(strstr(err.message, "values:3: "),
                        "values:3: 3 comma-separated fields, but there should be 2");
    save_text(VALUES, "a,user\n1,x\n2,y\n3,z\n");
    expect_refusal("natural:user", 3, 2, FEDGE_MISMATCH, "ask for 3");
    add_npy_header(&file, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2), }");
    save_file(VALUES, &file, 0);
    expect_refusal("natural:user", 3, 3, FEDGE_UNSUPPORTED, NO_COLUMNS);
    file.size = 0;
    add_bytes(&file, "\x0d\0\0\0\0\0\0\0{\"values\":{}}", 8 + 13);
    save_file(VALUES, &file, 0);
    expect_refusal("natural:user", 3, 3, FEDGE_UNSUPPORTED, NO_COLUMNS);
    static const char IDX[] = "\0\0\10\2\0\0\0\3\0\0\0\2abcdef", CIFAR[] = "\7abc,def";
    file.size = 0;
    add_bytes(&file, IDX, sizeof(IDX) - 1);
    save_file(VALUES, &file, 0);
    expect_refusal("natural:user", 3, 3, FEDGE_UNSUPPORTED, NO_COLUMNS);
    file.size = 0;
    add_bytes(&file, CIFAR, sizeof(CIFAR) - 1);
    save_file(VALUES, &file, 0);
    expect_refusal("natural:user", 3, 3, FEDGE_UNSUPPORTED, NO_COLUMNS);
    save_text(VALUES, "\n\na,user\n1,x\n2,y\n3,z\n"); /* lines that are empty are text */
    expect_owners("natural:user", 3, 3, (const uint32_t[]){0, 1, 2});
}

/* The table of names grows several times. */
static void test_many_owners(void **state)
{
    (void)state;
    FILE *out = fopen(VALUES, "wb");
    assert_non_null(out);
    assert_true(fputs("user,a\n", out) >= 0);
    for (uint32_t i = 0; i < MANY; i++)
        assert_true(fprintf(out, "u%u,1\n", i * 31 % (MANY / 2)) > 0);
    assert_int_equal(fclose(out), 0);
    uint32_t *owner = malloc(MANY * sizeof(*owner));
    assert_non_null(owner);
    fedge_error err = {.status = FEDGE_OK};
    if (assign("natural:user", MANY, MANY / 2, owner, &err))
        fail_msg("%s", err.message);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(owner[i], i % (MANY / 2));
    free(owner);
}

/* --- clients ---------------------------------------------------------------------------------- */

static void save_data(void)
{
    char text[COUNT * 32] = "value,user,label\n";
    size_t length = strlen(text);
    for (uint32_t i = 0; i < COUNT; i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%u,user-%u,%u\n", i,
                                   i * i % 4 == 0 ? i % 2 : 2 + i / 60, i * 7 % 10);
    }
    save_text(VALUES, text);
}

/* What a device keeps of the files is what a simulation gives to the client of its number. */
static void check_parts(const fedge_partition_spec *scheme, const char *values, uint32_t num_parts)
{
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 1, 0, 0);
    fedge_error err = {.status = FEDGE_OK};
    fedge_dataset *whole = NULL, *own = NULL;
    uint32_t *owner = NULL;
    if (fedge_dataset_load_divided(&spec, values, "", &(fedge_division){scheme, num_parts, 0},
                                   &whole, &owner, &err))
        fail_msg("%s", err.message);
    assert_int_equal(fedge_dataset_size(whole), COUNT);
    for (uint32_t part = 0; part < num_parts; part++) {
        if (fedge_dataset_load_part(&spec, values, "", scheme, part, num_parts, &own, &err))
            fail_msg("%s", err.message);
        const fedge_view view = {own, NULL, fedge_dataset_size(own)};
        const fedge_examples examples = fedge_view_examples(&view);
        uint32_t slot = 0;
        for (uint32_t i = 0; i < COUNT; i++) {
            float x = -1;
            int32_t label = -1;
            if (owner[i] != part)
                continue;
            assert_int_equal(examples.read(examples.user, &slot, 1, 0, &x, &label, &err), FEDGE_OK);
            assert_true(x == (float)i && label == (int32_t)(i * 7 % 10));
            slot++;
        }
        assert_int_equal(slot, fedge_dataset_size(own));
        fedge_dataset_free(own);
    }
    free(owner);
    fedge_dataset_free(whole);
}

static void test_a_device_has_the_part_of_a_simulated_client(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {
        "iid",      "shards:2",   "dirichlet:5", "dirichlet-client:1",
        "labels:3", "quantity:5", "natural:user"};
    save_data();
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        const fedge_partition_spec scheme = parsed_partition(TEXTS[i], 7);
        uint32_t num_parts = 0;
        fedge_error err = {.status = FEDGE_OK};
        assert_int_equal(fedge_partition_num_parts(&scheme, VALUES, &num_parts, &err), FEDGE_OK);
        assert_true((num_parts > 0) == (scheme.scheme == FEDGE_PARTITION_NATURAL));
        if (scheme.scheme != FEDGE_PARTITION_NATURAL) {
            /* Without the owners' column. */
            char text[COUNT * 16] = "value,label\n";
            size_t length = strlen(text);
            for (uint32_t e = 0; e < COUNT; e++) {
                length += (size_t)snprintf(text + length, sizeof(text) - length, "%u,%u\n", e,
                                           e * 7 % 10);
            }
            save_text(LABELS, text);
            check_parts(&scheme, LABELS, i == 4 ? 12 : 5);
        } else {
            check_parts(&scheme, VALUES, num_parts);
        }
    }
    save_text(SPLIT, "example,client\n119,0\n0,2\n7,1\n5,0\n");
    const fedge_partition_spec scheme = parsed_partition("file:" SPLIT, 0);
    check_parts(&scheme, LABELS, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_decides),
        cmocka_unit_test(test_bad_files_are_refused),
        cmocka_unit_test(test_a_file_sets_examples_apart),
        cmocka_unit_test(test_a_file_without_clients_is_refused),
        cmocka_unit_test(test_a_file_with_impossible_clients_is_refused),
        cmocka_unit_test(test_what_is_written_is_read_back),
        cmocka_unit_test(test_a_column_decides),
        cmocka_unit_test(test_labels_may_lie_beside),
        cmocka_unit_test(test_bad_columns_are_refused),
        cmocka_unit_test(test_many_owners),
        cmocka_unit_test(test_a_device_has_the_part_of_a_simulated_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Data sets of several files: one behind the other, and each a client's. */
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

#define DIR "test_dataset_files.d/"

static bytes file;

/* a1, a2, a10: 2, 1 and 3 examples of two values, e and 100 + e, with label e, for e from 0; as csv
 * with labels, and as npy beside idx of the labels. */
static int set_up(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t from, to;
    } PARTS[] = {{"a1", 0, 2}, {"a2", 2, 3}, {"a10", 3, 6}};
    fedge_error err;
    assert_int_equal(fedge_os_remove_tree(DIR, &err), FEDGE_OK);
    assert_int_equal(fedge_os_make_dirs(DIR, &err), FEDGE_OK);
    for (int p = 0; p < 3; p++) {
        char path[64], text[128] = "";
        const uint32_t count = PARTS[p].to - PARTS[p].from;
        for (uint32_t e = PARTS[p].from; e < PARTS[p].to; e++) {
            (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%u,%u,%u\n", e,
                           100 + e, e);
        }
        (void)snprintf(path, sizeof(path), DIR "%s.csv", PARTS[p].name);
        save_text(path, text);
        (void)snprintf(text, sizeof(text),
                       "{'descr': '|u1', 'fortran_order': False, "
                       "'shape': (%u, 2), }",
                       count);
        add_npy_header(&file, 1, text);
        for (uint32_t e = PARTS[p].from; e < PARTS[p].to; e++)
            add_bytes(&file, (const uint8_t[]){(uint8_t)e, (uint8_t)(100 + e)}, 2);
        (void)snprintf(path, sizeof(path), DIR "%s.npy", PARTS[p].name);
        save_file(path, &file, 0);
        add_idx_header(&file, 0x08, 1, &count);
        for (uint32_t e = PARTS[p].from; e < PARTS[p].to; e++)
            add_bytes(&file, &(uint8_t){(uint8_t)e}, 1);
        (void)snprintf(path, sizeof(path), DIR "%s.idx.gz", PARTS[p].name);
        save_gz(path, &file, 0);
    }
    return 0;
}

static const fedge_data_spec SPEC = {
    .name = "toy", .rank = 1, .shape = {2}, .dtype = FEDGE_U8, .num_labels = 6, .divide_by = 1};

/* The examples are [expected], each named by its label. */
static void expect_examples(const fedge_dataset *dataset, const char *expected)
{
    const fedge_view view = {dataset, NULL, fedge_dataset_size(dataset)};
    const fedge_examples examples = fedge_view_examples(&view);
    assert_int_equal(view.count, strlen(expected));
    for (uint32_t i = 0; i < view.count; i++) {
        fedge_error err;
        float x[2];
        int32_t label = -1;
        assert_int_equal(examples.read(examples.user, &i, 1, 0, x, &label, &err), FEDGE_OK);
        assert_int_equal(label, expected[i] - '0');
        assert_true(x[0] == (float)label && x[1] == (float)(100 + label));
    }
}

static void expect_whole(const char *values, const char *labels, const char *expected)
{
    fedge_dataset *dataset = NULL;
    fedge_error err = {0};
    if (fedge_dataset_load(&SPEC, values, labels, &dataset, &err))
        fail_msg("%s", err.message);
    expect_examples(dataset, expected);
    fedge_dataset_free(dataset);
}

static void test_files_are_one_data_set(void **state)
{
    (void)state;
    expect_whole(DIR "a2.csv", "", "2");
    expect_whole(DIR "*.csv", "", "012345");
    expect_whole(DIR "a10.csv\n" DIR "a1.csv", "", "34501");
    expect_whole(DIR "*.npy", DIR "*.idx.gz", "012345");
    save_text(DIR "values", "0,100\n1,101\n"); /* formats may be mixed */
    save_text(DIR "labels", "0\n1\n");
    expect_whole(DIR "*.npy\n" DIR "values", DIR "*.idx.gz\n" DIR "labels", "01234501");
}

/* Part p is [parts][p], for a device and in the division of all. */
static void expect_parts(const char *partition, const char *values, const char *labels,
                         uint32_t count, const char *const *parts)
{
    const fedge_partition_spec spec = parsed_partition(partition, 3);
    fedge_error err = {0};
    fedge_dataset *whole = NULL;
    uint32_t *owner = NULL, counted = 0;
    assert_int_equal(fedge_partition_num_parts(&spec, values, &counted, &err), FEDGE_OK);
    assert_int_equal(counted, count);
    if (fedge_dataset_load_divided(&SPEC, values, labels, &(fedge_division){&spec, count, 0},
                                   &whole, &owner, &err))
        fail_msg("%s", err.message);
    const int32_t *all = fedge_dataset_labels(whole);
    for (uint32_t part = 0; part < count; part++) {
        fedge_dataset *own = NULL;
        char got[16] = "";
        uint32_t n = 0;
        for (uint32_t i = 0; i < fedge_dataset_size(whole); i++) {
            if (owner[i] == part)
                got[n++] = (char)('0' + all[i]);
        }
        assert_string_equal(got, parts[part]);
        if (fedge_dataset_load_part(&SPEC, values, labels, &spec, part, count, &own, &err))
            fail_msg("%s", err.message);
        expect_examples(own, parts[part]);
        fedge_dataset_free(own);
    }
    free(owner);
    fedge_dataset_free(whole);
}

/* Each example leaves the client whose file it is in. */
static void test_validation_leaves_the_others_where_they_are(void **state)
{
    (void)state;
    const fedge_partition_spec spec = parsed_partition("per-file", 3);
    fedge_error err = {0};
    fedge_dataset *whole = NULL;
    uint32_t *owner = NULL, apart = 0;
    save_text(DIR "a2.csv", "2,102,2\n2,102,2\n2,102,2\n");
    if (fedge_dataset_load_divided(&SPEC, DIR "*.csv", "", &(fedge_division){&spec, 3, 0.13},
                                   &whole, &owner, &err))
        fail_msg("%s", err.message);
    static const uint32_t FILES[8] = {0, 0, 1, 1, 1, 2, 2, 2};
    for (uint32_t i = 0; i < 8; i++) {
        apart += owner[i] == FEDGE_PARTITION_VALIDATION;
        assert_true(owner[i] == FILES[i] || owner[i] == FEDGE_PARTITION_VALIDATION);
    }
    assert_int_equal(apart, 1);
    free(owner);
    fedge_dataset_free(whole);
}

static void test_each_file_is_a_client(void **state)
{
    (void)state;
    static const char *const PARTS[] = {"01", "2", "345"};
    expect_parts("per-file", DIR "*.csv", "", 3, PARTS);
    expect_parts("per-file", DIR "*.npy", DIR "*.idx.gz", 3, PARTS);
    /* A device reads its own file alone. */
    save_text(DIR "a10.csv", "broken");
    const fedge_partition_spec spec = parsed_partition("per-file", 3);
    fedge_dataset *own = NULL;
    fedge_error err = {0};
    assert_int_equal(fedge_dataset_load_part(&SPEC, DIR "*.csv", "", &spec, 1, 3, &own, &err),
                     FEDGE_OK);
    expect_examples(own, "2");
    fedge_dataset_free(own);
    assert_int_not_equal(fedge_dataset_load_part(&SPEC, DIR "*.csv", "", &spec, 2, 3, &own, &err),
                         FEDGE_OK);
}

static void test_other_numbers_of_clients_are_refused(void **state)
{
    (void)state;
    const fedge_partition_spec spec = parsed_partition("per-file", 3);
    fedge_dataset *own = NULL;
    uint32_t *owner = NULL;
    fedge_error err = {0};
    const char *part = "there are 3 files of values, but there are to be 2 clients; ask for 3";
    assert_int_equal(fedge_dataset_load_part(&SPEC, DIR "*.csv", "", &spec, 1, 2, &own, &err),
                     FEDGE_MISMATCH);
    assert_non_null(strstr(err.message, part));
    assert_int_equal(fedge_dataset_load_divided(&SPEC, DIR "*.csv", "",
                                                &(fedge_division){&spec, 2, 0}, &own, &owner, &err),
                     FEDGE_MISMATCH);
    assert_non_null(strstr(err.message, part));
    assert_null(own);
    assert_null(owner);
    assert_int_equal(fedge_dataset_load_part(&SPEC, DIR "*.csv", "", &spec, 3, 3, &own, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "part 3 of 3"));
}

static void test_owners_may_stand_in_several_files(void **state)
{
    (void)state;
    save_text(DIR "n1", "user,a,b,c\nbob,0,100,0\nann,1,101,1\n");
    save_text(DIR "n2", "a,user,b,c\n2,ann,102,2\n3,cy,103,3\n4,bob,104,4\n");
    expect_parts("natural:user", DIR "n*", "", 3, (const char *const[]){"04", "12", "3"});
}

/* Columns in another order are not mixed up; quotes, spaces, and files without a header may be. */
static void test_headers_must_agree(void **state)
{
    (void)state;
    save_text(DIR "h1", "\"a\", b,label\r\n0,100,0\n");
    save_text(DIR "h2", "1,101,1\n");
    save_text(DIR "h3", "a,\"b\" ,\"label\"\n2,102,2\n");
    expect_whole(DIR "h*", "", "012");
    save_text(DIR "h4", "b,a,label\n103,3,3\n");
    expect_refused(&SPEC, DIR "h*", "", FEDGE_MISMATCH,
                   DIR "h4: its header names other columns than " DIR "h1, or in another order");
    save_text(DIR "h2", "name,a,b,label\nann,1,101,1\n");
    save_text(DIR "h3", "b,name,a,label\n102,bob,2,2\n");
    save_text(DIR "h4", "a,b,label,name\n3,103,3,cy\n");
    expect_parts("natural:name", DIR "h2\n" DIR "h4", "", 2, (const char *const[]){"1", "3"});
    const fedge_partition_spec spec = parsed_partition("natural:name", 3);
    fedge_dataset *own = NULL;
    fedge_error err = {0};
    assert_int_equal(
        fedge_dataset_load_part(&SPEC, DIR "h2\n" DIR "h3", "", &spec, 0, 2, &own, &err),
        FEDGE_MISMATCH);
    assert_non_null(strstr(err.message, DIR "h3: its header names other columns than " DIR "h2"));
    expect_refused(
        &SPEC, DIR "h2", "", FEDGE_CORRUPT,
        "4 comma-separated fields, but there should be 3: 2 values and the label; one that "
        "says whose");
}

static void test_files_must_fit_each_other(void **state)
{
    (void)state;
    expect_refused(&SPEC, "", "", FEDGE_INVALID_ARGUMENT, "data 'toy': no file is named");
    expect_refused(&SPEC, DIR "*.npy", DIR "a1.idx.gz", FEDGE_MISMATCH,
                   "3 files of values (" DIR "a1.npy …), but 1 of labels");
    expect_refused(&SPEC, DIR "a1.npy\n" DIR "a10.npy", DIR "a1.idx.gz\n" DIR "a2.idx.gz",
                   FEDGE_MISMATCH, DIR "a10.npy: 3 examples, but 1 labels");
    expect_refused(&SPEC, DIR "a2.csv\n" DIR "a1.npy", "", FEDGE_INVALID_ARGUMENT,
                   DIR "a1.npy: a file without labels");
    save_text(DIR "empty.csv", "a,b,c\n");
    expect_refused(&SPEC, DIR "a1.csv\n" DIR "empty.csv", "", FEDGE_TRUNCATED,
                   DIR "empty.csv: there are no examples in it");
    save_text(DIR "bad.csv", "1,101,1\n2,102,6\n");
    expect_refused(&SPEC, DIR "a1.csv\n" DIR "bad.csv", "", FEDGE_OUT_OF_RANGE,
                   "bad.csv:2: the label of example 1 is 6; the job has labels 0 to 5");
}

/* As on a rank whose clients others have: it gets examples of theirs. */
static void test_examples_come_behind_none_or_others(void **state)
{
    (void)state;
    const fedge_partition_spec per_file = {.scheme = FEDGE_PARTITION_PER_FILE};
    fedge_dataset *dataset = NULL;
    uint32_t *owner = NULL;
    fedge_error err;
    assert_int_equal(fedge_dataset_load_divided(&SPEC, "", "", &(fedge_division){&per_file, 0, 0},
                                                &dataset, &owner, &err),
                     FEDGE_OK);
    assert_null(owner);
    assert_int_equal(fedge_dataset_size(dataset), 0);
    assert_int_equal(fedge_dataset_example_size(dataset), 2);
    for (uint8_t e = 4; e < 6; e++) {
        void *values = NULL;
        int32_t *labels = NULL;
        assert_int_equal(fedge_dataset_extend(dataset, 1, &values, &labels, &err), FEDGE_OK);
        memcpy(values, (const uint8_t[]){e, (uint8_t)(100 + e)}, 2);
        labels[0] = e;
    }
    expect_examples(dataset, "45");
    fedge_dataset_free(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_files_are_one_data_set, set_up),
        cmocka_unit_test_setup(test_each_file_is_a_client, set_up),
        cmocka_unit_test_setup(test_validation_leaves_the_others_where_they_are, set_up),
        cmocka_unit_test_setup(test_other_numbers_of_clients_are_refused, set_up),
        cmocka_unit_test_setup(test_owners_may_stand_in_several_files, set_up),
        cmocka_unit_test_setup(test_headers_must_agree, set_up),
        cmocka_unit_test_setup(test_files_must_fit_each_other, set_up),
        cmocka_unit_test(test_examples_come_behind_none_or_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

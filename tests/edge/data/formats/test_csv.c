/* csv files: headers, line ends, labels beside or within; every refusal has its line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/data/formats/csv.h"
#include "tests/edge/data/data_files.h"

#define VALUES "test_csv.values"
#define LABELS "test_csv.labels"

static bytes file;

static void test_reads_labels_in_the_last_column(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {
        "1.5,-2,3\n4,5e-1,6\n",
        "a,b,label\n1.5,-2,3\n4,5e-1,6", /* header; no end of the last line */
        "width (cm),b,label\r\n1.5,-2,3\r\n4,.5,6\r\n\r\n",
        "\n 1.5 ,\t-2 , 3 \n\n4,0.5,+6\n",      /* spaces and empty lines */
        "\357\273\2771.5,-2,3\n4,0.5,6\n",      /* byte order mark */
        "\"1.5\",-2,3\n4, \"0.5\" ,\" 6\"\r\n", /* quotes around some numbers, and spaces */
        "\"a, \"\"b\"\"\",\"c\",label\n1.5,-2,3\n4,0.5,6\n",
        "\",1\",c,label\n1.5,-2,3\n4,0.5,6\n", /* no number begins this header */
    };
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        float x[2];
        save_text(VALUES, TEXTS[i]);
        assert_int_equal(load_and_read(&spec, VALUES, "", 2, 0, x), 3);
        assert_true(x[0] == 1.5f && x[1] == -2.0f);
        assert_int_equal(load_and_read(&spec, VALUES, "", 2, 1, x), 6);
        assert_true(x[0] == 4.0f && x[1] == 0.5f);
    }
}

static void test_reads_bytes_and_labels_beside(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 2, 1, 2, 0);
    float x[2];
    save_text(VALUES, "0,255\n1,2\n");
    save_text(LABELS, "label\n7\n8\n");
    assert_int_equal(load_and_read(&spec, VALUES, LABELS, 2, 0, x), 7);
    assert_true(x[0] == 0 && x[1] == 255);
    set_text(&file, "label\n7\n8\n"); /* one column */
    save_gz(VALUES, &file, 0);
    expect_refused(&spec, VALUES, LABELS, FEDGE_CORRUPT, "test_csv.values:2: 1 comma");
}

static void test_errors_have_path_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        fedge_status status;
        const char *part;
    } CASES[] = {
        {"1,2,3\n1,2\n", FEDGE_CORRUPT, "values:2: 2 comma-separated fields"},
        {"1,2,3\n1,2,3,4\n", FEDGE_CORRUPT, "values:2: 4 comma-separated fields"},
        {"1,2,3\n1,x,3\n", FEDGE_CORRUPT, "values:2: column 2: \"x\" is not a number"},
        {"a;b;c\n1;2;3\n", FEDGE_CORRUPT, "values:2: 1 comma-separated fields, but there should"},
        {"1;2;3\n1;2;3\n", FEDGE_CORRUPT, "; commas separate fields, not semicolons"},
        {"a\tb\tc\n1\t2\t3\n", FEDGE_CORRUPT,
         "should be 3: 2 values and the label; commas separate fields, not tabs"},
        {"1,2,3\nx\t1\t2\n", FEDGE_CORRUPT, "; commas separate fields, not tabs"},
        {"1  2 3\n1 2 3\n", FEDGE_CORRUPT,
         "2 values and the label; commas separate fields, not spaces"},
        {"1,2,3\n1,2 2,3\n", FEDGE_CORRUPT,
         "\"2 2\" is not a number; commas separate fields, not sp"},
        {"1,2,3\n1,2\t2,3\n", FEDGE_CORRUPT, "is not a number; commas separate fields, not tabs"},
        {"1,2,3\n1,5;2,5\n", FEDGE_CORRUPT, "\"5;2\" is not a number; commas separate"},
        {"1,2,3\n\n1,,3\n", FEDGE_CORRUPT, "values:3: column 2: \"\" is not a number"},
        {"1,2,3\n1,2 2,3\n", FEDGE_CORRUPT, "values:2: column 2"},
        {"1,2,3\n1,nan,3\n", FEDGE_NOT_FINITE, "values:2: column 2: \"nan\""},
        {"inf,2,3\n", FEDGE_NOT_FINITE, "values:1: column 1: \"inf\""},
        {"1,1e39,3\n", FEDGE_NOT_FINITE, "values:1: column 2: \"1e39\""},
        {"1,2,3\n\"1,5\",2,3\n", FEDGE_CORRUPT, "values:2: column 1: \"1,5\" is not a number"},
        {"1,2,3\n\",1\",2,3\n", FEDGE_CORRUPT, "values:2: column 1: \",1\" is not a number"},
        {"1,2,3\n\"\",2,3\n", FEDGE_CORRUPT, "values:2: column 1: \"\" is not a number"},
        {"1,2,3\n1,\"\"\"2\"\"\",3\n", FEDGE_CORRUPT, "column 2: \"\"2\"\" is not a number"},
        {"1,2,3\n1,2,\"3,4\"\n", FEDGE_CORRUPT, "column 3: \"3,4\" is not an integer label"},
        {"1,2,3\n\"1,2\",3\n", FEDGE_CORRUPT, "values:2: 2 comma-separated fields"},
        {"1,2,3\n1,\"2,3\n", FEDGE_CORRUPT,
         "values:2: column 2: what begins with a quote must end"},
        {"1,2,3\n1,\"2\"0,3\n", FEDGE_CORRUPT, "values:2: column 2: what begins with a quote"},
        {"1,2,3\n1,2,\"\n3\"\n", FEDGE_CORRUPT, "values:2: column 3: what begins with a quote"},
        {"1,2,3\n1,2\"\",3\n", FEDGE_CORRUPT, "column 2: \"2\"\"\" is not a number"},
        {"1,2,3\n1,2,3.0\n", FEDGE_CORRUPT, "values:2: column 3: \"3.0\" is not an integer label"},
        {"1,2,3\n1,2,10\n", FEDGE_OUT_OF_RANGE, "test_csv.values:2: the label of example 1 is 10;"},
        {"1,2,-1\n", FEDGE_OUT_OF_RANGE, "is -1"},
        {"1,2,99999999999999999999\n", FEDGE_OUT_OF_RANGE, "is 9223372036854775807"},
        {"a,b,label\n", FEDGE_TRUNCATED, "no examples"},
        {"\n\n", FEDGE_TRUNCATED, "no examples"},
        {"", FEDGE_TRUNCATED, "the file is empty"},
    };
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        save_text(VALUES, CASES[i].text);
        expect_refused(&spec, VALUES, "", CASES[i].status, CASES[i].part);
    }
    /* The place is said once. */
    fedge_error err = {.status = FEDGE_OK};
    fedge_dataset *dataset = NULL;
    save_text(VALUES, "1,2,3\n1,2,x\n");
    assert_int_equal(fedge_dataset_load(&spec, VALUES, "", &dataset, &err), FEDGE_CORRUPT);
    assert_string_equal(err.message, VALUES ":2: column 3: \"x\" is not an integer label; "
                                            "to learn numbers give the job data.targets");
    /* Spaces that separate no numbers are no hint. */
    static const char *const WORDS[] = {"x y", "1 x", "x 1", " x ", "x\t"};
    for (size_t i = 0; i < sizeof(WORDS) / sizeof(WORDS[0]); i++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "1,2,3\n1,%s,3\n", WORDS[i]);
        save_text(VALUES, text);
        assert_int_equal(fedge_dataset_load(&spec, VALUES, "", &dataset, &err), FEDGE_CORRUPT);
        assert_null(strstr(err.message, "; commas"));
    }
}

static void test_bytes_out_of_range(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 1, 2, 0, 0);
    save_text(VALUES, "1,256,3\n");
    expect_refused(&spec, VALUES, "", FEDGE_OUT_OF_RANGE, "values:1: column 2: \"256\"");
    save_text(VALUES, "-1,2,3\n");
    expect_refused(&spec, VALUES, "", FEDGE_OUT_OF_RANGE, "values:1: column 1");
    save_text(VALUES, "1.5,2,3\n");
    expect_refused(&spec, VALUES, "", FEDGE_CORRUPT, "is not an integer");
}

static void test_rows_and_labels_must_agree(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    save_text(LABELS, "1\n2\n3\n");
    save_text(VALUES, "1,2\n3,4\n");
    expect_refused(&spec, VALUES, LABELS, FEDGE_MISMATCH, "2 rows, but 3 labels");
    save_text(VALUES, "1,2\n3,4\n5,6\n7,8\n");
    expect_refused(&spec, VALUES, LABELS, FEDGE_MISMATCH, "values:4: more rows than the 3 labels");
}

static void test_not_text(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    set_text(&file, "1,2,3\n1,2,3");
    add_bytes(&file, "\0junk", 5);
    save_file(VALUES, &file, 0);
    expect_refused(&spec, VALUES, "", FEDGE_CORRUPT, "line 2: test_csv.values: not a text file");
}

static void test_truncated_gzip(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    set_text(&file, "1,2,3\n4,5,6\n");
    for (size_t cut = 1; cut <= 16; cut++) {
        save_gz(VALUES, &file, cut);
        expect_refused(&spec, VALUES, "", FEDGE_TRUNCATED, "gzip stream is cut off");
    }
}

static void save_long_line(size_t length)
{
    char *text = malloc(length + 2);
    assert_non_null(text);
    memset(text, '1', length);
    memcpy(text + length, "\n", 2);
    save_text(VALUES, text);
    free(text);
}

static void test_line_limit(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    const size_t limit = FEDGE_CSV_LINE_BASE + 3 * FEDGE_CSV_LINE_PER_FIELD;
    save_long_line(limit);
    expect_refused(&spec, VALUES, "", FEDGE_CORRUPT, "1 comma-separated fields");
    save_long_line(limit + 1);
    expect_refused(&spec, VALUES, "", FEDGE_TOO_BIG, "limit of 4288 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_labels_in_the_last_column),
        cmocka_unit_test(test_reads_bytes_and_labels_beside),
        cmocka_unit_test(test_errors_have_path_line_and_column),
        cmocka_unit_test(test_bytes_out_of_range),
        cmocka_unit_test(test_rows_and_labels_must_agree),
        cmocka_unit_test(test_not_text),
        cmocka_unit_test(test_truncated_gzip),
        cmocka_unit_test(test_line_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

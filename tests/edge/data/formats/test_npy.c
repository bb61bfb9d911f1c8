/* npy files: the versions, types and orders of keys that are read; what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/edge/data/data_files.h"

#define VALUES "test_npy.values"
#define LABELS "test_npy.labels"

static bytes file;

static void save_labels(const char *dictionary, const void *data, size_t size)
{
    add_npy_header(&file, 1, dictionary);
    add_bytes(&file, data, size);
    save_file(LABELS, &file, 0);
}

static int set_up(void **state)
{
    (void)state;
    const int64_t labels[2] = {3, 4};
    save_labels("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }\n", labels,
                sizeof(labels));
    return 0;
}

static void save_values(uint8_t version, const char *dictionary, const void *data, size_t size)
{
    add_npy_header(&file, version, dictionary);
    add_bytes(&file, data, size);
    save_file(VALUES, &file, 0);
}

static const float FLOATS[4] = {1.5f, -2, 3, 4};

static void test_reads_all_versions(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    for (uint8_t version = 1; version <= 3; version++) {
        float x[2];
        save_values(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }   \n",
                    FLOATS, sizeof(FLOATS));
        assert_int_equal(load_and_read(&spec, VALUES, LABELS, 2, 0, x), 3);
        assert_memory_equal(x, FLOATS, sizeof(x));
    }
}

static void test_reads_other_types_and_spellings(void **state)
{
    (void)state;
    float x[2];
    fedge_data_spec spec = toy_spec(FEDGE_U8, 1, 2, 0, 0);
    save_values(1, "{\"shape\":(2,2),\"descr\":\"|u1\",\"fortran_order\":False}",
                (const uint8_t[]){1, 2, 254, 255}, 4);
    assert_int_equal(load_and_read(&spec, VALUES, LABELS, 2, 1, x), 4);
    assert_true(x[0] == 254 && x[1] == 255);

    spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    const double doubles[4] = {0.1, 2, 3, 4};
    save_values(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }", doubles,
                sizeof(doubles));
    assert_int_equal(load_and_read(&spec, VALUES, LABELS, 2, 0, x), 3);
    assert_true(x[0] == 0.1f);

    const int32_t labels[2] = {9, 0};
    save_labels("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", labels,
                sizeof(labels));
    assert_int_equal(load_and_read(&spec, VALUES, LABELS, 2, 0, x), 9);
}

static void test_refuses_headers(void **state)
{
    (void)state;
    static const struct {
        const char *dictionary;
        fedge_status status;
        const char *part;
    } CASES[] = {
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", FEDGE_UNSUPPORTED,
         "ascontiguousarray"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 2), }", FEDGE_UNSUPPORTED, "'>f4'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2), }", FEDGE_UNSUPPORTED,
         "structured"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (2, 2), }", FEDGE_MISMATCH, "I64"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", FEDGE_MISMATCH,
         "3 examples, but 2 labels"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", FEDGE_MISMATCH, "[3]"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (), }", FEDGE_MISMATCH,
         "single number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, -2), }", FEDGE_CORRUPT,
         "dimension is missing"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 99999999999999999999), }",
         FEDGE_CORRUPT, "too big"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4, 5, 6, 7, 8, 9), }",
         FEDGE_UNSUPPORTED, "more than 8"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 2), }", FEDGE_CORRUPT, "comma"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 2), }", FEDGE_CORRUPT, "True or False"},
        {"{'descr': '<f4', 'fortran_order': False}", FEDGE_CORRUPT, "is missing"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", FEDGE_CORRUPT,
         "there twice"},
        {"{'descr': '<f4', 'order': 'C', 'fortran_order': False, 'shape': (2, 2)}", FEDGE_CORRUPT,
         "'order' is not known"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)} x", FEDGE_CORRUPT, "\"x\""},
        {"{'descr", FEDGE_CORRUPT, "does not end"},
        {"", FEDGE_CORRUPT, "dictionary is missing"},
    };
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        save_values(1, CASES[i].dictionary, FLOATS, sizeof(FLOATS));
        expect_refused(&spec, VALUES, LABELS, CASES[i].status, CASES[i].part);
    }
}

static void test_refuses_versions_sizes_and_values(void **state)
{
    (void)state;
    const char *dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    save_values(4, dictionary, FLOATS, sizeof(FLOATS));
    expect_refused(&spec, VALUES, LABELS, FEDGE_UNSUPPORTED, "version 4.0");

    save_values(2, dictionary, FLOATS, sizeof(FLOATS));
    for (size_t byte = 10; byte <= 11; byte++) { /* the high half of the header's length */
        file.data[10] = file.data[11] = 0;
        file.data[byte] = 0x7F;
        save_file(VALUES, &file, 0);
        expect_refused(&spec, VALUES, LABELS, FEDGE_TOO_BIG, "limit is 65536");
    }
    save_values(1, dictionary, FLOATS, sizeof(FLOATS));
    for (size_t cut = 1; cut < file.size - 6; cut++) {
        save_file(VALUES, &file, cut);
        expect_refused(&spec, VALUES, LABELS, FEDGE_TRUNCATED, VALUES);
    }
    add_text(&file, "x");
    save_file(VALUES, &file, 0);
    expect_refused(&spec, VALUES, LABELS, FEDGE_MISMATCH, "goes on behind");

    const float bad[4] = {1, INFINITY, 3, 4};
    save_values(1, dictionary, bad, sizeof(bad));
    expect_refused(&spec, VALUES, LABELS, FEDGE_NOT_FINITE, "value 1 of example 0");
    const double beyond[4] = {1, 2, 3, 1e300};
    save_values(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }", beyond,
                sizeof(beyond));
    expect_refused(&spec, VALUES, LABELS, FEDGE_NOT_FINITE, "value 1 of example 1");
    save_values(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", FLOATS, 16);
    file.data[12] = '\0'; /* within the dictionary */
    save_file(VALUES, &file, 0);
    expect_refused(&spec, VALUES, LABELS, FEDGE_CORRUPT, "NUL");
}

static void test_refuses_labels(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    save_values(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", FLOATS,
                sizeof(FLOATS));
    const int64_t huge[2] = {0, INT64_C(1) << 32};
    save_labels("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }", huge, sizeof(huge));
    expect_refused(&spec, VALUES, LABELS, FEDGE_OUT_OF_RANGE, "example 1 is 4294967296");
    const int32_t negative[2] = {-1, 0};
    save_labels("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", negative,
                sizeof(negative));
    expect_refused(&spec, VALUES, LABELS, FEDGE_OUT_OF_RANGE, "example 0 is -1");
    save_labels("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", FLOATS, 8);
    expect_refused(&spec, VALUES, LABELS, FEDGE_MISMATCH, "integers are needed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_reads_all_versions, set_up),
        cmocka_unit_test_setup(test_reads_other_types_and_spellings, set_up),
        cmocka_unit_test_setup(test_refuses_headers, set_up),
        cmocka_unit_test_setup(test_refuses_versions_sizes_and_values, set_up),
        cmocka_unit_test_setup(test_refuses_labels, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Data sets whose targets are numbers, from every format, and refusals of bad ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/edge/data/data_files.h"

#define VALUES "test_dataset_targets-values"
#define TARGETS "test_dataset_targets-targets"

static bytes file;

/* Examples of two floats, with [count] targets. */
static fedge_data_spec spec_of(uint32_t count)
{
    fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    spec.num_labels = 0;
    spec.targets = (fedge_targets_spec){
        .kind = FEDGE_TARGETS_NUMBERS, .rank = 1, .shape = {count}, .dtype = FEDGE_F32};
    return spec;
}

/* Example [index] must have these values and targets. */
static void expect(const fedge_data_spec *spec, const char *labels, uint32_t size, uint32_t index,
                   const float *values, const float *targets)
{
    fedge_dataset *dataset = NULL;
    fedge_error err = {0};
    if (fedge_dataset_load(spec, VALUES, labels, &dataset, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    const fedge_view view = {dataset, NULL, fedge_dataset_size(dataset)};
    const fedge_examples examples = fedge_view_examples(&view);
    float x[8], t[8];
    int32_t label = -1;
    assert_int_equal(view.count, size);
    assert_int_equal(examples.targets.count, fedge_data_num_targets(spec));
    assert_int_equal(examples.read(examples.user, &index, 1, 0, x, &label, &err), FEDGE_OK);
    assert_int_equal(label, 0);
    examples.targets.read(examples.targets.user, &index, 1, t);
    for (uint32_t i = 0; i < 2; i++)
        assert_float_equal(x[i], values[i], 0);
    for (uint32_t i = 0; i < examples.targets.count; i++)
        assert_float_equal(t[i], targets[i], 1e-6f);
    fedge_dataset_free(dataset);
}

static void the_last_columns_are_targets(void **state)
{
    (void)state;
    fedge_data_spec spec = spec_of(2);
    save_text(VALUES, "1,2,0.5,-3\n4,5,1e2,7\n");
    expect(&spec, "", 2, 1, (float[]){4, 5}, (float[]){100, 7});
    float mean[] = {50, 3}, std[] = {10, 2};
    spec.targets.num_scales = 2;
    spec.targets.mean = mean;
    spec.targets.std = std;
    expect(&spec, "", 2, 1, (float[]){4, 5}, (float[]){5, 2});
    spec.targets.num_scales = 1;
    expect(&spec, "", 2, 1, (float[]){4, 5}, (float[]){5, -4.3f});
}

static void columns_are_found_by_name(void **state)
{
    (void)state;
    fedge_data_spec spec = spec_of(2);
    (void)snprintf(spec.targets.columns, sizeof(spec.targets.columns), "price\nload, net");
    save_text(VALUES, "\"load, net\",a,price , b\n1,2,3,4\n5,6,7,8\n");
    expect(&spec, "", 2, 1, (float[]){6, 8}, (float[]){7, 5});
    save_text(VALUES, "load,a,price,b\n1,2,3,4\n");
    expect_refused(&spec, VALUES, "", FEDGE_NOT_FOUND,
                   "the header names no column \"load, net\", which is a target of the job");
    (void)snprintf(spec.targets.columns, sizeof(spec.targets.columns), "load\nload");
    expect_refused(&spec, VALUES, "", FEDGE_DUPLICATE, "name column \"load\" twice");
    (void)snprintf(spec.targets.columns, sizeof(spec.targets.columns), "load\nb");
    save_text(VALUES, "load,a,price,b\nx,2,3,4\n");
    expect_refused(&spec, VALUES, "", FEDGE_CORRUPT, ":2: column 1: \"x\" is not a number");
    save_text(VALUES, "load,a,price,b\n1,2,y,4\n");
    expect_refused(&spec, VALUES, "", FEDGE_CORRUPT, ":2: column 3: \"y\" is not a number");
    save_text(VALUES, "load,a,b\n1,2,3\n");
    expect_refused(&spec, VALUES, "", FEDGE_CORRUPT,
                   "3 comma-separated fields, but there should be 4: 2 values and 2 targets");
    save_text(VALUES, "1,2,3,4\n");
    expect_refused(&spec, VALUES, "", FEDGE_CORRUPT, "where a header must name the columns");
}

static void targets_may_be_in_a_file_of_their_own(void **state)
{
    (void)state;
    const fedge_data_spec spec = spec_of(3);
    save_text(VALUES, "1,2\n3,4\n");
    save_text(TARGETS, "1,2,3\n4,5,6\n");
    expect(&spec, TARGETS, 2, 1, (float[]){3, 4}, (float[]){4, 5, 6});
    add_npy_header(&file, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }");
    add_bytes(&file, (const double[]){1, 2, 3, 4.5, -5, 6}, 6 * sizeof(double));
    save_file(TARGETS, &file, 0);
    expect(&spec, TARGETS, 2, 1, (float[]){3, 4}, (float[]){4.5f, -5, 6});
    add_npy_header(&file, 1, "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1, 3), }");
    add_bytes(&file, (const int32_t[]){1, 2, 3, 4, -5, 6}, 6 * sizeof(int32_t));
    save_file(TARGETS, &file, 0);
    expect(&spec, TARGETS, 2, 1, (float[]){3, 4}, (float[]){4, -5, 6});
    add_idx_header(&file, 0x08, 2, (const uint32_t[]){2, 3});
    add_bytes(&file, (const uint8_t[]){1, 2, 3, 4, 5, 255}, 6);
    save_gz(TARGETS, &file, 0);
    expect(&spec, TARGETS, 2, 1, (float[]){3, 4}, (float[]){4, 5, 255});
}

static void bad_targets_are_refused(void **state)
{
    (void)state;
    fedge_data_spec spec = spec_of(2);
    save_text(VALUES, "1,2\n3,4\n");
    save_text(TARGETS, "1,2\n3,nan\n");
    expect_refused(&spec, VALUES, TARGETS, FEDGE_NOT_FINITE, "column 2: \"nan\" is not a finite");
    add_npy_header(&file, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }");
    add_bytes(&file, (const float[]){1, 2, 3, INFINITY}, 4 * sizeof(float));
    save_file(TARGETS, &file, 0);
    expect_refused(&spec, VALUES, TARGETS, FEDGE_NOT_FINITE,
                   "target 1 of example 1 is not a finite float");
    save_file(TARGETS, &file, 0);
    add_npy_header(&file, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
    add_bytes(&file, (const float[6]){0}, 6 * sizeof(float));
    save_file(TARGETS, &file, 0);
    expect_refused(&spec, VALUES, TARGETS, FEDGE_MISMATCH,
                   "3 targets for each example, but the job has 2");
    save_text(TARGETS, "1,2\n");
    expect_refused(&spec, VALUES, TARGETS, FEDGE_MISMATCH, "more rows than the 1");
    spec.targets.is_fraction = true;
    save_text(TARGETS, "0,1\n0.5,1.5\n");
    expect_refused(&spec, VALUES, TARGETS, FEDGE_OUT_OF_RANGE,
                   "target 1 of example 1 is 1.5; the job's loss has targets from 0 to 1");
    spec.max_bytes = 8;
    expect_refused(&spec, VALUES, TARGETS, FEDGE_NO_MEMORY, "are over the limit of 8 bytes");
}

/* Where classes are learned, numbers are refused with what to do. */
static void numbers_are_no_labels(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    save_text(VALUES, "1,2,0.43485\n");
    expect_refused(&spec, VALUES, "", FEDGE_CORRUPT,
                   "\"0.43485\" is not an integer label; to learn numbers give the job "
                   "data.targets");
    save_text(VALUES, "1,2\n");
    add_npy_header(&file, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }");
    add_bytes(&file, (const float[]){1}, sizeof(float));
    save_file(TARGETS, &file, 0);
    expect_refused(&spec, VALUES, TARGETS, FEDGE_MISMATCH,
                   "integers are needed; to learn numbers give the job data.targets");
}

static void inputs_are_targets(void **state)
{
    (void)state;
    fedge_data_spec spec = toy_spec(FEDGE_U8, 1, 2, 0, 0);
    fedge_dataset *dataset = NULL;
    fedge_error err = {0};
    spec.num_labels = 0;
    spec.targets.kind = FEDGE_TARGETS_INPUT;
    save_text(VALUES, "1,2\n3,4\n5,9\n");
    assert_int_equal(fedge_dataset_load(&spec, VALUES, "no-such-file", &dataset, &err), FEDGE_OK);
    const fedge_view view = {dataset, NULL, fedge_dataset_size(dataset)};
    const fedge_examples examples = fedge_view_examples(&view);
    assert_int_equal(view.count, 3);
    assert_int_equal(examples.targets.count, 2);
    assert_null(examples.targets.read);
    double variation = 0;
    assert_int_equal(fedge_view_variation(&view, &variation, &err), FEDGE_OK);
    assert_float_equal((float)variation, 8 + 26, 1e-4f); /* of 1, 3, 5 and of 2, 4, 9 */
    fedge_dataset_free(dataset);
    add_npy_header(&file, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2), }");
    add_bytes(&file, (const uint8_t[6]){0}, 6);
    save_file(VALUES, &file, 0);
    assert_int_equal(fedge_dataset_load(&spec, VALUES, "", &dataset, &err), FEDGE_OK);
    assert_int_equal(fedge_dataset_size(dataset), 3);
    fedge_dataset_free(dataset);
}

/* Partitions by label divide by tenths of the first target; the parts keep their targets. */
static void targets_are_divided_by_rank(void **state)
{
    (void)state;
    fedge_data_spec spec = spec_of(1);
    fedge_partition_spec partition;
    fedge_error err = {0};
    char text[4096] = "";
    for (int i = 0; i < 100; i++) {
        const int t = i * 37 % 100; /* every number once */
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%d,%d,%d\n", t, i, t);
    }
    save_text(VALUES, text);
    assert_int_equal(fedge_partition_parse("labels:2", &partition, &err), FEDGE_OK);
    for (uint32_t part = 0; part < 10; part++) {
        fedge_dataset *dataset = NULL;
        if (fedge_dataset_load_part(&spec, VALUES, "", &partition, part, 10, &dataset, &err) !=
            FEDGE_OK)
            fail_msg("%s", err.message);
        const fedge_view view = {dataset, NULL, fedge_dataset_size(dataset)};
        const fedge_examples examples = fedge_view_examples(&view);
        bool tenths[10] = {false};
        int count = 0;
        for (uint32_t i = 0; i < view.count; i++) {
            float x[2], t = -1;
            int32_t label = -1;
            assert_int_equal(examples.read(examples.user, &i, 1, 0, x, &label, &err), FEDGE_OK);
            examples.targets.read(examples.targets.user, &i, 1, &t);
            assert_true(t == x[0]);
            assert_int_equal(label, (int)t / 10);
            count += !tenths[label];
            tenths[label] = true;
        }
        assert_int_equal(count, 2);
        fedge_dataset_free(dataset);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_columns_are_targets),
        cmocka_unit_test(columns_are_found_by_name),
        cmocka_unit_test(targets_may_be_in_a_file_of_their_own),
        cmocka_unit_test(bad_targets_are_refused),
        cmocka_unit_test(numbers_are_no_labels),
        cmocka_unit_test(inputs_are_targets),
        cmocka_unit_test(targets_are_divided_by_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

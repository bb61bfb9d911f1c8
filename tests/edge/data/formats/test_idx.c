/* idx files, plain and gzip: what is read, and what is refused and how the message puts it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/edge/data/data_files.h"

#define IMAGES "test_idx.images"
#define LABELS "test_idx.labels"
#define U8 0x08
#define F32 0x0D

static bytes file;

/* 3 images of 2 × 2 with the values 0, 1, 2, …; labels 7, 8, 9. */
static void make_images(uint32_t count)
{
    add_idx_header(&file, U8, 3, (const uint32_t[]){count, 2, 2});
    for (uint8_t i = 0; i < 12; i++)
        add_bytes(&file, &i, 1);
}

static void make_labels(uint32_t count)
{
    add_idx_header(&file, U8, 1, &count);
    add_bytes(&file, (const uint8_t[]){7, 8, 9}, 3);
}

static int set_up(void **state)
{
    (void)state;
    make_images(3);
    save_file(IMAGES, &file, 0);
    make_labels(3);
    save_file(LABELS, &file, 0);
    return 0;
}

static void test_reads_bytes(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 1, 2, 2);
    float x[4];
    assert_int_equal(load_and_read(&spec, IMAGES, LABELS, 3, 2, x), 9);
    for (int i = 0; i < 4; i++)
        assert_true(x[i] == (float)(8 + i));
}

static void test_reads_gzip(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 2, 2, 2, 0);
    float x[4];
    make_images(3);
    save_gz(IMAGES, &file, 0);
    make_labels(3);
    save_gz(LABELS, &file, 0);
    assert_int_equal(load_and_read(&spec, IMAGES, LABELS, 3, 1, x), 8);
    assert_true(x[3] == 7.0f);
}

static void test_reads_big_endian_floats(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    add_idx_header(&file, F32, 2, (const uint32_t[]){3, 2});
    for (int i = 0; i < 5; i++)
        add_be32(&file, 0x3F800000); /* 1 */
    add_be32(&file, 0xC0490FDB);     /* −π */
    save_file(IMAGES, &file, 0);
    float x[2];
    assert_int_equal(load_and_read(&spec, IMAGES, LABELS, 3, 2, x), 9);
    assert_true(x[0] == 1.0f);
    assert_true(x[1] == -3.14159274f);

    file.size -= 4;
    add_be32(&file, 0x7FC00000); /* NaN */
    save_file(IMAGES, &file, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_NOT_FINITE, "value 1 of example 2");
}

static void test_flat_and_squeezed_shapes_fit(void **state)
{
    (void)state;
    float x[4];
    fedge_data_spec spec = toy_spec(FEDGE_U8, 1, 4, 0, 0);
    assert_int_equal(load_and_read(&spec, IMAGES, LABELS, 3, 0, x), 7);
    spec = toy_spec(FEDGE_U8, 3, 2, 1, 2);
    assert_int_equal(load_and_read(&spec, IMAGES, LABELS, 3, 0, x), 7);
    spec = toy_spec(FEDGE_U8, 2, 1, 4, 0);
    assert_int_equal(load_and_read(&spec, IMAGES, LABELS, 3, 0, x), 7);
    spec = toy_spec(FEDGE_U8, 2, 4, 2, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_MISMATCH, "shape [2, 2]");
    spec = toy_spec(FEDGE_U8, 1, 3, 0, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_MISMATCH, "shape [3]");
}

static void test_truncated_files_name_both_counts(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 1, 2, 2);
    make_images(3);
    save_file(IMAGES, &file, 1);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_TRUNCATED, "12 bytes of values");
    save_file(IMAGES, &file, file.size - 6); /* within the dimensions */
    expect_refused(&spec, IMAGES, LABELS, FEDGE_TRUNCATED, "2 of 4 bytes");
    save_file(IMAGES, &file, file.size - 3); /* within the magic */
    expect_refused(&spec, IMAGES, LABELS, FEDGE_TRUNCATED, "3 of 4 bytes");
    save_file(IMAGES, &file, file.size);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_TRUNCATED, "the file is empty");
    make_labels(3);
    save_file(LABELS, &file, 1);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_TRUNCATED, LABELS);
}

static void test_truncated_gzip_is_found_even_in_its_trailer(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 1, 2, 2);
    for (size_t cut = 1; cut <= 20; cut++) {
        make_images(3);
        save_gz(IMAGES, &file, cut);
        expect_refused(&spec, IMAGES, LABELS, FEDGE_TRUNCATED, IMAGES);
    }
}

static void test_broken_gzip(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 1, 2, 2);
    make_images(3);
    save_gz(IMAGES, &file, 0);
    FILE *f = fopen(IMAGES, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -6, SEEK_END), 0); /* in the CRC */
    const int c = fgetc(f);
    assert_int_equal(fseek(f, -6, SEEK_END), 0);
    assert_true(fputc(c ^ 1, f) != EOF);
    assert_int_equal(fclose(f), 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_CORRUPT, "gzip");
}

static void test_wrong_sizes(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 1, 2, 2);
    make_images(2); /* and 4 bytes too many */
    save_file(IMAGES, &file, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_MISMATCH, "2 examples, but 3 labels");
    make_images(3);
    add_text(&file, "x");
    save_file(IMAGES, &file, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_MISMATCH, "goes on behind byte 28");
    make_images(3);
    save_file(IMAGES, &file, 0);
    make_labels(2);
    save_file(LABELS, &file, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_MISMATCH, "goes on behind byte 10");
    make_labels(0);
    save_file(LABELS, &file, 3);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_TRUNCATED, "no examples");
}

static void test_promises_are_checked_before_memory_is_taken(void **state)
{
    (void)state;
    fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 1, 2, 2);
    make_labels(UINT32_MAX);
    save_file(LABELS, &file, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_TOO_BIG, "4294967295 examples");
    make_labels(FEDGE_DATASET_MAX_EXAMPLES);
    save_file(LABELS, &file, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_TRUNCATED, "promises 268435456 bytes");
    save_gz(LABELS, &file, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_TRUNCATED, "promises 268435456 bytes");

    make_labels(3);
    save_file(LABELS, &file, 0);
    spec = toy_spec(FEDGE_U8, 2, 8192, 8192, 0);
    add_idx_header(&file, U8, 3, (const uint32_t[]){3, 8192, 8192});
    save_file(IMAGES, &file, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_TRUNCATED,
                   "promises 201326592 bytes of values, but the file has only 0 behind it");
}

static void test_wrong_headers(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 1, 2, 2);
    const uint32_t dims[256] = {3, 2, 2};
    add_idx_header(&file, 0x0B, 3, dims);
    save_file(IMAGES, &file, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_UNSUPPORTED, "type 0x0b");
    add_idx_header(&file, U8, 0, dims);
    save_file(IMAGES, &file, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_CORRUPT, "0 dimensions");
    add_idx_header(&file, U8, 255, dims);
    save_file(IMAGES, &file, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_CORRUPT, "255 dimensions");
    add_idx_header(&file, F32, 3, dims);
    save_file(IMAGES, &file, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_MISMATCH, "values of type F32");
    make_images(3);
    save_file(LABELS, &file, 0); /* images where labels should be */
    expect_refused(&spec, IMAGES, LABELS, FEDGE_MISMATCH, "labels with 3 dimensions");
    add_idx_header(&file, F32, 1, dims);
    save_file(LABELS, &file, 0);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_MISMATCH, "integers are needed");
}

static void test_label_out_of_range(void **state)
{
    (void)state;
    fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 1, 2, 2);
    spec.num_labels = 9;
    expect_refused(&spec, IMAGES, LABELS, FEDGE_OUT_OF_RANGE,
                   "label of example 2 is 9; the job has labels 0 to 8");
}

static void test_what_is_not_a_file(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 1, 2, 2);
    expect_refused(&spec, "test_idx.nowhere", LABELS, FEDGE_NOT_FOUND, "test_idx.nowhere");
    expect_refused(&spec, IMAGES, "test_idx.nowhere", FEDGE_NOT_FOUND, "test_idx.nowhere");
    expect_refused(&spec, IMAGES, "/dev/fd/no*", FEDGE_NOT_FOUND, "/dev/fd/no*");
    expect_refused(&spec, IMAGES, "", FEDGE_INVALID_ARGUMENT, "without labels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_reads_bytes, set_up),
        cmocka_unit_test_setup(test_reads_gzip, set_up),
        cmocka_unit_test_setup(test_reads_big_endian_floats, set_up),
        cmocka_unit_test_setup(test_flat_and_squeezed_shapes_fit, set_up),
        cmocka_unit_test_setup(test_truncated_files_name_both_counts, set_up),
        cmocka_unit_test_setup(test_truncated_gzip_is_found_even_in_its_trailer, set_up),
        cmocka_unit_test_setup(test_broken_gzip, set_up),
        cmocka_unit_test_setup(test_wrong_sizes, set_up),
        cmocka_unit_test_setup(test_promises_are_checked_before_memory_is_taken, set_up),
        cmocka_unit_test_setup(test_wrong_headers, set_up),
        cmocka_unit_test_setup(test_label_out_of_range, set_up),
        cmocka_unit_test_setup(test_what_is_not_a_file, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

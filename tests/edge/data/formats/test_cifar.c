/* CIFAR's binary files: what is read, how they are told from others, and what is refused. */
#define _GNU_SOURCE /* truncate */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/edge/data/data_files.h"

#define BATCH "test_cifar.bin"
#define LABELS "test_cifar.labels"
#define PIXELS 3072u

static bytes file;
static float x[PIXELS];

static uint8_t pixel(uint32_t record, uint32_t i)
{
    return (uint8_t)(record * 50 + i / 1024 * 7 + i % 1024 / 32 * 3 + i % 32);
}

/* Records whose labels begin with [first] and go up by one. [fine]: CIFAR-100's. */
static void make(uint32_t count, uint8_t first, bool fine)
{
    file.size = 0;
    for (uint32_t r = 0; r < count; r++) {
        add_bytes(&file, &(uint8_t){(uint8_t)(first + r)}, 1);
        if (fine)
            add_bytes(&file, &(uint8_t){(uint8_t)(90 + r)}, 1);
        for (uint32_t i = 0; i < PIXELS; i++)
            add_bytes(&file, &(uint8_t){pixel(r, i)}, 1);
    }
}

static void expect_record(const fedge_data_spec *spec, uint32_t count, uint32_t record,
                          int32_t label)
{
    assert_int_equal(load_and_read(spec, BATCH, "", count, record, x), label);
    for (uint32_t i = 0; i < PIXELS; i++)
        assert_true(x[i] == (float)pixel(record, i));
}

static fedge_data_spec image(uint32_t num_labels)
{
    fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 3, 32, 32);
    spec.num_labels = num_labels;
    return spec;
}

static void test_reads_records(void **state)
{
    (void)state;
    const fedge_data_spec spec = image(10), flat = toy_spec(FEDGE_U8, 1, PIXELS, 0, 0);
    for (uint8_t first = 0; first <= 7; first++) { /* 9 is a tab, 0 then 0 may begin idx */
        make(3, first, false);
        save_file(BATCH, &file, 0);
        for (uint32_t r = 0; r < 3; r++)
            expect_record(&spec, 3, r, (int32_t)(first + r));
        expect_record(&flat, 3, 1, (int32_t)first + 1);
    }
    make(1, 9, false);
    save_gz(BATCH, &file, 0);
    expect_record(&spec, 1, 0, 9);
}

static void test_reads_both_labels_of_100(void **state)
{
    (void)state;
    make(4, 16, true);
    save_file(BATCH, &file, 0);
    const fedge_data_spec coarse = image(20), fine = image(100);
    expect_record(&coarse, 4, 3, 19);
    expect_record(&fine, 4, 3, 93);
    save_gz(BATCH, &file, 0);
    expect_record(&fine, 4, 2, 92);
    make(4, 16, false); /* data in the form of CIFAR-10 that has so many labels */
    save_file(BATCH, &file, 0);
    expect_record(&coarse, 4, 1, 17);
}

/* 20 images in idx are as many bytes as 20 records. */
static void test_idx_of_the_same_size_is_idx(void **state)
{
    (void)state;
    const fedge_data_spec spec = image(10);
    add_idx_header(&file, 0x08, 4, (const uint32_t[]){20, 3, 32, 32});
    for (uint32_t i = 0; i < 20 * PIXELS; i++)
        add_bytes(&file, &(uint8_t){pixel(i / PIXELS, i % PIXELS)}, 1);
    assert_int_equal(file.size, 20 * (PIXELS + 1));
    save_file(BATCH, &file, 0);
    add_idx_header(&file, 0x08, 1, (const uint32_t[]){20});
    for (uint32_t i = 0; i < 20; i++)
        add_bytes(&file, &(uint8_t){(uint8_t)(i % 10)}, 1);
    save_file(LABELS, &file, 0);
    assert_int_equal(load_and_read(&spec, BATCH, LABELS, 20, 13, x), 3);
    for (uint32_t i = 0; i < PIXELS; i++)
        assert_true(x[i] == (float)pixel(13, i));
    make(20, 0, false); /* and this is not idx, though it begins with two zeros */
    for (uint32_t r = 0; r < 20; r++)
        file.data[r * (PIXELS + 1)] = (uint8_t)(r % 10);
    memcpy(file.data + 1, (const uint8_t[]){0, 8, 4, 0, 0, 0, 20, 0, 0, 0, 4}, 11);
    save_file(BATCH, &file, 0);
    assert_int_equal(load_and_read(&spec, BATCH, "", 20, 13, x), 3);
}

/* So are 3093 in 3092 records and some: a number that takes two bytes of the header. */
static void test_many_images_of_idx_are_idx(void **state)
{
    (void)state;
    enum { COUNT = PIXELS + 1 + 20 };
    const fedge_data_spec spec = image(10);
    add_idx_header(&file, 0x08, 4, (const uint32_t[]){COUNT, 3, 32, 32});
    const off_t size = (off_t)file.size + COUNT * (off_t)PIXELS;
    assert_int_equal((uint64_t)size % (PIXELS + 1), 0);
    save_file(BATCH, &file, 0);
    assert_int_equal(truncate(BATCH, size), 0); /* black */
    add_idx_header(&file, 0x08, 1, (const uint32_t[]){COUNT});
    for (uint32_t i = 0; i < COUNT; i++)
        add_bytes(&file, &(uint8_t){(uint8_t)(i % 10)}, 1);
    save_file(LABELS, &file, 0);
    assert_int_equal(load_and_read(&spec, BATCH, LABELS, COUNT, COUNT - 1, x), 2);
}

static void test_csv_is_csv(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 1, PIXELS, 0, 0);
    for (int begin = 0; begin < 2; begin++) {
        file.size = 0;
        add_text(&file, begin ? "\n" : "");
        for (uint32_t i = 0; i < PIXELS; i++)
            add_text(&file, "17,");
        add_text(&file, "4 \n"); /* not a whole number of records */
        save_file(BATCH, &file, 0);
        assert_int_equal(load_and_read(&spec, BATCH, "", 1, 0, x), 4);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    const fedge_data_spec spec = image(10), hundred = image(100), nine = image(9);
    make(3, 1, false);
    save_file(BATCH, &file, 1);
    expect_refused(&spec, BATCH, "", FEDGE_TRUNCATED,
                   "test_cifar.bin: 9218 bytes are 2 records of 3073 bytes (CIFAR-10's) and 3072 "
                   "more");
    expect_refused(&hundred, BATCH, "", FEDGE_TRUNCATED, "3074 bytes (CIFAR-100's) and 3070 more");
    save_gz(BATCH, &file, 9);
    expect_refused(&spec, BATCH, "", FEDGE_TRUNCATED, "the gzip stream is cut off");
    save_file(BATCH, &file, 0);
    expect_refused(&spec, BATCH, LABELS, FEDGE_INVALID_ARGUMENT,
                   "a file with labels of its own; leave \"labels\" out");
    fedge_data_spec other = toy_spec(FEDGE_U8, 3, 3, 28, 28);
    expect_refused(&other, BATCH, "", FEDGE_MISMATCH,
                   "examples of shape [3, 32, 32], but the job has data of shape [3, 28, 28]");
    other = image(10);
    other.dtype = FEDGE_F32;
    expect_refused(&other, BATCH, "", FEDGE_MISMATCH,
                   "values of type U8, but the job has data of F32");
    make(3, 7, false);
    save_file(BATCH, &file, 0);
    expect_refused(&nine, BATCH, "", FEDGE_OUT_OF_RANGE,
                   "the label of example 2 is 9; the job has labels 0 to 8");
    make(2, 3, true);
    save_file(BATCH, &file, 0);
    expect_refused(&spec, BATCH, "", FEDGE_TRUNCATED,
                   "for CIFAR-100 give the job's data 20 or 100 labels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_records),
        cmocka_unit_test(test_reads_both_labels_of_100),
        cmocka_unit_test(test_idx_of_the_same_size_is_idx),
        cmocka_unit_test(test_many_images_of_idx_are_idx),
        cmocka_unit_test(test_csv_is_csv),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Data sets: normalisation, parts, views and splits; the real Fashion-MNIST where it is installed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/edge/data/data_files.h"

#define IMAGES "test_dataset.images"
#define LABELS "test_dataset.labels"
#define COUNT 200u
#define FASHION "/usr/share/datasets/fashion-mnist/"

static bytes file;

static uint8_t pixel(uint32_t example, uint32_t i)
{
    return (uint8_t)(example * 31 + i * 7);
}

/* 200 images of 2 channels × 3 × 2, labels 0 to 9 in turn. */
static int set_up(void **state)
{
    (void)state;
    add_idx_header(&file, 0x08, 4, (const uint32_t[]){COUNT, 2, 3, 2});
    for (uint32_t e = 0; e < COUNT; e++) {
        for (uint32_t i = 0; i < 12; i++)
            add_bytes(&file, &(uint8_t){pixel(e, i)}, 1);
    }
    save_gz(IMAGES, &file, 0);
    add_idx_header(&file, 0x08, 1, (const uint32_t[]){COUNT});
    for (uint32_t e = 0; e < COUNT; e++)
        add_bytes(&file, &(uint8_t){(uint8_t)(e % 10)}, 1);
    save_file(LABELS, &file, 0);
    return 0;
}

static fedge_dataset *load(const fedge_data_spec *spec)
{
    fedge_error err = {.status = FEDGE_OK};
    fedge_dataset *dataset = NULL;
    if (fedge_dataset_load(spec, IMAGES, LABELS, &dataset, &err))
        fail_msg("%s", err.message);
    return dataset;
}

static bool is_known_finite(const fedge_data_spec *spec)
{
    fedge_dataset *dataset = load(spec);
    const fedge_view view = {dataset, NULL, 1};
    const bool finite = fedge_view_examples(&view).finite;
    fedge_dataset_free(dataset);
    return finite;
}

static void test_normalises_bytes_per_channel(void **state)
{
    (void)state;
    fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 2, 3, 2);
    spec.divide_by = 255;
    spec.mean = (float[]){0.25f, 0.75f};
    spec.std = (float[]){0.5f, 2};
    for (uint32_t channels = 0; channels <= 2; channels++) {
        spec.num_channels = channels;
        float x[12];
        assert_int_equal(load_and_read(&spec, IMAGES, LABELS, COUNT, 13, x), 3);
        for (uint32_t i = 0; i < 12; i++) {
            const uint32_t c = channels == 2 ? i / 6 : 0;
            const float v = (float)pixel(13, i) / 255.0f;
            assert_true(x[i] == (channels ? (v - spec.mean[c]) / spec.std[c] : v));
        }
    }
}

static void test_normalises_floats(void **state)
{
    (void)state;
    static const uint32_t BITS[4] = {0x3F800000, 0x40000000, 0x40400000, 0xC0800000}; /* 1 2 3 −4 */
    add_idx_header(&file, 0x0D, 3, (const uint32_t[]){1, 2, 2});
    for (int i = 0; i < 4; i++)
        add_be32(&file, BITS[i]);
    save_file(IMAGES, &file, 0);
    add_idx_header(&file, 0x08, 1, (const uint32_t[]){1});
    add_bytes(&file, &(uint8_t){5}, 1);
    save_file(LABELS, &file, 0);
    fedge_data_spec spec = toy_spec(FEDGE_F32, 2, 2, 2, 0);
    spec.divide_by = 2;
    spec.num_channels = 2;
    spec.mean = (float[]){0.5f, 0};
    spec.std = (float[]){1, 4};
    float x[4];
    assert_int_equal(load_and_read(&spec, IMAGES, LABELS, 1, 0, x), 5);
    assert_true(x[0] == 0.0f && x[1] == 0.5f && x[2] == 0.375f && x[3] == -0.5f);
    assert_false(is_known_finite(&spec));
}

/* So many that bytes have no tables: the same numbers, one by one. */
static void test_normalises_each_feature(void **state)
{
    (void)state;
    enum { FEATURES = 300 };
    static float mean[FEATURES], std[FEATURES], x[FEATURES];
    static uint8_t stored[2 * FEATURES];
    for (uint32_t i = 0; i < 2 * FEATURES; i++)
        stored[i] = (uint8_t)(i * 37 + 11);
    for (uint32_t i = 0; i < FEATURES; i++) {
        mean[i] = 0.001f * (float)i;
        std[i] = 1.0f + 0.5f * (float)i;
    }
    for (int floats = 0; floats < 2; floats++) {
        add_idx_header(&file, floats ? 0x0D : 0x08, 2, (const uint32_t[]){2, FEATURES});
        for (uint32_t i = 0; i < 2 * FEATURES; i++) {
            const float v = (float)stored[i];
            uint32_t bits;
            memcpy(&bits, &v, sizeof(bits));
            if (floats)
                add_be32(&file, bits);
            else
                add_bytes(&file, &stored[i], 1);
        }
        save_file(IMAGES, &file, 0);
        add_idx_header(&file, 0x08, 1, (const uint32_t[]){2});
        add_bytes(&file, (const uint8_t[]){1, 2}, 2);
        save_file(LABELS, &file, 0);
        fedge_data_spec spec = toy_spec(floats ? FEDGE_F32 : FEDGE_U8, 1, FEATURES, 0, 0);
        spec.divide_by = 3;
        spec.num_channels = FEATURES;
        spec.mean = mean;
        spec.std = std;
        assert_int_equal(load_and_read(&spec, IMAGES, LABELS, 2, 1, x), 2);
        for (uint32_t i = 0; i < FEATURES; i++)
            assert_true(x[i] == ((float)stored[FEATURES + i] / 3.0f - mean[i]) / std[i]);
        assert_int_equal(is_known_finite(&spec), !floats);
        std[FEATURES - 1] = 1e-38f; /* overflows */
        assert_false(is_known_finite(&spec));
        std[FEATURES - 1] = 1;
    }
}

static void test_bytes_are_finite_unless_normalised_away(void **state)
{
    (void)state;
    fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 2, 3, 2);
    assert_true(is_known_finite(&spec));
    spec.num_channels = 2;
    spec.mean = (float[]){0, 0};
    spec.std = (float[]){1, 1e-37f}; /* 255 / 1e-37 is over the largest float */
    assert_false(is_known_finite(&spec));
    spec.std[1] = 1e-36f;
    assert_true(is_known_finite(&spec));
}

static void test_read_refuses_an_index_beyond_the_view(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 2, 3, 2);
    fedge_dataset *dataset = load(&spec);
    const fedge_view view = {dataset, NULL, 20};
    const fedge_examples examples = fedge_view_examples(&view);
    fedge_error err = {.status = FEDGE_OK};
    float x[24];
    int32_t labels[2];
    assert_int_equal(examples.num_examples, 20);
    assert_int_equal(
        examples.read(examples.user, (const uint32_t[]){19, 0, 7}, 2, 1, x, labels, &err),
        FEDGE_OK);
    assert_int_equal(labels[0], 9);
    assert_int_equal(labels[1], 0);
    assert_true(x[12] == (float)pixel(0, 0));
    assert_int_equal(examples.read(examples.user, (const uint32_t[]){20, 0}, 2, 0, x, labels, &err),
                     FEDGE_OUT_OF_RANGE);
    assert_int_equal(examples.read(examples.user, (const uint32_t[]){0, 20}, 2, 0, x, labels, &err),
                     FEDGE_OUT_OF_RANGE);
    fedge_dataset_free(dataset);
}

/* Before memory is taken for them. */
static void test_more_than_the_limit_is_refused(void **state)
{
    (void)state;
    fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 2, 3, 2);
    fedge_error err = {.status = FEDGE_OK};
    fedge_dataset *dataset = NULL;
    spec.max_bytes = COUNT * (12 + 8) - 1;
    assert_int_equal(fedge_dataset_load(&spec, IMAGES, LABELS, &dataset, &err), FEDGE_NO_MEMORY);
    assert_non_null(strstr(err.message, "200 examples of 20 bytes are over the limit of 3999"));
    assert_null(dataset);
    spec.max_bytes = COUNT * 8 - 1;
    assert_int_equal(fedge_dataset_load(&spec, IMAGES, LABELS, &dataset, &err), FEDGE_NO_MEMORY);
    assert_non_null(
        strstr(err.message, "the labels of 200 examples, and whose they are, are over"));
    spec.max_bytes = COUNT * (12 + 8) - 1;
    spec.max_bytes++;
    fedge_dataset_free(load(&spec));
}

static void test_parts_are_the_partition(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 2, 3, 2);
    const fedge_partition_spec partition = {
        .scheme = FEDGE_PARTITION_DIRICHLET, .alpha = 0.5, .seed = 7};
    fedge_error err = {.status = FEDGE_OK};
    fedge_dataset *whole = load(&spec);
    uint32_t owner[COUNT];
    const fedge_partition_data data = {
        .num_examples = COUNT, .num_labels = 10, .labels = fedge_dataset_labels(whole)};
    assert_int_equal(fedge_partition_assign(&partition, &data, 4, owner, &err), FEDGE_OK);
    fedge_dataset_free(whole);
    uint32_t total = 0;
    for (uint32_t part = 0; part < 4; part++) {
        fedge_dataset *own = NULL;
        assert_int_equal(
            fedge_dataset_load_part(&spec, IMAGES, LABELS, &partition, part, 4, &own, &err),
            FEDGE_OK);
        const fedge_view view = {own, NULL, fedge_dataset_size(own)};
        const fedge_examples examples = fedge_view_examples(&view);
        uint32_t slot = 0;
        for (uint32_t e = 0; e < COUNT; e++) {
            float x[12];
            int32_t label;
            if (owner[e] != part)
                continue;
            assert_int_equal(examples.read(examples.user, &slot, 1, 0, x, &label, &err), FEDGE_OK);
            assert_int_equal(label, e % 10);
            assert_int_equal(fedge_dataset_labels(own)[slot], e % 10);
            for (uint32_t i = 0; i < 12; i++)
                assert_true(x[i] == (float)pixel(e, i));
            slot++;
        }
        assert_int_equal(slot, fedge_dataset_size(own));
        total += slot;
        fedge_dataset_free(own);
    }
    assert_int_equal(total, COUNT);
}

static void test_impossible_parts_are_refused(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 2, 3, 2);
    const fedge_partition_spec partition = {
        .scheme = FEDGE_PARTITION_DIRICHLET, .alpha = 0.5, .seed = 7};
    fedge_error err = {.status = FEDGE_OK};
    fedge_dataset *own = NULL;
    assert_int_equal(fedge_dataset_load_part(&spec, IMAGES, LABELS, &partition, 4, 4, &own, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "part 4 of 4"));
    assert_int_equal(fedge_dataset_load_part(&spec, IMAGES, LABELS, &partition, 0, 21, &own, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "at most 20 clients"));
    assert_null(own);
}

static void test_parts_of_csv_and_npy(void **state)
{
    (void)state;
    const fedge_partition_spec partition = {.scheme = FEDGE_PARTITION_IID, .seed = 1};
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 1, 0, 0);
    fedge_error err = {.status = FEDGE_OK};
    save_text(IMAGES, "value,label\n10,0\n11,1\n12,2\n13,3\n14,4\n15,5\n");
    for (int round = 0; round < 2; round++) {
        uint32_t seen = 0;
        for (uint32_t part = 0; part < 3; part++) {
            fedge_dataset *own = NULL;
            if (fedge_dataset_load_part(&spec, IMAGES, round ? LABELS : "", &partition, part, 3,
                                        &own, &err))
                fail_msg("%s", err.message);
            assert_int_equal(fedge_dataset_size(own), 2);
            const fedge_view view = {own, NULL, 2};
            const fedge_examples examples = fedge_view_examples(&view);
            float x[2];
            int32_t labels[2];
            assert_int_equal(
                examples.read(examples.user, (const uint32_t[]){0, 1}, 2, 0, x, labels, &err),
                FEDGE_OK);
            for (int i = 0; i < 2; i++) {
                assert_true(x[i] == (float)(10 + labels[i]));
                seen |= 1u << labels[i];
            }
            fedge_dataset_free(own);
        }
        assert_int_equal(seen, 0x3F);
        /* The same as npy, with labels as csv. */
        const float values[6] = {10, 11, 12, 13, 14, 15};
        add_npy_header(&file, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 1), }");
        add_bytes(&file, values, sizeof(values));
        save_file(IMAGES, &file, 0);
        save_text(LABELS, "0\n1\n2\n3\n4\n5\n");
    }
}

static void test_split_moves_a_share(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 2, 3, 2);
    fedge_dataset *dataset = load(&spec);
    fedge_error err = {.status = FEDGE_OK};
    uint32_t first[20];
    for (uint32_t run = 0; run < 3; run++) {
        uint8_t seen[COUNT] = {0};
        fedge_view view = {dataset, NULL, COUNT}, held, again;
        assert_int_equal(fedge_view_split(&view, 0.1, 5, run == 2 ? 1 : 0, &held, &err), FEDGE_OK);
        assert_int_equal(view.count, 180);
        assert_int_equal(held.count, 20);
        if (run == 0)
            memcpy(first, held.indices, sizeof(first));
        /* The same arguments hold out the same examples, another client others. */
        assert_int_equal(memcmp(first, held.indices, sizeof(first)) == 0, run != 2);
        for (uint32_t i = 0; i < view.count; i++)
            seen[view.indices[i]]++;
        for (uint32_t i = 0; i < held.count; i++)
            seen[held.indices[i]]++;
        for (uint32_t i = 0; i < COUNT; i++)
            assert_int_equal(seen[i], 1);
        /* A view can be split again. */
        assert_int_equal(fedge_view_split(&view, 0.5, 5, 0, &again, &err), FEDGE_OK);
        assert_int_equal(again.count, 90);
        for (uint32_t i = 0; i < again.count; i++) {
            for (uint32_t j = 0; j < held.count; j++)
                assert_int_not_equal(again.indices[i], held.indices[j]);
        }
        fedge_view_fini(&again);
        fedge_view_fini(&view);
        fedge_view_fini(&held);
    }
    fedge_dataset_free(dataset);
}

static void test_split_at_the_edges(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 2, 3, 2);
    fedge_dataset *dataset = load(&spec);
    fedge_error err = {.status = FEDGE_OK};
    fedge_view view = {dataset, NULL, 1}, held;
    assert_int_equal(fedge_view_split(&view, 0, 5, 0, &held, &err), FEDGE_OK);
    assert_int_equal(held.count, 0);
    assert_int_equal(fedge_view_split(&view, 0.9, 5, 0, &held, &err), FEDGE_OK);
    assert_int_equal(held.count, 0); /* something is always left to train on */
    assert_int_equal(view.count, 1);
    static const double BAD[] = {1, -0.1, NAN, INFINITY};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        assert_int_equal(fedge_view_split(&view, BAD[i], 5, 0, &held, &err),
                         FEDGE_INVALID_ARGUMENT);
    }
    fedge_view_fini(&held);
    fedge_view_fini(&view);
    fedge_dataset_free(dataset);
}

static void test_impossible_specs_are_refused(void **state)
{
    (void)state;
    const fedge_data_spec good = toy_spec(FEDGE_U8, 3, 2, 3, 2);
    fedge_data_spec spec = good;
    spec.rank = 4;
    expect_refused(&spec, IMAGES, LABELS, FEDGE_INVALID_ARGUMENT, "4 dimensions");
    spec = good;
    spec.shape[1] = 0;
    expect_refused(&spec, IMAGES, LABELS, FEDGE_INVALID_ARGUMENT, "dimension 1 is 0");
    spec = toy_spec(FEDGE_U8, 3, UINT32_MAX, UINT32_MAX, UINT32_MAX);
    expect_refused(&spec, IMAGES, LABELS, FEDGE_TOO_BIG, "67108864 values");
    spec = good;
    spec.dtype = FEDGE_I64;
    expect_refused(&spec, IMAGES, LABELS, FEDGE_UNSUPPORTED, "U8 or F32");
    spec = good;
    spec.num_labels = 0;
    expect_refused(&spec, IMAGES, LABELS, FEDGE_INVALID_ARGUMENT, "0 labels");
    spec = good;
    spec.num_channels = 3;
    expect_refused(&spec, IMAGES, LABELS, FEDGE_INVALID_ARGUMENT, "3 channels");
    spec = good;
    spec.divide_by = 0;
    expect_refused(&spec, IMAGES, LABELS, FEDGE_INVALID_ARGUMENT, "divide-by");
    spec = good;
    spec.num_channels = 1;
    spec.mean = spec.std = (float[]){0};
    expect_refused(&spec, IMAGES, LABELS, FEDGE_INVALID_ARGUMENT, "std");
}

static void test_fashion_mnist(void **state)
{
    (void)state;
    const char *images = FASHION "t10k-images-idx3-ubyte.gz";
    const char *labels = FASHION "t10k-labels-idx1-ubyte.gz";
    fedge_data_spec spec = toy_spec(FEDGE_U8, 3, 1, 28, 28);
    spec.divide_by = 255;
    fedge_error err = {.status = FEDGE_OK};
    fedge_dataset *dataset = NULL;
    const fedge_status status = fedge_dataset_load(&spec, images, labels, &dataset, &err);
    if (status == FEDGE_NOT_FOUND)
        skip(); /* the package dataset-fashion-mnist is not installed */
    assert_int_equal(status, FEDGE_OK);
    assert_int_equal(fedge_dataset_size(dataset), 10000);
    uint32_t per_class[10] = {0};
    for (uint32_t i = 0; i < 10000; i++)
        per_class[fedge_dataset_labels(dataset)[i]]++;
    for (int k = 0; k < 10; k++)
        assert_int_equal(per_class[k], 1000);
    static float x[28 * 28];
    double sum = 0;
    int32_t label;
    const fedge_view view = {dataset, NULL, 10000};
    const fedge_examples examples = fedge_view_examples(&view);
    for (uint32_t i = 0; i < 10000; i++) {
        assert_int_equal(examples.read(examples.user, &i, 1, 0, x, &label, &err), FEDGE_OK);
        for (int p = 0; p < 28 * 28; p++)
            sum += (double)x[p];
    }
    /* The published mean of the test images is 0.2868. */
    assert_true(fabs(sum / (10000.0 * 28 * 28) - 0.2868) < 1e-4);
    fedge_dataset_free(dataset);
    expect_refused(&spec, images, FASHION "train-labels-idx1-ubyte.gz", FEDGE_MISMATCH,
                   "10000 examples, but 60000 labels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_normalises_bytes_per_channel, set_up),
        cmocka_unit_test(test_normalises_floats),
        cmocka_unit_test(test_normalises_each_feature),
        cmocka_unit_test_setup(test_bytes_are_finite_unless_normalised_away, set_up),
        cmocka_unit_test_setup(test_read_refuses_an_index_beyond_the_view, set_up),
        cmocka_unit_test_setup(test_more_than_the_limit_is_refused, set_up),
        cmocka_unit_test_setup(test_parts_are_the_partition, set_up),
        cmocka_unit_test_setup(test_impossible_parts_are_refused, set_up),
        cmocka_unit_test(test_parts_of_csv_and_npy),
        cmocka_unit_test_setup(test_split_moves_a_share, set_up),
        cmocka_unit_test_setup(test_split_at_the_edges, set_up),
        cmocka_unit_test_setup(test_impossible_specs_are_refused, set_up),
        cmocka_unit_test(test_fashion_mnist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "tests/edge/data/data_files.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <zlib.h>

void add_bytes(bytes *b, const void *data, size_t size)
{
    assert_true(size <= sizeof(b->data) - b->size);
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

void add_text(bytes *b, const char *text)
{
    add_bytes(b, text, strlen(text));
}

void set_text(bytes *b, const char *text)
{
    b->size = 0;
    add_text(b, text);
}

void add_be32(bytes *b, uint32_t value)
{
    const uint8_t raw[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                            (uint8_t)value};
    add_bytes(b, raw, sizeof(raw));
}

void add_idx_header(bytes *b, uint8_t type, uint32_t rank, const uint32_t *dims)
{
    const uint8_t magic[4] = {0, 0, type, (uint8_t)rank};
    b->size = 0;
    add_bytes(b, magic, sizeof(magic));
    for (uint32_t i = 0; i < rank; i++)
        add_be32(b, dims[i]);
}

void add_npy_header(bytes *b, uint8_t major, const char *dictionary)
{
    const size_t length = strlen(dictionary);
    const uint8_t head[] = {major,
                            0,
                            (uint8_t)length,
                            (uint8_t)(length >> 8),
                            (uint8_t)(length >> 16),
                            (uint8_t)(length >> 24)};
    set_text(b, "\x93NUMPY");
    add_bytes(b, head, major == 1 ? 4 : 6);
    add_text(b, dictionary);
}

void save_file(const char *path, const bytes *b, size_t cut)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b->data, 1, b->size - cut, file), b->size - cut);
    assert_int_equal(fclose(file), 0);
}

void save_gz(const char *path, const bytes *b, size_t cut)
{
    gzFile gz = gzopen(path, "wb");
    assert_non_null(gz);
    assert_int_equal(gzwrite(gz, b->data, (unsigned)b->size), (int)b->size);
    assert_int_equal(gzclose(gz), Z_OK);
    if (cut == 0)
        return;
    static bytes packed;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    packed.size = fread(packed.data, 1, sizeof(packed.data), file);
    assert_int_equal(fclose(file), 0);
    save_file(path, &packed, cut);
}

void save_text(const char *path, const char *text)
{
    static bytes file;
    set_text(&file, text);
    save_file(path, &file, 0);
}

fedge_data_spec toy_spec(fedge_dtype dtype, uint32_t rank, uint32_t d0, uint32_t d1, uint32_t d2)
{
    return (fedge_data_spec){.name = "toy",
                             .rank = rank,
                             .shape = {d0, d1, d2},
                             .dtype = dtype,
                             .num_labels = 10,
                             .divide_by = 1};
}

void expect_same_data(const fedge_data_spec *a, const fedge_data_spec *b)
{
    fedge_data_spec x = *a, y = *b;
    assert_memory_equal(a->mean, b->mean, a->num_channels * sizeof(*a->mean));
    assert_memory_equal(a->std, b->std, a->num_channels * sizeof(*a->std));
    x.mean = x.std = y.mean = y.std = NULL;
    assert_memory_equal(&x, &y, sizeof(x));
}

void expect_failure(fedge_status got, const fedge_error *err, fedge_status status, const char *part)
{
    if (got != status || !strstr(err->message, part)) {
        fail_msg("%s, not %s with \"%s\": %s", fedge_status_text(got), fedge_status_text(status),
                 part, err->message);
    }
}

void expect_refused(const fedge_data_spec *spec, const char *values, const char *labels,
                    fedge_status status, const char *part)
{
    fedge_error err = {.status = FEDGE_OK};
    fedge_dataset *dataset = NULL;
    const fedge_status got = fedge_dataset_load(spec, values, labels, &dataset, &err);
    assert_null(dataset);
    expect_failure(got, &err, status, part);
}

int32_t load_and_read(const fedge_data_spec *spec, const char *values, const char *labels,
                      uint32_t expected_size, uint32_t index, float *x)
{
    fedge_error err = {.status = FEDGE_OK};
    fedge_dataset *dataset = NULL;
    if (fedge_dataset_load(spec, values, labels, &dataset, &err))
        fail_msg("%s", err.message);
    assert_int_equal(fedge_dataset_size(dataset), expected_size);
    const fedge_view view = {dataset, NULL, expected_size};
    const fedge_examples examples = fedge_view_examples(&view);
    int32_t label = -1;
    assert_int_equal(examples.read(examples.user, &index, 1, 0, x, &label, &err), FEDGE_OK);
    fedge_dataset_free(dataset);
    return label;
}

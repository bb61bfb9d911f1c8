/* Small data files, good and bad, for the tests of data sets. Written to the working directory. */
#ifndef FEDGE_TESTS_EDGE_DATA_DATA_FILES_H
#define FEDGE_TESTS_EDGE_DATA_DATA_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "edge/data/dataset.h"

/* A file being built. */
typedef struct bytes {
    uint8_t data[1 << 17];
    size_t size;
} bytes;

void add_bytes(bytes *b, const void *data, size_t size);
void add_text(bytes *b, const char *text);
void add_be32(bytes *b, uint32_t value);
/* The text in place of what was there. */
void set_text(bytes *b, const char *text);

/* Two zero bytes, [type], the rank and the dimensions of an idx file. */
void add_idx_header(bytes *b, uint8_t type, uint32_t rank, const uint32_t *dims);
/* The npy header of version [major].0 with this dictionary text. */
void add_npy_header(bytes *b, uint8_t major, const char *dictionary);

/* Write the whole file; "gz" compressed. [cut]: bytes left off the end. */
void save_file(const char *path, const bytes *b, size_t cut);
void save_gz(const char *path, const bytes *b, size_t cut);
void save_text(const char *path, const char *text);

/* Data named "toy": [rank] dimensions, labels 0 to 9, divided by 1, no mean. */
fedge_data_spec toy_spec(fedge_dtype dtype, uint32_t rank, uint32_t d0, uint32_t d1, uint32_t d2);

/* Two that were read must say the same. */
void expect_same_data(const fedge_data_spec *a, const fedge_data_spec *b);

/* [got] must be [status], and the message of [err] contain [part]. */
void expect_failure(fedge_status got, const fedge_error *err, fedge_status status,
                    const char *part);
/* Loading must fail with [status] and a message that contains [part]. */
void expect_refused(const fedge_data_spec *spec, const char *values, const char *labels,
                    fedge_status status, const char *part);
/* Loading must work; the values of example [index] go to [x]; returns its label. */
int32_t load_and_read(const fedge_data_spec *spec, const char *values, const char *labels,
                      uint32_t expected_size, uint32_t index, float *x);

#endif
